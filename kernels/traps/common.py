"""What the traps share: a tile, operands, a gradient to begin with, launches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import triton

from kernels.plan import Tile, cdiv
from kernels.reduce import reduce_kernel

TILE = Tile(64, 64, 64, num_warps=4, num_stages=2)
SPLIT_T = 4
# What a tuner chooses from; the grid is the same for both.
TUNED = [
    triton.Config({"BLOCK_T": 64, "BLOCK_K": 64, "BLOCK_N": 64}, num_warps=warps)
    for warps in (4, 8)
]

# A row of operands that lie so far apart is beyond 2³¹ elements from the 52nd on.
FAR = 5 << 23
FIRST_FAR_ROW = cdiv(2**31, FAR)
# As it was before anyone fills it: memory too large to be touched.
untouched_memory = torch.empty


def on_cpu(device: str | torch.device) -> bool:
    """Whether it is the interpreter that runs kernels there."""
    return torch.device(device).type == "cpu"


def dtype_of(device: str | torch.device) -> torch.dtype:
    """bf16, but fp16 for the interpreter (triton-lang/triton#11584)."""
    return torch.float16 if on_cpu(device) else torch.bfloat16


def normal(device, rows: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    values = torch.randn((rows, columns), generator=generator, device=device)
    return values.to(dtype_of(device))


def operands(device, T: int, K: int, N: int) -> tuple[torch.Tensor, torch.Tensor]:
    """X[T, K] and dY[T, N], normally distributed."""
    return normal(device, T, K, seed=0), normal(device, T, N, seed=1)


def far_apart(device, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """X in the midst of an allocation, and what its offsets hit if they wrap.

    The rows from FIRST_FAR_ROW on are beyond 2³¹ elements. In 32 bits their
    offsets point in front of X, at other numbers of the same allocation.
    """
    size = 2**31 + rows * FAR
    storage = untouched_memory(size, dtype=dtype_of(device), device=device)
    x = storage.as_strided((rows, columns), (FAR, 1), 2**31)
    front = storage.as_strided(
        (rows - FIRST_FAR_ROW, columns), (FAR, 1), FIRST_FAR_ROW * FAR - 2**31
    )
    x.copy_(normal(device, *x.shape, seed=0))
    front.copy_(normal(device, *front.shape, seed=2))
    return x, front


def zeros(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """A gradient that holds nothing yet."""
    return x.new_zeros((x.shape[1], dy.shape[1]), dtype=torch.float32)


def launch(kernel, x, dy, dw, *, split_t=1, tile=TILE, tuned=False, ADD):
    """Launch a dW kernel as the host API does. dw: a gradient or a workspace."""
    (T, K), N = x.shape, dy.shape[1]
    strides = dw.stride() if dw.dim() == 3 else (0, *dw.stride())
    blocks = {
        "BLOCK_T": tile.block_t,
        "BLOCK_K": tile.block_k,
        "BLOCK_N": tile.block_n,
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
    }
    kernel[(cdiv(K, tile.block_k) * cdiv(N, tile.block_n), split_t)](
        *(x, dy, dw, T, K, N),
        *x.stride(),
        *dy.stride(),
        *strides,
        PRECISION="ieee",
        ADD=ADD,
        **({} if tuned else blocks),
    )
    return dw


def reduce(workspace: torch.Tensor, grad: torch.Tensor, accumulate: bool = True):
    """Add the slices of a workspace into a gradient, or overwrite it."""
    split_t, K, N = workspace.shape
    reduce_kernel[(cdiv(K, 16) * cdiv(N, 128),)](
        *(workspace, grad, K, N),
        *workspace.stride(),
        *grad.stride(),
        split_t,
        BLOCK_K=16,
        BLOCK_N=128,
        ACCUMULATE=accumulate,
    )
    return grad


def product(x: torch.Tensor, dy: torch.Tensor, grad=None) -> torch.Tensor:
    """What both forms should give, in fp64."""
    exact = x.double().T @ dy.double()
    return exact if grad is None else exact + grad.double()


@contextmanager
def memory_holding(value: float) -> Iterator[None]:
    """Memory that nobody wrote to holds a number, as used memory does."""

    def filled(allocate: Callable) -> Callable:
        def allocate_and_fill(*args, **choices):
            made = allocate(*args, **choices)
            return made.fill_(value) if made.is_floating_point() else made

        return allocate_and_fill

    places = ((torch, "empty"), (torch.Tensor, "new_empty"))
    before = [getattr(owner, name) for owner, name in places]
    for (owner, name), allocate in zip(places, before, strict=True):
        setattr(owner, name, filled(allocate))
    try:
        yield
    finally:
        for (owner, name), allocate in zip(places, before, strict=True):
            setattr(owner, name, allocate)
