"""Split: several programs a tile, adding their parts into it in L2."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.fast.tiles import grouped_tile, operand_tile, put_tile


# [kernel]
@triton.jit(do_not_specialize=["ROWS", "COLUMNS", "DEPTH"])
def split_kernel(
    left,
    right,
    out,
    ROWS,
    COLUMNS,
    DEPTH,
    LEFT_SWAPPED: tl.constexpr,
    RIGHT_SWAPPED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
    ADD: tl.constexpr,
    WORKSPACE: tl.constexpr,
    EARLY: tl.constexpr,
    WAIT: tl.constexpr,
):
    """out[ROWS, COLUMNS] = left[ROWS, DEPTH] · right[DEPTH, COLUMNS].

    left, right, out: descriptors. left, right: of bf16, fp16 or fp32, alike;
    SWAPPED ones are stored [DEPTH, ROWS] and [COLUMNS, DEPTH]. What a tile
    reaches beyond them is read as 0 and never written.
    Grid: (cdiv(ROWS, BLOCK_ROWS) * cdiv(COLUMNS, BLOCK_COLUMNS), SPLIT).
    The SPLIT programs of a tile own one whole-block range of DEPTH each.
    ADD: add into out, which is fp32, in order of arrival: deterministic for
    a SPLIT of 1. WORKSPACE: each program has a tile-sized slot of its own in
    out, an fp32 workspace, for shares_kernel to sum: deterministic.
    Otherwise, for a SPLIT of 1, out is stored, and may be of any type.
    EARLY: that next kernel may begin, which waits for this one's end.
    WAIT: for the end of the kernel before, zero_kernel, which clears out.
    PRECISION: of fp32 products, "ieee" or "tf32"; 16-bit ones are exact.
    """
    if EARLY:
        gdc_launch_dependents()

    # [tile]
    tiles_down = tl.cdiv(ROWS, BLOCK_ROWS)
    tiles_across = tl.cdiv(COLUMNS, BLOCK_COLUMNS)
    tile = tl.program_id(0)
    above, before = grouped_tile(tile, tiles_down, tiles_across, GROUP)
    row, column = above * BLOCK_ROWS, before * BLOCK_COLUMNS

    # [split]
    split = tl.program_id(1).to(tl.int64)
    SPLIT = tl.num_programs(1)
    blocks = tl.cdiv(DEPTH, BLOCK_DEPTH)
    low = (split * blocks // SPLIT).to(tl.int32)
    high = ((split + 1) * blocks // SPLIT).to(tl.int32)

    # [contract]
    acc = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
    for block in range(low, high):
        depth = block * BLOCK_DEPTH
        a = operand_tile(left, row, depth, LEFT_SWAPPED)
        b = operand_tile(right, depth, column, RIGHT_SWAPPED)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)

    # [store]
    if WAIT:
        gdc_wait()
    if WORKSPACE:
        row = (tile * SPLIT + tl.program_id(1)) * BLOCK_ROWS
        column = 0
    put_tile(out, acc, row, column, PARTS, ADD)
