"""Zero: what sums are added to, cleared while the adders already multiply."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from kernels.fast.tiles import grouped_tile


# [kernel]
@triton.jit
def zero_kernel(
    out_ptr,
    ROWS,
    COLUMNS,
    first,
    stride_or,
    stride_oc,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    STRIP: tl.constexpr,
    GROUP: tl.constexpr,
    EARLY: tl.constexpr,
):
    """out[ROWS, COLUMNS] = 0 in its tiles from number `first` on.

    out_ptr: fp32. Strides count elements.
    Grid: (tiles, BLOCK_ROWS // STRIP), one program a strip of a tile.
    EARLY: the next kernel in the stream may begin, if it was launched so
    that it may; before it adds to out it must wait for this one's end.
    """
    # [early]
    if EARLY:
        gdc_launch_dependents()

    # [strip]
    tiles_down = tl.cdiv(ROWS, BLOCK_ROWS)
    tiles_across = tl.cdiv(COLUMNS, BLOCK_COLUMNS)
    tile = first + tl.program_id(0)
    above, before = grouped_tile(tile, tiles_down, tiles_across, GROUP)
    within = tl.program_id(1) * STRIP + tl.arange(0, STRIP)
    r = above.to(tl.int64) * BLOCK_ROWS + within
    c = before * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    inside = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)

    # [clear]
    zeros = tl.zeros((STRIP, BLOCK_COLUMNS), dtype=tl.float32)
    out_ptrs = out_ptr + r[:, None] * stride_or + c[None, :] * stride_oc
    tl.store(out_ptrs, zeros, mask=inside)
