"""What the products and `linear` promise for all that they can be asked.

Data and arithmetic alone: no torch, no Triton. `ROWS` are the combinations that
mean something, `promise` says what a caller gets of each, and `REFUSALS` what is
refused besides. kernels/layers.py reads it, the page "What it promises" is rendered
from it, and each row and refusal is a case of a test.
"""

from dataclasses import dataclass
from itertools import groupby, product
from typing import Literal, get_args

from kernels.plan import Mode, Reduction

Call = Literal["matmul", "matmul_dx", "matmul_dw", "linear"]

# Significant bits of what is multiplied.
DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24}
DTYPES = tuple(DIGITS)
# What products are summed in, and what a gradient that is added to is kept in.
SUMS = "float32"
# Stands for every dtype that is not taken.
OTHER = "float64"

OPERANDS = {
    "matmul": ("x", "w"),
    "matmul_dx": ("dy", "w"),
    "matmul_dw": ("x", "dy"),
    "linear": ("x", "weight"),
}
AUTOCASTS = ("off", "bfloat16", "float16")
MODES = get_args(Mode)
REDUCTIONS = ("default", *get_args(Reduction))
DETERMINISM = ("off", "framework", "argument")


@dataclass(frozen=True)
class Row:
    """A call, and all that decides what it gives.

    first, second: dtypes of its operands, for `linear` of x and weight. autocast: the
    dtype of torch.autocast. precision: torch.backends.cuda.matmul.fp32_precision
    where it counts, else "either". mode: of dW; "accumulate" is, for `linear`, a
    weight with a main_grad. reduction: of matmul_dw, "default" if none is given.
    determinism: "framework", torch.use_deterministic_algorithms, or "argument",
    deterministic=True of `linear`.
    """

    call: Call
    first: str
    second: str
    autocast: str = "off"
    precision: str = "either"
    mode: Mode = "overwrite"
    reduction: str = "default"
    determinism: str = "off"

    @property
    def casts(self) -> bool:
        """Whether operands are cast: by `linear` under autocast, by nothing else."""
        return self.call == "linear" and self.autocast != "off"

    @property
    def computed_in(self) -> str:
        """The dtype in which both operands are multiplied."""
        return self.autocast if self.casts else self.first


@dataclass(frozen=True)
class Promise:
    """products: "exact", or how fp32 ones are rounded, "ieee" or "tf32".

    y, dx, dw: the dtypes that the fp32 sum goes through, the last of them the
    result's; empty for what the call does not give. reductions: how programs that
    share a tile of dW may bring their sums together.
    """

    products: str
    y: tuple[str, ...] = ()
    dx: tuple[str, ...] = ()
    dw: tuple[str, ...] = ()
    reductions: tuple[Reduction, ...] = ("none",)

    @property
    def repeats(self) -> bool:
        """Whether the bits are the same in every run."""
        return "atomic" not in self.reductions


@dataclass(frozen=True)
class Refusal:
    """error: its type. begins: the first words of its one sentence."""

    error: str
    begins: str


def promise(row: Row) -> Promise | Refusal:
    """What a caller gets."""
    names = OPERANDS[row.call]
    for name, dtype in zip(names, (row.first, row.second), strict=True):
        if dtype not in DTYPES:
            return Refusal("TypeError", f"{name} must be of bfloat16, float16, float32")
    if row.first != row.second and not row.casts:
        return Refusal(
            "TypeError", f"{names[1]} must be torch.{row.first} like {names[0]}"
        )
    computed = row.computed_in
    products = row.precision if computed == "float32" else "exact"
    if row.call == "matmul":
        return Promise(products, y=_through(SUMS, computed))
    if row.call == "matmul_dx":
        return Promise(products, dx=_through(SUMS, computed))
    shared = row.reduction
    if shared == "default":
        shared = "atomic" if row.determinism == "off" else "workspace"
    reductions = ("none",) if shared == "none" else ("none", shared)
    if row.call == "matmul_dw":
        return Promise(products, dw=(SUMS,), reductions=reductions)
    kept = SUMS if row.mode == "accumulate" else row.second
    return Promise(
        products,
        y=_through(SUMS, computed),
        dx=_through(SUMS, computed, row.first),
        dw=_through(SUMS, kept),
        reductions=reductions,
    )


def roundings(path: tuple[str, ...]) -> int:
    """How often a value loses digits on its way through these dtypes."""
    held, count = DIGITS[path[0]], 0
    for digits in map(DIGITS.get, path[1:]):
        count += digits < held
        held = min(held, digits)
    return count


def _through(*dtypes: str) -> tuple[str, ...]:
    """A path, without the steps that change nothing."""
    return tuple(dtype for dtype, _ in groupby(dtypes))


def _computed(dtype: str) -> tuple[str, ...]:
    """The precisions that make a difference to products of a dtype."""
    return ("ieee", "tf32") if dtype == "float32" else ("either",)


def _rows():
    """Each axis is varied with all that it could have to do with."""
    for dtype in DTYPES:
        for precision in _computed(dtype):
            for autocast in AUTOCASTS:
                for call in ("matmul", "matmul_dx", "matmul_dw"):
                    yield Row(call, dtype, dtype, autocast, precision)
            dw = ("matmul_dw", dtype, dtype, "off", precision)
            linear = ("linear", dtype, dtype, "off", precision)
            for mode in MODES:
                for reduction, determinism in product(REDUCTIONS, DETERMINISM[:2]):
                    yield Row(*dw, mode, reduction, determinism)
                for determinism in DETERMINISM:
                    yield Row(*linear, mode, determinism=determinism)
    for x, weight in product(DTYPES, repeat=2):
        for autocast, mode in product(AUTOCASTS[1:], MODES):
            yield Row("linear", x, weight, autocast, mode=mode)
    for call in get_args(Call):
        for first, second in product((*DTYPES, OTHER), repeat=2):
            if first != second or first == OTHER:
                yield Row(call, first, second)
    for autocast in AUTOCASTS[1:]:
        for first, second in ((OTHER, "float32"), ("float32", OTHER)):
            yield Row("linear", first, second, autocast)
        for call in ("matmul", "matmul_dx", "matmul_dw"):
            yield Row(call, "float32", autocast, autocast)


ROWS = tuple(dict.fromkeys(_rows()))

# What is refused besides the rows that `promise` refuses, by what is wrong: in a call
# of matmul_dw, or of linear, at (T, K, N).
REFUSED_AT = (6, 4, 5)
REFUSALS = {
    "an operand that is no tensor": Refusal("TypeError", "x must be a torch.Tensor"),
    "an operand that is sparse": Refusal("TypeError", "x must be a strided tensor"),
    "an operand that is lazily negated": Refusal(
        "ValueError", "x must not be a lazily negated view"
    ),
    "an operand whose memory was freed": Refusal("ValueError", "x must have memory"),
    "an operand of three dimensions": Refusal("ValueError", "x must have 2 dimensions"),
    "operands of different T": Refusal("ValueError", "dy must be [6, 5]"),
    "an x of another K than the weight": Refusal(
        "ValueError", "x must be [..., 4] as weight is [5, 4]"
    ),
    "a bias of another size": Refusal("ValueError", "bias must be [5]"),
    "operands on two GPUs": Refusal("ValueError", "dy must be on cuda:0 like x"),
    "a gradient on another GPU": Refusal("ValueError", "out must be on cuda:0 like x"),
    "tensors on the CPU, without the interpreter": Refusal(
        "ValueError", "x must be on a CUDA device"
    ),
    "operands of bf16 on a GPU that has none": Refusal(
        "TypeError", "x is bfloat16, which needs compute capability 8.0"
    ),
    "a GPU whose shared memory holds no tile": Refusal(
        "ValueError", "the smallest dw tile needs"
    ),
    "a tile that the shared memory does not hold": Refusal(
        "ValueError", "tile must fit"
    ),
    "a tile of more warps than a program can have": Refusal(
        "ValueError", "tile must have at most 32 warps"
    ),
    "a size just below 2³¹ in kernels of the lesson": Refusal(
        "ValueError", 'implementation must be "fast"'
    ),
    "a gradient of 16 bits": Refusal("TypeError", "out must be of float32"),
    "a main_grad of 16 bits": Refusal(
        "TypeError", "weight.main_grad must be of float32"
    ),
    "a gradient of another shape": Refusal("ValueError", "out must be [4, 5]"),
    "a main_grad of another shape": Refusal(
        "ValueError", "weight.main_grad must be [5, 4]"
    ),
    "a gradient that overlaps itself": Refusal(
        "ValueError", "out must not overlap itself"
    ),
    "a main_grad that overlaps itself": Refusal(
        "ValueError", "weight.main_grad must not overlap itself"
    ),
    "a gradient inside an operand": Refusal(
        "ValueError", "out must not reach into the memory of x"
    ),
    "a main_grad inside the weight": Refusal(
        "ValueError", "weight.main_grad must not reach into the memory of weight"
    ),
    "a gradient that requires grad": Refusal("ValueError", "out must not require grad"),
    "accumulating into nothing": Refusal(
        "ValueError", "out must be given to accumulate into"
    ),
    "a mode that there is none of": Refusal("ValueError", "mode must be one of"),
    "a reduction that there is none of": Refusal(
        "ValueError", "reduction must be one of"
    ),
    "a second derivative": Refusal("RuntimeError", "linear has no second derivative"),
}
