"""The kernels that run by default, on what public reports say went wrong elsewhere.

The neighbours try the lesson's kernels, and each fast kernel on a plan made for the
test. Here nothing is chosen: on a GPU the plan takes descriptors where it can, and
shares tiles where that is sooner; the interpreter's plans take pointers.
"""

import contextlib

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernels import host
from kernels.fast import ops as fast
from tests.kernels.contract import (
    DEVICE,
    DTYPES,
    INTERPRETED,
    LAYOUTS,
    OUTPUT_LAYOUTS,
    REPEATED_LAYOUTS,
    Output,
    RecordedKernel,
    assert_as_exact_as_vendor,
    assert_exact,
    check,
    compute,
    exact_product,
    fp32_precision,
    name_of,
    operand,
    shape_of,
    shapes,
)
from tests.kernels.test_fast import LAUNCHED

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.gpu,
    pytest.mark.kernels("fast"),
    # NumPy's word for an overflow in the interpreter (gpu-mode/lectures#47).
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]

FAST = {"implementation": "fast"}
REDUCTIONS = (None, "none", "atomic", "workspace")
every_op = pytest.mark.parametrize("op", ("forward", "dx", "dw"))
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
every_mode = pytest.mark.parametrize("mode", ("overwrite", "accumulate"))
every_reduction = pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
# In odd rows, which only pointers take, and in rows of whole 16 bytes: so long a
# contraction of so small an output is shared.
LONG = ((1027, 33, 31), (1024, 64, 48))

# A GPU compiles most examples anew; a block takes the interpreter milliseconds.
examples = settings(
    max_examples=12 if INTERPRETED else 2, phases=(Phase.explicit, Phase.generate)
)
sizes = st.sampled_from((0, 1, 2, 15, 16, 17, 31, 96, 127, 129))
any_layout = st.tuples(
    st.sampled_from(tuple(LAYOUTS)),
    st.sampled_from(tuple(LAYOUTS)),
    st.sampled_from(OUTPUT_LAYOUTS),
)


@pytest.fixture(autouse=True)
def nothing_prepared(monkeypatch):
    """Each test's calls are first calls."""
    monkeypatch.setattr(fast, "_prepared", {})


# Shapes and strides


@every_op
@examples
@given(
    shape=st.tuples(sizes, sizes, sizes),
    layouts=any_layout,
    dtype=st.sampled_from(DTYPES),
)
def test_any_size_and_stride(op, shape, layouts, dtype):
    """Tails are masked at the load and filled with 0, whatever lies around.

    triton-lang/triton#630, triton-lang/triton#10772, gpu-mode/lectures#47
    """
    integers = not REPEATED_LAYOUTS.isdisjoint(layouts)
    check(op, shape, dtype, layouts=layouts, integers=integers, **FAST)


@every_mode
@every_reduction
@examples
@given(
    shape=st.tuples(st.sampled_from((0, 1, 31, 129, 511, 1001)), sizes, sizes),
    layouts=any_layout,
    dtype=st.sampled_from(DTYPES),
)
def test_any_size_and_stride_of_dw(mode, reduction, shape, layouts, dtype):
    """So does every mode and reduction of dW, of no tokens and of many.

    triton-lang/triton#630, triton-lang/triton#10772, triton-lang/triton#10427
    """
    integers = not REPEATED_LAYOUTS.isdisjoint(layouts)
    choices = {"mode": mode, "reduction": reduction}
    check("dw", shape, dtype, layouts=layouts, integers=integers, **choices, **FAST)


@every_op
@pytest.mark.parametrize("dtype", (DTYPES[0], torch.float32), ids=name_of)
@pytest.mark.parametrize("depth", (96, 1001, 4096))
def test_tails_of_contractions(op, dtype, depth):
    """No multiple of a block, half of one, and a long one: the vendor's error, or that
    of one chain of additions.

    triton-lang/triton#630, triton-lang/triton#8899, triton-lang/triton#9839
    """
    rows, columns = (127, 255) if depth == 4096 else (511, 1024)
    if INTERPRETED:
        rows, columns = 33, 65
    chained = dtype == torch.float32
    check(op, shape_of(op, rows, depth, columns), dtype, chained=chained, **FAST)


@every_op
@pytest.mark.parametrize("of", (0, 1), ids=("first", "second"))
@pytest.mark.parametrize("pitch", (1, 3, 7, 511))
def test_pitches_of_no_whole_16_bytes(op, of, pitch, monkeypatch):
    """No descriptor is made of such rows: copied, or read by pointers, all is right.

    triton-lang/triton#10927, flagos-ai/FlagGems#4471
    """
    *operand_shapes, _ = shapes(op, (48, 64, 80))
    operands = [
        operand(size, DTYPES[0], integers=True, seed=seed)
        for seed, size in enumerate(operand_shapes, 1)
    ]
    rows, columns = operand_shapes[of]
    wide = operand((rows, columns + pitch), DTYPES[0], integers=True, seed=3)
    operands[of] = wide[:, :columns]
    copied, copy = [], fast._copied
    monkeypatch.setattr(fast, "_copied", lambda *a: copied.append(a[0]) or copy(*a))
    assert_exact(compute(op, *operands, **FAST), op, *operands)
    (known,) = fast._prepared.values()
    assert [id(t) for t in copied] == [id(operands[of])] * (not INTERPRETED)
    assert (known.plan.kernel == "grouped") == INTERPRETED


@pytest.mark.parametrize("T", (1, 3, 7, 129))
@every_reduction
def test_dw_of_slices(T, reduction):
    """dW reads X = big[1:, 1:], with rows 65 apart, whatever T is.

    flagos-ai/FlagGems#4471, triton-lang/triton#10927
    """
    x = operand((T + 1, 65), DTYPES[0], integers=True, seed=1)[1:, 1:]
    dy = operand((T + 1, 33), DTYPES[0], integers=True, seed=2)[1:, 1:]
    assert_exact(compute("dw", x, dy, reduction=reduction, **FAST), "dw", x, dy)


@pytest.mark.parametrize("dtype", (torch.float16, torch.float32), ids=name_of)
def test_column_major_times_wide_pitch(dtype):
    """X of strides (1, 1024), W of 1953 columns in rows of 7920: no alignment assumed.

    triton-lang/triton#1297
    """
    rows, depth = (160, 96) if INTERPRETED else (1024, 2048)
    x = operand((depth, rows), dtype, seed=1).T
    w = operand((depth, 7920), dtype, seed=2)[:, : 225 if INTERPRETED else 1953]
    assert_as_exact_as_vendor(compute("forward", x, w, **FAST), "forward", x, w)


@pytest.mark.parametrize("op", ("dx", "dw"))
@every_dtype
def test_gradient_of_a_sum(op, dtype):
    """dY of one value expanded over T and N gives sums of W's rows or X's columns.

    ROCm/TransformerEngine#623
    """
    T, K, N = 48, 64, 80
    dy = torch.ones(1, 1, dtype=dtype, device=DEVICE).expand(T, N)
    if op == "dx":
        operands = dy, operand((K, N), dtype, integers=True)
    else:
        operands = operand((T, K), dtype, integers=True), dy
    assert_exact(compute(op, *operands, **FAST), op, *operands)


@every_op
def test_a_part_of_a_wider_gradient(op):
    """An operand that is columns of a larger tensor has that tensor's strides.

    pytorch/pytorch#194719
    """
    operands = []
    for seed, (rows, columns) in enumerate(shapes(op, (48, 64, 80))[:2], 1):
        wide = operand((rows, 3 * columns), DTYPES[0], integers=True, seed=seed)
        operands.append(wide[:, columns : 2 * columns])
    assert_exact(compute(op, *operands, **FAST), op, *operands)


@pytest.mark.parametrize(
    "op, choices",
    [("forward", {}), ("dx", {}), *(("dw", {"reduction": r}) for r in REDUCTIONS)],
    ids=lambda given: given if isinstance(given, str) else str(*given.values()),
)
@pytest.mark.parametrize(
    "shape", ((0, 64, 48), (1024, 0, 48), (1024, 64, 0), (1024, 64, 48)), ids=str
)
def test_no_grid_is_empty(op, choices, shape, monkeypatch):
    """Every launch is of one program or more, its grid a tuple; or there is none.

    triton-lang/triton#10427, Deep-Learning-Profiling-Tools/triton-viz#423
    """
    launches = []
    for module, names in ((fast, LAUNCHED), (host, ["reduce"])):
        for name in names:
            kernel = getattr(module, f"{name}_kernel")
            recorded = RecordedKernel(name, kernel, launches)
            monkeypatch.setattr(module, f"{name}_kernel", recorded)
    a, b = (operand(size, DTYPES[0], integers=True) for size in shapes(op, shape)[:2])
    result = compute(op, a, b, **choices, **FAST)
    assert_exact(result, op, a, b)
    assert bool(launches) == bool(result.numel())
    for launch in launches:
        assert isinstance(launch["grid"], tuple) and min(launch["grid"]) > 0


# Accumulators


@every_mode
@every_reduction
@pytest.mark.parametrize("shape", LONG, ids=str)
def test_first_second_and_third_call(shape, mode, reduction):
    """Overwriting gives the same each time; accumulating adds one more each time.

    triton-lang/triton#2183, triton-lang/triton#4217, triton-lang/triton#7181,
    triton-lang/triton#6547
    """
    T, K, N = shape
    x = operand((T, K), DTYPES[0], integers=True, seed=1)
    dy = operand((T, N), DTYPES[0], integers=True, seed=2)
    out = Output((K, N), torch.float32, holding=7.0)
    product = exact_product("dw", x, dy)
    choices = {"mode": mode, "reduction": reduction, **FAST}
    for call in (1, 2, 3):
        compute("dw", x, dy, out=out.tensor, **choices)
        expected = 7.0 + call * product if mode == "accumulate" else product
        assert torch.equal(out.tensor.double(), expected), f"call {call}"


@every_op
def test_the_same_sizes_in_another_form(op):
    """What is kept of a call serves no call of another dtype, layout or alignment.

    triton-lang/triton#2534
    """
    sizes = shapes(op, (48, 64, 80))[:2]
    for dtype in DTYPES:
        for layout in ("plain", "swapped", "pitched", "plain"):
            a, b = (
                operand(size, dtype, layout=layout, integers=True, seed=seed)
                for seed, size in enumerate(sizes, 1)
            )
            assert_exact(compute(op, a, b, **FAST), op, a, b)
    assert len(fast._prepared) == 3 * len(DTYPES)


# Dtypes and precision


def test_error_does_not_grow_with_shares():
    """However a sum is shared, what is shared is fp32: no less exact than whole.

    triton-lang/triton#2630, triton-lang/triton#1387
    """
    T, K, N = (512, 64, 48) if INTERPRETED else (8192, 256, 192)
    x, dy = (operand(size, DTYPES[0], seed=size[1]) for size in ((T, K), (T, N)))
    exact, errors = exact_product("dw", x, dy), []
    for reduction in ("none", "atomic", "workspace"):
        dw = compute("dw", x, dy, reduction=reduction, **FAST)
        assert_as_exact_as_vendor(dw, "dw", x, dy)
        errors.append(float(torch.linalg.norm(dw - exact)))
    assert max(errors) == errors[0], errors


@every_op
def test_fp32_as_the_framework_has_it(op):
    """Each precision is as exact as the vendor's same one, also behind the other.

    triton-lang/triton#1800, triton-lang/triton#5895, triton-lang/triton#9839
    """
    shape = shape_of(op, 65, 511, 130)
    # The interpreter knows no TF32: there the two give the same.
    for precision in ("ieee", "tf32", "ieee"):
        with fp32_precision(precision):
            check(op, shape, torch.float32, **FAST)
    assert len(fast._prepared) == 2


def test_ones_times_w_are_column_sums():
    """In ieee, a product with ones is a sum, to fp32's own rounding.

    triton-lang/triton#8654
    """
    w = operand((511, 65), torch.float32)
    x = torch.ones(16, 511, device=DEVICE)
    with fp32_precision("ieee"):
        result = compute("forward", x, w, **FAST)
    sums = w.double().sum(0)
    worst = 511 * torch.finfo(torch.float32).eps * w.double().abs().sum(0)
    assert ((result - sums).abs() <= worst).all()


@every_op
@every_dtype
def test_large_sums_overflow_as_the_output_does(op, dtype):
    """102400 is inf in fp16, never NaN, and finite in bf16 and fp32.

    triton-lang/triton#9310
    """
    sizes = shapes(op, shape_of(op, 32, 1024, 16))[:2]
    a, b = (torch.full(size, 10.0, dtype=dtype, device=DEVICE) for size in sizes)
    # NumPy remarks on the overflow that is asked for here.
    warns = INTERPRETED and op != "dw" and dtype == torch.float16
    with pytest.warns(RuntimeWarning) if warns else contextlib.nullcontext():
        result = compute(op, a, b, **FAST)
    assert result.isinf().all() == (result.dtype == torch.float16)
    assert_exact(result, op, a, b)


@pytest.mark.skipif(not INTERPRETED, reason="about the interpreter")
def test_the_interpreter_has_no_bf16():
    """As long as it multiplies bit patterns, no test there may run in bf16.

    triton-lang/triton#11584
    """
    x = operand((16, 16), torch.bfloat16, integers=True, seed=1)
    w = operand((16, 16), torch.bfloat16, integers=True, seed=2)
    right = torch.equal(
        compute("forward", x, w, **FAST).double(), exact_product("forward", x, w)
    )
    assert right == (torch.bfloat16 in DTYPES)


# What has no gradient


@pytest.mark.parametrize("transform", ("vmap", "grad", "jacrev", "jacfwd"))
@every_op
@pytest.mark.parametrize("implementation", ("fast", "lesson"))
def test_transforms_are_refused(implementation, op, transform):
    """torch.func's tensors have no memory to read: torch says so, in its own words."""
    a, b = (torch.ones(size, device=DEVICE) for size in shapes(op, (48, 64, 80))[:2])

    def product(a):
        return compute(op, a, b, implementation=implementation).sum()

    transformed = getattr(torch.func, transform)(product)
    with pytest.raises(RuntimeError, match="storage|data pointer"):
        transformed(a[None] if transform == "vmap" else a)
