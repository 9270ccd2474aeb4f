"""What was tried beside the ladder's rungs and did not pay, for its numbers' sake."""

import triton
import triton.language as tl

from generate.record.calls import standing_in
from generate.record.timing import Call
from kernels.fast import ops as fast
from kernels.fast.tiles import grouped_tile, operand_tile, put_tile


@triton.jit(do_not_specialize=["ROWS", "COLUMNS", "DEPTH"])
def specialized_kernel(
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
    """kernels.fast.persistent, with warps of their own for loading and multiplying.

    The loops stay two, as Triton's tutorial of persistent products has them where it
    specialises warps on Hopper (python/tutorials/09-persistent-matmul.py).
    """
    tiles_down = tl.cdiv(ROWS, BLOCK_ROWS)
    tiles_across = tl.cdiv(COLUMNS, BLOCK_COLUMNS)
    tiles = tiles_down * tiles_across
    program, programs = tl.program_id(0), tl.num_programs(0)
    for tile in tl.range(program, tiles, programs, warp_specialize=True):
        above, before = grouped_tile(tile, tiles_down, tiles_across, GROUP)
        row, column = above * BLOCK_ROWS, before * BLOCK_COLUMNS
        acc = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
        for block in range(tl.cdiv(DEPTH, BLOCK_DEPTH)):
            depth = block * BLOCK_DEPTH
            a = operand_tile(left, row, depth, LEFT_SWAPPED)
            b = operand_tile(right, depth, column, RIGHT_SWAPPED)
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        put_tile(out, acc, row, column, PARTS, ADD)


def specialized(call: Call) -> Call:
    """A call of the persistent kernel, with `specialized_kernel` in its place."""

    def instead():
        with standing_in(fast, persistent_kernel=specialized_kernel):
            return call()

    return instead
