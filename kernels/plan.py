"""Plan a GEMM: tile, split factor and reduction from shapes and device facts.

Pure arithmetic: no torch, no Triton, no GPU. The host API plans launches
with it, the site computes tile counts with it, and tests fake the device.
"""

import functools
from dataclasses import dataclass, replace
from typing import Literal

Op = Literal["forward", "dx", "dw"]
Mode = Literal["overwrite", "accumulate"]
Reduction = Literal["none", "atomic", "workspace"]
FastKernel = Literal[
    "grouped", "pitched", "descriptor", "persistent", "split", "stream_k"
]
# Those that take operands through pointers, as they lie.
BY_POINTERS = ("grouped", "pitched")
# Which operands are copied first: whether left is, and right.
Copied = Literal["neither", "left", "right", "both"]
COPIED: dict[Copied, tuple[bool, bool]] = {
    "neither": (False, False),
    "left": (True, False),
    "right": (False, True),
    "both": (True, True),
}
# The ladder from the lesson's kernels to the fastest, see `rung_plan`.
RUNGS = ("grouped", "tiles", "descriptor", "persistent", "split", "stream_k")

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


# The fast kernels, kernels/fast/, and their plan. The times are fitted to runs of a
# few shapes on one H200; on another GPU only their ratios count. A number that the
# runs bound from one side alone, as the full_time of the smallest tiles, is set by
# that bound and its neighbours.

# Rows of tiles that are worked on together, for L2's sake.
GROUP = 8
# Microseconds of any launch, on the GPU, and of what a second one adds.
LAUNCH_TIME = 5.0
SECOND_LAUNCH_TIME = 0.82
# Of a launch that clears the gradient, while the next one multiplies already.
CLEARING_TIME = 2.1
# Of each share of a tile, as one program reads them one after another.
SHARE_TIME = 0.113
# How long programs take that share an SM, of their full_time, while the power limit
# does not set the clock yet.
PAIRED = 0.97
# Bytes that a microsecond reads or writes, where nothing else is to be done.
BYTES_PER_TIME = 4.6e6
# Of a launch, on a fast host: products in a row take no less, whatever the GPU takes.
HOST_TIME = 6.0
# Of shared memory, for the barriers of each stage of a pipeline, at most.
BARRIER_BYTES = 32
# The copy engine came with this compute capability.
DESCRIPTOR_CAPABILITY = 9


@dataclass(frozen=True)
class Candidate:
    """A way to cut up a product, and what it costs, in microseconds.

    rows, columns, depth: its blocks. parts: in how many a tile is stored.
    block_time: of one block, while power is to spare. full_time: of one block on
    each SM, when all are busy and the power limit sets the clock. start_time: to
    fill the pipeline of a tile and to write the tile. shared_time, join_time: for
    stream-K, of a block of a shared tile, and of joining the shares.
    """

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int
    parts: int
    block_time: float
    full_time: float
    start_time: float
    shared_time: float = 0.0
    join_time: float = 0.0


# One owner a tile, for forward and dX; the small ones are for outputs of few rows
# or columns.
WHOLE_TILES = (
    Candidate(128, 256, 64, 8, 4, 2, 0.612, 0.695, 1.8),
    Candidate(256, 128, 64, 8, 4, 2, 0.613, 0.722, 2.01),
    Candidate(128, 128, 64, 8, 3, 2, 0.388, 0.381, 1.49),
    Candidate(128, 128, 64, 4, 3, 2, 0.471, 0.374, 0.91),
    Candidate(64, 128, 64, 4, 4, 1, 0.311, 0.239, 0.45),
    Candidate(128, 64, 64, 4, 4, 1, 0.330, 0.253, 0.62),
)
# Into fp32, the gradient or a workspace, with one or several owners a tile.
SPLIT_TILES = (
    Candidate(128, 256, 64, 8, 4, 4, 0.632, 0.701, 6.24),
    Candidate(256, 128, 64, 8, 4, 4, 0.687, 0.712, 5.15),
    Candidate(128, 128, 64, 8, 4, 1, 0.360, 0.371, 3.07),
    Candidate(128, 128, 64, 8, 3, 4, 0.516, 0.399, 3.34),
    Candidate(128, 128, 64, 4, 3, 4, 0.432, 0.385, 4.67),
    Candidate(128, 64, 64, 4, 4, 1, 0.297, 0.347, 2.30),
    Candidate(64, 128, 64, 4, 4, 2, 0.279, 0.276, 1.91),
    Candidate(64, 64, 128, 4, 3, 1, 0.650, 0.300, 0.59),
)
# With the last tiles shared in blocks.
SHARED_TILES = (
    Candidate(128, 256, 64, 8, 4, 4, 0.632, 0.710, 4.6, 0.95, 5.76),
    Candidate(128, 128, 64, 8, 4, 2, 0.360, 0.360, 2.83, 0.511, 7.42),
)
# Through pointers, with one or several owners a tile, their block_time and full_time
# for the products alone: the loads come on top.
PITCHED_TILES = (
    Candidate(256, 128, 64, 8, 3, 1, 0.687, 0.722, 7.83),
    Candidate(128, 256, 64, 8, 3, 1, 0.632, 0.701, 5.57),
    Candidate(128, 128, 64, 8, 3, 1, 0.388, 0.381, 4.49),
    Candidate(128, 64, 64, 4, 4, 1, 0.330, 0.253, 3.82),
    Candidate(64, 128, 64, 4, 4, 1, 0.311, 0.250, 3.39),
    Candidate(64, 64, 64, 4, 5, 1, 0.200, 0.150, 2.80),
)
# Of one load of a thread.
LOAD_TIME = 0.00011
# L2 keeps lines of so many bytes, in sectors.
LINE_BYTES = 128
SECTOR_BYTES = 32
# Of so much of a row as fills a line, on its way from L2 to an SM where all SMs ask
# for some, by the multiples of bytes at which rows begin.
LINE_TIMES = {128: 0.00117, 64: 0.0018, 32: 0.00185, 16: 0.0023}
# Of a copy's launch, and bytes that a microsecond of it reads or writes.
COPY_TIME = 2.7
COPIED_PER_TIME = 2.9e6


@dataclass(frozen=True)
class Layout:
    """How the tensors of a product lie in memory, as far as its plan depends on it.

    descriptors: whether the copy engine can take them, or copies of them. steps: the
    part of a line of L2, in bytes, at whose multiples the rows of left and of right
    begin; 0 where it cannot take them, and they are copied. out_fits: whether it can
    write out. widths: elements of left and right that a load through a pointer takes
    at once; 0 where a tensor, out among them, has no elements that are adjacent.
    """

    descriptors: bool = True
    steps: tuple[int, int] = (LINE_BYTES, LINE_BYTES)
    out_fits: bool = True
    widths: tuple[int, int] = (0, 0)

    @property
    def fits(self) -> bool:
        """Whether the copy engine takes every tensor as it is."""
        return self.out_fits and 0 not in self.steps

    @property
    def wide(self) -> bool:
        """Whether pointers load several elements of either operand at once."""
        return min(self.widths) > 1

    @property
    def copies(self) -> list[Copied]:
        """The choices of operands to copy: those that must be, and that may pay.

        It may where rows begin inside of a sector; rows that begin at another sector
        of a line have only small tiles to avoid.
        """
        return [
            name
            for name, copied in COPIED.items()
            if all(
                (step == 0) <= one <= (step < SECTOR_BYTES)
                for one, step in zip(copied, self.steps, strict=True)
            )
        ]


@dataclass(frozen=True)
class FastPlan:
    """One launch of a fast kernel; see `kernels.fast.ops.multiply`.

    programs: of the whole launch. parts: in how many a tile is stored. copied: the
    operands that are copied first, to rows of whole lines of L2.
    """

    op: Op
    kernel: FastKernel
    tile: Tile
    tiles: int
    programs: int
    parts: int = 1
    split_t: int = 1
    reduction: Reduction = "none"
    copied: Copied = "neither"


def product_sizes(op: Op, sizes: tuple[int, int, int]) -> tuple[int, int, int]:
    """(T, K, N), or blocks of them, as rows, columns and depth of the product."""
    rows, columns = output_axes(op)
    return sizes[rows], sizes[columns], sizes[contracted_axis(op)]


def fast_time(
    p: FastPlan,
    c: Candidate,
    shape: tuple[int, int, int],
    mode: Mode,
    itemsize: int,
    out_itemsize: int,
    device: Device,
    resident: int,
) -> float:
    """Time of a plan made from a candidate, in microseconds of an H200.

    The longest of three: of the longest program, wave after wave, or of the SM with
    the most programs; of all work spread evenly, at the clock that the power limit
    leaves; of reading and writing everything once. Then what clearing a gradient,
    or summing a workspace, adds.
    """
    rows, columns, depth = product_sizes(p.op, shape)
    blocks, sm_count = contracted_blocks(p.op, shape, p.tile), device.sm_count
    out_bytes = rows * columns * out_itemsize
    passes = 2 if mode == "accumulate" else 1
    traffic = (rows + columns) * depth * itemsize + passes * out_bytes
    copied = traffic / BYTES_PER_TIME + c.start_time
    if p.kernel == "stream_k":
        waves, rest = divmod(p.tiles, p.programs)
        slices, shares = (p.programs + rest) / p.tiles, p.programs / max(rest, 1)
        longest = waves * (blocks * c.full_time + c.start_time)
        longest += rest * blocks / p.programs * c.shared_time + c.join_time
        spread = 0.0
    else:
        programs, slices, shares = p.tiles * p.split_t, p.split_t, p.split_t
        longest = cdiv(blocks, p.split_t) * c.block_time + c.start_time
        longest *= cdiv(programs, sm_count * resident)
        if resident > 1 and programs > sm_count:
            paired = blocks / p.split_t * c.full_time * PAIRED
            paired += c.start_time / resident
            longest = max(longest, cdiv(programs, sm_count) * paired)
        spread = p.tiles * blocks * c.full_time + programs * c.start_time / resident
    time = LAUNCH_TIME + max(longest, spread / sm_count, copied)
    if p.reduction == "workspace":
        shared = slices * rows * columns * 4 + passes * out_bytes
        second, rate = SECOND_LAUNCH_TIME, BYTES_PER_TIME
        if p.kernel in BY_POINTERS:
            second, rate = COPY_TIME, COPIED_PER_TIME  # it does not begin early
        time += second + shared / rate + shares * SHARE_TIME
    elif p.reduction == "atomic" and mode == "overwrite":
        time += CLEARING_TIME
    return time


def fast_shared_memory_bytes(
    blocks: tuple[int, int, int],
    num_stages: int,
    parts: int,
    itemsize: int,
    out_itemsize: int,
) -> int:
    """Shared memory of a program with blocks of so many rows, columns and depth.

    The stages of the pipeline and, beside them, a part of a tile on its way out.
    """
    rows, columns, depth = blocks
    stage = (rows + columns) * depth * itemsize + BARRIER_BYTES
    return num_stages * stage + rows * columns // parts * out_itemsize


def counted_parts(parts: int, device: Device) -> int:
    """In how many parts a tile counts on its way out, where it is stored in `parts`.

    For compute capability 10 the compiler keeps room for a whole tile of a persistent
    kernel all the same, as code compiled by Triton 3.7 shows.
    """
    return 1 if device.capability.startswith("10.") else parts


def stored_bytes(op: Op, kernel: FastKernel, out_itemsize: int) -> int:
    """Of an element on its way out: shares are of fp32, stream-K has whole tiles, too.

    dW is of fp32, and one way out serves both.
    """
    if op == "dw":
        return 4
    return {"split": 4, "stream_k": 4 + out_itemsize}.get(kernel, out_itemsize)


def has_descriptors(device: Device) -> bool:
    """Whether the device has an engine that copies tiles by descriptors."""
    major = device.capability.partition(".")[0]
    return major.isdecimal() and int(major) >= DESCRIPTOR_CAPABILITY


# Tensors that descriptors take as they are.
DENSE = Layout()


# Launch paths ask for the same few plans again and again.
@functools.lru_cache(maxsize=1024)
def fast_plan(
    op: Op,
    shape: tuple[int, int, int],
    itemsize: int,
    device: Device,
    *,
    mode: Mode = "overwrite",
    out_itemsize: int | None = None,
    reduction: Reduction | None = None,
    layout: Layout = DENSE,
    kernel: FastKernel | None = None,
) -> FastPlan:
    """The fast kernel, tile and split that end first at `shape` = (T, K, N).

    The first of `ranked_plans`. kernel: the one to choose among the launches of, where
    not None. Where no such plan is left: the lesson's tile and split, through pointers
    that load as much as the layout lets them, or in grouped order one element at a
    time. Other arguments as in `ranked_plans`.
    """
    if kernel != "grouped":
        for _, p in ranked_plans(
            op,
            shape,
            itemsize,
            device,
            mode=mode,
            out_itemsize=out_itemsize,
            reduction=reduction,
            layout=layout,
        ):
            if kernel in (None, p.kernel):
                return p
    split_t = 1 if reduction == "none" else None
    fixed = reduction == "workspace"
    p = plan(op, shape, itemsize, device, split_t=split_t, deterministic=fixed)
    made = "pitched" if kernel is None and itemsize == 2 and layout.wide else "grouped"
    return FastPlan(op, made, p.tile, p.tiles, p.programs, 1, p.split_t, p.reduction)


def ranked_plans(
    op: Op,
    shape: tuple[int, int, int],
    itemsize: int,
    device: Device,
    *,
    mode: Mode = "overwrite",
    out_itemsize: int | None = None,
    reduction: Reduction | None = None,
    layout: Layout = DENSE,
) -> list[tuple[float, FastPlan]]:
    """(time, plan) of every launch that is planned by its time, the best first.

    The best is the shortest in a row of such products, which the host may limit, with
    the copies that it needs. Of equals, the simplest first; none for fp32, nothing to
    do, or a device without descriptors. out_itemsize: bytes of an element of the
    output; by default 4 for dW, else itemsize. reduction: how programs that share a
    tile may bring their sums together; "none": a tile has one owner; None: in any way.
    layout: of the tensors; narrow loads are planned only in place of copies.
    """
    if itemsize != 2 or 0 in shape or not has_descriptors(device):
        return []
    out_itemsize = out_itemsize or (4 if op == "dw" else itemsize)
    sizes = itemsize, out_itemsize
    found = []
    for copied, kernel, c in _candidates(layout, op):
        num_stages, resident = _fitted(kernel, op, c, *sizes, device)
        if not resident:
            continue
        launches, copying = 0, 0.0
        if kernel != "pitched":
            launches, copying = _copying(layout, copied, op, shape, mode, *sizes)
        for p in _fast_plans(kernel, op, shape, c, num_stages, resident, device):
            if reduction is None or p.reduction in (reduction, "none"):
                p = p if copied == "neither" else replace(p, copied=copied)
                time = fast_time(p, c, shape, mode, *sizes, device, resident) + copying
                found.append((_in_a_row(time, p, mode, launches), time, p))
    return [(time, p) for _, time, p in sorted(found, key=lambda timed: timed[:2])]


def _candidates(layout: Layout, op: Op):
    """(copied, kernel, candidate), the simplest first, as a layout allows them.

    The candidates' blocks take as long as their loads, where those take longer.
    """
    for copied in layout.copies if layout.descriptors else ():
        steps = [
            LINE_BYTES if one else step
            for one, step in zip(COPIED[copied], layout.steps, strict=True)
        ]
        if op != "dw":
            for c in WHOLE_TILES:
                yield copied, "persistent", _loading(c, *steps)
        for c in SPLIT_TILES:
            yield copied, "split", _loading(c, *steps)
        for c in SHARED_TILES:
            yield copied, "stream_k", _loading(c, *steps)
    if layout.wide and not layout.fits:
        left, right = layout.widths
        for c in PITCHED_TILES:
            loading = c.depth * (c.rows / left + c.columns / right) * LOAD_TIME
            times = c.block_time + loading, c.full_time + loading
            c = replace(c, block_time=times[0], full_time=times[1])
            yield "neither", "pitched", c


def _loading(c: Candidate, left_step: int, right_step: int) -> Candidate:
    """A candidate of 16-bit operands whose rows begin at multiples of such steps."""
    lines = c.depth * 2 / LINE_BYTES
    loading = c.rows * LINE_TIMES[left_step] + c.columns * LINE_TIMES[right_step]
    loading *= lines
    if loading <= min(c.block_time, c.full_time):
        return c
    return replace(
        c,
        block_time=max(c.block_time, loading),
        full_time=max(c.full_time, loading),
        shared_time=max(c.shared_time, loading),
    )


def _copying(layout, copied, op, shape, mode, itemsize, out_itemsize):
    """(launches, microseconds) of the copies of a product."""
    rows, columns, depth = product_sizes(op, shape)
    sizes = rows * depth * itemsize, depth * columns * itemsize
    moved = [2 * size for size, one in zip(sizes, COPIED[copied], strict=True) if one]
    if not layout.out_fits:
        passes = 3 if mode == "accumulate" else 2
        moved.append(passes * rows * columns * out_itemsize)
    return len(moved), len(moved) * COPY_TIME + sum(moved) / COPIED_PER_TIME


def _in_a_row(time: float, p: FastPlan, mode: Mode, copies: int) -> float:
    """Time of one of many such products: the GPU's or, if longer, the host's."""
    cleared = p.reduction == "atomic" and mode == "overwrite"
    launches = copies + (2 if cleared or p.reduction == "workspace" else 1)
    return max(time, launches * HOST_TIME)


def rung_plan(
    rung: str,
    op: Op,
    shape: tuple[int, int, int],
    itemsize: int,
    device: Device,
    mode: Mode = "overwrite",
) -> FastPlan | None:
    """The launch of `op` by a rung of the ladder, or None where it has none.

    rung: "grouped", the lesson's tile in grouped order; "tiles", the fast kernels'
    tile and split instead; "descriptor", that tile by descriptors, one program each;
    "persistent", "split" or "stream_k", the best launch of that kernel.
    """

    def best(kernel: FastKernel) -> FastPlan:
        return fast_plan(op, shape, itemsize, device, mode=mode, kernel=kernel)

    if rung == "grouped":
        return best("grouped")
    if rung in ("tiles", "descriptor"):
        p = best("persistent")
        if rung == "tiles" and op == "dw":
            p = fast_plan(op, shape, itemsize, device, mode=mode)
        if p.kernel == "grouped":
            return None
        split_t, reduction = 1, "none"
        if p.kernel == "split":
            split_t, reduction = p.split_t, p.reduction
        made = "grouped" if rung == "tiles" else "descriptor"
        parts = 1 if rung == "tiles" else p.parts
        programs = p.tiles * split_t
        return FastPlan(op, made, p.tile, p.tiles, programs, parts, split_t, reduction)
    p = best(rung)
    return p if p.kernel == rung else None


def _fitted(kernel, op, c, itemsize, out_itemsize, device) -> tuple[int, int]:
    """(stages, resident programs) of a candidate: its own stages, or as many as fit."""
    registers = min(255, c.rows * c.columns // (c.num_warps * device.warp_size) + 64)
    blocks, parts = (c.rows, c.columns, c.depth), counted_parts(c.parts, device)
    stored = stored_bytes(op, kernel, out_itemsize)
    for num_stages in range(c.num_stages, 1, -1):
        shared = fast_shared_memory_bytes(blocks, num_stages, parts, itemsize, stored)
        if kernel == "pitched":
            shared = shared_memory_bytes(op, _tile(op, c, num_stages), itemsize)
        resident = resident_programs(registers, shared, c.num_warps, device)
        if resident:
            return num_stages, resident
    return 0, 0


def _tile(op: Op, c: Candidate, num_stages: int) -> Tile:
    along = {
        output_axes(op)[0]: c.rows,
        output_axes(op)[1]: c.columns,
        contracted_axis(op): c.depth,
    }
    return Tile(along[0], along[1], along[2], c.num_warps, num_stages)


def _fast_plans(kernel, op, shape, c, num_stages, resident, device):
    """The plans of a candidate that are worth a thought, the simplest first."""
    tile = _tile(op, c, num_stages)
    tiles, slots = output_tiles(op, shape, tile), device.sm_count * resident
    reductions = ("atomic", "workspace") if op == "dw" else ("workspace",)
    if kernel == "stream_k":
        if tiles % device.sm_count:
            for reduction in reductions:
                programs = (tiles, device.sm_count, c.parts, 1)
                yield FastPlan(op, "stream_k", tile, *programs, reduction)
        return
    if kernel == "pitched":
        yield FastPlan(op, "pitched", tile, tiles, tiles)
    elif op == "dw" or kernel == "persistent":
        yield FastPlan(op, "persistent", tile, tiles, min(tiles, slots), c.parts)
    if kernel == "persistent":
        return
    # Of the splits that take so many waves, the largest has the shortest programs.
    largest = largest_split(contracted_blocks(op, shape, tile))
    for split_t in sorted({min(largest, n * slots // tiles) for n in (1, 2, 3)}):
        if split_t > 1:
            for reduction in reductions:
                programs = (tiles, tiles * split_t, c.parts, split_t)
                yield FastPlan(op, kernel, tile, *programs, reduction)
