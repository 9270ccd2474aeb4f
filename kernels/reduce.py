"""Reduce: `dW = Σₛ workspace[s] (+ dW)`, in order, so deterministic."""

import triton
import triton.language as tl


# [kernel]
@triton.jit
def reduce_kernel(
    workspace_ptr,
    dw_ptr,
    K,
    N,
    stride_ws,
    stride_wsk,
    stride_wsn,
    stride_dwk,
    stride_dwn,
    SPLIT_T,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ACCUMULATE: tl.constexpr,
):
    """dW[K, N] = sum over s of workspace[SPLIT_T, K, N], plus dW if asked.

    workspace_ptr, dw_ptr: fp32. Strides count elements.
    Grid: one program a tile of dW, cdiv(K, BLOCK_K) * cdiv(N, BLOCK_N).
    Slices are added in order 0, 1, 2, ..., then what dW holds if
    ACCUMULATE; one owner a tile: deterministic.
    """
    # [tile]
    tile = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(tl.cast(N, tl.int64), BLOCK_N)
    k = (tile // tiles_n) * BLOCK_K + tl.arange(0, BLOCK_K)
    n = (tile % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (k[:, None] < K) & (n[None, :] < N)

    # [sum]
    slice_ptrs = workspace_ptr
    slice_ptrs += k[:, None] * stride_wsk + n[None, :] * stride_wsn
    acc = tl.zeros((BLOCK_K, BLOCK_N), dtype=tl.float32)
    # A loop, not tl.sum over a block of slices: its order would follow the
    # layout the compiler picked.
    for split in range(SPLIT_T):
        offset = tl.cast(split, tl.int64) * stride_ws
        acc += tl.load(slice_ptrs + offset, mask=inside, other=0.0)

    # [store]
    dw_ptrs = dw_ptr + k[:, None] * stride_dwk + n[None, :] * stride_dwn
    if ACCUMULATE:
        acc += tl.load(dw_ptrs, mask=inside, other=0.0)
    tl.store(dw_ptrs, acc, mask=inside)
