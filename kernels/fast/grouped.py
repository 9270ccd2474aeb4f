"""Grouped: the lesson's kernels, as one, its tiles in an order for L2."""

import triton
import triton.language as tl

from kernels.fast.tiles import grouped_tile


# [kernel]
@triton.jit
def grouped_kernel(
    left_ptr,
    right_ptr,
    out_ptr,
    ROWS,
    COLUMNS,
    DEPTH,
    stride_lr,
    stride_ld,
    stride_rd,
    stride_rc,
    stride_os,
    stride_or,
    stride_oc,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
    ADD: tl.constexpr,
):
    """out[ROWS, COLUMNS] = left[ROWS, DEPTH] · right[DEPTH, COLUMNS].

    left_ptr, right_ptr: bf16, fp16 or fp32, alike; out_ptr: any of the
    three, cast once, or a workspace [SPLIT, ROWS, COLUMNS] in fp32.
    Strides count elements and may have any sign or be zero; stride_os is
    that of the workspace, else 0.
    Grid: (cdiv(ROWS, BLOCK_ROWS) * cdiv(COLUMNS, BLOCK_COLUMNS), SPLIT).
    The SPLIT programs of a tile own one whole-block range of DEPTH each.
    ADD: add into out, which is fp32, instead of storing. Deterministic
    unless several programs add into one tile: they land in order of arrival.
    PRECISION: of fp32 products, "ieee" or "tf32"; 16-bit ones are exact.
    """
    # [tile]
    tile = tl.program_id(0).to(tl.int64)
    tiles_down = tl.cdiv(tl.cast(ROWS, tl.int64), BLOCK_ROWS)
    tiles_across = tl.cdiv(tl.cast(COLUMNS, tl.int64), BLOCK_COLUMNS)
    above, before = grouped_tile(tile, tiles_down, tiles_across, GROUP)
    r = above * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    c = before * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    block_d = tl.arange(0, BLOCK_DEPTH).to(tl.int64)

    # [split]
    split = tl.program_id(1).to(tl.int64)
    SPLIT = tl.num_programs(1)
    blocks = tl.cdiv(tl.cast(DEPTH, tl.int64), BLOCK_DEPTH)
    low = split * blocks // SPLIT * BLOCK_DEPTH
    high = (split + 1) * blocks // SPLIT * BLOCK_DEPTH

    # [contract]
    acc = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
    for start in range(low, high, BLOCK_DEPTH):
        d = start + block_d
        # [first-operand]
        left = tl.load(
            left_ptr + r[:, None] * stride_lr + d[None, :] * stride_ld,
            mask=(r[:, None] < ROWS) & (d[None, :] < DEPTH),
            other=0.0,
        )
        # [second-operand]
        right = tl.load(
            right_ptr + d[:, None] * stride_rd + c[None, :] * stride_rc,
            mask=(d[:, None] < DEPTH) & (c[None, :] < COLUMNS),
            other=0.0,
        )
        # [dot]
        acc = tl.dot(left, right, acc, input_precision=PRECISION)

    # [store]
    out_ptrs = out_ptr + split * stride_os
    out_ptrs += r[:, None] * stride_or + c[None, :] * stride_oc
    inside = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)
    if ADD:
        tl.atomic_add(out_ptrs, acc, mask=inside, sem="relaxed")
    else:
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
