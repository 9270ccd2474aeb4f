"""dX: `dX = dY·Wᵀ`, forward with W's strides swapped."""

import triton
import triton.language as tl


# [kernel]
@triton.jit
def dx_kernel(
    dy_ptr,
    w_ptr,
    dx_ptr,
    T,
    K,
    N,
    stride_dyt,
    stride_dyn,
    stride_wk,
    stride_wn,
    stride_dxt,
    stride_dxk,
    BLOCK_T: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """dX[T, K] = dY[T, N] · W[K, N]ᵀ, contracting N.

    dy_ptr, w_ptr: bf16, fp16 or fp32, alike; dx_ptr: any of the three,
    cast once. Strides count elements and may have any sign or be zero.
    Grid: one program a tile of dX, cdiv(T, BLOCK_T) * cdiv(K, BLOCK_K).
    One owner a tile, one order of addition: deterministic.
    PRECISION: of fp32 products, "ieee" or "tf32"; 16-bit ones are exact.
    """
    # [tile]
    tile = tl.program_id(0).to(tl.int64)
    tiles_k = tl.cdiv(K, BLOCK_K)
    t = (tile // tiles_k) * BLOCK_T + tl.arange(0, BLOCK_T)
    k = (tile % tiles_k) * BLOCK_K + tl.arange(0, BLOCK_K)
    block_n = tl.arange(0, BLOCK_N).to(tl.int64)

    # [contract]
    acc = tl.zeros((BLOCK_T, BLOCK_K), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        n = start + block_n
        # [first-operand]
        dy = tl.load(
            dy_ptr + t[:, None] * stride_dyt + n[None, :] * stride_dyn,
            mask=(t[:, None] < T) & (n[None, :] < N),
            other=0.0,
        )
        # [second-operand]
        w_t = tl.load(
            w_ptr + n[:, None] * stride_wn + k[None, :] * stride_wk,
            mask=(n[:, None] < N) & (k[None, :] < K),
            other=0.0,
        )
        # [dot]
        acc = tl.dot(dy, w_t, acc, input_precision=PRECISION)

    # [store]
    tl.store(
        dx_ptr + t[:, None] * stride_dxt + k[None, :] * stride_dxk,
        acc.to(dx_ptr.dtype.element_ty),
        mask=(t[:, None] < T) & (k[None, :] < K),
    )
