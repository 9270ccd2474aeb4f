"""Stream-K: whole waves of tiles first, the rest in equal shares of blocks."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.fast.tiles import grouped_tile, operand_tile, put_tile


# [kernel]
@triton.jit(do_not_specialize=["ROWS", "COLUMNS", "DEPTH"])
def stream_k_kernel(
    left,
    right,
    out,
    workspace,
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

    left, right, out, workspace: descriptors. left, right: of bf16, fp16 or
    fp32, alike; SWAPPED ones are stored [DEPTH, ROWS] and [COLUMNS, DEPTH].
    What a tile reaches beyond them is read as 0 and never written.
    Grid: as many programs as run at once. Program p owns whole tiles p,
    p + programs, ..., as long as all programs have one. The blocks of the
    tiles that remain, tile after tile, are shared out in equal ranges.
    ADD: whole tiles are added into out, which is fp32, instead of stored.
    WORKSPACE: a share goes to a tile-sized slot of its own in the fp32
    workspace, for shares_kernel to sum: deterministic. Otherwise shares are
    added into out, in order of arrival.
    EARLY: that next kernel may begin, which waits for this one's end.
    WAIT: for the end of the kernel before, zero_kernel, which clears the
    shared tiles of out.
    PRECISION: of fp32 products, "ieee" or "tf32"; 16-bit ones are exact.
    """
    if EARLY:
        gdc_launch_dependents()
    tiles_down = tl.cdiv(ROWS, BLOCK_ROWS)
    tiles_across = tl.cdiv(COLUMNS, BLOCK_COLUMNS)
    blocks = tl.cdiv(DEPTH, BLOCK_DEPTH)

    # [share]
    program, programs = tl.program_id(0), tl.num_programs(0)
    whole = tiles_down * tiles_across // programs
    rest = tiles_down * tiles_across - whole * programs
    low, high = shared_blocks(program, programs, rest, blocks)
    first = (low // blocks).to(tl.int32)
    shared = (tl.cdiv(high, blocks) - low // blocks).to(tl.int32)

    # [tiles]
    for turn in range(whole + shared):
        if turn < whole:
            tile = program + turn * programs
            begin = 0
            end = blocks
        else:
            tile = whole * programs + first + turn - whole
            start = (first + turn - whole).to(tl.int64) * blocks
            begin = tl.maximum(low - start, 0).to(tl.int32)
            end = tl.minimum(high - start, blocks).to(tl.int32)
        above, before = grouped_tile(tile, tiles_down, tiles_across, GROUP)
        row, column = above * BLOCK_ROWS, before * BLOCK_COLUMNS

        # [contract]
        acc = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
        for block in range(begin, end):
            depth = block * BLOCK_DEPTH
            a = operand_tile(left, row, depth, LEFT_SWAPPED)
            b = operand_tile(right, depth, column, RIGHT_SWAPPED)
            acc = tl.dot(a, b, acc, input_precision=PRECISION)

        # [store]
        if turn < whole:
            put_tile(out, acc, row, column, PARTS, ADD)
        elif WORKSPACE:
            # Shares and tiles both count up, so no two have this sum.
            slot = program + first + turn - whole
            put_tile(workspace, acc, slot * BLOCK_ROWS, 0, PARTS, False)
        else:
            if WAIT:
                gdc_wait()
            put_tile(out, acc, row, column, PARTS, True)


# [shared-blocks]
@triton.jit
def shared_blocks(program, programs, rest, blocks):
    """The blocks [low, high) of a program, of `rest` tiles, counted through.

    No share is empty but those of the last programs, where there are more of
    them than blocks.
    """
    shared = rest.to(tl.int64) * blocks
    sharers = tl.maximum(tl.minimum(shared, programs), 1)
    low = tl.minimum(program, sharers) * shared // sharers
    high = tl.minimum(program + 1, sharers) * shared // sharers
    return low, high
