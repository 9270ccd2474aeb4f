"""What the host API computes: the same bodies in the interpreter and on a GPU.

The interpreter runs programs one after another, so it proves nothing on races
(triton-lang/triton#6227), on bf16 or on TF32; the runs on a GPU do.
"""

import contextlib
import dataclasses

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernels import device, host
from kernels.plan import Tile, cdiv, split_range
from tests.kernels.contract import (
    DEVICE,
    DTYPES,
    FAR,
    INTERPRETED,
    LAYOUTS,
    OPS,
    OUTPUT_LAYOUTS,
    REDUCTIONS,
    REPEATED_LAYOUTS,
    TILES,
    Output,
    assert_as_exact_as_vendor,
    assert_exact,
    check,
    compute,
    exact_product,
    far_apart,
    fp32_precision,
    name_of,
    need_memory,
    operand,
    record_launches,
    shape_of,
    shapes,
    small_tile,
    tile_of,
    untouched_memory,
)

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.gpu,
    # NumPy's word for an overflow in the interpreter (gpu-mode/lectures#47).
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]

every_op = pytest.mark.parametrize("op", OPS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
every_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)
every_mode = pytest.mark.parametrize("mode", ("overwrite", "accumulate"))
gpu_only = pytest.mark.skipif(INTERPRETED, reason="needs a CUDA device")

# A GPU compiles about every example anew, a second each. Nothing is shrunk: sizes
# are drawn from few, and it would take minutes.
examples = settings(
    max_examples=20 if INTERPRETED else 4, phases=(Phase.explicit, Phase.generate)
)
sizes = st.sampled_from((0, 1, 2, 15, 16, 17, 31, 96, 127, 129, 511, 1001))
layouts = st.tuples(
    st.sampled_from(tuple(LAYOUTS)),
    st.sampled_from(tuple(LAYOUTS)),
    st.sampled_from(OUTPUT_LAYOUTS),
)


# Shapes


@pytest.mark.parametrize("op", OPS[:2])
@every_dtype
@examples
@given(T=sizes, K=sizes, N=sizes, layouts=layouts)
def test_any_size_and_stride(op, dtype, T, K, N, layouts):
    """Tails are masked at the load, on both operands, and filled with 0.

    No sum overflows on its way, of which NumPy would warn.

    triton-lang/triton#630, triton-lang/triton#10772, gpu-mode/lectures#47
    """
    shape = T, K, N
    integers = not REPEATED_LAYOUTS.isdisjoint(layouts)
    tile = small_tile(op, shape)
    check(op, shape, dtype, layouts=layouts, integers=integers, tile=tile)


@every_dtype
@pytest.mark.kernels("dw", "reduce")
@examples
@given(
    T=sizes,
    K=sizes,
    N=sizes,
    layouts=layouts,
    mode=st.sampled_from(("overwrite", "accumulate")),
    reduction=st.sampled_from(("none", "atomic", "workspace")),
    split_t=st.sampled_from((2, 3, 5, 20)),
)
def test_any_size_and_stride_of_dw(dtype, T, K, N, layouts, mode, reduction, split_t):
    """Every split, mode and reduction gives dW at every size.

    triton-lang/triton#630, facebookexperimental/triton#1142
    """
    shape = T, K, N
    split_t = 1 if reduction == "none" else split_t
    check(
        "dw",
        shape,
        dtype,
        layouts=layouts,
        integers=not REPEATED_LAYOUTS.isdisjoint(layouts),
        tile=small_tile("dw", shape, split_t),
        mode=mode,
        reduction=reduction,
        split_t=split_t,
    )


@pytest.mark.parametrize(
    "layouts",
    (
        ("swapped", "gapped", "pitched"),
        ("pitched", "swapped", "gapped"),
        ("gapped", "pitched", "swapped"),
        ("row repeated", "column repeated", "plain"),
        ("column repeated", "one value", "swapped"),
        ("one value", "row repeated", "pitched"),
    ),
    ids="-".join,
)
@every_op
def test_every_layout_of_every_tensor(op, layouts):
    """A kernel takes the strides of the very tensor it reads or writes.

    ROCm/TransformerEngine#623, pytorch/pytorch#194719
    """
    shape = 33, 71, 49
    tile = tile_of(op, 32, 32, 32)
    check(op, shape, torch.float16, layouts=layouts, integers=True, tile=tile)


@every_op
@pytest.mark.parametrize("dtype", (DTYPES[0], torch.float32), ids=name_of)
def test_thousand_and_one(op, dtype):
    """A contraction of 1001 keeps its tail, whole and in three splits.

    triton-lang/triton#630
    """
    shape = shape_of(op, 1000, 1001, 999)
    tile = tile_of(op, 512, 128, 512) if INTERPRETED else None
    check(op, shape, dtype, tile=tile)
    if op == "dw":
        check(op, shape, dtype, tile=tile, split_t=3, reduction="atomic")


@pytest.mark.kernels("forward")
def test_long_contraction_of_odd_sizes():
    """Error stays the vendor's on 127×255 with 4096 contracted.

    triton-lang/triton#9839
    """
    tile = tile_of("forward", 128, 128, 128) if INTERPRETED else None
    check("forward", (127, 4096, 255), torch.float16, tile=tile)


@pytest.mark.kernels("forward")
@pytest.mark.parametrize("dtype", (torch.float16, torch.float32), ids=name_of)
def test_last_block_half_outside(dtype):
    """511×1024 with 96 contracted is right in tiles of 128×32, 64 deep.

    triton-lang/triton#8899
    """
    tile = tile_of("forward", 128, 64, 32)
    check("forward", (511, 96, 1024), dtype, tile=tile)


@pytest.mark.kernels("forward")
@pytest.mark.parametrize("dtype", (torch.float16, torch.float32), ids=name_of)
def test_column_major_times_wide_pitch(dtype):
    """X of strides (1, 1024), W of 1953 columns in rows of 7920: no alignment assumed.

    triton-lang/triton#1297
    """
    x = operand((2048, 1024), dtype, seed=1).T
    w = operand((2048, 7920), dtype, seed=2)[:, :1953]
    tile = Tile(512, 256, 1024, 8, 3) if INTERPRETED else None
    assert_as_exact_as_vendor(compute("forward", x, w, tile=tile), "forward", x, w)


@pytest.mark.kernels("dw")
@pytest.mark.parametrize("T", (1, 3, 7, 129))
def test_dw_of_slices(T):
    """dW reads X = big[1:, 1:], with rows 65 apart, whatever T is.

    flagos-ai/FlagGems#4471
    """
    x = operand((T + 1, 65), torch.float16, integers=True, seed=1)[1:, 1:]
    dy = operand((T + 1, 33), torch.float16, integers=True, seed=2)[1:, 1:]
    assert x.stride() == (65, 1)
    dw = compute("dw", x, dy, tile=small_tile("dw", (T, 64, 32)))
    assert_exact(dw, "dw", x, dy)


@pytest.mark.parametrize("op", OPS[1:])
def test_gradient_of_a_sum(op):
    """dY of one value expanded over T and N gives sums of W's rows or X's columns.

    ROCm/TransformerEngine#623
    """
    T, K, N = 37, 19, 53
    tile = small_tile(op, (T, K, N))
    dy = torch.ones(1, 1, dtype=torch.float16, device=DEVICE).expand(T, N)
    if op == "dx":
        w = operand((K, N), torch.float16, integers=True)
        expected = w.double().sum(1).expand(T, K)
        assert torch.equal(compute("dx", dy, w, tile=tile).double(), expected)
    else:
        x = operand((T, K), torch.float16, integers=True)
        expected = x.double().sum(0)[:, None].expand(K, N)
        assert torch.equal(compute("dw", x, dy, tile=tile).double(), expected)


@every_op
@every_mode
@pytest.mark.kernels("fast", "reduce")
@pytest.mark.parametrize(
    "choices",
    (
        {"implementation": "fast"},
        {"implementation": "lesson"},
        {"split_t": 3, "reduction": "atomic"},
        {"split_t": 3, "reduction": "workspace"},
    ),
    ids=lambda choices: "-".join(map(str, choices.values())),
)
def test_autograd_sees_what_is_written(op, mode, choices):
    """A graph that saved out refuses to go on with what a product wrote there."""
    if op != "dw" and (mode == "accumulate" or "split_t" in choices):
        return
    *sizes, out_size = shapes(op, (40, 16, 16))
    a, b = (operand(size, DTYPES[0]) for size in sizes)
    out = torch.ones(out_size, device=DEVICE)
    factor = torch.ones_like(out).requires_grad_()
    loss = (out * factor).sum()
    mode = {"mode": mode} if op == "dw" else {}
    compute(op, a, b, out=out, **mode, **choices)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@every_op
@pytest.mark.parametrize("T, K, N", ((0, 3, 5), (3, 0, 5), (3, 5, 0), (0, 0, 0)))
def test_empty(op, T, K, N, launches):
    """An empty output keeps its shape; an empty contraction gives zeros.

    And no empty grid is launched. triton-lang/triton#10427,
    Deep-Learning-Profiling-Tools/triton-viz#423
    """
    a_shape, b_shape, out_shape = shapes(op, (T, K, N))
    a, b = operand(a_shape, torch.float16), operand(b_shape, torch.float16)
    result = compute(op, a, b, tile=small_tile(op, (T, K, N)))
    assert result.shape == out_shape
    assert result.dtype == (torch.float32 if op == "dw" else torch.float16)
    assert result.device.type == DEVICE
    assert torch.equal(result, torch.zeros_like(result))
    for launch in launches:
        assert isinstance(launch["grid"], tuple) and min(launch["grid"]) > 0
    assert bool(launches) == bool(result.numel())


@every_reduction
@every_mode
def test_dw_of_no_tokens(mode, reduction):
    """With T = 0, dW is zeros, and an existing gradient stays as it is.

    triton-lang/triton#10427
    """
    split_t = 1 if reduction == "none" else 3
    choices = {"mode": mode, "reduction": reduction, "split_t": split_t}
    tile = tile_of("dw", 16, 16, 16)
    check("dw", (0, 17, 18), torch.float16, integers=True, tile=tile, **choices)


@every_op
def test_tiles_count_along_the_first_axis(op, monkeypatch):
    """70000 tiles stand on the grid's first axis, which alone can hold them.

    triton-lang/triton#3299
    """
    launches = record_launches(monkeypatch, run=False)
    *operands, _ = shapes(op, shape_of(op, 1_120_000, 1, 1))
    a, b = (torch.zeros(s, dtype=torch.float16, device=DEVICE) for s in operands)
    compute(op, a, b, tile=tile_of(op, 16, 16, 16))
    (launch,) = launches
    assert launch["grid"] == (70_000, 1)


# Tiles and plans


@every_op
@pytest.mark.parametrize("blocks", TILES)
def test_each_tile_alone(op, blocks):
    """Each tile fills a NaN output on its own, nobody else's work helps it.

    triton-lang/triton#9230
    """
    rows, contracted, columns, *_ = blocks
    shape = shape_of(op, 2 * rows - 1, 2 * contracted + 3, columns + 1)
    check(op, shape, torch.float16, tile=tile_of(op, *blocks))


@pytest.mark.kernels("dw")
@pytest.mark.parametrize("limit_kib", (48, 64, 99, 163, 227))
def test_planned_tile_fits_the_device(limit_kib, monkeypatch, launches):
    """The planned launch asks for no more shared memory than the device has.

    dW asks for most, as its fp32 result passes through; see test_compile.py for
    all. triton-lang/triton#8182
    """
    facts = device.INTERPRETER if INTERPRETED else device.facts(0)
    limit = limit_kib * 1024
    facts = dataclasses.replace(facts, shared_memory_per_program_bytes=limit)
    monkeypatch.setattr(device, "INTERPRETER", facts)
    monkeypatch.setattr(device, "facts", lambda index: facts)
    check("dw", (127, 65, 33), DTYPES[0])
    for launch in launches:
        if not INTERPRETED:
            assert launch["compiled"].metadata.shared <= limit


@pytest.mark.parametrize("op", OPS[:2])
@pytest.mark.parametrize(
    "dtype, out_dtype",
    ((DTYPES[0], torch.float32), (torch.float32, torch.float16)),
    ids=name_of,
)
def test_output_of_another_dtype(op, dtype, out_dtype):
    """The fp32 sum is cast once, to the dtype of the output, whichever that is."""
    shape = shape_of(op, 33, 100, 49)
    tile = small_tile(op, shape)
    check(op, shape, dtype, out_dtype=out_dtype, tile=tile)


# Splits, modes and reductions of dW


@every_reduction
@every_mode
@every_dtype
def test_dw_of_more_splits_than_blocks(dtype, mode, reduction):
    """Idle splits add nothing, and uneven ones nothing twice.

    5.0 is accumulated onto once, in the first call too.
    facebookexperimental/triton#1142, triton-lang/triton#6547
    """
    tile = tile_of("dw", 32, 16, 32)
    for split_t in (1,) if reduction == "none" else (1, 2, 4, 5, 9):
        check(
            "dw",
            (5 * 16 - 3, 33, 31),
            dtype,
            mode=mode,
            reduction=reduction,
            split_t=split_t,
            tile=tile,
        )


@pytest.mark.parametrize("reduction", REDUCTIONS[1:])
@pytest.mark.parametrize("T", (2, 31, 32, 33, 95, 97))
def test_dw_around_whole_blocks(T, reduction):
    """Three splits cover T just below and above whole blocks of 32."""
    tile = tile_of("dw", 64, 32, 64, num_stages=3)
    choices = {"split_t": 3, "reduction": reduction, "tile": tile}
    check("dw", (T, 17, 33), torch.float16, **choices)


@pytest.mark.kernels("dw")
def test_split_owns_its_range(monkeypatch):
    """Slice s of the workspace sums just the T-blocks that the plan gives split s."""
    T, block_t, split_t = 7 * 16 - 5, 16, 4
    workspaces = []
    monkeypatch.setattr(host, "sum_slices", lambda *args: workspaces.append(args[0]))
    x = torch.ones(T, 1, dtype=torch.float16, device=DEVICE)
    tile = tile_of("dw", 16, block_t, 16)
    compute("dw", x, x, reduction="workspace", split_t=split_t, tile=tile)
    blocks = cdiv(T, block_t)
    ranges = [split_range(split, split_t, blocks) for split in range(split_t)]
    owned = [min(T, high * block_t) - low * block_t for low, high in ranges]
    assert workspaces[0].flatten().tolist() == owned


@every_reduction
@every_mode
def test_first_second_and_third_call(mode, reduction):
    """Overwriting gives the same each time; accumulating adds one more each time.

    triton-lang/triton#2183, triton-lang/triton#4217, triton-lang/triton#7181
    """
    x = operand((77, 33), torch.float16, integers=True, seed=1)
    dy = operand((77, 31), torch.float16, integers=True, seed=2)
    out = Output((33, 31), torch.float32, holding=7.0)
    product = exact_product("dw", x, dy)
    choices = {"mode": mode, "reduction": reduction, "tile": tile_of("dw", 32, 16, 32)}
    if reduction != "none":
        choices["split_t"] = 3
    for call in (1, 2, 3):
        compute("dw", x, dy, out=out.tensor, **choices)
        expected = 7.0 + call * product if mode == "accumulate" else product
        assert torch.equal(out.tensor.double(), expected), f"call {call}"


@pytest.mark.parametrize("reduction", REDUCTIONS[1:])
def test_error_does_not_grow_with_splits(reduction):
    """Partial sums stay fp32: 4 and 16 splits are no less exact than 1.

    triton-lang/triton#2630, triton-lang/triton#1387
    """
    x = operand((8192, 256), torch.float16, seed=1)
    dy = operand((8192, 256), torch.float16, seed=2)
    tile = tile_of("dw", 256, 128, 256) if INTERPRETED else None
    exact = exact_product("dw", x, dy)
    errors = []
    for split_t in (1, 4, 16):
        dw = compute("dw", x, dy, reduction=reduction, split_t=split_t, tile=tile)
        assert_as_exact_as_vendor(dw, "dw", x, dy)
        errors.append(float(torch.linalg.norm(dw - exact)))
    assert max(errors) == errors[0], errors


@every_mode
@pytest.mark.kernels("dw", "reduce")
def test_workspace_is_bit_identical(mode):
    """With a workspace, the same inputs give the same bits every time.

    microsoft/onnxruntime#27003
    """
    x = operand((1001, 65), torch.float16, seed=1)
    dy = operand((1001, 33), torch.float16, seed=2)
    tile = tile_of("dw", 64, 64, 64)
    seen = set()
    for _ in range(3 if INTERPRETED else 50):
        out = Output((65, 33), torch.float32, holding=5.0).tensor
        choices = {"mode": mode, "reduction": "workspace", "split_t": 16}
        compute("dw", x, dy, out=out, tile=tile, **choices)
        seen.add(out.cpu().numpy().tobytes())
    assert len(seen) == 1


@pytest.mark.kernels("dw")
def test_atomic_stays_within_the_vendors_error():
    """64 atomic splits arrive in any order, 100 times, and are right each time.

    triton-lang/triton#6227
    """
    x = operand((1024, 65), torch.float16, seed=1)
    dy = operand((1024, 33), torch.float16, seed=2)
    tile = tile_of("dw", 64, 16, 64)
    out = torch.empty(65, 33, device=DEVICE)
    for _ in range(1 if INTERPRETED else 100):
        compute("dw", x, dy, out=out, reduction="atomic", split_t=64, tile=tile)
        assert_as_exact_as_vendor(out, "dw", x, dy)


@pytest.mark.kernels("dw", "reduce")
def test_default_reduction_obeys_the_framework(launches):
    """A split dW is atomic, unless the framework is told to be deterministic."""
    x = operand((64, 16), torch.float16, integers=True)
    tile = tile_of("dw", 16, 16, 16)
    compute("dw", x, x, split_t=2, tile=tile)
    torch.use_deterministic_algorithms(True)
    try:
        compute("dw", x, x, split_t=2, tile=tile)
    finally:
        torch.use_deterministic_algorithms(False)
    assert [launch["kernel"] for launch in launches] == ["dw", "dw", "reduce"]


# Dtypes and precision


@every_op
@every_dtype
def test_large_sums_overflow_as_the_output_does(op, dtype):
    """100100 is inf in fp16, never NaN, and finite in bf16 and fp32.

    triton-lang/triton#9310
    """
    shape = shape_of(op, 17, 1001, 15)
    a_shape, b_shape, _ = shapes(op, shape)
    a = torch.full(a_shape, 10.0, dtype=dtype, device=DEVICE)
    b = torch.full(b_shape, 10.0, dtype=dtype, device=DEVICE)
    # NumPy remarks on the overflow that is asked for here.
    warns = INTERPRETED and op != "dw" and dtype == torch.float16
    with pytest.warns(RuntimeWarning) if warns else contextlib.nullcontext():
        result = compute(op, a, b, tile=small_tile(op, shape))
    assert result.isinf().all() == (result.dtype == torch.float16)
    assert_exact(result, op, a, b)


@pytest.mark.kernels("forward")
def test_precision_follows_the_framework(monkeypatch):
    """fp32 products are rounded to TF32 where torch would, and only there.

    triton-lang/triton#1800, triton-lang/triton#5895
    """
    launches = record_launches(monkeypatch, run=False)
    x = operand((16, 16), torch.float32)
    for precision in ("ieee", "tf32"):
        with fp32_precision(precision):
            compute("forward", x, x)
    assert [launch["PRECISION"] for launch in launches] == ["ieee", "tf32"]


@every_op
@pytest.mark.parametrize("precision", ("ieee", "tf32"))
def test_fp32_is_as_exact_as_the_vendor(op, precision):
    """Each precision is compared with the vendor's same one; ieee is far closer.

    triton-lang/triton#1800, triton-lang/triton#9839
    """
    if INTERPRETED and precision == "tf32":
        pytest.skip("the interpreter knows no TF32")
    shape = shape_of(op, 65, 511, 130)
    with fp32_precision(precision):
        check(op, shape, torch.float32, tile=small_tile(op, shape))


@pytest.mark.kernels("forward")
def test_ones_times_w_are_column_sums():
    """In ieee, a product with ones is a sum, to fp32's own rounding.

    triton-lang/triton#8654
    """
    w = operand((511, 65), torch.float32)
    x = torch.ones(16, 511, device=DEVICE)
    tile = small_tile("forward", (16, 511, 65))
    with fp32_precision("ieee"):
        result = compute("forward", x, w, tile=tile)
    sums = w.double().sum(0)
    worst = 511 * torch.finfo(torch.float32).eps * w.double().abs().sum(0)
    assert ((result - sums).abs() <= worst).all()


# Addresses beyond 32 bits


@pytest.mark.xdist_group("memory")
@every_op
@pytest.mark.parametrize("axis", ("contracted", "other"))
def test_operands_beyond_32_bits(op, axis):
    """Offsets are 64-bit before they meet a stride, for both operands.

    triton-lang/triton#5022
    """
    sizes = (16, 3, 16) if axis == "contracted" else (3, 16, 3)
    a_shape, b_shape, _ = shapes(op, shape_of(op, *sizes))
    a = far_apart(
        operand(a_shape, torch.float16, integers=True, seed=1), a_shape.index(3)
    )
    b = far_apart(
        operand(b_shape, torch.float16, integers=True, seed=2), b_shape.index(3)
    )
    assert_exact(compute(op, a, b, tile=tile_of(op, 16, 16, 16)), op, a, b)


@pytest.mark.xdist_group("memory")
@every_op
@pytest.mark.parametrize("rows, columns", ((3, 16), (16, 3)))
def test_output_beyond_32_bits(op, rows, columns):
    """Offsets into the output are 64-bit, and so are those of a gradient.

    triton-lang/triton#5022
    """
    a_shape, b_shape, out_shape = shapes(op, shape_of(op, rows, 16, columns))
    a = operand(a_shape, torch.float16, integers=True, seed=1)
    b = operand(b_shape, torch.float16, integers=True, seed=2)
    dtype = torch.float32 if op == "dw" else torch.float16
    out = far_apart(
        torch.zeros(out_shape, dtype=dtype, device=DEVICE), out_shape.index(3)
    )
    assert_exact(compute(op, a, b, out=out, tile=tile_of(op, 16, 16, 16)), op, a, b)


@pytest.mark.xdist_group("memory")
@pytest.mark.kernels("dw", "reduce")
def test_workspace_slices_beyond_32_bits(monkeypatch):
    """Slices of the workspace may lie beyond 2³¹ elements, to dw and to reduce.

    deepspeedai/DeepSpeed#8590
    """
    reach = 2 * FAR + 16 * 16
    need_memory(4 * reach)
    storage = untouched_memory(reach, dtype=torch.float32, device=DEVICE)
    workspace = storage.as_strided((3, 16, 16), (FAR, 16, 1)).fill_(torch.nan)
    x = operand((48, 16), torch.float16, integers=True, seed=1)
    dy = operand((48, 16), torch.float16, integers=True, seed=2)
    out = Output((16, 16), torch.float32)
    new_empty = torch.Tensor.new_empty

    def far_workspace(tensor, shape, **choices):
        if shape == workspace.shape:
            return workspace
        return new_empty(tensor, shape, **choices)

    monkeypatch.setattr(torch.Tensor, "new_empty", far_workspace)
    tile = tile_of("dw", 16, 16, 16)
    choices = {"reduction": "workspace", "split_t": 3, "tile": tile}
    compute("dw", x, dy, out=out.tensor, **choices)
    assert_exact(out.tensor, "dw", x, dy)
