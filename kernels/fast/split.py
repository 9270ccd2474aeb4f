"""Split: several programs a tile, adding their parts into it in L2."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

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
    WAIT: tl.constexpr,
):
    """out[ROWS, COLUMNS] = left[ROWS, DEPTH] · right[DEPTH, COLUMNS].

    left, right, out: descriptors. left, right: of bf16, fp16 or fp32, alike;
    SWAPPED ones are stored [DEPTH, ROWS] and [COLUMNS, DEPTH]. What a tile
    reaches beyond them is read as 0 and never written.
    Grid: (cdiv(ROWS, BLOCK_ROWS) * cdiv(COLUMNS, BLOCK_COLUMNS), SPLIT).
    The SPLIT programs of a tile own one whole-block range of DEPTH each.
    ADD: add into out, which is fp32, in order of arrival: deterministic for
    a SPLIT of 1. Otherwise out is an fp32 workspace of SPLIT slices, each of
    whole tiles, one below the other: deterministic, and for reduce_kernel to
    sum. With a SPLIT of 1, out may be of any type, and end where it likes.
    WAIT: for the end of the kernel before, zero_kernel, which clears out.
    PRECISION: of fp32 products, "ieee" or "tf32"; 16-bit ones are exact.
    """
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
    if not ADD:
        row += tl.program_id(1) * tiles_down * BLOCK_ROWS
    put_tile(out, acc, row, column, PARTS, ADD)
