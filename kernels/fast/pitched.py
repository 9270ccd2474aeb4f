"""Pitched: loads through pointers, as wide as the rows allow."""

import triton
import triton.language as tl

from kernels.fast.tiles import grouped_tile


# [kernel]
@triton.jit
def pitched_kernel(
    left_ptr,
    right_ptr,
    out_ptr,
    ROWS,
    COLUMNS,
    DEPTH,
    pitch_l,
    pitch_r,
    stride_os,
    pitch_o,
    LEFT_SWAPPED: tl.constexpr,
    RIGHT_SWAPPED: tl.constexpr,
    ROW_UNIT: tl.constexpr,
    COLUMN_UNIT: tl.constexpr,
    DEPTH_UNIT: tl.constexpr,
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
    Elements are adjacent along one axis each: of out, and of right, along
    its columns, of left along its depth; of a SWAPPED operand along the
    other. All that steps from one line of them to the next, and how long
    a line is, is a multiple of the unit of its axis, and passed in units:
    sizes, pitch_l, pitch_r and pitch_o. stride_os counts elements, and is
    that of the workspace, else 0.
    Grid, SPLIT, ADD and PRECISION: as in grouped_kernel.
    """
    # [units]
    # The compiler sees the multiples, and loads a unit at once.
    rows = tl.cast(ROWS, tl.int64) * ROW_UNIT
    columns = tl.cast(COLUMNS, tl.int64) * COLUMN_UNIT
    depth = tl.cast(DEPTH, tl.int64) * DEPTH_UNIT
    LEFT_UNIT: tl.constexpr = ROW_UNIT if LEFT_SWAPPED else DEPTH_UNIT
    RIGHT_UNIT: tl.constexpr = DEPTH_UNIT if RIGHT_SWAPPED else COLUMN_UNIT
    left_pitch = tl.cast(pitch_l, tl.int64) * LEFT_UNIT
    right_pitch = tl.cast(pitch_r, tl.int64) * RIGHT_UNIT
    out_pitch = tl.cast(pitch_o, tl.int64) * COLUMN_UNIT

    # [tile]
    tile = tl.program_id(0).to(tl.int64)
    tiles_down = tl.cdiv(rows, BLOCK_ROWS)
    tiles_across = tl.cdiv(columns, BLOCK_COLUMNS)
    above, before = grouped_tile(tile, tiles_down, tiles_across, GROUP)
    r = above * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    c = before * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    block_d = tl.arange(0, BLOCK_DEPTH).to(tl.int64)

    # [split]
    split = tl.program_id(1).to(tl.int64)
    SPLIT = tl.num_programs(1)
    blocks = tl.cdiv(depth, BLOCK_DEPTH)
    low = split * blocks // SPLIT * BLOCK_DEPTH
    high = (split + 1) * blocks // SPLIT * BLOCK_DEPTH

    # [contract]
    acc = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
    for start in range(low, high, BLOCK_DEPTH):
        d = start + block_d
        # [first-operand]
        if LEFT_SWAPPED:
            left_ptrs = left_ptr + d[None, :] * left_pitch + r[:, None]
        else:
            left_ptrs = left_ptr + r[:, None] * left_pitch + d[None, :]
        inside = (r[:, None] < rows) & (d[None, :] < depth)
        left = tl.load(left_ptrs, mask=inside, other=0.0)
        # [second-operand]
        if RIGHT_SWAPPED:
            right_ptrs = right_ptr + c[None, :] * right_pitch + d[:, None]
        else:
            right_ptrs = right_ptr + d[:, None] * right_pitch + c[None, :]
        inside = (d[:, None] < depth) & (c[None, :] < columns)
        right = tl.load(right_ptrs, mask=inside, other=0.0)
        # [dot]
        acc = tl.dot(left, right, acc, input_precision=PRECISION)

    # [store]
    out_ptrs = out_ptr + split * stride_os
    out_ptrs += r[:, None] * out_pitch + c[None, :]
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    if ADD:
        tl.atomic_add(out_ptrs, acc, mask=inside, sem="relaxed")
    else:
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
