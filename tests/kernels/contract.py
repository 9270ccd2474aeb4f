"""The contract of the arithmetic, in one place for every test of it.

`check` multiplies under hostile conditions: operands and output are views into
storages that are NaN elsewhere. The result is held against fp64: either within
what the vendor library makes of the same inputs (`assert_as_exact_as_vendor`),
or, where only addresses are in question, exactly, on small integers that every
order of addition sums without error (`assert_exact`).
"""

import contextlib
import math
from typing import Any

import pytest
import torch
import triton

from kernels import host, ops
from kernels.plan import Tile, cdiv, contracted_blocks, output_tiles

# The interpreter multiplies the bit patterns of bf16 (triton-lang/triton#11584):
# no tolerance makes a test of that, so bf16 runs on GPUs alone.
INTERPRETED = triton.knobs.runtime.interpret
DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPES = (torch.float16, torch.float32)
if not INTERPRETED:
    DTYPES = (torch.bfloat16, *DTYPES)

OPS = [
    pytest.param(op, marks=pytest.mark.kernels(op)) for op in ("forward", "dx", "dw")
]
REDUCTIONS = [
    pytest.param("none", marks=pytest.mark.kernels("dw")),
    pytest.param("atomic", marks=pytest.mark.kernels("dw")),
    pytest.param("workspace", marks=pytest.mark.kernels("dw", "reduce")),
]

# (rows, contracted, columns, num_warps, num_stages)
TILES = (
    (16, 16, 16, 1, 1),
    (128, 64, 32, 4, 3),
    (32, 32, 128, 8, 1),
    (128, 64, 128, 8, 3),
)

# The module that launches each kernel of the lesson.
LAUNCHING = {"forward": ops, "dx": ops, "dw": ops, "reduce": host}

# As it was before the tests poison it: for memory too large to be touched.
untouched_memory = torch.empty


def name_of(dtype: Any) -> str:
    """The id of a dtype as a parameter: float16, not dtype0."""
    return str(dtype).removeprefix("torch.")


# Each product is left[rows, contracted] · right[contracted, columns].


def shape_of(op: str, rows: int, contracted: int, columns: int):
    """(T, K, N) of a product, given as that of a plain multiplication."""
    return {
        "forward": (rows, contracted, columns),
        "dx": (rows, columns, contracted),
        "dw": (contracted, rows, columns),
    }[op]


def tile_of(op, rows, contracted, columns, num_warps=4, num_stages=2) -> Tile:
    return Tile(*shape_of(op, rows, contracted, columns), num_warps, num_stages)


def shapes(op: str, shape: tuple[int, int, int]):
    """Shapes of both operands and of the output, for (T, K, N)."""
    T, K, N = shape
    return {
        "forward": ((T, K), (K, N), (T, N)),
        "dx": ((T, N), (K, N), (T, K)),
        "dw": ((T, K), (T, N), (K, N)),
    }[op]


def left_and_right(op: str, a: torch.Tensor, b: torch.Tensor):
    return {"forward": (a, b), "dx": (a, b.T), "dw": (a.T, b)}[op]


def compute(op: str, a: torch.Tensor, b: torch.Tensor, **choices) -> torch.Tensor:
    """By the lesson's kernels, if nothing else is chosen."""
    function = {"forward": "matmul", "dx": "matmul_dx", "dw": "matmul_dw"}[op]
    choices.setdefault("implementation", "lesson")
    return getattr(ops, function)(a, b, **choices)


def small_tile(op: str, shape: tuple[int, int, int], split_t: int = 1) -> Tile:
    """A tile for several programs and blocks at little cost.

    To the interpreter a large block costs what a small one does, so there the
    tile grows with the product. On a GPU, where each compilation takes a second,
    one tile serves all; and odd sizes and strides share a specialisation.
    """
    if not INTERPRETED:
        return tile_of(op, 64, 32, 64, num_stages=3)
    for edge in (16, 32, 64, 128, 256, 512):
        tile = tile_of(op, edge, edge, edge)
        steps = max(split_t, contracted_blocks(op, shape, tile))
        if output_tiles(op, shape, tile) * steps <= 24:
            break
    return tile


# Operands and outputs in memory


# Steps between rows and columns, and the offset of the first element, of an
# operand of so many rows and columns. Odd offsets and pitches take the alignment.
LAYOUTS = {
    "plain": lambda rows, columns: (max(1, columns), 1, 64),
    "pitched": lambda rows, columns: (columns + 7, 1, 65),
    "swapped": lambda rows, columns: (1, rows + 3, 64),
    "gapped": lambda rows, columns: (2 * columns + 5, 2, 67),
    "row repeated": lambda rows, columns: (0, 1, 64),
    "column repeated": lambda rows, columns: (1, 0, 65),
    "one value": lambda rows, columns: (0, 0, 64),
}
OUTPUT_LAYOUTS = ("plain", "pitched", "swapped", "gapped")
# Sums of one value repeated round alike every time: by them no error is judged.
REPEATED_LAYOUTS = set(LAYOUTS).difference(OUTPUT_LAYOUTS)
# What a block of 64 may reach beyond an operand if nothing masks it.
BEYOND = 64


def in_nan(shape: tuple[int, int], layout: str, dtype: torch.dtype):
    """(storage, view): a storage of NaN and a view of `shape` in its midst."""
    rows, columns = shape
    row_step, column_step, offset = LAYOUTS[layout](rows, columns)
    reach = (rows + BEYOND) * row_step + (columns + BEYOND) * column_step
    storage = torch.full((offset + reach + 64,), torch.nan, dtype=dtype, device=DEVICE)
    return storage, storage.as_strided(shape, (row_step, column_step), offset)


def operand(
    shape: tuple[int, int],
    dtype: torch.dtype,
    *,
    layout: str = "plain",
    integers: bool = False,
    seed: int = 0,
) -> torch.Tensor:
    """Normally distributed numbers, or integers from -2 to 2, in NaN."""
    generator = torch.Generator().manual_seed(seed)
    if integers:
        values = torch.randint(-2, 3, shape, generator=generator)
    else:
        values = torch.randn(shape, generator=generator)
    _, view = in_nan(shape, layout, dtype)
    once = view[
        : 1 if view.stride(0) == 0 else shape[0],
        : 1 if view.stride(1) == 0 else shape[1],
    ]
    once.copy_(values[: once.shape[0], : once.shape[1]])
    return view


class Output:
    """Somewhere to write to, in NaN: `tensor`, holding NaN or what it is given."""

    def __init__(self, shape, dtype, *, layout="plain", holding=math.nan):
        self.storage, self.tensor = in_nan(shape, layout, dtype)
        self.tensor.fill_(holding)

    def assert_surroundings_untouched(self):
        t = self.tensor
        around = self.storage.clone()
        around.as_strided(t.shape, t.stride(), t.storage_offset()).fill_(torch.nan)
        assert around.isnan().all(), "written beyond the output"


FAR = 2**30 + 8  # the third entry lies beyond 2**31 elements


def far_apart(values: torch.Tensor, axis: int) -> torch.Tensor:
    """`values` with entries FAR apart along `axis`; the memory between is untouched."""
    step = (FAR, 1) if axis == 0 else (1, FAR)
    reach = sum((n - 1) * s for n, s in zip(values.shape, step, strict=True)) + 1
    need_memory(reach * values.itemsize)
    storage = untouched_memory(reach, dtype=values.dtype, device=DEVICE)
    view = storage.as_strided(values.shape, step)
    assert reach > 2**31
    return view.copy_(values)


def need_memory(size_bytes: int):
    """Skip where the GPU has less memory free; the interpreter's is never touched."""
    if not INTERPRETED:
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        if free < size_bytes:
            pytest.skip(f"needs {size_bytes / 2**30:.0f} GiB of free GPU memory")


# Right and wrong


def exact_product(op, a, b, base=None) -> torch.Tensor:
    """The product in fp64, of a, b and base as they are."""
    left, right = left_and_right(op, a.double(), b.double())
    product = left @ right
    return product if base is None else product + base.double()


def vendor_product(op, a, b, dtype, base=None) -> torch.Tensor:
    """What the vendor library makes of it, at its most exact.

    fp32 partial sums; and, on a GPU, operands repeated until the product fills
    the chip, so that the vendor has no cause to split the contraction, which
    changes how errors add up.
    """
    left, right = (m.contiguous() for m in left_and_right(op, a, b))
    if not left.numel() or not right.numel():
        return exact_product(op, a, b, base).to(dtype)
    if left.device.type == "cpu":
        product = left.float() @ right.float()
        return (product if base is None else base + product).to(dtype)
    settings = torch.backends.cuda.matmul
    settings.allow_bf16_reduced_precision_reduction = False
    settings.allow_fp16_reduced_precision_reduction = False
    (rows, _), columns = left.shape, right.shape[1]
    down, across = cdiv(4096, rows), cdiv(4096, columns)
    left, right = left.repeat(down, 1), right.repeat(1, across)
    if op == "dw":
        left = left.T.contiguous().T  # X as it lies in a backward pass
    if op == "dx":
        right = right.T.contiguous().T  # W, likewise
    widened = left.dtype.itemsize < dtype.itemsize
    out_dtype = {"out_dtype": torch.float32} if widened else {}
    if base is None:
        product = torch.mm(left, right, **out_dtype)
    else:
        product = torch.addmm(base.repeat(down, across), left, right, **out_dtype)
    return product[:rows, :columns].to(dtype)


@contextlib.contextmanager
def fp32_precision(precision: str):
    """How the framework, and with it the host API, rounds fp32 products."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = precision
    try:
        yield
    finally:
        settings.fp32_precision = before


def product_epsilon(dtype: torch.dtype) -> float:
    """Spacing at 1 of the numbers that products are made and summed in."""
    tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32" and not INTERPRETED
    if dtype == torch.float32 and tf32:
        return 2.0**-10
    return torch.finfo(torch.float32).eps


def assert_as_exact_as_vendor(ours, op, a, b, base=None, *, chained=False):
    """Our error is at most twice the vendor's, in the largest and in the 2-norm.

    Errors are against fp64. Where the vendor is exact by luck, as on tiny
    products, an error is allowed that no correct result can be denied:
        floor = ε/2 · |result| + 2 · ε(products) · √(Σ left²·right²)
    one rounding of the result, ε being the coarser of output and products, and
    independent roundings of the products. And where the vendor is wrong (cuBLASLt
    has lost the tails of contractions), it excuses nobody: twice its error counts
    up to what summing in any order may give,
        worst = ε · |result| + ε(products) · contracted · Σ |left|·|right|
    chained: the sum is one chain of additions, which the vendor may cut; the floor
    is then at least 1.5 · ε(products) · √contracted · √(Σ left²·right²), above what
    independent roundings of so many partial sums come to.
    """
    exact = exact_product(op, a, b, base)
    assert ours.shape == exact.shape
    if not exact.numel():
        return
    left, right = left_and_right(op, a.double(), b.double())
    squares, sizes = left.square() @ right.square(), left.abs() @ right.abs()
    if base is not None:
        squares, sizes = squares + base.double().square(), sizes + base.double().abs()
    epsilon = product_epsilon(a.dtype)
    rounding = max(torch.finfo(ours.dtype).eps, epsilon) * exact.abs()
    floor = rounding / 2 + 2 * epsilon * squares.sqrt()
    if chained:
        floor = floor.maximum(1.5 * epsilon * left.shape[1] ** 0.5 * squares.sqrt())
    worst = rounding + epsilon * left.shape[1] * sizes
    vendor = vendor_product(op, a, b, ours.dtype, base)
    for measure, size in (("largest", _largest), ("2-norm", torch.linalg.norm)):
        error, vendor_error = size(ours - exact), size(vendor - exact)
        allowed = max(size(floor), min(2 * vendor_error, size(worst)))
        assert error <= allowed, (
            f"{measure} error {error:.3g}, allowed {allowed:.3g}, "
            f"vendor's {vendor_error:.3g}"
        )


def _largest(errors: torch.Tensor) -> torch.Tensor:
    return errors.abs().max()


def assert_exact(ours, op, a, b, base=None):
    """Bit for bit the fp64 result, for inputs that every order sums exactly."""
    expected = exact_product(op, a, b, base).to(ours.dtype)
    wrong = ours != expected
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} elements differ"


def check(
    op: str,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    *,
    layouts: tuple[str, str, str] = ("plain", "plain", "plain"),
    integers: bool = False,
    out_dtype: torch.dtype | None = None,
    chained: bool = False,
    **choices,
):
    """Multiply in NaN, into NaN (or onto 5.0 to accumulate), and compare.

    choices: tile, mode, reduction, split_t, as the host API takes them. chained: as
    in `assert_as_exact_as_vendor`.
    """
    a_shape, b_shape, out_shape = shapes(op, shape)
    a = operand(a_shape, dtype, layout=layouts[0], integers=integers, seed=1)
    b = operand(b_shape, dtype, layout=layouts[1], integers=integers, seed=2)
    accumulate = choices.get("mode") == "accumulate"
    out = Output(
        out_shape,
        out_dtype or (torch.float32 if op == "dw" else dtype),
        layout=layouts[2],
        holding=5.0 if accumulate else math.nan,
    )
    base = out.tensor.clone() if accumulate else None
    result = compute(op, a, b, out=out.tensor, **choices)
    assert result is out.tensor
    out.assert_surroundings_untouched()
    if integers:
        assert_exact(result, op, a, b, base)
    else:
        assert_as_exact_as_vendor(result, op, a, b, base, chained=chained)


# Launches


class RecordedKernel:
    """A kernel that notes down what it is launched with, then runs."""

    def __init__(self, name, kernel, log, run=True):
        self.name, self.kernel, self.log, self.run = name, kernel, log, run

    def __getitem__(self, grid):
        def launch(*args, **constants):
            entry = {"kernel": self.name, "grid": grid, **constants}
            self.log.append(entry)
            if self.run:
                entry["compiled"] = self.kernel[grid](*args, **constants)

        return launch


def record_launches(monkeypatch, run: bool = True) -> list[dict]:
    """From now on, every launch of the lesson's; with run=False, unlaunched."""
    log: list[dict] = []
    for name, module in LAUNCHING.items():
        kernel = getattr(module, f"{name}_kernel")
        recorded = RecordedKernel(name, kernel, log, run)
        monkeypatch.setattr(module, f"{name}_kernel", recorded)
    return log
