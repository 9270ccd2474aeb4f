"""Planning, as plain functions of shapes and device facts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.plan import (
    Device,
    Tile,
    cdiv,
    choose_tile,
    contracted_axis,
    contracted_blocks,
    expected_resident,
    occupancy,
    output_axes,
    output_tiles,
    plan,
    resident_programs,
    shared_memory_bytes,
    split_factor,
    split_range,
    waves,
)

H200 = Device(
    capability="9.0",
    sm_count=132,
    warp_size=32,
    max_warps_per_sm=64,
    max_programs_per_sm=32,
    registers_per_sm=65536,
    registers_per_program=65536,
    shared_memory_per_sm_bytes=228 * 1024,
    shared_memory_per_program_bytes=227 * 1024,
    reserved_shared_memory_per_program_bytes=1024,
)
# Compute capability 5.2 and a device with warps of 64, as their makers document.
MAXWELL = replace(
    H200,
    capability="5.2",
    sm_count=16,
    registers_per_program=32768,
    shared_memory_per_sm_bytes=96 * 1024,
    shared_memory_per_program_bytes=48 * 1024,
    reserved_shared_memory_per_program_bytes=0,
)
WIDE_WARPS = replace(MAXWELL, warp_size=64, max_warps_per_sm=32)

OPS = ("forward", "dx", "dw")
counts = st.integers(1, 300)


@given(a=st.integers(0, 10**12), b=st.integers(1, 10**6))
def test_cdiv_rounds_up(a, b):
    """⌈a/b⌉ blocks of b hold a, and one fewer would not, in exact integers."""
    assert (cdiv(a, b) - 1) * b < a <= cdiv(a, b) * b


# Tiles


@pytest.mark.parametrize("op", OPS)
def test_axes_are_three_different_ones(op):
    """Rows, columns and the contracted axis are T, K and N in some order."""
    assert sorted((*output_axes(op), contracted_axis(op))) == [0, 1, 2]


def test_tile_counts_of_the_worked_shape():
    """8192×4096×14336 in tiles of 128×128, 64 deep."""
    shape = 8192, 4096, 14336
    counted = {}
    for op in OPS:
        tile = choose_tile(op, 2, H200)
        tiles = output_tiles(op, shape, tile)
        counted[op] = tiles, contracted_blocks(op, shape, tile)
    assert counted == {"forward": (7168, 64), "dx": (2048, 224), "dw": (3584, 128)}


@pytest.mark.parametrize("op", OPS)
@given(shape=st.tuples(*[st.integers(0, 5000)] * 3))
def test_tiles_cover_the_output(op, shape):
    """Partial tiles and blocks count as whole ones, and empty axes as none."""
    tile = Tile(64, 32, 16, num_warps=4, num_stages=2)
    blocks = [cdiv(*pair) for pair in zip(shape, (64, 32, 16), strict=True)]
    rows, columns = output_axes(op)
    assert output_tiles(op, shape, tile) == blocks[rows] * blocks[columns]
    assert contracted_blocks(op, shape, tile) == blocks[contracted_axis(op)]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("itemsize", (2, 4))
@pytest.mark.parametrize("limit_kib", (48, 64, 99, 163, 227))
def test_chosen_tile_fits_any_shared_memory(op, itemsize, limit_kib):
    """What a program takes of shared memory is what the device offers, or less.

    triton-lang/triton#8182
    """
    limit = limit_kib * 1024
    device = replace(H200, shared_memory_per_program_bytes=limit)
    tile = choose_tile(op, itemsize, device)
    assert shared_memory_bytes(op, tile, itemsize) <= limit
    blocks = [tile.block_t, tile.block_k, tile.block_n]
    assert all(block >= 16 and block.bit_count() == 1 for block in blocks)


def test_too_little_shared_memory_is_named():
    """Where no tile fits, the sentence has the need and the limit.

    triton-lang/triton#8182
    """
    device = replace(H200, shared_memory_per_program_bytes=4096)
    with pytest.raises(ValueError, match=r"^the smallest dw tile needs \d+ .* 4096$"):
        choose_tile("dw", 2, device)


# Residency


def test_registers_per_program_limit():
    """128 threads of 85 registers: 4 resident programs on capability 5.2, not 5.

    xmartlabs/cuda-calculator#1
    """
    assert resident_programs(85, 0, 4, MAXWELL) == 4
    unlimited = replace(MAXWELL, registers_per_program=65536)
    assert resident_programs(85, 0, 4, unlimited) == 5


def test_warps_of_64():
    """A warp of 64 threads takes twice the registers, and is one of fewer.

    pytorch/pytorch#188881
    """
    device = replace(WIDE_WARPS, registers_per_program=65536)
    assert resident_programs(128, 0, 4, replace(device, warp_size=32)) == 4
    assert resident_programs(128, 0, 4, device) == 2
    assert resident_programs(16, 0, 4, device) == 32 // 4
    tile = Tile(128, 128, 64, num_warps=8, num_stages=1)
    narrow = replace(device, warp_size=32)
    more = expected_resident("dw", tile, 2, device)
    assert more <= expected_resident("dw", tile, 2, narrow)


@pytest.mark.parametrize(
    "registers, shared_bytes, num_warps, resident",
    (
        (16, 0, 8, 8),  # 64 warps
        (16, 0, 1, 32),  # 32 programs
        (0, 0, 8, 8),  # nothing known of registers
        (110, 98304, 8, 2),  # measured on an H200: two programs an SM
        (128, 0, 8, 2),
        (129, 0, 8, 1),  # 136 registers a thread are handed out
        (255, 0, 8, 1),
        (32, 227 * 1024, 4, 1),  # and the reserved KiB
        (32, 227 * 1024 + 1, 4, 0),
        (32, 113 * 1024, 4, 2),
        (32, 113 * 1024 + 1, 4, 1),
    ),
)
def test_each_limit_of_residency(registers, shared_bytes, num_warps, resident):
    """Warps, programs, registers and shared memory each limit on their own."""
    assert resident_programs(registers, shared_bytes, num_warps, H200) == resident


@given(
    registers=st.integers(1, 255),
    shared_bytes=st.integers(0, 240 * 1024),
    num_warps=st.sampled_from((1, 2, 4, 8, 16)),
)
def test_residents_fit(registers, shared_bytes, num_warps):
    """What is resident never takes more than the SM has, and more need fits less."""
    resident = resident_programs(registers, shared_bytes, num_warps, H200)
    assert resident * registers * num_warps * 32 <= H200.registers_per_sm
    assert resident * shared_bytes <= H200.shared_memory_per_sm_bytes
    assert 0 <= occupancy(resident, num_warps, H200) <= 1
    for more in ((registers + 1, shared_bytes), (registers, shared_bytes + 1)):
        assert resident_programs(*more, num_warps, H200) <= resident


def test_occupancy_and_waves():
    """Two programs of 8 warps are a quarter of 64; 280 on 132 places are 2.12 waves."""
    assert occupancy(2, 8, H200) == 0.25
    assert waves(280, 132) == pytest.approx(2.121, abs=1e-3)


# Splits


@given(split_t=counts, blocks=st.integers(0, 1000))
def test_splits_own_each_block_once(split_t, blocks):
    """Ranges follow one another from 0 to the last block, and differ by one at most.

    facebookexperimental/triton#1142
    """
    ranges = [split_range(split, split_t, blocks) for split in range(split_t)]
    edges = [0, *(high for _, high in ranges)]
    assert ranges == list(zip(edges, edges[1:], strict=False))
    assert edges[-1] == blocks
    lengths = {high - low for low, high in ranges}
    assert max(lengths) - min(lengths) <= 1


tile_counts, block_counts = st.integers(0, 5000), st.integers(0, 5000)
sm_counts, residents = st.integers(1, 200), st.integers(1, 8)


@given(tiles=tile_counts, blocks=block_counts, sm_count=sm_counts, resident=residents)
def test_split_factor_leaves_each_program_work(tiles, blocks, sm_count, resident):
    """No split is chosen that leaves a program fewer than four blocks."""
    split_t = split_factor(tiles, blocks, sm_count, resident)
    assert 1 <= split_t <= 64
    assert split_t == 1 or blocks // split_t >= 4


@given(
    full=st.integers(1, 20),
    blocks=block_counts,
    sm_count=sm_counts,
    resident=residents,
)
def test_full_waves_are_not_split(full, blocks, sm_count, resident):
    """Where whole waves are full already, a split only adds overhead."""
    tiles = full * sm_count * resident
    assert split_factor(tiles, blocks, sm_count, resident) == 1


def test_starved_shapes_are_split():
    """64 tiles on 132 SMs leave places empty; the worked shape's 3584 do not."""
    starved = plan("dw", (32768, 1024, 1024), 2, H200)
    assert starved.tiles == 64
    assert starved.split_t > 1
    assert starved.programs > H200.sm_count
    assert starved.reduction == "atomic"
    worked = plan("dw", (8192, 4096, 14336), 2, H200)
    assert (worked.split_t, worked.reduction) == (1, "none")


@pytest.mark.parametrize("op", ("forward", "dx"))
def test_only_dw_splits(op):
    """Forward and dX have one owner a tile, whatever the shape."""
    planned = plan(op, (64, 64, 131072), 2, H200, split_t=8, reduction="atomic")
    assert (planned.split_t, planned.reduction) == (1, "none")


def test_deterministic_means_workspace():
    """A deterministic split goes through the workspace; what is asked for, stays."""
    shape = 32768, 1024, 1024
    assert plan("dw", shape, 2, H200, deterministic=True).reduction == "workspace"
    given = plan("dw", shape, 2, H200, deterministic=True, reduction="atomic")
    assert given.reduction == "atomic"


def test_choices_are_taken_as_given():
    """A given split, reduction or tile is planned with, not replaced."""
    shape = 32768, 1024, 1024
    assert plan("dw", shape, 2, H200, reduction="none").split_t == 1
    assert plan("dw", shape, 2, H200, split_t=7).split_t == 7
    assert plan("dw", shape, 2, H200, split_t=1).reduction == "none"
    assert plan("dw", shape, 2, H200, split_t=1, reduction="atomic").split_t == 1
    tile = Tile(64, 256, 64, num_warps=8, num_stages=4)
    planned = plan("dw", shape, 2, H200, tile=tile)
    assert planned.tile == tile
    assert planned.tiles == 4 * 16


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", ((0, 64, 64), (64, 0, 64), (64, 64, 0), (0, 0, 0)))
def test_empty_shapes_are_planned(op, shape):
    """No division by zero where an axis is empty.

    triton-lang/triton#10427
    """
    planned = plan(op, shape, 2, H200)
    rows, columns = output_axes(op)
    assert (planned.tiles == 0) == (0 in (shape[rows], shape[columns]))
    assert planned.split_t == 1
