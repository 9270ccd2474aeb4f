"""What only a GPU can show: true sizes, streams, graphs, a second device."""

import pytest
import torch

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

pytestmark = pytest.mark.gpu


@pytest.mark.kernels("forward")
def test_more_tiles_than_a_second_axis_holds():
    """68750 tiles run, where a grid's second axis ends at 65535.

    triton-lang/triton#3299
    """
    x = operand((1_100_000, 16), torch.float16, integers=True, seed=1)
    w = operand((16, 16), torch.float16, integers=True, seed=2)
    y = compute("forward", x, w, tile=tile_of("forward", 16, 16, 16))
    assert_exact(y, "forward", x, w)


@pytest.mark.kernels("forward")
def test_output_of_more_than_2_31_elements():
    """A 40960×128256 output is right at its start, around 2³¹ and at its end.

    triton-lang/triton#5022
    """
    T, K, N = 40960, 16, 128256
    need_memory(12 * 2**30)
    x = operand((T, K), torch.float16, seed=1)
    w = operand((K, N), torch.float16, seed=2)
    y = compute("forward", x, w)
    for row in (0, 2**31 // N - 64, T - 128):
        rows = slice(row, row + 128)
        assert_as_exact_as_vendor(y[rows], "forward", x[rows], w)


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


@pytest.mark.kernels("dw", "reduce")
def test_two_streams_at_once():
    """Calls on two streams share no workspace: each gives what it gives alone."""
    tile = small_tile("dw", (4095, 513, 257))
    choices = {"reduction": "workspace", "split_t": 15, "tile": tile}
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
