"""A tuner's reset wipes what the gradient held before the call."""

import triton
import triton.language as tl

from kernels import matmul_dw
from kernels.traps.common import TILE, TUNED, launch, operands, product, zeros

KIND = "wrong result"


# [kernel]
@triton.autotune(TUNED, key=["T", "K", "N"], reset_to_zero=["dw_ptr"])
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
        tl.store(dw_ptrs, acc, mask=inside)


# [broken]
def broken(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    return launch(dw_kernel, x, dy, grad, tuned=True, ADD=True)


# [fixed]
def fixed(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    return matmul_dw(x, dy, out=grad, mode="accumulate", split_t=1, tile=TILE)


def forget():
    """Tune anew at the next call, as a fresh process does."""
    dw_kernel.cache.clear()


# [case]
def case(device):
    """The first call of a process, into a gradient that holds a micro-batch."""
    forget()
    x, dy = operands(device, 2 * 11 * 64, 128, 128)
    first, second = x.chunk(2), dy.chunk(2)
    return first[1], second[1], product(first[0], second[0]).float()
