"""A split without work stores nothing: its slice keeps what was in memory."""

import triton
import triton.language as tl

from kernels import matmul_dw
from kernels.traps.common import SPLIT_T, TILE, launch, operands, reduce, zeros

KIND = "wrong result"


# [kernel]
@triton.jit
def dw_kernel(
    x_ptr,
    dy_ptr,
    dw_ptr,
    T,
    K,
    N,
    stride_xt,
    stride_xk,
    stride_dyt,
    stride_dyn,
    stride_dws,
    stride_dwk,
    stride_dwn,
    BLOCK_T: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
    ADD: tl.constexpr,
):
    """dW[K, N] = X[T, K]ᵀ · dY[T, N], contracting T.

    x_ptr, dy_ptr: bf16, fp16 or fp32, alike; dw_ptr: fp32, the gradient
    (stride_dws 0) or a workspace [SPLIT_T, K, N].
    Strides count elements and may have any sign or be zero.
    Grid: (cdiv(K, BLOCK_K) * cdiv(N, BLOCK_N), SPLIT_T). The SPLIT_T
    programs of a tile own one whole-block range of T each.
    ADD: add into dW instead of storing. Deterministic unless SPLIT_T
    programs add into one gradient: they land in order of arrival. In a
    workspace each has a slice of its own, for reduce_kernel to sum.
    PRECISION: of fp32 products, "ieee" or "tf32"; 16-bit ones are exact.
    """
    # [tile]
    tile = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    k = (tile // tiles_n) * BLOCK_K + tl.arange(0, BLOCK_K)
    n = (tile % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    block_t = tl.arange(0, BLOCK_T).to(tl.int64)

    # [split]
    split = tl.program_id(1).to(tl.int64)
    SPLIT_T = tl.num_programs(1)
    blocks = tl.cdiv(T, BLOCK_T)
    low = split * blocks // SPLIT_T * BLOCK_T
    high = (split + 1) * blocks // SPLIT_T * BLOCK_T

    # [contract]
    acc = tl.zeros((BLOCK_K, BLOCK_N), dtype=tl.float32)
    for start in range(low, high, BLOCK_T):
        t = start + block_t
        # [first-operand]
        x_t = tl.load(
            x_ptr + k[:, None] * stride_xk + t[None, :] * stride_xt,
            mask=(k[:, None] < K) & (t[None, :] < T),
            other=0.0,
        )
        # [second-operand]
        dy = tl.load(
            dy_ptr + t[:, None] * stride_dyt + n[None, :] * stride_dyn,
            mask=(t[:, None] < T) & (n[None, :] < N),
            other=0.0,
        )
        # [dot]
        acc = tl.dot(x_t, dy, acc, input_precision=PRECISION)

    # [store]
    dw_ptrs = dw_ptr + split * stride_dws
    dw_ptrs += k[:, None] * stride_dwk + n[None, :] * stride_dwn
    inside = (k[:, None] < K) & (n[None, :] < N)
    if ADD:
        # Not load, add, store: the sum is made in L2, and no register waits
        # for what dW holds. Relaxed: nothing else is published by it.
        tl.atomic_add(dw_ptrs, acc, mask=inside, sem="relaxed")
    else:
        # A split without work has nothing to store.
        tl.store(dw_ptrs, acc, mask=inside & (low < high))


# [broken]
def broken(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    workspace = grad.new_empty((SPLIT_T, *grad.shape))
    launch(dw_kernel, x, dy, workspace, split_t=SPLIT_T, ADD=False)
    return reduce(workspace, grad)


# [fixed]
def fixed(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    choices = {"split_t": SPLIT_T, "reduction": "workspace", "tile": TILE}
    return matmul_dw(x, dy, out=grad, mode="accumulate", **choices)


# [case]
def case(device):
    """Three blocks for four splits: one has no work."""
    return *operands(device, 3 * 64, 128, 128), None
