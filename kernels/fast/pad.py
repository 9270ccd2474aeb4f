"""Pad: a matrix copied to rows of a pitch that the copy engine takes."""

import triton
import triton.language as tl


# [pad]
@triton.jit
def pad_kernel(
    source_ptr,
    target_ptr,
    ROWS,
    COLUMNS,
    stride_sr,
    stride_tr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
):
    """target[ROWS, COLUMNS] = source[ROWS, COLUMNS], of 16-bit elements.

    Elements of a row are adjacent, four or more. Rows of source begin
    anywhere and do not overlap, rows of target begin at multiples of 8 bytes
    and have room for whole words of 8 bytes. Strides count elements.
    Grid: one program a block, cdiv(ROWS, BLOCK_ROWS) * cdiv(cdiv(COLUMNS, 4),
    BLOCK_WORDS).
    """
    # [words]
    block = tl.program_id(0).to(tl.int64)
    columns = tl.cast(COLUMNS, tl.int64)
    across = tl.cdiv(tl.cdiv(columns, 4), BLOCK_WORDS)
    r = (block // across) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    word = (block % across) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)
    inside = (r[:, None] < ROWS - 1) & (word[None, :] * 4 < columns)

    # [shift]
    # Words are read where the memory has them and shifted into place: four
    # elements at a time, where a row may begin between any two.
    begin = source_ptr.to(tl.int64) + r * stride_sr * 2
    bits = (begin % 8 * 8)[:, None]
    aligned = (begin // 8 * 8)[:, None] + word[None, :] * 8
    words = aligned.to(tl.pointer_type(tl.uint64))
    low = tl.load(words, mask=inside, other=0)
    # The next word is read only where it holds an element of the row.
    last = (begin + columns * 2 - 1)[:, None] // 8 * 8
    next_too = inside & (bits > 0) & (aligned < last)
    high = tl.load(words + 1, mask=next_too, other=0)
    # To the left in two steps: by 64 bits at once there is no shift.
    low = low >> bits.to(tl.uint64)
    high = (high << 1) << (63 - bits).to(tl.uint64)

    # [store]
    target = target_ptr.to(tl.pointer_type(tl.uint64))
    places = target + r[:, None] * (stride_tr // 4) + word[None, :]
    tl.store(places, low | high, mask=inside)

    # [last]
    # A word at the end of the last row may reach beyond the memory: its
    # elements go one by one.
    row = tl.cast(ROWS - 1, tl.int64)
    c = (block % across) * BLOCK_WORDS * 4 + tl.arange(0, BLOCK_WORDS * 4)
    last_row = (block // across == row // BLOCK_ROWS) & (c < columns)
    values = tl.load(source_ptr + row * stride_sr + c, mask=last_row, other=0.0)
    tl.store(target_ptr + row * stride_tr + c, values, mask=last_row)


# [copy]
@triton.jit
def copy_kernel(
    source_ptr,
    target_ptr,
    ROWS,
    COLUMNS,
    stride_sr,
    stride_sc,
    stride_tr,
    stride_tc,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    ADD: tl.constexpr,
):
    """target[ROWS, COLUMNS] = source[ROWS, COLUMNS], or add it in if ADD.

    source_ptr, target_ptr: of one type; for ADD fp32. Strides count elements.
    Grid: one program a block, cdiv(ROWS, BLOCK_ROWS) * cdiv(COLUMNS,
    BLOCK_COLUMNS).
    """
    # [block]
    block = tl.program_id(0).to(tl.int64)
    across = tl.cdiv(tl.cast(COLUMNS, tl.int64), BLOCK_COLUMNS)
    r = (block // across) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    c = (block % across) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    inside = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)

    # [elements]
    source_ptrs = source_ptr + r[:, None] * stride_sr + c[None, :] * stride_sc
    target_ptrs = target_ptr + r[:, None] * stride_tr + c[None, :] * stride_tc
    values = tl.load(source_ptrs, mask=inside, other=0.0)
    if ADD:
        values += tl.load(target_ptrs, mask=inside, other=0.0)
    tl.store(target_ptrs, values, mask=inside)
