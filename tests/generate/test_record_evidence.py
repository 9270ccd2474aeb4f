"""The recorders of the evidence, as far as they run without a GPU."""

import difflib
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from generate.record import determinism, ladder, occupancy, timelines, transposes
from generate.schema import Trace
from generate.shapes import STARVED
from kernels.plan import SHARED_TILES, _fitted, cdiv, rung_plan
from tests.kernels.test_plan import H200

ROOT = Path(__file__).parents[2]
SOURCE = (ROOT / "kernels" / "dw.py").read_text("utf-8")
LESSON, STREAM_K = timelines.TRACED["lesson"], timelines.TRACED["stream_k"]


def trace(*programs: tuple[int, int, int]) -> Trace:
    sm, start, end = zip(*programs, strict=True)
    return Trace(sm=sm, start_ns=start, end_ns=end)


@pytest.mark.parametrize("traced", (LESSON, STREAM_K), ids=lambda t: t.kernel)
def test_tracing_only_adds(traced):
    """Every line of the kernel that is traced stands in it unchanged."""
    source = traced.file.read_text("utf-8")
    lines = difflib.ndiff(
        source.splitlines(), timelines.traced_source(traced, source).splitlines()
    )
    changes = {line[0] for line in lines}
    assert changes == {" ", "+"}


@pytest.mark.parametrize("traced", (LESSON, STREAM_K), ids=lambda t: t.kernel)
def test_a_kernel_that_cannot_be_traced_is_refused(traced):
    """A renamed marker stops the recorder and names what is missing."""
    marker = traced.begins.strip()
    source = traced.file.read_text("utf-8").replace(marker, "# [place]")
    with pytest.raises(ValueError, match=f"must hold '{re.escape(marker)}' once"):
        timelines.traced_source(traced, source)


def test_a_traced_kernel_reads_its_sm_and_the_clock():
    """Two readings of the clock around the loop, one of the SM, three stores."""
    kernel = timelines.TracedKernel(LESSON, torch.device("cpu"))._kernel
    pointers = {"trace_ptr": "*i64", "x_ptr": "*bf16", "dy_ptr": "*bf16"}
    blocks = {"BLOCK_T": 64, "BLOCK_K": 128, "BLOCK_N": 128}
    constants = {**blocks, "PRECISION": "ieee", "ADD": True}
    signature = {
        name: "constexpr" if name in constants else pointers.get(name, "i32")
        for name in kernel.arg_names
    }
    signature["dw_ptr"] = "*fp32"
    source = ASTSource(kernel, signature, constants)
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    lines = ptx.splitlines()
    clocks = [i for i, line in enumerate(lines) if "%globaltimer" in line]
    products = [i for i, line in enumerate(lines) if "wgmma.mma_async" in line]
    assert len(clocks) == 2
    assert clocks[0] < products[0] < products[-1] < clocks[1]
    assert ptx.count("%smid") == 1
    stores = [line for line in lines if "st.global" in line]
    assert len(stores) == 3


def test_a_traced_stream_k_kernel_reads_them_too():
    """Stream-K takes the trace before its descriptors, and is otherwise as planned."""
    kernel = timelines.TracedKernel(STREAM_K, torch.device("cpu"))._kernel
    assert kernel.arg_names[:3] == ["trace_ptr", "left", "right"]
    constants = {
        "LEFT_SWAPPED": True,
        "RIGHT_SWAPPED": False,
        "BLOCK_ROWS": 128,
        "BLOCK_COLUMNS": 256,
        "BLOCK_DEPTH": 64,
        "PARTS": 2,
        "GROUP": 8,
        "PRECISION": "ieee",
        "ADD": True,
        "WORKSPACE": False,
        "EARLY": False,
        "WAIT": True,
    }
    tiles = {"left": "64, 128", "right": "64, 256", "out": "128, 128"}
    tiles["workspace"] = tiles["out"]
    signature = {"trace_ptr": "*i64"} | {
        name: f"tensordesc<{'fp32' if block == '128, 128' else 'bf16'}[{block}]>"
        for name, block in tiles.items()
    }
    signature |= dict.fromkeys(("ROWS", "COLUMNS", "DEPTH"), "i32")
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, signature, constants)
    options = {"num_warps": 8, "num_stages": 3}
    made = triton.compile(source, GPUTarget("cuda", 90, 32), options)
    ptx = made.asm["ptx"]
    assert ptx.count("%smid") == 1 and ptx.count("%globaltimer") == 2
    stores = [line for line in ptx.splitlines() if "st.global" in line]
    assert len(stores) == 3
    assert "cp.reduce.async.bulk.tensor" in ptx


def test_fill_counts_an_sm_once():
    """Overlapping programs fill their SM once, gaps and idle SMs not at all."""
    found = trace((0, 0, 60), (0, 40, 80), (1, 20, 30), (1, 90, 100))
    assert found.makespan_ns == 100
    assert found.fill(2) == (80 + 20) / 200
    assert found.fill(4) == (80 + 20) / 400
    assert found.sms == 2


def test_lanes_are_the_slots_of_an_sm():
    """A program takes the first slot that is free, whatever its number; a slot
    that runs two in turn is two waves."""
    found = trace((3, 50, 90), (3, 0, 50), (3, 10, 70), (5, 0, 10))
    assert found.lanes == (0, 0, 1, 0)
    assert found.resident == 2
    assert found.waves == 2


@pytest.mark.parametrize(
    ("sm", "start", "end"),
    [
        *(((0,), (0, 1), (2, 3)), ((), (), ()), ((0,), (1,), (2,))),
        *(((0,), (0,), (0,)), ((0, 1), (0, 2), (3, 1))),
    ],
)
def test_half_a_trace_is_none(sm, start, end):
    """A start without an end, no program, another beginning, no time at all, an end
    before the start."""
    with pytest.raises(ValueError):
        Trace(sm=sm, start_ns=start, end_ns=end)


def test_a_coarse_clock_gives_a_trace_too():
    """Where programs take less than its step, none holds another's slot."""
    exact = trace((0, 0, 900), (0, 950, 3000), (0, 3100, 3200), (1, 10, 2500))
    coarse = trace(
        *(
            (sm, start // 1024 * 1024, end // 1024 * 1024)
            for sm, start, end in zip(
                exact.sm, exact.start_ns, exact.end_ns, strict=True
            )
        )
    )
    assert coarse.lanes == exact.lanes
    assert (coarse.resident, coarse.waves) == (exact.resident, exact.waves)
    assert timelines._resolution_ns([SimpleNamespace(trace=coarse)]) == 1024
    assert timelines._resolution_ns([SimpleNamespace(trace=None)]) is None


@pytest.mark.parametrize("shared_kib", [64, 99, 227])
def test_stream_k_is_recorded_as_it_is_launched(shared_kib):
    """On any device its point has its plan's reduction, and only where its tiles are
    whole waves does it say so."""
    for sm_count in (16, *range(8, 193, 3)):
        facts = replace(
            H200,
            sm_count=sm_count,
            shared_memory_per_program_bytes=shared_kib * 1024,
            shared_memory_per_sm_bytes=(shared_kib + 1) * 1024,
        )
        for shape in timelines.TIMELINE_SHAPES:
            plan = occupancy.stream_k_plan(shape, facts)
            if plan:
                assert plan.reduction == "atomic"
                continue
            reason = ladder.no_launch("stream_k", "dw", shape, facts)
            fitting = [
                c for c in SHARED_TILES if _fitted("stream_k", "dw", c, 2, 4, facts)[1]
            ]
            _, k, n = shape
            rests = [cdiv(k, c.rows) * cdiv(n, c.columns) % sm_count for c in fitting]
            assert reason == (ladder.WHOLE_WAVES if fitting else ladder.NO_ROOM)
            assert not any(rests)
    old = replace(H200, capability="8.0")
    assert occupancy.stream_k_plan(timelines.TIMELINE_SHAPES[0], old) is None
    assert ladder.no_launch("stream_k", "dw", STARVED, old) == ladder.NO_ENGINE


def test_only_equal_bits_have_equal_sums():
    """Another sign of zero, two elements exchanged, the last bit: all are seen."""
    values = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    seen = determinism.Seen(values.shape, values.device)
    others = [
        values.clone(),
        values * -0.0 + values * torch.tensor([[0.0, 1.0], [1.0, 1.0]]),
        values.flip(1),
        values.nextafter(values + 1),
    ]
    others[1][0, 0] = -0.0
    for output in (values, *others):
        seen.add(output)
    sums = [total.item() for total in seen.sums]
    assert sums[0] == sums[1]
    assert len(set(sums)) == 4


def test_every_way_to_a_transpose_is_the_same_product(monkeypatch):
    """In place, copied first and copied before differ in time and bytes alone."""
    monkeypatch.setattr(transposes, "matmul_dx", lambda dy, w, **_: dy @ w.T)
    monkeypatch.setattr(transposes, "matmul_dw", lambda x, dy, **_: x.T @ dy)
    multiply = torch.mm
    monkeypatch.setattr(
        torch,
        "mm",
        lambda a, b, out_dtype=None: multiply(a, b).to(out_dtype or a.dtype),
    )
    torch.manual_seed(0)
    operands = SimpleNamespace(
        x=torch.randn(5, 3), w=torch.randn(3, 4), dy=torch.randn(5, 4)
    )
    for op, exact in (
        ("dx", operands.dy @ operands.w.T),
        ("dw", operands.x.T @ operands.dy),
    ):
        ways = transposes.calls(operands, op)
        assert len(ways) == 8
        for (_, way), call in ways.items():
            if way == "the copy alone":
                assert call().is_contiguous()
                assert torch.equal(call().T, operands.w if op == "dx" else operands.x)
            else:
                torch.testing.assert_close(call(), exact)


def test_every_traced_launch_is_counted_too():
    """Each traced shape and factor has counters to be held against."""
    cases = occupancy.cases(H200)
    looked_at = {(c.kernel, c.shape, c.split_t) for c in cases}
    for shape in timelines.TIMELINE_SHAPES:
        planned = rung_plan("stream_k", "dw", shape, 2, H200)
        assert (("stream_k", shape, 1) in looked_at) == (planned is not None)
        for split_t in timelines.TIMELINE_FACTORS:
            assert ("dw", shape, split_t) in looked_at
    assert len(cases) == len(set(cases))
