"""Plan a GEMM: tile, split factor and reduction from shapes and device facts.

Pure arithmetic: no torch, no Triton, no GPU. The host API plans launches
with it, the site computes tile counts with it, and tests fake the device.
"""

import functools
from dataclasses import dataclass
from typing import Literal

Op = Literal["forward", "dx", "dw"]
Mode = Literal["overwrite", "accumulate"]
Reduction = Literal["none", "atomic", "workspace"]

# A warp's registers are handed out in units of 256, and warps in fours, one
# for each of an SM's partitions (NVIDIA's cuda_occupancy.h, capability 3.0
# and later).
REGISTER_UNIT = 256
WARP_UNIT = 4
# Shared memory is handed out in units of 128 bytes (the same, 8.0 and later).
SHARED_MEMORY_UNIT_BYTES = 128

# Splitting below this many T-blocks a program buys nothing: the pipeline has
# barely filled when the contraction ends.
MIN_BLOCKS_PER_SPLIT = 4
# What starting a program and adding its partial tile in costs, in T-blocks; and
# how long a program takes that has an SM to itself, of one that shares it. Both
# fit the split sweep recorded on an H200.
PROGRAM_OVERHEAD_BLOCKS = 12
LONE_PROGRAM_TIME = 0.65
MAX_SPLIT_T = 64


def cdiv(a: int, b: int) -> int:
    """⌈a/b⌉ for integers, b > 0."""
    return -(-a // b)


@dataclass(frozen=True)
class Device:
    """What planning needs to know of a GPU; see `kernels.device.facts`.

    capability: NVIDIA's compute capability, such as "9.0".
    """

    capability: str
    sm_count: int
    warp_size: int
    max_warps_per_sm: int
    max_programs_per_sm: int
    registers_per_sm: int
    registers_per_program: int
    shared_memory_per_sm_bytes: int
    shared_memory_per_program_bytes: int
    reserved_shared_memory_per_program_bytes: int


@dataclass(frozen=True)
class Tile:
    """Block sizes along T, K and N, and how one program is compiled."""

    block_t: int
    block_k: int
    block_n: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Plan:
    """One launch of `op`: its tile, grid and, for dW, its split over T."""

    op: Op
    tile: Tile
    tiles: int
    split_t: int
    reduction: Reduction

    @property
    def programs(self) -> int:
        return self.tiles * self.split_t


def output_axes(op: Op) -> tuple[int, int]:
    """Positions in (T, K, N) of the output's rows and columns."""
    return {"forward": (0, 2), "dx": (0, 1), "dw": (1, 2)}[op]


def contracted_axis(op: Op) -> int:
    """Position in (T, K, N) of the contracted dimension."""
    return {"forward": 1, "dx": 2, "dw": 0}[op]


def output_tiles(op: Op, shape: tuple[int, int, int], tile: Tile) -> int:
    """Tiles of the output of `op` at `shape` = (T, K, N)."""
    blocks = (tile.block_t, tile.block_k, tile.block_n)
    rows, columns = output_axes(op)
    return cdiv(shape[rows], blocks[rows]) * cdiv(shape[columns], blocks[columns])


def contracted_blocks(op: Op, shape: tuple[int, int, int], tile: Tile) -> int:
    """Blocks along the contracted dimension of `op` at `shape` = (T, K, N)."""
    blocks = (tile.block_t, tile.block_k, tile.block_n)
    axis = contracted_axis(op)
    return cdiv(shape[axis], blocks[axis])


def split_range(split: int, split_t: int, blocks: int) -> tuple[int, int]:
    """T-blocks [low, high) that `split` of `split_t` owns, as in dw_kernel."""
    return split * blocks // split_t, (split + 1) * blocks // split_t


def waves(programs: int, slots: int) -> float:
    """How often `programs` fill `slots` places; 2.1 means a third, near-empty wave."""
    return programs / slots


def resident_programs(
    registers_per_thread: int, shared_memory_bytes: int, num_warps: int, device: Device
) -> int:
    """Programs of one kernel that fit on one SM at once.

    The smallest of the limits by warps, programs, registers and shared memory,
    with the hardware's units of allocation, as in NVIDIA's cuda_occupancy.h.
    0 means that the kernel cannot launch.
    """
    by_warps = device.max_warps_per_sm // num_warps
    by_registers = device.max_programs_per_sm
    if registers_per_thread:
        per_warp = registers_per_thread * device.warp_size
        per_warp = cdiv(per_warp, REGISTER_UNIT) * REGISTER_UNIT
        warps = device.registers_per_program // per_warp // WARP_UNIT * WARP_UNIT
        files = device.registers_per_sm // device.registers_per_program
        by_registers = warps // num_warps * files
    if shared_memory_bytes > device.shared_memory_per_program_bytes:
        return 0
    shared = shared_memory_bytes + device.reserved_shared_memory_per_program_bytes
    shared = cdiv(shared, SHARED_MEMORY_UNIT_BYTES) * SHARED_MEMORY_UNIT_BYTES
    by_shared = device.max_programs_per_sm
    if shared:
        by_shared = device.shared_memory_per_sm_bytes // shared
    return min(by_warps, device.max_programs_per_sm, by_registers, by_shared)


def occupancy(resident: int, num_warps: int, device: Device) -> float:
    """Theoretical occupancy: resident warps over the most an SM can hold."""
    return resident * num_warps / device.max_warps_per_sm


def shared_memory_bytes(op: Op, tile: Tile, itemsize: int) -> int:
    """Shared memory of one program, in bytes.

    The operand tiles of all pipeline stages or, where it is more, the fp32
    accumulator, which passes through the same memory on its way to the output.
    """
    blocks = (tile.block_t, tile.block_k, tile.block_n)
    rows, columns = (blocks[axis] for axis in output_axes(op))
    stage = (rows + columns) * blocks[contracted_axis(op)] * itemsize
    return max(tile.num_stages * stage, 4 * rows * columns)


def choose_tile(op: Op, itemsize: int, device: Device) -> Tile:
    """The lesson's tile for inputs of `itemsize` bytes on `device`.

    128×128 outputs, 64 deep, for 16-bit inputs; 64×64, 32 deep, for fp32, whose
    exact products run on ordinary cores and need the registers. Where that does
    not fit the device's shared memory, fewer stages, then a smaller tile.
    ValueError if none fits.
    """
    largest, deep = (128, 64) if itemsize == 2 else (64, 32)
    # Hopper's tensor cores take operands from shared memory, which leaves the
    # registers to the accumulator. Elsewhere half the threads would spill.
    frugal = itemsize == 4 or device.capability.startswith("9.")
    num_warps = 4 if frugal else 8
    limit = device.shared_memory_per_program_bytes
    for edge in (largest, largest // 2):
        blocks = [edge, edge, edge]
        blocks[contracted_axis(op)] = deep
        for num_stages in (3, 2, 1):
            tile = Tile(*blocks, num_warps=num_warps, num_stages=num_stages)
            need = shared_memory_bytes(op, tile, itemsize)
            if need <= limit:
                return tile
    raise ValueError(
        f"the smallest {op} tile needs {need} bytes of shared memory a program, "
        f"the device offers {limit}"
    )


def expected_resident(op: Op, tile: Tile, itemsize: int, device: Device) -> int:
    """Resident programs expected before anything is compiled.

    Takes the accumulator's registers and 64 for everything else; a recording
    holds what the compiler really used.
    """
    blocks = (tile.block_t, tile.block_k, tile.block_n)
    rows, columns = output_axes(op)
    threads = tile.num_warps * device.warp_size
    registers = min(255, blocks[rows] * blocks[columns] // threads + 64)
    shared = shared_memory_bytes(op, tile, itemsize)
    return max(1, resident_programs(registers, shared, tile.num_warps, device))


def split_time(
    split_t: int, tiles: int, blocks: int, sm_count: int, resident: int
) -> float:
    """Time of a dW split over T, in a model of waves; the unit is one T-block.

    tiles: output tiles. blocks: T-blocks of the whole contraction. A split of s
    runs tiles·s programs in waves of sm_count·resident, each wave as long as one
    program: ⌈blocks/s⌉ blocks and a fixed overhead. A last wave that leaves every
    program an SM of its own is shorter.
    """
    full, rest = divmod(tiles * split_t, sm_count * resident)
    alone = resident > 1 and rest <= sm_count
    last = 0 if not rest else LONE_PROGRAM_TIME if alone else 1
    return (full + last) * (cdiv(blocks, split_t) + PROGRAM_OVERHEAD_BLOCKS)


def largest_split(blocks: int) -> int:
    """The largest split that is planned for a contraction of so many T-blocks."""
    return max(1, min(MAX_SPLIT_T, blocks // MIN_BLOCKS_PER_SPLIT))


def filling_split(tiles: int, places: int) -> int:
    """The smallest split whose programs fill so many places at once."""
    return max(1, cdiv(places, max(1, tiles)))


def split_factor(tiles: int, blocks: int, sm_count: int, resident: int) -> int:
    """The split over T that ends first, by `split_time`.

    The smallest of the shortest wins, so full grids are not split.
    """

    def time(split_t: int) -> float:
        return split_time(split_t, tiles, blocks, sm_count, resident)

    return min(range(1, largest_split(blocks) + 1), key=time)


# Launch paths ask for the same few plans again and again.
@functools.lru_cache(maxsize=1024)
def plan(
    op: Op,
    shape: tuple[int, int, int],
    itemsize: int,
    device: Device,
    *,
    tile: Tile | None = None,
    split_t: int | None = None,
    reduction: Reduction | None = None,
    deterministic: bool = False,
) -> Plan:
    """Plan `op` at `shape` = (T, K, N) for inputs of `itemsize` bytes.

    tile, split_t, reduction: taken as given where not None; only dW splits.
    deterministic: choose "workspace" over "atomic" for a split dW.
    """
    tile = tile or choose_tile(op, itemsize, device)
    tiles = output_tiles(op, shape, tile)
    if op != "dw":
        return Plan(op, tile, tiles, split_t=1, reduction="none")
    if split_t is None and reduction == "none":
        split_t = 1
    if split_t is None:
        blocks = contracted_blocks(op, shape, tile)
        resident = expected_resident(op, tile, itemsize, device)
        split_t = split_factor(tiles, blocks, device.sm_count, resident)
    if reduction is None:
        split = "workspace" if deterministic else "atomic"
        reduction = "none" if split_t == 1 else split
    return Plan(op, tile, tiles, split_t, reduction)
