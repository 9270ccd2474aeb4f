"""The program that compute-sanitizer watches: every kernel, at small odd sizes.

    python -m generate.record.sanitized [--cleared] [--part 0/8 | --control memcheck]

launches every kernel of the lesson and of kernels/fast in each op, mode, reduction
and dtype, the public functions as they plan, and `linear` with its gradients. It
compares every result with fp64, and its last line is JSON: `launches` of each kernel,
how many `results` were compared, and which were `wrong`. --part takes every eighth
product, to compile them on several cores beforehand. --cleared clears workspaces that
descriptors write, for initcheck does not see all that they do. --control launches
instead the one kernel of `CONTROLS` that is broken so that the tool must report it.

Numbers are made and compared on the CPU, so that the framework launches next to
nothing. Every tensor ends where its allocation does, if the framework's allocator
does not cache (PYTORCH_NO_CUDA_MEMORY_CACHING=1): what is beyond is nobody's.
"""

import argparse
import contextlib
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl

from generate.record.calls import standing_in
from kernels import host, layers, ops
from kernels.fast import ops as fast
from kernels.plan import FastPlan, Tile, output_tiles

INTERPRETED = triton.knobs.runtime.interpret
DEVICE = "cpu" if INTERPRETED else "cuda"
# Where the kernels are launched from, and found by their names.
LAUNCHING = (ops, layers, host, fast)
PUBLIC = {"forward": ops.matmul, "dx": ops.matmul_dx, "dw": ops.matmul_dw}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
MODES = ("overwrite", "accumulate")
# Steps between rows and columns, and the offset of the first element, of a matrix of
# so many rows and columns; of the last two, descriptors can read and write tiles.
LAYOUTS = {
    "plain": lambda rows, columns: (columns, 1, 0),
    "pitched": lambda rows, columns: (columns + 7, 1, 1),
    "gapped": lambda rows, columns: (2 * columns + 5, 2, 3),
    "swapped": lambda rows, columns: (1, rows + 3, 0),
    "aligned": lambda rows, columns: (-(-columns // 8) * 8 + 8, 1, 64),
    "aligned, swapped": lambda rows, columns: (1, -(-rows // 8) * 8 + 8, 64),
}
# Rows, depth and columns of products: tails along every axis, of outputs that
# descriptors can write; one element, one row, no whole tile; and some real tiles.
TAILS = (136, 203, 72)
EDGES = ((1, 1, 1), (1, 129, 33), (65, 1, 17), (127, 33, 1))
PLANNED = (520, 264, 136)
# (kernel, reduction, split over the contraction, parts) of fast plans.
WHOLE = (
    ("grouped", "none", 1, 1),
    ("pitched", "none", 1, 1),
    ("descriptor", "none", 1, 1),
    ("persistent", "none", 1, 2),
    ("persistent", "none", 1, 4),
    ("split", "none", 1, 2),
)
SHARED = (
    ("grouped", "atomic", 3, 1),
    ("grouped", "workspace", 3, 1),
    ("pitched", "atomic", 3, 1),
    ("pitched", "workspace", 3, 1),
    ("split", "atomic", 3, 2),
    ("split", "workspace", 20, 2),
    ("stream_k", "atomic", 1, 2),
    ("stream_k", "workspace", 1, 2),
)
PROGRAMS = 5


@dataclass(frozen=True)
class Product:
    """One call: of a public function, or of the fast kernel that `form` names."""

    op: str
    size: tuple[int, int, int]
    dtype: torch.dtype
    layouts: tuple[str, str, str] = ("plain", "plain", "plain")
    mode: str = "overwrite"
    form: tuple[str, str, int, int] | None = None
    choices: dict = field(default_factory=dict)

    def __str__(self):
        words = (self.op, self.size, self.dtype, self.layouts, self.mode, self.form)
        return " ".join(map(str, (*words, self.choices)))


def products() -> list[Product]:
    """What is called, of every kernel."""
    return [*_lesson(), *_edges(), *_fast(), *_planned()]


def _lesson() -> list[Product]:
    found = []
    odd = ("pitched", "gapped", "swapped")
    for op in PUBLIC:
        for dtype in (BF16, FP16, FP32):
            found.append(Product(op, TAILS, dtype, odd, choices={"tile": _tile(op)}))
    for mode in MODES:
        for reduction, split_t in (("none", 1), ("atomic", 3), ("workspace", 20)):
            lesson = {"tile": _tile("dw"), "reduction": reduction, "split_t": split_t}
            found.append(Product("dw", TAILS, BF16, odd, mode, choices=lesson))
    return found


def _edges() -> list[Product]:
    found = []
    for op in PUBLIC:
        for edge in EDGES:
            found.append(Product(op, edge, FP16, choices={"tile": _tile(op)}))
            found.append(Product(op, edge, FP16))
    lesson = {"tile": _tile("dw"), "reduction": "workspace", "split_t": 3}
    found.append(Product("dw", (65, 7, 33), FP16, choices=lesson))
    return found


def _fast() -> list[Product]:
    rows = ("aligned", "aligned", "aligned")
    columns = ("aligned, swapped",) * 3
    found = []
    for op in PUBLIC:
        found += [Product(op, TAILS, BF16, rows, form=form) for form in WHOLE[:4]]
        found.append(Product(op, TAILS, BF16, columns, form=WHOLE[3]))
    for dtype in (FP16, FP32):
        for form in WHOLE[:4]:
            found.append(Product("forward", TAILS, dtype, rows, form=form))
    for form in WHOLE:
        found.append(Product("dw", TAILS, BF16, rows, "accumulate", form))
    for form in SHARED:
        for mode in MODES:
            found.append(Product("dw", TAILS, BF16, rows, mode, form))
    return found


def _planned() -> list[Product]:
    found = []
    for op in PUBLIC:
        for layout in ("aligned", "pitched"):
            found.append(Product(op, PLANNED, BF16, (layout,) * 3))
    for mode in MODES:
        for reduction in ("none", "workspace"):
            choices = {"reduction": reduction}
            found.append(
                Product("dw", PLANNED, BF16, ("aligned",) * 3, mode, choices=choices)
            )
    return found


def _tile(op: str) -> Tile:
    return Tile(*_shape(op, 64, 32, 64), num_warps=4, num_stages=3)


def _shape(op: str, rows: int, depth: int, columns: int) -> tuple[int, int, int]:
    """T, K and N of a product."""
    return {
        "forward": (rows, depth, columns),
        "dx": (rows, columns, depth),
        "dw": (depth, rows, columns),
    }[op]


# Running them


@dataclass
class Tally:
    """Launches of each kernel, and what its results came to."""

    launches: Counter = field(default_factory=Counter)
    results: int = 0
    wrong: list[str] = field(default_factory=list)

    def compare(self, what: str, result: torch.Tensor, exact: torch.Tensor) -> None:
        """Bit for bit: small integers, which every order sums without error."""
        self.results += 1
        if not torch.equal(result.cpu(), exact.to(result.dtype)):
            self.wrong.append(f"{what}: not the exact result")


class Counted:
    """A kernel whose launches are counted."""

    def __init__(self, name: str, kernel, launches: Counter):
        self.name, self.kernel, self.launches = name, kernel, launches

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            self.launches[self.name] += 1
            self.kernel[grid](*arguments, **constants)

        return launch


def kernel_names() -> list[str]:
    """Every kernel that the public functions may launch."""
    return sorted(
        {
            name
            for module in LAUNCHING
            for name in vars(module)
            if name.endswith("_kernel") and not name.startswith("_")
        }
    )


def run(chosen: list[Product], tally: Tally) -> None:
    """Call each product, count launches, and compare what comes out."""
    with _counted(tally.launches):
        for product in chosen:
            _call(product, tally)


@contextlib.contextmanager
def _counted(launches: Counter):
    with contextlib.ExitStack() as stack:
        for module in LAUNCHING:
            counted = {
                name: Counted(name, vars(module)[name], launches)
                for name in kernel_names()
                if name in vars(module)
            }
            stack.enter_context(standing_in(module, **counted))
        yield


def _call(product: Product, tally: Tally) -> None:
    op, dtype, mode = product.op, product.dtype, product.mode
    if INTERPRETED and dtype == BF16:
        dtype = FP16  # whose arithmetic the interpreter has
    rows, depth, columns = product.size
    left, right = _integers(rows, depth, seed=1), _integers(depth, columns, seed=2)
    given = left.T if op == "dw" else left, right.T if op == "dx" else right
    a, b = (
        _tensor(values, dtype, layout)[0]
        for values, layout in zip(given, product.layouts[:2], strict=True)
    )
    accumulate = mode == "accumulate"
    before = torch.full((rows, columns), 5.0 if accumulate else math.nan)
    out_dtype = FP32 if op == "dw" else dtype
    out, storage = _tensor(before, out_dtype, product.layouts[2])
    choices = product.choices | {"out": out} | ({"mode": mode} if op == "dw" else {})
    if product.form is None:
        PUBLIC[op](a, b, **choices)
    else:
        fast.multiply(op, a, b, **choices, plan=_plan(product))
    exact = left.double() @ right.double()
    # The whole allocation comes back at once: nothing else reads it on the GPU.
    storage = storage.cpu()
    result = storage.as_strided(out.shape, out.stride(), out.storage_offset())
    tally.compare(str(product), result, exact + before if accumulate else exact)
    result.fill_(math.nan)
    if not storage.isnan().all():
        tally.wrong.append(f"{product}: written beyond the output")


def _plan(product: Product) -> FastPlan:
    op, (kernel, reduction, split_t, parts) = product.op, product.form
    return FastPlan(
        op=op,
        kernel=kernel,
        tile=_tile(op),
        tiles=output_tiles(op, _shape(op, *product.size), _tile(op)),
        programs=PROGRAMS,
        parts=parts,
        split_t=split_t,
        reduction=reduction,
    )


def _integers(rows: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, (rows, columns), generator=generator)


def _tensor(
    values: torch.Tensor, dtype: torch.dtype, layout: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """A view that holds `values`, and its storage, NaN elsewhere, ending with it."""
    rows, columns = values.shape
    row_step, column_step, offset = LAYOUTS[layout](rows, columns)
    size = offset + (rows - 1) * row_step + (columns - 1) * column_step + 1
    storage = torch.full((size,), math.nan, dtype=dtype)
    place = values.shape, (row_step, column_step), offset
    storage.as_strided(*place).copy_(values)
    storage = storage.to(DEVICE)
    return storage.as_strided(*place), storage


def clear_workspaces() -> None:
    """From now on, what is made for the fast kernels alone begins as zeros.

    Descriptors write it; outputs are made otherwise.
    """
    for name in ("empty", "empty_strided"):

        def cleared(*size, make=getattr(torch, name), **options):
            return make(*size, **options).zero_()

        setattr(torch, name, cleared)


def run_linear(tally: Tally) -> None:
    """Forward and backward, into new gradients and into main_grad."""
    with _counted(tally.launches):
        _run_linear(tally)


def _run_linear(tally: Tally) -> None:
    low = FP16 if INTERPRETED else BF16
    for dtype, (T, K, N), main in ((FP32, (33, 17, 9), False), (low, TAILS, True)):
        x, weight, dy = (
            _integers(*size, seed).to(dtype)
            for seed, size in enumerate(((T, K), (N, K), (T, N)))
        )
        placed = [tensor.to(DEVICE) for tensor in (x, weight, dy)]
        leaves = [tensor.requires_grad_() for tensor in placed[:2]]
        if main:
            leaves[1].main_grad = torch.full((N, K), 5.0).to(DEVICE)
        y = layers.linear(*leaves)
        y.backward(placed[2])
        x, weight, dy = x.double(), weight.double(), dy.double()
        what = f"linear {dtype} {(T, K, N)}"
        tally.compare(f"{what} y", y.detach(), x @ weight.T)
        tally.compare(f"{what} dx", leaves[0].grad, dy @ weight)
        dw = leaves[1].main_grad if main else leaves[1].grad
        tally.compare(f"{what} dw", dw, dy.T @ x + (5.0 if main else 0.0))


# Broken on purpose: what each tool must report before its silence means anything


@triton.jit
def beyond_kernel(out_ptr, SIZE: tl.constexpr):
    """out[SIZE // 2 ..] = 0 for SIZE elements of the SIZE that there are."""
    offsets = SIZE // 2 + tl.arange(0, SIZE)
    tl.store(out_ptr + offsets, tl.zeros((SIZE,), dtype=tl.float32))


@triton.jit
def unwritten_kernel(x_ptr, out_ptr, SIZE: tl.constexpr):
    """out = x, which nobody has written."""
    offsets = tl.arange(0, SIZE)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def racing_kernel(out_ptr, SIZE: tl.constexpr):
    """Threads of two warps exchange numbers in shared memory without a barrier.

    Triton puts a barrier wherever one is needed: only assembly goes without.
    """
    lanes = tl.arange(0, SIZE)
    others = tl.inline_asm_elementwise(
        """
        {
        .shared .align 4 .b32 exchange[128];
        .reg .b32 base, mine, other;
        mov.u32 base, exchange;
        shl.b32 mine, $1, 2;
        xor.b32 other, mine, 256;
        add.u32 mine, base, mine;
        add.u32 other, base, other;
        st.shared.b32 [mine], $1;
        ld.shared.b32 $0, [other];
        }
        """,
        "=r,r",
        [lanes],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out_ptr + lanes, others)


def _beyond() -> None:
    beyond_kernel[(1,)](torch.zeros(128).to(DEVICE), 128, num_warps=4)


def _unwritten() -> None:
    x = torch.empty(128, device=DEVICE)
    unwritten_kernel[(1,)](x, torch.zeros(128).to(DEVICE), 128, num_warps=4)


def _racing() -> None:
    out = torch.zeros(128, dtype=torch.int32).to(DEVICE)
    racing_kernel[(1,)](out, 128, num_warps=4)


# Of each tool: the kernel that it must report, and what launches it.
CONTROLS: dict[str, tuple[str, Callable[[], None]]] = {
    "memcheck": ("beyond_kernel", _beyond),
    "racecheck": ("racing_kernel", _racing),
    "initcheck": ("unwritten_kernel", _unwritten),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cleared", action="store_true")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--control", choices=CONTROLS)
    arguments = parser.parse_args()
    if arguments.control:
        CONTROLS[arguments.control][1]()
        torch.cuda.synchronize()
        return
    part, parts = map(int, arguments.part.split("/"))
    if arguments.cleared:
        clear_workspaces()
    tally = Tally()
    run(products()[part::parts], tally)
    if part == 0:
        run_linear(tally)
    if parts == 1:
        absent = set(kernel_names()) - set(tally.launches)
        tally.wrong += [f"{name}: never launched" for name in sorted(absent)]
    print(json.dumps(vars(tally)))


if __name__ == "__main__":
    main()
