"""Every row of `kernels.promises`: what it says is what a caller gets.

The rows that are refused, and all other refusals, are held to it in
test_refusals.py. The interpreter has neither bf16 products nor TF32, and repeats
whatever it does: such rows are for a GPU.
"""

import contextlib
import dataclasses

import pytest
import torch

from kernels import device, host, layers, ops, promises
from kernels.fast import ops as fast
from kernels.promises import ROWS, Promise, Row, promise, roundings
from tests.kernels.contract import (
    DEVICE,
    DTYPES,
    INTERPRETED,
    assert_as_exact_as_vendor,
    exact_product,
    fp32_precision,
    name_of,
    operand,
)

# Of few tiles, so that dW's are shared; and of rows that descriptors can take.
SHAPE = T, K, N = (512, 40, 24) if INTERPRETED else (16384, 136, 72)
RUNS = 1 if INTERPRETED else 10
# Whole numbers whose sums fp32 holds and, in Y, dX and dW alike, 16 bits do not.
LARGEST = {"x": 7, "w": 63, "dy": 15}
COMPUTED = {name_of(dtype) for dtype in DTYPES}


def runs_here(row: Row) -> bool:
    return row.computed_in in COMPUTED and not (INTERPRETED and row.precision == "tf32")


def name_of_row(row: Row) -> str:
    """The row as the id of a test: what differs from the defaults, after the call."""
    fields = dataclasses.fields(Row)
    said = [getattr(row, f.name) for f in fields if getattr(row, f.name) != f.default]
    return "-".join(said)


PROMISED = [row for row in ROWS if isinstance(promise(row), Promise)]


def every_row(test):
    """On a GPU all of them, in the interpreter those that it can compute."""
    rows = [row for row in PROMISED if runs_here(row)]
    for mark in (
        pytest.mark.interpreter,
        pytest.mark.gpu,
        pytest.mark.kernels("fast"),
        pytest.mark.parametrize("row", rows, ids=name_of_row),
    ):
        test = mark(test)
    return test


@pytest.fixture(autouse=True)
def plans(monkeypatch) -> list:
    """The plan of every dW from now on, on a device with tiles to share."""
    found = []
    multiply = ops.multiply

    def noted(op, a, b, **choices):
        if op == "dw":
            found.append(fast.prepare(op, a, b, **choices).plan)
        return multiply(op, a, b, **choices)

    monkeypatch.setattr(ops, "multiply", noted)
    monkeypatch.setattr(fast, "_prepared", {})
    many = dataclasses.replace(device.INTERPRETER, sm_count=64)
    monkeypatch.setattr(device, "INTERPRETER", many)
    return found


@contextlib.contextmanager
def asked(row: Row):
    """What the row asks of the framework; 16-bit products are left to be exact."""
    precision = "tf32" if row.precision == "either" else row.precision
    torch.use_deterministic_algorithms(row.determinism == "framework")
    try:
        with fp32_precision(precision):
            yield
    finally:
        torch.use_deterministic_algorithms(False)


def autocast(row: Row):
    if row.autocast == "off":
        return contextlib.nullcontext()
    return torch.autocast(DEVICE, dtype=getattr(torch, row.autocast))


def made(name: str, shape, dtype: str, integers: bool) -> torch.Tensor:
    """x, w or dy: whole numbers, or normally distributed ones."""
    seed = 1 + list(LARGEST).index(name)
    if not integers:
        return operand(shape, getattr(torch, dtype), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    largest = LARGEST[name]
    values = torch.randint(-largest, largest + 1, shape, generator=generator)
    return values.to(DEVICE, getattr(torch, dtype))


@dataclasses.dataclass
class Given:
    """A result, and the product, of operands as they were multiplied, that it is.

    path: the dtypes that the row promises.
    """

    result: torch.Tensor
    path: tuple[str, ...]
    op: str
    a: torch.Tensor
    b: torch.Tensor
    base: torch.Tensor | None = None


def given(row: Row, integers: bool) -> dict[str, Given]:
    """What the call gives, by its name, with an upstream gradient like no other."""
    accumulated = row.mode == "accumulate"
    said = promise(row)
    if row.call == "linear":
        return _of_linear(row, said, integers)
    shapes = {"x": (T, K), "w": (K, N), "dy": (T, N)}
    names = promises.OPERANDS[row.call]
    a, b = (made(name, shapes[name], row.first, integers) for name in names)
    op = {"matmul": "forward", "matmul_dx": "dx", "matmul_dw": "dw"}[row.call]
    choices, base = {}, None
    if accumulated:
        base = _base((K, N), integers)
        choices |= {"mode": "accumulate", "out": base.clone()}
    if row.reduction != "default":
        choices["reduction"] = row.reduction
    with autocast(row):
        result = getattr(ops, row.call)(a, b, **choices)
    (name,) = (name for name in ("y", "dx", "dw") if getattr(said, name))
    return {name: Given(result, getattr(said, name), op, a, b, base)}


def _of_linear(row, said, integers):
    x = made("x", (T, K), row.first, integers).requires_grad_()
    weight = made("w", (K, N), row.second, integers).T.contiguous().requires_grad_()
    base = None
    if row.mode == "accumulate":
        base = _base((N, K), integers)
        weight.main_grad = base.clone()
    with autocast(row):
        deterministic = row.determinism == "argument"
        y = layers.linear(x, weight, deterministic=deterministic)
    dy = made("dy", (T, N), name_of(y.dtype), integers)
    y.backward(dy)
    x_grad, dw = x.grad, weight.grad
    if base is not None:
        assert weight.grad is None
        dw = weight.main_grad
    computed = getattr(torch, row.computed_in)
    x, weight = x.detach().to(computed), weight.detach().to(computed)
    return {
        "y": Given(y.detach(), said.y, "forward", x, weight.T),
        "dx": Given(x_grad, said.dx, "dx", dy, weight.T),
        "dw": Given(dw, said.dw, "dw", dy, x, base),
    }


def _base(shape, integers: bool) -> torch.Tensor:
    """What a gradient holds already."""
    if integers:
        return torch.full(shape, 2049.0, device=DEVICE)
    return operand(shape, torch.float32, seed=9).clone()


@every_row
def test_dtypes_and_roundings(row):
    """Each result is the fp32 sum, rounded on its way through just these dtypes.

    The sums are exact, so the bits tell; and each promised rounding changes some.
    pytorch/pytorch#87979, fla-org/flash-linear-attention#1264
    """
    with asked(row):
        found = given(row, integers=True)
    for name, one in found.items():
        assert name_of(one.result.dtype) == one.path[-1], name
        expected = exact = exact_product(one.op, one.a, one.b, one.base)
        for dtype in one.path:
            expected = expected.to(getattr(torch, dtype))
        assert torch.equal(one.result, expected), name
        assert torch.equal(expected.double(), exact) == (not roundings(one.path)), name


@every_row
def test_every_run(row, plans):
    """Run after run the errors are at most twice the vendor's; and if the row says so,
    the bits of every run are the same.

    Tiles of dW are shared where they may be, in one of the ways that the row names.
    triton-lang/triton#6227, microsoft/onnxruntime#27003
    """
    said, bits = promise(row), {}
    chained = said.products == "ieee" and said.reductions == ("none",)
    for _ in range(RUNS):
        with asked(row):
            found = given(row, integers=False)
        for name, one in found.items():
            # Wider than what it was rounded to, it holds no more than that.
            coarsest = min(one.path, key=promises.DIGITS.get)
            with fp32_precision("tf32" if said.products == "tf32" else "ieee"):
                narrow = one.result.to(getattr(torch, coarsest))
                assert_as_exact_as_vendor(
                    narrow, one.op, one.a, one.b, one.base, chained=chained
                )
            seen = one.result.cpu().view(torch.uint8).numpy().tobytes()
            bits.setdefault(name, set()).add(seen)
    for name, seen in bits.items():
        assert len(seen) == 1 or (name == "dw" and not said.repeats), name
    assert bool(plans) == bool(said.dw)
    for plan in plans:
        shared = plan.split_t > 1 or plan.kernel == "stream_k"
        assert plan.reduction in said.reductions and (
            shared == (said.reductions != ("none",))
        )


@pytest.mark.gpu
@pytest.mark.kernels("fast")
@pytest.mark.parametrize("call", promises.OPERANDS)
def test_tf32_is_what_it_says(call):
    """Asked for TF32, products are rounded; asked for ieee, they are those of fp32."""
    results = {}
    for precision in ("ieee", "tf32"):
        row = Row(call, "float32", "float32", precision=precision)
        with asked(row):
            results[precision] = given(row, integers=False)
    for name, exactly in results["ieee"].items():
        exact = exact_product(exactly.op, exactly.a, exactly.b)
        errors = [
            torch.linalg.norm(results[precision][name].result - exact)
            for precision in ("ieee", "tf32")
        ]
        assert errors[1] > 20 * errors[0], name


def test_the_table_is_of_what_the_library_takes():
    """Its dtypes are the library's and hold as many digits; each call has a row."""
    assert {name_of(dtype) for dtype in host.DTYPES} == set(promises.DTYPES)
    assert {row.call for row in PROMISED} == set(promises.OPERANDS)
    for dtype, digits in promises.DIGITS.items():
        assert torch.finfo(getattr(torch, dtype)).eps == 2.0 ** (1 - digits)
