"""Descriptor: whole tiles, copied by the copy engine, transposed as a view."""

import triton
import triton.language as tl

from kernels.fast.tiles import grouped_tile, operand_tile, put_tile


# [kernel]
@triton.jit(do_not_specialize=["ROWS", "COLUMNS", "DEPTH"])
def descriptor_kernel(
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
):
    """out[ROWS, COLUMNS] = left[ROWS, DEPTH] · right[DEPTH, COLUMNS].

    left, right, out: descriptors. left, right: of bf16, fp16 or fp32, alike;
    SWAPPED ones are stored [DEPTH, ROWS] and [COLUMNS, DEPTH]. What a tile
    reaches beyond them is read as 0 and never written.
    Grid: one program a tile, cdiv(ROWS, BLOCK_ROWS) * cdiv(COLUMNS,
    BLOCK_COLUMNS). ADD: add into out, which is fp32, instead of storing.
    One owner a tile, one order of addition: deterministic.
    PRECISION: of fp32 products, "ieee" or "tf32"; 16-bit ones are exact.
    """
    # [tile]
    tiles_down = tl.cdiv(ROWS, BLOCK_ROWS)
    tiles_across = tl.cdiv(COLUMNS, BLOCK_COLUMNS)
    tile = tl.program_id(0)
    above, before = grouped_tile(tile, tiles_down, tiles_across, GROUP)
    row, column = above * BLOCK_ROWS, before * BLOCK_COLUMNS

    # [contract]
    acc = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
    for block in range(tl.cdiv(DEPTH, BLOCK_DEPTH)):
        depth = block * BLOCK_DEPTH
        a = operand_tile(left, row, depth, LEFT_SWAPPED)
        b = operand_tile(right, depth, column, RIGHT_SWAPPED)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)

    # [store]
    put_tile(out, acc, row, column, PARTS, ADD)
