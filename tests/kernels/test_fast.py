"""The fast kernels: what they compute, what descriptors take, what is compiled.

Triton's interpreter reads and writes by descriptors but cannot add by them, so the
tests lend it that: nothing there vouches for the copy engine's additions, which
only the runs on a GPU do.
"""

import contextlib
import functools
import gc
import math
import re
import weakref
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, interpreter

from generate.record.calls import standing_in
from generate.record.tried import specialized
from kernels import host, ops
from kernels.fast import ops as fast
from kernels.fast.ops import descriptor_fits, multiply
from kernels.plan import (
    COPIED,
    COPY_TIME,
    DENSE,
    HOST_TIME,
    FastKernel,
    FastPlan,
    Layout,
    Reduction,
    contracted_blocks,
    counted_parts,
    fast_plan,
    fast_shared_memory_bytes,
    output_tiles,
    plan,
    product_sizes,
    ranked_plans,
    resident_programs,
)
from tests.kernels.contract import (
    DEVICE,
    DTYPES,
    INTERPRETED,
    LAYOUTS,
    Output,
    RecordedKernel,
    assert_as_exact_as_vendor,
    assert_exact,
    far_apart,
    name_of,
    operand,
    shape_of,
    shapes,
    tile_of,
)
from tests.kernels.test_compile import CompiledKernel, FakeDriver, cuobjdump
from tests.kernels.test_plan import H200

LAUNCHED = (
    "zero",
    "grouped",
    "pitched",
    "descriptor",
    "persistent",
    "split",
    "stream_k",
    "shares",
    "pad",
    "copy",
)
OPS = ("forward", "dx", "dw")
# (kernel, reduction, split over the contraction, parts). A GPU compiles each
# anew, so few differ in more than one thing.
GROUPED = ("grouped", "none", 1, 1)
PITCHED = ("pitched", "none", 1, 1)
PERSISTENT = ("persistent", "none", 1, 2)
WHOLE_FORMS = (
    GROUPED,
    PITCHED,
    ("descriptor", "none", 1, 1),
    PERSISTENT,
    ("persistent", "none", 1, 4),
)
SPLIT_FORMS = (
    ("grouped", "atomic", 3, 1),
    ("grouped", "workspace", 3, 1),
    ("split", "atomic", 3, 2),
    ("split", "atomic", 20, 2),
    ("split", "workspace", 3, 2),
    ("split", "workspace", 20, 2),
    ("stream_k", "atomic", 1, 2),
    ("stream_k", "workspace", 1, 2),
    ("pitched", "atomic", 3, 1),
    ("pitched", "workspace", 3, 1),
)
WORKSPACE_FORMS = [form for form in SPLIT_FORMS[4:] if form[1] == "workspace"]
DETERMINISTIC_FORMS = [form for form in SPLIT_FORMS if form[1] == "workspace"]
# Pitches and beginnings of multiples of 16 bytes, in either order.
ALIGNED = {
    "aligned": lambda rows, columns: (-(-columns // 8) * 8 + 8, 1, 64),
    "aligned, swapped": lambda rows, columns: (1, -(-rows // 8) * 8 + 8, 72),
}

# Tails along every axis of the product, of outputs that descriptors can write.
SHAPES = {op: shape_of(op, 136, 203, 72) for op in OPS}

every_op = pytest.mark.parametrize("op", OPS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
every_mode = pytest.mark.parametrize("mode", ("overwrite", "accumulate"))


def forms(*which):
    return pytest.mark.parametrize(
        "form", which, ids=lambda form: "-".join(map(str, form))
    )


def on_a_device(test):
    """For a test that launches: in the interpreter, and on a GPU."""
    for mark in ("interpreter", "gpu"):
        test = getattr(pytest.mark, mark)(test)
    return pytest.mark.kernels("fast")(test)


@pytest.fixture(autouse=True)
def nothing_prepared(monkeypatch):
    """Each test prepares its launches itself."""
    monkeypatch.setattr(fast, "_prepared", {})


@pytest.fixture(autouse=True)
def aligned_layouts_and_added_tiles(monkeypatch):
    """What the contract's layouts and the interpreter lack."""
    for name, layout in ALIGNED.items():
        monkeypatch.setitem(LAYOUTS, name, layout)
    if INTERPRETED:

        def create_descriptor_reduce(builder, kind, descriptor, value, offsets):
            pointers, inside = descriptor.materialize_pointers(offsets)
            there = builder.create_masked_load(pointers, inside, None, None, None, None)
            there.data = there.data + value.data
            return builder.create_masked_store(pointers, there, inside, None, None)

        monkeypatch.setattr(
            interpreter.InterpreterBuilder,
            "create_descriptor_reduce",
            create_descriptor_reduce,
            raising=False,
        )


def tile_blocks(tile) -> tuple[int, int, int]:
    return tile.block_t, tile.block_k, tile.block_n


def planned(op, form, shape, tile=None, programs=5, copied="neither") -> FastPlan:
    """A plan of several tiles and blocks at small sizes; on a GPU, one tile for all.

    A compilation there takes a second, a block in the interpreter some milliseconds.
    """
    kernel, reduction, split_t, parts = form
    tile = tile or tile_of(op, 64, 64 if INTERPRETED else 32, 64, num_stages=3)
    tiles = output_tiles(op, shape, tile)
    launch = programs, parts, split_t, reduction, copied
    return FastPlan(op, kernel, tile, tiles, *launch)


def check(op, shape, dtype, form, *, mode="overwrite", layouts=None, **choices):
    """Multiply in NaN, into NaN (or onto 5.0 to accumulate), and compare."""
    integers = choices.pop("integers", False)
    a_shape, b_shape, out_shape = shapes(op, shape)
    first, second, third = layouts or ("aligned",) * 3
    a = operand(a_shape, dtype, layout=first, integers=integers, seed=1)
    b = operand(b_shape, dtype, layout=second, integers=integers, seed=2)
    holding = 5.0 if mode == "accumulate" else math.nan
    out_dtype = choices.pop("out_dtype", torch.float32 if op == "dw" else dtype)
    out = Output(out_shape, out_dtype, layout=third, holding=holding)
    base = out.tensor.clone() if mode == "accumulate" else None
    plan = planned(op, form, shape, **choices)
    assert multiply(op, a, b, out=out.tensor, mode=mode, plan=plan) is out.tensor
    out.assert_surroundings_untouched()
    compare = assert_exact if integers else assert_as_exact_as_vendor
    compare(out.tensor, op, a, b, base)


# What they compute


@on_a_device
@every_op
@forms(*WHOLE_FORMS)
def test_every_product(op, form):
    """Odd sizes: what a tile reaches beyond is read as 0, and is not written.

    triton-lang/triton#630, triton-lang/triton#10772, triton-lang/triton#9230
    """
    check(op, SHAPES[op], DTYPES[0], form)


@on_a_device
@forms(GROUPED, PERSISTENT)
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=name_of)
def test_every_dtype(dtype, form):
    """The other dtypes, fp32 in exact products."""
    check("forward", SHAPES["forward"], dtype, form)


@on_a_device
@forms(*SPLIT_FORMS)
@every_mode
def test_every_split_of_dw(form, mode):
    """Every split, of more splits than blocks too, stores and accumulates.

    facebookexperimental/triton#1142, triton-lang/triton#6547, triton-lang/triton#9230
    """
    check("dw", SHAPES["dw"], DTYPES[0], form, mode=mode)


@on_a_device
@pytest.mark.parametrize("op", ("forward", "dx"))
@forms(*WORKSPACE_FORMS)
def test_sums_of_shares_are_cast_once(op, form):
    """Forward and dX are shared through an fp32 workspace, into their own dtype."""
    check(op, SHAPES[op], DTYPES[0], form)


@on_a_device
@forms(*WHOLE_FORMS, ("split", "none", 1, 2))
def test_accumulating_alone(form):
    """A tile's one owner adds into what the gradient holds."""
    check("dw", SHAPES["dw"], DTYPES[0], form, mode="accumulate")


@on_a_device
@every_op
@forms(PITCHED, PERSISTENT)
@pytest.mark.parametrize("swapped", range(1, 8))
def test_every_order_of_every_tensor(op, form, swapped):
    """Each of the three tensors may lie in rows or in columns."""
    layouts = [
        "aligned, swapped" if swapped >> place & 1 else "aligned" for place in range(3)
    ]
    check(op, SHAPES[op], DTYPES[0], form, layouts=layouts)


@on_a_device
@every_op
@pytest.mark.parametrize("width", (1, 2, 4, 8))
def test_rows_that_begin_anywhere(op, width):
    """Sizes and pitches are multiples of one element, of two, four or eight."""
    shape = shape_of(op, 35 * width, 19 * width, 27 * width)
    check(op, shape, DTYPES[0], PITCHED, layouts=("plain", "plain", "plain"))


@on_a_device
@every_op
@pytest.mark.parametrize("position", range(3))
def test_pitches_and_starts_that_no_wide_load_takes(op, position):
    """One tensor begins, and steps, anywhere: all its loads are of one element."""
    layouts = ["plain", "plain", "plain"]
    layouts[position] = "pitched"
    check(op, shape_of(op, 70, 38, 54), DTYPES[0], PITCHED, layouts=layouts)


@on_a_device
@forms(SPLIT_FORMS[4], SPLIT_FORMS[7], SPLIT_FORMS[9])
def test_gradient_in_columns(form):
    """A gradient stored the other way has its workspace that way, too."""
    layouts = ("aligned", "aligned, swapped", "aligned, swapped")
    check("dw", SHAPES["dw"], DTYPES[0], form, mode="accumulate", layouts=layouts)


@on_a_device
@every_op
def test_any_stride_by_pointers(op):
    """The grouped kernel reads what descriptors cannot: odd pitches, gaps, repeats.

    ROCm/TransformerEngine#623, pytorch/pytorch#194719
    """
    layouts = ("gapped", "row repeated", "pitched")
    shape = shape_of(op, 33, 71, 49)
    check(op, shape, DTYPES[0], GROUPED, layouts=layouts, integers=True)


@on_a_device
@every_op
@pytest.mark.parametrize(
    "layouts",
    (
        ("plain", "plain", "plain"),
        ("pitched", "swapped", "gapped"),
        ("gapped", "row repeated", "pitched"),
        ("one value", "column repeated", "swapped"),
        ("aligned", "pitched", "aligned, swapped"),
    ),
    ids=", ".join,
)
@pytest.mark.parametrize("dtype", (DTYPES[0], torch.float32), ids=name_of)
def test_copied_where_descriptors_do_not_fit(op, layouts, dtype):
    """Odd pitches and starts, gaps and repeats: copies of them are multiplied."""
    shape = shape_of(op, 33, 71, 49)
    check(op, shape, dtype, PERSISTENT, layouts=layouts, integers=True)


@on_a_device
@forms(SPLIT_FORMS[2], SPLIT_FORMS[7])
@every_mode
def test_gradient_that_descriptors_do_not_fit(form, mode):
    """It is summed elsewhere, then copied or added into the gradient, once."""
    layouts, shape = ("plain", "pitched", "pitched"), shape_of("dw", 33, 203, 49)
    check("dw", shape, DTYPES[0], form, mode=mode, layouts=layouts, integers=True)


@on_a_device
@every_op
@pytest.mark.parametrize("position", (0, 1))
def test_copied_where_it_pays(op, position, monkeypatch):
    """An operand that fits is copied too, if the plan says so, and that one alone."""
    copied, shape = [], SHAPES[op]
    copy = fast._copied
    monkeypatch.setattr(fast, "_copied", lambda *a: copied.append(a[0]) or copy(*a))
    check(op, shape, DTYPES[0], PERSISTENT, copied=("left", "right")[position])
    assert [tuple(tensor.shape) for tensor in copied] == [shapes(op, shape)[position]]


@on_a_device
@every_op
def test_specialized_warps_multiply_the_same(op):
    """What was tried in the persistent kernel's place is right, and leaves it there."""
    shipped = fast.persistent_kernel
    specialized(lambda: check(op, SHAPES[op], DTYPES[0], PERSISTENT))()
    assert fast.persistent_kernel is shipped


@on_a_device
@pytest.mark.parametrize("out_dtype", DTYPES, ids=name_of)
def test_output_of_every_dtype(out_dtype):
    """The sum is cast once, to whatever out is of."""
    check("forward", SHAPES["forward"], DTYPES[0], PERSISTENT, out_dtype=out_dtype)


@on_a_device
@pytest.mark.parametrize("reduction", ("atomic", "workspace"))
@pytest.mark.parametrize("programs, edge", ((1, 131), (2, 131), (5, 131), (64, 50)))
def test_shares_of_stream_k(programs, edge, reduction):
    """Whole waves alone, none at all, one tile, and more programs than blocks."""
    shape, form = shape_of("dw", edge, 203, 52), ("stream_k", reduction, 1, 2)
    choices = {"mode": "accumulate", "programs": programs, "integers": True}
    check("dw", shape, DTYPES[0], form, **choices)


@pytest.mark.gpu
@pytest.mark.kernels("fast")
@forms(*DETERMINISTIC_FORMS)
def test_the_same_bits_every_time(form):
    """Deterministic forms give the same bits, run after run, in both modes.

    microsoft/onnxruntime#27003
    """
    T, K, N = 40003, 131, 76
    x = operand((T, K), DTYPES[0], layout="aligned", seed=1)
    dy = operand((T, N), DTYPES[0], layout="aligned", seed=2)
    plan = planned("dw", form, (T, K, N), programs=100)
    first = None
    for _ in range(20):
        again = multiply("dw", x, dy, plan=plan)
        multiply("dw", x, dy, out=again, mode="accumulate", plan=plan)
        first = again if first is None else first
        assert torch.equal(first, again)


@pytest.mark.gpu
@pytest.mark.kernels("fast")
@forms(("split", "atomic", 20, 2), ("stream_k", "atomic", 1, 2))
def test_cleared_in_time(form):
    """Nothing is added before out was cleared, run after run, and in a graph.

    triton-lang/triton#2183, triton-lang/triton#6227, triton-lang/triton#10596
    """
    T, K, N = 40003, 131, 76
    x = operand((T, K), DTYPES[0], layout="aligned", integers=True, seed=1)
    dy = operand((T, N), DTYPES[0], layout="aligned", integers=True, seed=2)
    plan = planned("dw", form, (T, K, N), programs=100)
    out = Output((K, N), torch.float32, layout="aligned").tensor
    multiply("dw", x, dy, out=out, plan=plan)
    assert_exact(out, "dw", x, dy)
    first = out.clone()
    for _ in range(200):
        multiply("dw", x, dy, out=out.fill_(math.nan), plan=plan)
        assert torch.equal(first, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        multiply("dw", x, dy, out=out, plan=plan)
    for _ in range(20):
        out.fill_(math.nan)
        graph.replay()
        assert torch.equal(first, out)


@pytest.mark.gpu
@pytest.mark.kernels("fast")
@pytest.mark.parametrize("deterministic", (False, True))
def test_planned(deterministic):
    """The planned kernels of a real shape are as exact as the vendor, in both modes."""
    T, K, N = 16384, 768, 3072
    x = operand((T, K), torch.bfloat16, layout="plain", seed=1)
    w = operand((K, N), torch.bfloat16, layout="plain", seed=2)
    dy = operand((T, N), torch.bfloat16, layout="plain", seed=3)
    torch.use_deterministic_algorithms(deterministic)
    try:
        assert_as_exact_as_vendor(multiply("forward", x, w), "forward", x, w)
        assert_as_exact_as_vendor(multiply("dx", dy, w), "dx", dy, w)
        dw = multiply("dw", x, dy)
        assert_as_exact_as_vendor(dw, "dw", x, dy)
        base = dw.clone()
        multiply("dw", x, dy, out=dw, mode="accumulate")
        assert_as_exact_as_vendor(dw, "dw", x, dy, base)
    finally:
        torch.use_deterministic_algorithms(False)


@on_a_device
@every_op
def test_the_default(op):
    """The public functions run the fast kernels; a tile asks for the lesson's."""
    a_shape, b_shape, _ = shapes(op, (32, 16, 24))
    a, b = (operand(size, DTYPES[0], integers=True) for size in (a_shape, b_shape))
    public = {"forward": ops.matmul, "dx": ops.matmul_dx, "dw": ops.matmul_dw}[op]
    assert_exact(public(a, b), op, a, b)
    assert len(fast._prepared) == 1
    assert_exact(public(a, b, tile=tile_of(op, 16, 16, 16)), op, a, b)
    assert len(fast._prepared) == 1


@on_a_device
def test_what_stands_in_sees_every_launch():
    """Of products that were launched before, too, and none that comes after."""
    shape, log = (64, 32, 48), []
    a, b = (operand(size, DTYPES[0]) for size in shapes("forward", shape)[:2])
    kernel = RecordedKernel("persistent", fast.persistent_kernel, log)
    plan = planned("forward", PERSISTENT, shape)
    multiply("forward", a, b, plan=plan)
    with standing_in(fast, persistent_kernel=kernel):
        for _ in range(3):
            multiply("forward", a, b, plan=plan)
    multiply("forward", a, b, plan=plan)
    assert [entry["kernel"] for entry in log] == 3 * ["persistent"]


@pytest.mark.parametrize("name", LAUNCHED)
def test_later_launches_are_of_what_the_first_compiled(name):
    """On the same grid, with the same arguments, in the order of the kernel's own."""
    kernel, first, later = getattr(fast, f"{name}_kernel"), [], []
    plain = [p.name for p in kernel.params if not p.is_constexpr]
    constants = {p.name: f"of {p.name}" for p in kernel.params if p.is_constexpr}

    class Compiled:
        def __getitem__(self, grid):
            return lambda *given: later.append((grid, given))

    class Compiling:
        arg_names = kernel.arg_names

        def __getitem__(self, grid):
            def launch(*given, num_warps, **named):
                bound = kernel.signature.bind(*given, **named)
                first.append((grid, tuple(bound.arguments.values())))
                return Compiled()

            return launch

    options = {**dict(reversed(constants.items())), "num_warps": 4}
    launch = fast._launcher(Compiling(), (5, 7), plain[2:], options)
    for _ in range(3):
        launch(*plain[:2])
    ((_, given),) = first
    assert len(given) == len(kernel.params) and later == 2 * [((5, 7, 1), given)]


@on_a_device
def test_prepared_launches_look_again():
    """What a key does not say is asked at each call: overlap, sign, requires_grad."""
    x, dy = (torch.ones(32, 32, device=DEVICE, dtype=DTYPES[0]) for _ in range(2))
    memory = torch.ones(3 * 32, 32, device=DEVICE)
    out = memory[:32]
    multiply("dw", x, dy, out=out)
    assert len(fast._prepared) == 1
    inside = memory[64:].view(DTYPES[0]).flatten()[: 32 * 32].view(32, 32)
    with pytest.raises(ValueError, match="^out must not reach into"):
        multiply("dw", inside, dy, out=memory[64:])
    with pytest.raises(ValueError, match="^out must not require grad"):
        multiply("dw", x, dy, out=out.clone().requires_grad_())
    negated = torch.complex(x.float(), x.float()).conj().imag
    with pytest.raises(ValueError, match="^dy must not be a lazily negated"):
        multiply("dw", x.float(), negated, out=out)
    assert (memory[32:] == 1).all()


@on_a_device
@pytest.mark.parametrize("position", range(3))
def test_prepared_launches_look_for_memory(position):
    """A tensor whose memory was freed since is refused, not read at address 0."""
    tensors = [torch.ones(32, 32, device=DEVICE) for _ in range(3)]
    x, dy, out = tensors
    multiply("dw", x, dy, out=out)
    assert len(fast._prepared) == 1
    tensors[position].untyped_storage().resize_(0)
    name = ("x", "dy", "out")[position]
    with pytest.raises(ValueError, match=f"^{name} must have memory"):
        multiply("dw", x, dy, out=out)


@on_a_device
@pytest.mark.parametrize("shape", ((0, 16, 16), (16, 0, 16), (16, 16, 0)), ids=str)
def test_empty_products_are_prepared_once(shape):
    """An expert that got no token costs the host no more than one that did."""
    a, b = (operand(size, DTYPES[0]) for size in shapes("dw", shape)[:2])
    known = [fast.prepare("dw", a, b) for _ in range(2)]
    assert known[0] is known[1]


@on_a_device
def test_an_evaluated_parameter_is_prepared_once():
    """An output that requires grad is written where no gradient is recorded."""
    x, dy, out = (torch.ones(32, 32, device=DEVICE) for _ in range(3))
    out.requires_grad_()
    with torch.no_grad():
        known = [fast.prepare("dw", x, dy, out=out) for _ in range(2)]
    assert known[0] is known[1]


@on_a_device
def test_prepared_launches_hold_no_tensor():
    """What is kept of a call is its shapes: its tensors can be freed."""
    x = torch.ones(32, 32, device=DEVICE, dtype=DTYPES[0])
    multiply("dw", x, x)
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert fast._prepared and seen() is None


@on_a_device
@pytest.mark.parametrize("odd", (0, 1))
def test_prepared_copies_hold_no_tensor(odd):
    """Nor is the operand held that fits, where the other one is copied."""
    shape = SHAPES["forward"]
    layouts = ["aligned", "aligned"]
    layouts[odd] = "pitched"
    operands = [
        operand(size, DTYPES[0], layout=layout)
        for size, layout in zip(shapes("forward", shape), layouts, strict=False)
    ]
    multiply("forward", *operands, plan=planned("forward", PERSISTENT, shape))
    seen = [weakref.ref(tensor) for tensor in operands]
    del operands
    gc.collect()
    assert fast._prepared and not any(ref() is not None for ref in seen)


@on_a_device
@every_op
@pytest.mark.parametrize("shape", ((0, 16, 16), (16, 0, 16), (16, 16, 0)))
def test_empty(op, shape):
    """An empty contraction is 0, an empty output is nothing.

    triton-lang/triton#10427
    """
    a_shape, b_shape, out_shape = shapes(op, shape)
    a = torch.ones(a_shape, device=DEVICE)
    b = torch.ones(b_shape, device=DEVICE)
    out = multiply(op, a, b)
    assert out.shape == out_shape
    assert (out == 0).all()


# Addresses beyond 32 bits


far_axis = pytest.mark.parametrize("axis", ("rows", "columns"))


@on_a_device
@pytest.mark.xdist_group("memory")
@every_op
@forms(GROUPED, PITCHED, PERSISTENT)
@pytest.mark.parametrize("far", ((3,), (3, 4)), ids=("contracted", "other"))
def test_operands_beyond_32_bits(op, form, far):
    """Lines 2³⁰ elements apart are read where they lie, by pointers and descriptors.

    triton-lang/triton#5022
    """
    shape = shape_of(op, *((16, 3, 16) if far == (3,) else (3, 16, 4)))
    *sizes, out_shape = shapes(op, shape)
    a, b = (
        far_apart(
            operand(size, DTYPES[0], integers=True, seed=seed),
            [length in far for length in size].index(True),
        )
        for seed, size in enumerate(sizes, 1)
    )
    assert descriptor_fits(a) and descriptor_fits(b)
    out = Output(out_shape, torch.float32).tensor
    multiply(op, a, b, out=out, plan=planned(op, form, shape))
    assert_exact(out, op, a, b)


@on_a_device
@pytest.mark.xdist_group("memory")
@far_axis
@pytest.mark.parametrize("op", OPS[:2])
@forms(GROUPED, PITCHED, PERSISTENT)
def test_outputs_beyond_32_bits(op, form, axis):
    """Lines 2³⁰ elements apart are written where they lie, in either order.

    triton-lang/triton#5022
    """
    into_far_lines(op, form, axis, DTYPES[0])


@on_a_device
@pytest.mark.xdist_group("memory")
@far_axis
@forms(PERSISTENT, *SPLIT_FORMS[:3], *SPLIT_FORMS[4:5], *SPLIT_FORMS[6:])
def test_gradients_beyond_32_bits(form, axis):
    """And are cleared, added to and summed up there.

    triton-lang/triton#5022, deepspeedai/DeepSpeed#8590
    """
    into_far_lines("dw", form, axis, torch.float32)


def into_far_lines(op, form, axis, dtype):
    """Multiply into lines that are far apart, overwriting what they hold."""
    rows, columns = (3, 16) if axis == "rows" else (16, 3)
    shape = shape_of(op, rows, 203, columns)
    a_shape, b_shape, out_shape = shapes(op, shape)
    a = operand(a_shape, DTYPES[0], layout="aligned", integers=True, seed=1)
    b = operand(b_shape, DTYPES[0], layout="aligned", integers=True, seed=2)
    holding = torch.full(out_shape, 7.0, dtype=dtype, device=DEVICE)
    out = far_apart(holding, axis == "columns")
    assert descriptor_fits(out, written=True)
    multiply(op, a, b, out=out, plan=planned(op, form, shape))
    assert_exact(out, op, a, b)


# What descriptors take


def test_descriptors_take_rows_and_columns():
    """Adjacent along either axis, in steps of 16 bytes along the other."""
    matrix = torch.empty(16, 24, dtype=torch.float16)
    assert descriptor_fits(matrix) and descriptor_fits(matrix.T)
    assert descriptor_fits(matrix[3:, 8:]) and descriptor_fits(matrix[3:, 8:11])
    assert descriptor_fits(torch.empty(16, 20))


def test_descriptors_write_whole_16_bytes():
    """A store would fill the last 16 bytes of a row up: such a row is not its own."""
    matrix = torch.empty(16, 24, dtype=torch.float16)
    assert descriptor_fits(matrix[:, :16], written=True)
    assert not descriptor_fits(matrix[:, :11], written=True)
    assert not descriptor_fits(matrix.T[:11], written=True)


@pytest.mark.parametrize(
    "tensor",
    (
        pytest.param(torch.empty(16, 20, dtype=torch.float16), id="odd pitch"),
        pytest.param(torch.empty(16, 24, dtype=torch.float16)[:, 1:], id="odd start"),
        pytest.param(torch.empty(16, 48, dtype=torch.float16)[:, ::2], id="gaps"),
        pytest.param(torch.empty(1, 24, dtype=torch.float16).expand(16, 24), id="rows"),
        pytest.param(torch.empty(64).as_strided((8, 8), (4, 1)), id="overlapping"),
        pytest.param(torch.empty(0, 24, dtype=torch.float16), id="no rows"),
        pytest.param(torch.empty(24, 0, dtype=torch.float16), id="no columns"),
        pytest.param(torch.empty(8, dtype=torch.float16), id="1-D"),
        pytest.param(torch.empty(2, 8, 8, dtype=torch.float16), id="3-D"),
        pytest.param(torch.empty(2**31, 1, device="meta").T, id="2^31 columns"),
        pytest.param(
            torch.empty(2**31 - 255, 8, dtype=torch.float16, device="meta"),
            id="rows that end less than a block before 2^31",
        ),
        pytest.param(
            torch.empty_strided((2, 8), (2**38, 1), device="meta"),
            id="pitch of 2^40 bytes",
        ),
    ),
)
def test_descriptors_do_not_take(tensor):
    """What the copy engine cannot: it is copied, or the grouped kernel has it.

    triton-lang/triton#10927, flagos-ai/FlagGems#4471
    """
    assert not descriptor_fits(tensor)


# What is refused


@on_a_device
@pytest.mark.parametrize(
    "op, choices",
    (
        ("backward", {}),
        ("dw", {"mode": "add"}),
        ("dw", {"mode": "accumulate"}),
        ("dw", {"reduction": "sum"}),
        ("forward", {"mode": "accumulate", "out": torch.ones(32, 32)}),
        ("dw", {"plan": planned("forward", PERSISTENT, (32, 32, 32))}),
        ("dx", {"plan": planned("dx", SPLIT_FORMS[2], (32, 32, 32))}),
        ("dw", {"plan": planned("dw", PERSISTENT, (32, 32, 320))}),
        ("dw", {"plan": planned("dw", PERSISTENT, (32, 32, 32), programs=0)}),
        ("dw", {"plan": "persistent"}),
        (
            "dw",
            {
                "plan": planned("dw", SPLIT_FORMS[0], (32, 32, 32)),
                "reduction": "workspace",
            },
        ),
        ("dw", {"plan": planned("dw", ("split", "none", 3, 2), (32, 32, 32))}),
        ("dw", {"plan": planned("dw", ("stream_k", "none", 1, 2), (32, 32, 32))}),
        ("dw", {"out": torch.ones(16, 32)}),
        ("dw", {"out": [1.0]}),
        ("forward", {"out": torch.ones(32, 32).to_sparse()}),
    ),
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_refused(op, choices):
    """What makes no sense is refused in one sentence, before anything happens."""
    a, b = (torch.ones(32, 32, device=DEVICE) for _ in range(2))
    with pytest.raises((TypeError, ValueError)) as caught:
        multiply(op, a, b, **choices)
    message = str(caught.value)
    assert message.startswith(("op ", "mode ", "plan ", "out ", "reduction ")), message
    assert "\n" not in message and len(message) < 160, message


@on_a_device
@every_op
@every_mode
@pytest.mark.parametrize("reduction", get_args(Reduction))
@pytest.mark.parametrize("kernel", get_args(FastKernel))
def test_any_plan_is_right_or_refused(kernel, reduction, mode, op):
    """A plan made by hand gives the product, with what a gradient holds, or is
    refused with the gradient kept."""
    if mode == "accumulate" and op != "dw":
        return
    shape = SHAPES[op]
    for split_t in (1, 3):
        plan = planned(op, (kernel, reduction, split_t, 1), shape)
        operands = [
            operand(size, DTYPES[0], integers=True) for size in shapes(op, shape)
        ]
        a, b = operands[:2]
        dtype = torch.float32 if op == "dw" else DTYPES[0]
        out = torch.full(shapes(op, shape)[2], 5.0, device=DEVICE, dtype=dtype)
        try:
            multiply(op, a, b, out=out, mode=mode, plan=plan)
        except ValueError as refusal:
            assert str(refusal).startswith("plan must")
            assert (out == 5).all()
        else:
            base = torch.full_like(out, 5.0) if mode == "accumulate" else None
            assert_exact(out, op, a, b, base)


@on_a_device
@every_op
@pytest.mark.parametrize("position", (0, 1))
def test_output_in_an_operand(op, position):
    """An output that shares memory with an operand would change it while it is read."""
    a, b, memory = (torch.ones(64, 32, device=DEVICE) for _ in range(3))
    operands = [a[:32], b[:32]]
    operands[position] = memory[:32]
    with pytest.raises(ValueError, match="^out must not reach into"):
        multiply(op, *operands, out=memory[31:63])
    assert (memory == 1).all()


@on_a_device
@every_op
@pytest.mark.parametrize("position", range(3))
def test_plan_for_elements_that_are_not_adjacent(op, position):
    """Wide loads of what has gaps are refused, whichever tensor it is."""
    layouts = ["plain", "plain", "plain"]
    layouts[position] = "gapped"
    with pytest.raises(ValueError, match="^plan must be grouped, as elements"):
        check(op, (32, 32, 32), DTYPES[0], PITCHED, layouts=layouts)


@on_a_device
def test_plan_for_sizes_that_descriptors_do_not_take():
    """A plan that needs descriptors is refused where no copy could mend it."""
    long = torch.ones(1, 8, device=DEVICE, dtype=DTYPES[0]).expand(2**31, 8)
    plan = planned("dw", PERSISTENT, (2**31, 8, 8))
    with pytest.raises(ValueError, match="^plan must be grouped"):
        multiply("dw", long, long, plan=plan)


# What is planned


# The kernels' table of sizes: wide, narrow, starved, with a last wave.
WIDE, NARROW = (8192, 4096, 14336), (8192, 4096, 64)
STARVED, LAST_WAVE = (32768, 1024, 1024), (16384, 768, 3072)


def test_wide_outputs_are_persistent():
    """Where tiles are many, each has one owner, one program an SM."""
    for op in OPS:
        p = fast_plan(op, WIDE, 2, H200)
        assert (p.kernel, p.reduction, p.programs) == (
            "persistent",
            "none",
            132,
        )
        rows, columns, depth = product_sizes(op, tile_blocks(p.tile))
        assert (rows, columns, depth) == (128, 256, 64), op


def test_few_columns_take_narrow_tiles():
    """64 columns of output are one tile across, not a quarter of one."""
    p = fast_plan("forward", NARROW, 2, H200)
    assert p.tile.block_n == 64
    assert fast_plan("dw", NARROW, 2, H200).tile.block_n == 64


def test_starved_dw_is_split():
    """32 tiles are shared by four programs each, which fill the SMs once."""
    p = fast_plan("dw", STARVED, 2, H200, mode="accumulate")
    assert p.kernel == "split" and p.reduction == "atomic"
    assert 120 <= p.programs == p.tiles * p.split_t <= 132


def test_a_last_wave_is_shared():
    """144 tiles are one wave and twelve more, of which all programs take a share."""
    p = fast_plan("dw", LAST_WAVE, 2, H200, mode="accumulate")
    assert (p.kernel, p.tiles, p.programs) == ("stream_k", 144, 132)


@given(
    shape=st.tuples(st.integers(1, 2**17), st.integers(1, 4096), st.integers(1, 4096)),
    mode=st.sampled_from(("overwrite", "accumulate")),
)
def test_a_second_launch_is_worth_the_hosts_time(shape, mode):
    """None is planned where one launch would end before the host had made two."""

    def one(p):
        cleared = p.reduction == "atomic" and mode == "overwrite"
        return not cleared and p.reduction != "workspace"

    ranked = ranked_plans("dw", shape, 2, H200, mode=mode)
    fastest_of_one = min(time for time, p in ranked if one(p))
    time, chosen = ranked[0]
    assert one(chosen) or max(time, 2 * HOST_TIME) < fastest_of_one
    assert not one(chosen) or time == fastest_of_one


@pytest.mark.parametrize("mode", ("overwrite", "accumulate"))
@pytest.mark.parametrize("shape", (WIDE, NARROW, STARVED, LAST_WAVE), ids=str)
def test_deterministic_plans_add_in_no_order_of_arrival(shape, mode):
    """Asked for determinism, every plan has it."""
    p = fast_plan("dw", shape, 2, H200, mode=mode, reduction="workspace")
    assert p.reduction in ("none", "workspace")
    assert p.reduction == "workspace" or p.split_t == 1


steps = st.tuples(*[st.sampled_from((0, 16, 32, 64, 128))] * 2)
some_shape = st.tuples(
    st.integers(1, 2**17), st.integers(1, 4096), st.integers(1, 4096)
)


@given(
    op=st.sampled_from(OPS),
    shape=some_shape,
    steps=steps,
    out_fits=st.booleans(),
    widths=st.tuples(*[st.sampled_from((1, 2, 4, 8))] * 2),
)
def test_narrow_loads_take_the_place_of_copies(op, shape, steps, out_fits, widths):
    """They are planned where there would be copies, and make none themselves."""
    layout = Layout(True, steps, out_fits, widths)
    ranked = ranked_plans(op, shape, 2, H200, layout=layout)
    narrow = [p for _, p in ranked if p.kernel == "pitched"]
    copied = [p for _, p in ranked if p.kernel != "pitched"]
    alone = replace(layout, widths=(0, 0))
    assert bool(narrow) == (not (out_fits and all(steps)) and min(widths) > 1)
    assert all(p.copied == "neither" for p in narrow)
    assert copied == [p for _, p in ranked_plans(op, shape, 2, H200, layout=alone)]


@given(op=st.sampled_from(OPS), shape=some_shape, steps=steps)
def test_what_is_copied(op, shape, steps):
    """What descriptors cannot take, and of the rest what begins inside of sectors."""
    chosen = set()
    for _, p in ranked_plans(op, shape, 2, H200, layout=Layout(steps=steps)):
        chosen.add(p.copied)
        for copied, step in zip(COPIED[p.copied], steps, strict=True):
            assert copied == (step == 0) or (copied and step == 16)
    assert len(chosen) == 2 ** steps.count(16)


@given(op=st.sampled_from(OPS), shape=some_shape, steps=steps, out_fits=st.booleans())
def test_layouts_are_paid_for(op, shape, steps, out_fits):
    """No launch ends sooner for rows inside of lines, and each copy takes its time."""

    def times(layout):
        ranked = ranked_plans(op, shape, 2, H200, layout=layout)
        return {p: time for time, p in ranked}

    well = times(DENSE)
    for p, time in times(Layout(steps=steps, out_fits=out_fits)).items():
        copies = sum(COPIED[p.copied]) + (not out_fits)
        least = well[replace(p, copied="neither")] + copies * COPY_TIME
        assert time > least if copies else time >= least


def test_a_large_product_copies_its_small_operand_alone():
    """As measured at (16384, 2056, 2056); a small product copies nothing."""
    layout = Layout(steps=(16, 16))
    p = fast_plan("forward", (16384, 2056, 2056), 2, H200, layout=layout)
    assert p.copied == "right"
    assert fast_plan("forward", (512, 264, 264), 2, H200, layout=layout).copied == (
        "neither"
    )


def test_large_tiles_where_rows_begin_inside_of_lines():
    """They ask for fewer lines a product, as measured at (16384, 2080, 2080)."""
    layout = Layout(steps=(64, 64))
    p = fast_plan("forward", (16384, 2080, 2080), 2, H200, layout=layout)
    assert p.tile.block_t * p.tile.block_n == 128 * 256


HALF = functools.partial(torch.empty, dtype=torch.float16)


@pytest.mark.parametrize(
    "matrix, step",
    (
        (HALF(9, 64), 128),
        (HALF(9, 96), 64),
        (HALF(9, 80), 32),
        (HALF(9, 72), 16),
        (HALF(9, 36), 0),
        (HALF(9, 128)[:, 64:], 128),
        (HALF(9, 128)[:, 1:], 0),
        (HALF(9, 64)[::3], 128),
    ),
    ids=lambda value: str(tuple(value.stride())) if hasattr(value, "stride") else "",
)
def test_steps_of_rows(matrix, step):
    """The part of a line at whose multiples rows begin, lying either way; 0: none."""
    for x in (matrix, matrix.T):
        w = torch.empty(x.shape[1], 64, dtype=torch.float16)
        asked = fast.question("forward", x, w, None, "overwrite", None)
        assert asked["layout"].steps == (step, 128)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("width", (0, 1, 2, 8))
@pytest.mark.parametrize(
    "itemsize, device, descriptors",
    (
        (2, H200, False),
        (4, H200, True),
        (2, replace(H200, capability="8.0"), True),
        (2, replace(H200, capability="none"), True),
    ),
)
def test_without_descriptors(op, itemsize, device, descriptors, width):
    """Odd layouts, fp32 and older devices get the lesson's tile in grouped order, of
    16 bits by loads as wide as may be."""
    layout = Layout(descriptors, widths=(8, width))
    for shape in (WIDE, STARVED, (0, 16, 16), (16, 16, 0)):
        p = fast_plan(op, shape, itemsize, device, layout=layout)
        lesson = plan(op, shape, itemsize, device)
        wide = itemsize == 2 and width > 1
        assert p.kernel == ("pitched" if wide else "grouped")
        assert (p.tile, p.split_t) == (lesson.tile, lesson.split_t)


@pytest.mark.parametrize("sm_count", (1, 46, 78, 132, 148))
@pytest.mark.parametrize("limit_kib", (64, 99, 227))
@given(
    op=st.sampled_from(OPS),
    shape=st.tuples(*[st.integers(1, 20000)] * 3),
    out_itemsize=st.sampled_from((2, 4)),
    deterministic=st.booleans(),
)
@settings(max_examples=20)
def test_any_shape_on_any_device(
    sm_count, limit_kib, op, shape, out_itemsize, deterministic
):
    """Plans fit the device, cover the output and leave every split some blocks.

    triton-lang/triton#8182
    """
    device = replace(
        H200, sm_count=sm_count, shared_memory_per_program_bytes=limit_kib * 1024
    )
    if op == "dw":
        out_itemsize = 4
    p = fast_plan(
        op,
        shape,
        2,
        device,
        out_itemsize=out_itemsize,
        reduction="workspace" if deterministic else None,
    )
    blocks = product_sizes(op, tile_blocks(p.tile))
    if p.kernel != "grouped":
        shared = fast_shared_memory_bytes(
            blocks, p.tile.num_stages, p.parts, 2, out_itemsize
        )
        assert shared <= limit_kib * 1024
    assert p.tiles == output_tiles(op, shape, p.tile)
    assert p.programs >= 1
    if p.kernel in ("split", "grouped"):
        assert p.programs == p.tiles * p.split_t
        assert p.split_t == 1 or contracted_blocks(op, shape, p.tile) // p.split_t >= 4
    else:
        assert p.split_t == 1 and p.programs <= p.tiles * sm_count
    assert op == "dw" or p.reduction != "atomic"


# What is compiled for a GPU that is not here


@contextlib.contextmanager
def compiling(facts):
    """`launch`, which compiles for a device, and {what it does: (plan, kernel)}."""
    log, found = [], {}
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode():
        for name in LAUNCHED:
            kernel = CompiledKernel(name, getattr(fast, f"{name}_kernel"), log)
            patch.setattr(fast, f"{name}_kernel", kernel)
        patch.setattr(host, "on_device", lambda tensor: contextlib.nullcontext())
        patch.setattr(host, "sum_slices", lambda *args: None)
        patch.setattr(fast, "descriptor_fits", lambda *_, **__: True)
        patch.setattr(fast, "_begins", lambda tensor: True)
        patch.setattr(fast, "_check", lambda *_: None)
        patch.setattr(fast, "_key", lambda *_: None)
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(fast.device, "facts", lambda index: facts)
        target = GPUTarget("cuda", int(facts.capability.replace(".", "")), 32)
        driver.set_active(FakeDriver(target))

        def launch(what, op, shape, mode="overwrite", plan=None, **choices):
            T, K, N = shape
            x, w, dy = (
                torch.empty(size, dtype=torch.bfloat16, device="cuda")
                for size in ((T, K), (K, N), (T, N))
            )
            a, b = {"forward": (x, w), "dx": (dy, w), "dw": (x, dy)}[op]
            out = torch.empty(K, N, device="cuda") if mode == "accumulate" else None
            p = plan or fast_plan(op, shape, 2, facts, mode=mode, **choices)
            log.clear()
            multiply(op, a, b, out=out, mode=mode, plan=p)
            for name, kernel in log:
                also = {"zero": ", cleared", "shares": ", summed"}
                also |= {"pad": ", padded", "copy": ", copied"}
                found[what + also.get(name, "")] = p, kernel

        try:
            yield launch, found, patch
        finally:
            driver.set_active(None)  # whatever there really is, when asked for


@functools.cache
def compiled() -> dict[str, tuple[FastPlan, object]]:
    """{what it does: (plan, kernel)} of planned launches, for sm_90."""
    with compiling(H200) as (launch, found, patch):
        launch("forward", "forward", WIDE)
        launch("forward, narrow", "forward", NARROW)
        launch("dx", "dx", WIDE)
        launch("dw", "dw", WIDE, "accumulate")
        launch("dw, split", "dw", STARVED, "accumulate")
        launch("dw, slices", "dw", STARVED, "accumulate", reduction="workspace")
        launch("dw, shared", "dw", LAST_WAVE, "accumulate")
        launch("dw, split anew", "dw", STARVED)
        launch("dw, shared anew", "dw", LAST_WAVE)
        launch("forward, shared", "forward", LAST_WAVE, kernel="stream_k")
        launch("dx, slices", "dx", (1024, 1024, 16384), kernel="split")
        patch.setattr(fast, "descriptor_fits", lambda *_, **__: False)
        launch("dw, elsewhere", "dw", STARVED, "accumulate")
    return found


def products():
    """(what, plan, kernel) of the kernels that multiply."""
    for what, (p, kernel) in compiled().items():
        if not what.endswith(("summed", "cleared", "padded", "copied")):
            yield what, p, kernel


def test_nothing_spills(tmp_path):
    """What a thread keeps, it keeps in registers: no stack, no local memory."""
    for what, (_, kernel) in compiled().items():
        usage = cuobjdump(kernel, tmp_path)
        assert (usage["STACK"], usage["LOCAL"]) == (0, 0), what


def test_tiles_are_copied_by_the_copy_engine():
    """Operands and outputs go by TMA, products to wgmma, which reads them in place."""
    for what, _, kernel in products():
        ptx = kernel.asm["ptx"]
        assert "cp.async.bulk.tensor.2d.shared" in ptx, what
        assert not re.search(r"\bld\.global|\bst\.global|\bcp\.async\.c[ag]", ptx), what
        assert "wgmma.mma_async" in ptx, what
        assert "ttg.convert_layout" not in kernel.asm["ttgir"], what


def test_clearing_is_waited_for_as_late_as_can_be():
    """Meanwhile out is cleared: the wait stands before the adding alone."""
    for what in ("dw, split anew", "dw, shared anew"):
        lines = compiled()[what][1].asm["ptx"].splitlines()
        waits, products, adds = (
            [place for place, line in enumerate(lines) if part in line]
            for part in ("griddepcontrol.wait", "wgmma.mma_async", "cp.reduce.async")
        )
        assert len(waits) == 1 and all(add > waits[0] for add in adds), what
        assert not any(waits[0] < product < adds[-1] for product in products), what
        clears = compiled()[f"{what}, cleared"][1].asm["ptx"]
        assert clears.index("griddepcontrol.launch_dependents") < clears.index(
            "st.global.v4"
        )
    accumulating = compiled()["dw, split"][1].asm["ptx"]
    assert "griddepcontrol" not in accumulating


def test_the_copy_engine_adds():
    """Into a gradient it adds, where another has a part in it or it holds something."""
    for what, p, kernel in products():
        adds = "cp.reduce.async.bulk.tensor" in kernel.asm["ptx"]
        assert adds == (p.op == "dw" and p.reduction != "workspace"), what
        assert not re.search(r"\b(atom|red)\.global", kernel.asm["ptx"]), what


def test_shared_memory_is_as_planned(tmp_path):
    """A program takes what the plan reckons with, or less; as many are resident."""
    for what, p, kernel in products():
        blocks = product_sizes(p.op, tile_blocks(p.tile))
        # fp32, into a workspace or the gradient; of stream-K beside whole tiles.
        out_itemsize = 2 if p.kernel == "persistent" and p.op != "dw" else 4
        out_itemsize += 2 * (p.kernel == "stream_k" and p.op != "dw")
        planned_bytes = fast_shared_memory_bytes(
            blocks, p.tile.num_stages, p.parts, 2, out_itemsize
        )
        taken = kernel.metadata.shared
        assert taken <= planned_bytes, what
        registers = cuobjdump(kernel, tmp_path)["REG"]
        resident = resident_programs(registers, taken, p.tile.num_warps, H200)
        if p.kernel == "persistent":
            assert p.programs == min(p.tiles, resident * H200.sm_count), what


@pytest.mark.parametrize("capability", ("10.0", "12.0"))
def test_shared_memory_of_later_devices(capability):
    """Nor does a program take more there than planned, and than the device has."""
    kib = {"10.0": 227, "12.0": 99}[capability]
    limit = {"shared_memory_per_program_bytes": 1024 * kib}
    facts = replace(H200, capability=capability, **limit)
    with compiling(facts) as (launch, found, _):
        launch("forward", "forward", WIDE)
        launch("dw", "dw", WIDE, "accumulate")
        launch("dw, split", "dw", STARVED)
    for what, (p, kernel) in found.items():
        parts = counted_parts(p.parts, facts)
        sizes = p.tile.num_stages, parts, 2, 2 if p.op == "forward" else 4
        blocks = product_sizes(p.op, tile_blocks(p.tile))
        planned_bytes = fast_shared_memory_bytes(blocks, *sizes)
        assert kernel.metadata.shared <= planned_bytes <= 1024 * kib, what


def test_no_launch_depends_before_capability_9():
    """What a device without the copy engine lacks is not asked of it either."""
    facts = replace(H200, capability="8.0")
    with compiling(facts) as (launch, found, _):
        for form in (SPLIT_FORMS[2], SPLIT_FORMS[4], *SPLIT_FORMS[6:]):
            plan = planned("dw", form, SHAPES["dw"])
            launch("-".join(map(str, form)), "dw", SHAPES["dw"], plan=plan)
    assert len(found) > 4  # and what clears and what sums
    for what, (_, kernel) in found.items():
        assert "griddepcontrol" not in kernel.asm["ptx"], what


def test_one_block_is_shared():
    """A contraction of one element, which Triton takes for a constant, compiles."""
    shape = (1, 136, 72)
    with compiling(H200) as (launch, found, _):
        launch("dw", "dw", shape, plan=planned("dw", SPLIT_FORMS[7], shape))
    assert "dw, summed" in found


@pytest.mark.parametrize("capability", ("8.0", "9.0"))
@pytest.mark.parametrize("width", (2, 4, 8))
def test_pointers_load_as_wide_as_rows_begin(width, capability):
    """So many elements at once, in every op, into shared memory by cp.async."""
    facts = replace(H200, capability=capability)
    with compiling(facts) as (launch, found, _):
        for op in OPS:
            shape = shape_of(op, 35 * width, 19 * width, 27 * width)
            launch(op, op, shape, plan=planned(op, PITCHED, shape))
    for op, (_, kernel) in found.items():
        ptx = kernel.asm["ptx"]
        copies = re.findall(r"cp\.async\.c[ag]\.shared\.global .*, (0x\w+),", ptx)
        assert {int(size, 16) for size in copies} == {2 * width}, op
        assert "ld.global" not in ptx, op
