"""What one may test a dW with; each says whether a form of a trap passes.

Most call twice and look at the second result, as a test after a warm-up does.
"""

from collections.abc import Callable
from types import ModuleType

import torch

from kernels.traps import common
from kernels.traps.common import far_apart, memory_holding, normal, product

# How far off the usual test lets an element be: of the RMS, and of the element.
USUAL = 2e-2
# How far off, in the 2-norm, a long sum in fp32 may be; 16-bit roundings are not.
LONG_SUM = 1e-4
ROUND, ODD = (11 * 64, 128, 128), (701, 125, 77)

Form = Callable[..., torch.Tensor]


def round_sizes(trap: ModuleType, form: Form, device) -> bool:
    """Sizes of whole blocks, in memory that holds zeros."""
    return _passes(trap, form, *_surrounded(device, ROUND, 0.0), memory=0.0)


def odd_sizes(trap: ModuleType, form: Form, device) -> bool:
    """Sizes of no whole block, in memory that holds zeros."""
    return _passes(trap, form, *_surrounded(device, ODD, 0.0), memory=0.0)


def nan_in_memory(trap: ModuleType, form: Form, device) -> bool:
    """The same in memory that holds NaN, behind the operands and in what is new."""
    nan = torch.nan
    return _passes(trap, form, *_surrounded(device, ODD, nan), memory=nan)


def used_buffer(trap: ModuleType, form: Form, device) -> bool:
    """A gradient that holds 5 beforehand."""
    return _passes(trap, form, *_surrounded(device, ROUND, 0.0), holding=5.0)


def first_call(trap: ModuleType, form: Form, device) -> bool:
    """The first call of a fresh process, into a gradient that holds 5."""
    if hasattr(trap, "forget"):
        trap.forget()
    operands = _surrounded(device, ROUND, 0.0)
    return _passes(trap, form, *operands, holding=5.0, warm=False)


def again(trap: ModuleType, form: Form, device) -> bool:
    """The same product twice: the allocator hands out the memory of the first."""
    return _passes(trap, form, *_surrounded(device, ROUND, 0.0))


def own_strides(trap: ModuleType, form: Form, device) -> bool:
    """A gradient that is a slice of a wider one, and one that repeats a row."""
    T, K, N = ROUND
    x, wide = normal(device, T, K, seed=0), normal(device, T, 2 * N, seed=1)
    repeated = wide.as_strided((T, N), (0, 1))
    return all(_passes(trap, form, x, dy) for dy in (wide[:, :N], repeated))


def idle_splits(trap: ModuleType, form: Form, device) -> bool:
    """One block of tokens for any number of splits, in memory that holds NaN."""
    operands = _surrounded(device, (64, 128, 128), torch.nan)
    return _passes(trap, form, *operands, memory=torch.nan)


def long_sum(trap: ModuleType, form: Form, device) -> bool:
    """16384 tokens, compared with fp64 as closely as fp32 allows."""
    x, dy = common.operands(device, 16384, 64, 64)
    exact = _expected(trap)(x, dy)
    return bool((form(x, dy) - exact).norm() <= LONG_SUM * exact.norm())


def beyond_32_bits(trap: ModuleType, form: Form, device) -> bool:
    """Tokens of which the last lie beyond 2³¹ elements."""
    x, _ = far_apart(device, 64, 128)
    return _passes(trap, form, x, normal(device, 64, 128, seed=1))


CHECKS: dict[str, Callable[[ModuleType, Form, torch.device], bool]] = {
    "round sizes, fresh memory": round_sizes,
    "odd sizes": odd_sizes,
    "NaN in memory": nan_in_memory,
    "a buffer that holds something": used_buffer,
    "the first call of all": first_call,
    "the same call again": again,
    "strides of its own": own_strides,
    "more splits than blocks": idle_splits,
    "long sum against fp64": long_sum,
    "beyond 2³¹ elements": beyond_32_bits,
}


def _surrounded(device, shape: tuple[int, int, int], value: float):
    """X and dY, with a block of rows of one value behind each."""
    T, *widths = shape
    for seed, width in enumerate(widths):
        storage = normal(device, T + 64, width, seed)
        storage[T:] = value
        yield storage[:T]


def _expected(trap: ModuleType) -> Form:
    return getattr(trap, "expected", product)


def _passes(
    trap: ModuleType,
    form: Form,
    x: torch.Tensor,
    dy: torch.Tensor,
    *,
    memory: float | None = None,
    holding: float | None = None,
    warm: bool = True,
) -> bool:
    """memory: what new memory holds; holding: what the gradient does."""

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        grad = None
        if holding is not None:
            size = x.shape[1], dy.shape[1]
            grad = torch.full(size, holding, device=x.device)
        exact = _expected(trap)(x, dy, grad)
        if memory is None:
            return form(x, dy, grad), exact
        with memory_holding(memory):
            return form(x, dy, grad), exact

    if warm:
        call()
    result, exact = call()
    allowed = USUAL * (exact.square().mean().sqrt() + exact.abs())
    return bool(((result - exact).abs() <= allowed).all())
