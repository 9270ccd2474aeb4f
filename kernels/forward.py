"""Forward: `Y = X·W`, the kernel that dX and dW are made from."""

import triton
import triton.language as tl


# [kernel]
@triton.jit
def forward_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    T,
    K,
    N,
    stride_xt,
    stride_xk,
    stride_wk,
    stride_wn,
    stride_yt,
    stride_yn,
    BLOCK_T: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Y[T, N] = X[T, K] · W[K, N], contracting K.

    x_ptr, w_ptr: bf16, fp16 or fp32, alike; y_ptr: any of the three, cast
    once. Strides count elements and may have any sign or be zero.
    Grid: one program a tile of Y, cdiv(T, BLOCK_T) * cdiv(N, BLOCK_N).
    One owner a tile, one order of addition: deterministic.
    PRECISION: of fp32 products, "ieee" or "tf32"; 16-bit ones are exact.
    """
    # [tile]
    tile = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    t = (tile // tiles_n) * BLOCK_T + tl.arange(0, BLOCK_T)
    n = (tile % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    block_k = tl.arange(0, BLOCK_K).to(tl.int64)

    # [contract]
    acc = tl.zeros((BLOCK_T, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + block_k
        # [first-operand]
        x = tl.load(
            x_ptr + t[:, None] * stride_xt + k[None, :] * stride_xk,
            mask=(t[:, None] < T) & (k[None, :] < K),
            other=0.0,
        )
        # [second-operand]
        w = tl.load(
            w_ptr + k[:, None] * stride_wk + n[None, :] * stride_wn,
            mask=(k[:, None] < K) & (n[None, :] < N),
            other=0.0,
        )
        # [dot]
        acc = tl.dot(x, w, acc, input_precision=PRECISION)

    # [store]
    tl.store(
        y_ptr + t[:, None] * stride_yt + n[None, :] * stride_yn,
        acc.to(y_ptr.dtype.element_ty),
        mask=(t[:, None] < T) & (n[None, :] < N),
    )
