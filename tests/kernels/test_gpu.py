"""What only a GPU can show: true sizes, streams, graphs, a second device."""

import contextlib

import pytest
import torch

from kernels import matmul_dw
from kernels.device import facts
from kernels.fast import ops as fast
from kernels.fast import tune
from kernels.layers import Linear, linear
from kernels.plan import Layout, fast_plan
from tests.kernels.contract import (
    OPS,
    Output,
    assert_as_exact_as_vendor,
    assert_exact,
    compute,
    need_memory,
    operand,
    shapes,
    small_tile,
    tile_of,
)
from tests.kernels.test_fast import LAUNCHED, planned

pytestmark = pytest.mark.gpu

FAST = {"implementation": "fast"}
every_product = pytest.mark.parametrize("op", ("forward", "dx", "dw"))
# On an H200 one is split, one is shared by stream-K, and the third, of odd rows,
# takes pointers: each has its workspace.
SHARED = ((32768, 1024, 1024), (16384, 768, 3072), (8191, 1023, 511))
every_shared_shape = pytest.mark.parametrize("shape", SHARED, ids=str)


@pytest.mark.kernels("forward")
def test_more_tiles_than_a_second_axis_holds():
    """68750 tiles run, where a grid's second axis ends at 65535.

    triton-lang/triton#3299
    """
    x = operand((1_100_000, 16), torch.float16, integers=True, seed=1)
    w = operand((16, 16), torch.float16, integers=True, seed=2)
    y = compute("forward", x, w, tile=tile_of("forward", 16, 16, 16))
    assert_exact(y, "forward", x, w)


@pytest.mark.xdist_group("memory")
@pytest.mark.parametrize(
    "implementation",
    (
        pytest.param("lesson", marks=pytest.mark.kernels("forward")),
        pytest.param("fast", marks=pytest.mark.kernels("fast")),
    ),
)
def test_output_of_more_than_2_31_elements(implementation):
    """A 40960×128256 output is right at its start, around 2³¹ and at its end.

    triton-lang/triton#5022
    """
    T, K, N = 40960, 16, 128256
    need_memory(12 * 2**30)
    x = operand((T, K), torch.float16, seed=1)
    w = operand((K, N), torch.float16, seed=2)
    y = compute("forward", x, w, implementation=implementation)
    for row in (0, 2**31 // N - 64, T - 128):
        rows = slice(row, row + 128)
        assert_as_exact_as_vendor(y[rows], "forward", x[rows], w)


@pytest.mark.xdist_group("memory")
@pytest.mark.kernels("dw", "reduce")
def test_workspace_of_more_than_2_31_elements():
    """A workspace of 8×16384×16640 is written and summed; nothing around is hit.

    deepspeedai/DeepSpeed#8590
    """
    T, K, N = 512, 16384, 16640
    need_memory(12 * 2**30)
    x = operand((T, K), torch.float16, integers=True, seed=1)
    dy = operand((T, N), torch.float16, integers=True, seed=2)
    out = Output((K, N), torch.float32)
    compute("dw", x, dy, out=out.tensor, reduction="workspace", split_t=8)
    for row in (0, K // 2, K - 128):
        rows = slice(row, row + 128)
        assert_exact(out.tensor[rows], "dw", x[:, rows], dy)
    torch.cuda.empty_cache()  # of the workspace, before the check makes a copy
    out.assert_surroundings_untouched()


@pytest.mark.xdist_group("memory")
@pytest.mark.kernels("fast")
@pytest.mark.parametrize(
    "kernel, parts", (("grouped", 1), ("pitched", 1), ("split", 2))
)
def test_fast_workspace_of_more_than_2_31_elements(kernel, parts):
    """So are the workspaces of the fast kernels.

    deepspeedai/DeepSpeed#8590
    """
    T, K, N = 512, 16384, 16640
    need_memory(12 * 2**30)
    x = operand((T, K), torch.float16, integers=True, seed=1)
    dy = operand((T, N), torch.float16, integers=True, seed=2)
    out = Output((K, N), torch.float32)
    plan = planned("dw", (kernel, "workspace", 8, parts), (T, K, N))
    fast.multiply("dw", x, dy, out=out.tensor, plan=plan)
    for row in (0, K // 2, K - 128):
        rows = slice(row, row + 128)
        assert_exact(out.tensor[rows], "dw", x[:, rows], dy)
    torch.cuda.empty_cache()  # of the workspace, before the check makes a copy
    out.assert_surroundings_untouched()


@pytest.mark.xdist_group("memory")
@pytest.mark.kernels("fast")
@pytest.mark.parametrize("mode", ("overwrite", "accumulate"))
def test_gradient_of_more_than_2_31_elements(mode):
    """A 46400×46400 gradient is written and added to, from its start to its end.

    triton-lang/triton#5022, deepspeedai/DeepSpeed#8590
    """
    T, K, N = 64, 46400, 46400
    need_memory(12 * 2**30)
    x = operand((T, K), torch.float16, integers=True, seed=1)
    dy = operand((T, N), torch.float16, integers=True, seed=2)
    out = torch.full((K, N), 7.0, device="cuda")
    assert out.numel() > 2**31
    compute("dw", x, dy, out=out, mode=mode, **FAST)
    for row in (0, 2**31 // N - 64, K - 128):
        rows = slice(row, row + 128)
        base = torch.full_like(out[rows], 7.0) if mode == "accumulate" else None
        assert_exact(out[rows], "dw", x[:, rows], dy, base)


@pytest.mark.xdist_group("memory")
@pytest.mark.kernels("fast")
def test_copied_rows_of_more_than_2_31_bytes():
    """Rows of 2³⁰ elements and some, of an odd pitch, are copied to their ends."""
    need_memory(12 * 2**30)
    columns = 2**30 + 5
    wide = torch.empty(2, columns, device="cuda", dtype=torch.int16).random_()
    strides = fast._roomy(wide.shape, wide.stride(), wide.dtype).stride()
    copied = fast._copied(wide.view(torch.float16), strides)
    assert torch.equal(copied.view(torch.int16), wide)


@pytest.mark.xdist_group("memory")
@pytest.mark.kernels("fast")
def test_layer_of_more_than_2_31_inputs():
    """33 million rows of 64: the last ones count, in y, in dX and in dW.

    triton-lang/triton#5022
    """
    T, K, N = 2**25 + 64, 64, 16
    need_memory(12 * 2**30)
    x = torch.zeros(T, K, device="cuda", dtype=torch.float16)
    dy = torch.zeros(T, N, device="cuda", dtype=torch.float16)
    ends = torch.cat([torch.arange(64), torch.arange(T - 64, T)]).cuda()
    x[ends] = operand((128, K), torch.float16, integers=True, seed=1)
    dy[ends] = operand((128, N), torch.float16, integers=True, seed=2)
    assert x.numel() > 2**31
    weight = operand((N, K), torch.float16, integers=True, seed=3).clone()
    x.requires_grad_()
    weight.requires_grad_()
    y = linear(x, weight)
    y.backward(dy)
    given, rows = x.detach()[ends], dy[ends]
    assert_exact(y.detach()[ends], "forward", given, weight.detach().T)
    assert_exact(x.grad[ends], "dx", rows, weight.detach().T)
    assert_exact(weight.grad, "dw", rows, given)


@pytest.mark.kernels("fast")
@pytest.mark.parametrize("T", (2**31 - 255, 2**31 - 64, 2**31 - 1, 2**31))
def test_contraction_around_2_31(T):
    """Blocks of about 2³¹ ones are counted without overflow, and all of them added."""
    x = torch.ones(1, 16, device="cuda", dtype=torch.float16).expand(T, 16)
    dw = matmul_dw(x, x).double()
    assert torch.allclose(dw, torch.full_like(dw, T), rtol=1e-3)


@every_product
@pytest.mark.kernels("fast")
def test_more_tiles_by_pointers_than_a_second_axis_holds(op):
    """As many run, where no descriptors are planned.

    triton-lang/triton#3299
    """
    lines, width = 8_400_000, 16
    size = (width, lines) if op == "dw" else (lines, width)
    a = torch.randint(-2, 3, size, device="cuda").half()
    b = operand((width, width), torch.float16, integers=True, seed=2)
    shape = {"forward": (lines, width, width), "dx": (lines, width, width)}
    shape = shape.get(op, (width, lines, width))
    plan = fast_plan(op, shape, 2, facts(0), layout=Layout(descriptors=False))
    assert plan.kernel == "grouped" and plan.tiles > 65535
    result = fast.multiply(op, a, b, plan=plan)
    assert_exact(result, op, a, b)


@every_product
@pytest.mark.kernels("fast")
@pytest.mark.parametrize("shape", ((65, 33, 17), (4096, 256, 128)), ids=str)
def test_fast_tensors_of_another_device_than_the_current(op, shape):
    """The fast kernels are planned for, and launched on, the tensors' own device.

    triton-lang/triton#2441
    """
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    a_shape, b_shape, _ = shapes(op, shape)
    a = operand(a_shape, torch.float16, integers=True, seed=1).to("cuda:1")
    b = operand(b_shape, torch.float16, integers=True, seed=2).to("cuda:1")
    with torch.cuda.device(0):
        results = [compute(op, a, b, **FAST) for _ in range(2)]
    for result in results:
        assert result.device == torch.device("cuda:1")
        assert_exact(result, op, a, b)


@pytest.mark.kernels("fast")
@pytest.mark.parametrize("deterministic", (False, True))
def test_layer_of_another_device_than_the_current(deterministic):
    """Forward and backward run where the layer is, whichever device is current.

    triton-lang/triton#2441
    """
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    results = []
    for device in (0, 1):
        torch.manual_seed(0)
        module = Linear(256, 128, dtype=torch.bfloat16, deterministic=deterministic)
        x = torch.randint(-2, 3, (4096, 256)).bfloat16()
        dy = torch.randint(-2, 3, (4096, 128)).bfloat16()
        with torch.no_grad():
            module.weight.copy_(torch.randint(-2, 3, (128, 256)))
        module, x = module.to(device), x.to(device).requires_grad_()
        with torch.cuda.device(0):
            module(x).backward(dy.to(device))
        found = [x.grad, module.weight.grad, module.bias.grad]
        assert all(grad.device.index == device for grad in found)
        results.append([grad.cpu() for grad in found])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("op", OPS)
def test_tensors_of_another_device_than_the_current(op):
    """The launch happens on the tensors' own device, whichever is current.

    triton-lang/triton#2441
    """
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    a_shape, b_shape, _ = shapes(op, (65, 33, 17))
    a = operand(a_shape, torch.float16, integers=True, seed=1).to("cuda:1")
    b = operand(b_shape, torch.float16, integers=True, seed=2).to("cuda:1")
    with torch.cuda.device(0):
        result = compute(op, a, b)
    assert result.device == torch.device("cuda:1")
    assert_exact(result, op, a, b)


@pytest.mark.parametrize(
    "implementation",
    (
        pytest.param("lesson", marks=pytest.mark.kernels("dw", "reduce")),
        pytest.param("fast", marks=pytest.mark.kernels("fast")),
    ),
)
def test_two_streams_at_once(implementation):
    """Calls on two streams share no workspace: each gives what it gives alone."""
    choices = {"implementation": implementation, "reduction": "workspace"}
    if implementation == "lesson":
        choices |= {"split_t": 15, "tile": small_tile("dw", (4095, 513, 257))}
    pairs = []
    for seed in (1, 3):
        x = operand((4095, 513), torch.float16, seed=seed)
        dy = operand((4095, 257), torch.float16, seed=seed + 1)
        pairs.append((x, dy, compute("dw", x, dy, **choices)))
    streams = [torch.cuda.Stream() for _ in pairs]
    torch.cuda.synchronize()
    results = [[], []]
    for _ in range(20):
        for mine, stream, (x, dy, _alone) in zip(results, streams, pairs, strict=True):
            with torch.cuda.stream(stream):
                mine.append(compute("dw", x, dy, **choices))
    torch.cuda.synchronize()
    for mine, (_, _, alone) in zip(results, pairs, strict=True):
        assert all(torch.equal(result, alone) for result in mine)


@pytest.mark.parametrize(
    "reduction",
    (
        pytest.param("atomic", marks=pytest.mark.kernels("dw")),
        pytest.param("workspace", marks=pytest.mark.kernels("dw", "reduce")),
    ),
)
@pytest.mark.parametrize("mode", ("overwrite", "accumulate"))
def test_replayed_graph(mode, reduction):
    """A captured call zeroes, or adds once more, at each replay.

    triton-lang/triton#10596
    """
    x = operand((1001, 65), torch.float16, integers=True, seed=1)
    dy = operand((1001, 33), torch.float16, integers=True, seed=2)
    out = Output((65, 33), torch.float32, holding=5.0).tensor
    choices = {"out": out, "mode": mode, "reduction": reduction, "split_t": 4}
    choices["tile"] = small_tile("dw", (1001, 65, 33))
    compute("dw", x, dy, **choices)  # compiled, before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compute("dw", x, dy, **choices)
    out.fill_(5.0)
    for replay in (1, 2, 3):
        graph.replay()
        base = torch.full_like(out, 5.0) if mode == "accumulate" else None
        times = replay if mode == "accumulate" else 1
        assert_exact(out, "dw", x * times, dy, base)


# The same bits, whatever else goes on


@contextlib.contextmanager
def another_stream():
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.synchronize()


@contextlib.contextmanager
def a_pool_of_nan():
    """What the allocator hands out next is NaN, and nobody overwrites it first."""
    held = [torch.full((2**20,), torch.nan, device="cuda") for _ in range(64)]
    held += [torch.full((2**27,), torch.nan, device="cuda") for _ in range(4)]
    del held
    yield


@contextlib.contextmanager
def a_busy_gpu():
    """Products of another kernel fill the SMs from before until after."""
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    out, stream = torch.empty_like(a), torch.cuda.Stream()
    torch.mm(a, a, out=out)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(1000):
            torch.mm(a, a, out=out)
    yield
    assert not stream.query(), "the neighbour had ended before"
    torch.cuda.synchronize()


SURROUNDINGS = (another_stream, a_pool_of_nan, a_busy_gpu)
every_surrounding = pytest.mark.parametrize(
    "surrounding", SURROUNDINGS, ids=lambda made: made.__name__
)


@pytest.mark.kernels("fast")
@every_surrounding
@every_shared_shape
@pytest.mark.parametrize("mode", ("overwrite", "accumulate"))
def test_deterministic_bits(mode, shape, surrounding, monkeypatch):
    """With a workspace dW has the same bits, whatever else the GPU does or holds.

    microsoft/onnxruntime#27003
    """
    T, K, N = shape
    x = torch.randn(T, K, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn(T, N, device="cuda", dtype=torch.bfloat16)

    def gradient():
        out = torch.full((K, N), 0.5, device="cuda")
        return matmul_dw(x, dy, out=out, mode=mode, reduction="workspace")

    alone = gradient()
    base = torch.full((K, N), 0.5, device="cuda") if mode == "accumulate" else None
    assert_as_exact_as_vendor(alone, "dw", x, dy, base)
    monkeypatch.undo()  # the poison: its kernels would stand between ours
    with surrounding():
        assert all([torch.equal(gradient(), alone) for _ in range(5)])


@pytest.mark.kernels("fast")
@every_surrounding
@every_shared_shape
def test_deterministic_bits_of_a_layer(shape, surrounding, monkeypatch):
    """So have the gradients of a layer that is asked for them.

    microsoft/onnxruntime#27003
    """
    T, K, N = shape
    module = Linear(K, N, device="cuda", dtype=torch.bfloat16, deterministic=True)
    x = torch.randn(T, K, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    dy = torch.randn(T, N, device="cuda", dtype=torch.bfloat16)

    def gradients():
        y = module(x)
        return [y, *torch.autograd.grad(y, (x, *module.parameters()), dy)]

    alone = gradients()
    assert not any(tensor.isnan().any() for tensor in alone)
    monkeypatch.undo()  # the poison: its kernels would stand between ours
    with surrounding():
        for _ in range(5):
            assert all(map(torch.equal, gradients(), alone))


@pytest.mark.xdist_group("memory")
@pytest.mark.kernels("fast")
@every_shared_shape
def test_deterministic_bits_in_little_memory(shape):
    """A call that finds no memory changes nothing; the next one has the same bits.

    microsoft/onnxruntime#27003
    """
    T, K, N = shape
    x = torch.randn(T, K, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn(T, N, device="cuda", dtype=torch.bfloat16)
    out = torch.full((K, N), 0.5, device="cuda")
    choices = {"out": out, "mode": "accumulate", "reduction": "workspace"}
    alone = matmul_dw(x, dy, **choices).clone()
    out.fill_(0.5)
    torch.cuda.empty_cache()
    held = []
    for size in (2**28, 2**24, 2**21):  # of 1 GiB to 8 MiB
        with contextlib.suppress(torch.OutOfMemoryError):
            while True:
                held.append(torch.full((size,), torch.nan, device="cuda"))
    refused = 0
    while True:
        try:
            matmul_dw(x, dy, **choices)
            break
        except torch.OutOfMemoryError:
            refused += 1
            held.pop()
    held.clear()
    assert torch.equal(out, alone)
    plan = fast.prepare("dw", x, dy, **choices).plan
    assert refused or plan.reduction != "workspace"


# Graphs


@every_product
@pytest.mark.kernels("fast")
@pytest.mark.parametrize("cold", ("key", "kernel"))
def test_captured_when_cold(cold, op, monkeypatch):
    """A first call within a capture takes the model's plan, and measures nothing.

    triton-lang/triton#10596
    """

    def measured(*args):
        raise AssertionError("measured within a capture")

    monkeypatch.setattr(tune, "medians", measured)
    # Of sizes that no other test has, so that its kernels are compiled nowhere.
    shape = (4096, 256, 128) if cold == "key" else (4112, 272, 144)
    a_shape, b_shape, out_shape = shapes(op, shape)
    a = operand(a_shape, torch.bfloat16, integers=True, seed=1)
    b = operand(b_shape, torch.bfloat16, integers=True, seed=2)
    dtype = torch.float32 if op == "dw" else torch.bfloat16
    out = Output(out_shape, dtype).tensor
    if cold == "key":
        compute(op, a, b, out=out, **FAST)
    else:
        for name in LAUNCHED:
            getattr(fast, f"{name}_kernel").device_caches.clear()
    fast._prepared.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compute(op, a, b, out=out, **FAST)
    for _ in range(3):
        out.fill_(torch.nan)
        graph.replay()
        assert_exact(out, op, a, b)


@pytest.mark.kernels("fast")
@pytest.mark.parametrize("deterministic", (False, True))
def test_captured_training_step(deterministic):
    """Forward and backward of a layer, replayed on other numbers, add up in main_grad.

    triton-lang/triton#10596
    """
    T, K, N = 4096, 256, 128
    layer = Linear(
        K, N, device="cuda", dtype=torch.bfloat16, deterministic=deterministic
    )
    with torch.no_grad():
        layer.weight.copy_(operand((N, K), torch.bfloat16, integers=True, seed=1))
        layer.bias.zero_()
    kept = layer.weight.main_grad = torch.zeros(N, K, device="cuda")
    x = torch.zeros(T, K, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    dy = torch.zeros(T, N, device="cuda", dtype=torch.bfloat16)

    def step():
        x.grad = layer.bias.grad = None
        layer(x).backward(dy)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    expected = torch.zeros(N, K, device="cuda", dtype=torch.float64)
    for seed in (3, 4, 5):
        given = operand((T, K), torch.bfloat16, integers=True, seed=seed)
        above = operand((T, N), torch.bfloat16, integers=True, seed=seed + 3)
        with torch.no_grad():
            x.copy_(given)
            dy.copy_(above)
        graph.replay()
        expected += above.double().T @ given.double()
        assert torch.equal(kept.double(), expected)
        assert_exact(x.grad, "dx", above, layer.weight.detach().T)
        db = above.sum(0, dtype=torch.float32).bfloat16()
        assert torch.equal(layer.bias.grad, db)


@pytest.mark.kernels("dw")
def test_dw_of_a_training_step():
    """The planned split of a starved shape is as exact as the vendor, in both modes."""
    T, K, N = 32768, 1024, 1024
    x = operand((T, K), torch.bfloat16, seed=1)
    dy = operand((T, N), torch.bfloat16, seed=2)
    dw = compute("dw", x, dy)
    assert_as_exact_as_vendor(dw, "dw", x, dy)
    base = dw.clone()
    compute("dw", x, dy, out=dw, mode="accumulate")
    assert_as_exact_as_vendor(dw, "dw", x, dy, base)
