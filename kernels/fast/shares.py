"""Shares: what several programs stored of a tile, summed in a fixed order."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from kernels.fast.tiles import grouped_tile


# [kernel]
@triton.jit(do_not_specialize=["DEPTH", "programs"])
def shares_kernel(
    workspace_ptr,
    out_ptr,
    ROWS,
    COLUMNS,
    DEPTH,
    programs,
    stride_or,
    stride_oc,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    STRIP: tl.constexpr,
    GROUP: tl.constexpr,
    STREAM_K: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    WAIT: tl.constexpr,
):
    """Sum the shares of each shared tile into out, plus what it holds if asked.

    workspace_ptr: fp32 slots of a tile each, as stored by as many programs;
    out_ptr: bf16, fp16 or fp32. Strides count elements.
    Grid: (shared tiles, BLOCK_ROWS // STRIP), one program a strip of a tile.
    STREAM_K: by stream_k_kernel with `programs` programs, of its last tiles;
    otherwise by split_kernel, with `programs` programs a tile, of all tiles.
    Shares are added in order of their blocks: deterministic.
    WAIT: for the end of the kernel before, which stores the shares.
    """
    # [strip]
    tiles_down = tl.cdiv(ROWS, BLOCK_ROWS)
    tiles_across = tl.cdiv(COLUMNS, BLOCK_COLUMNS)
    rest = tl.num_programs(0)
    shared = tl.program_id(0).to(tl.int64)
    tile = tiles_down * tiles_across - rest + shared
    above, before = grouped_tile(tile, tiles_down, tiles_across, GROUP)
    within = tl.program_id(1) * STRIP + tl.arange(0, STRIP)
    across = tl.arange(0, BLOCK_COLUMNS)
    r = above * BLOCK_ROWS + within
    c = before * BLOCK_COLUMNS + across
    inside = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)

    # [slots]
    if STREAM_K:
        # Of low(p) = p * all // sharers, the last p that is not beyond a
        # block; slots count programs and tiles.
        blocks = tl.cdiv(DEPTH, BLOCK_DEPTH).to(tl.int64)
        all_blocks = rest * blocks
        sharers = tl.minimum(all_blocks, programs)
        begin = ((shared * blocks + 1) * sharers - 1) // all_blocks + shared
        last = ((shared + 1) * blocks * sharers - 1) // all_blocks + shared
    else:
        begin = shared * programs
        last = begin + programs - 1

    # [sum]
    if WAIT:
        gdc_wait()
    offsets = within[:, None] * BLOCK_COLUMNS + across[None, :]
    acc = tl.zeros((STRIP, BLOCK_COLUMNS), dtype=tl.float32)
    for slot in tl.range(begin, last + 1, loop_unroll_factor=4):
        share = workspace_ptr + slot * (BLOCK_ROWS * BLOCK_COLUMNS)
        acc += tl.load(share + offsets)

    # [reduced]
    out_ptrs = out_ptr + r[:, None] * stride_or + c[None, :] * stride_oc
    if ACCUMULATE:
        acc += tl.load(out_ptrs, mask=inside, other=0.0)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
