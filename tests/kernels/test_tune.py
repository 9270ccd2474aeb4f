"""Tuning: what is measured, on what memory, and for which calls it is kept.

The interpreter has no choice of plans, so the tests lend it the facts of a GPU,
and times that they make up.
"""

import functools
import json
import os
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch

import kernels
from kernels import device
from kernels.fast import ops as fast
from kernels.fast import tune as tuner
from kernels.fast import tuned
from kernels.fast.ops import multiply, prepare
from kernels.fast.tune import tune
from kernels.plan import BY_POINTERS, fast_plan, product_sizes, ranked_plans
from tests.kernels.contract import (
    DTYPES,
    Output,
    RecordedKernel,
    assert_as_exact_as_vendor,
    assert_exact,
    operand,
    shapes,
)
from tests.kernels.test_plan import H200

OPS = ("forward", "dx", "dw")
# Small, with several plans that take about as long; dW has them from a longer T on.
SHAPE = (96, 64, 80)
LONG = (512, 64, 80)

every_op = pytest.mark.parametrize("op", OPS)
interpreted = pytest.mark.interpreter


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Where plans are kept; none is known yet, in the file or in the process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tuned, "_kept", functools.cache(tuned._kept.__wrapped__))
    monkeypatch.setattr(fast, "_prepared", {})
    return tmp_path / "matmul-backward" / "plans.json"


@pytest.fixture
def measured(monkeypatch):
    """Plans to choose from on a CPU, timed in this order: the last is the fastest.

    The number of candidates of each measurement.
    """
    found = []

    def medians(calls):
        found.append(len(calls))
        for call in calls:
            call()
        return [float(len(calls) - place) for place, _ in enumerate(calls)]

    monkeypatch.setattr(device, "INTERPRETER", H200)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(tuner, "medians", medians)
    return found


def forget():
    """What a new process begins with."""
    tuned._kept.cache_clear()
    fast._prepared.clear()


def operands(op, shape=SHAPE, dtype=DTYPES[-2], **layout):
    a_shape, b_shape, _ = shapes(op, shape)
    a = operand(a_shape, dtype, integers=True, seed=1, **layout)
    return a, operand(b_shape, dtype, integers=True, seed=2)


def bits(tensor):
    """A copy to compare with, in which NaN equals NaN."""
    whole = tensor.new_empty(0).set_(tensor.untyped_storage())
    return whole.view(torch.uint8).clone()


# What is measured, and on what


@interpreted
@every_op
def test_the_fastest_is_launched(op, measured, monkeypatch):
    """From then on `multiply` launches the plan that took the shortest time."""
    a, b = operands(op, LONG if op == "dw" else SHAPE)
    reduction = "none" if op == "dw" else None
    first = prepare(op, a, b, reduction=reduction).plan
    found = tune(op, a, b, reduction=reduction)
    assert found != first and found.kernel == "persistent"
    assert len(measured) == 1 and measured[0] > 1
    launches = []
    kernel = RecordedKernel("persistent", fast.persistent_kernel, launches)
    monkeypatch.setattr(fast, "persistent_kernel", kernel)
    out = multiply(op, a, b, reduction=reduction)
    (launch,) = launches
    blocks = [launch[f"BLOCK_{axis}"] for axis in ("ROWS", "COLUMNS", "DEPTH")]
    tile = found.tile
    tile = (tile.block_t, tile.block_k, tile.block_n)
    assert tuple(blocks) == product_sizes(op, tile)
    assert launch["num_stages"] == found.tile.num_stages
    assert_exact(out, op, a, b)


@interpreted
@pytest.mark.parametrize("mode", ("overwrite", "accumulate"))
@pytest.mark.parametrize("layout", ("plain", "swapped"))
def test_nothing_of_the_caller_is_written(mode, layout, measured, monkeypatch):
    """The operands and the gradient keep every bit, and what lies around them.

    Candidates write into one scratch of the gradient's strides.
    """
    x, dy = operands("dw", LONG)
    sized = (64, 80) if layout == "plain" else (80, 64)
    out = Output(sized, torch.float32, holding=5.0)
    grad = out.tensor if layout == "plain" else out.tensor.T
    before, written = [bits(t) for t in (x, dy, grad)], []

    def noted(*args, out, **choices):
        written.append(out)
        return multiply(*args, out=out, **choices)

    monkeypatch.setattr(fast, "multiply", noted)
    tune("dw", x, dy, out=grad, mode=mode, reduction="workspace")
    assert measured
    assert all(map(torch.equal, before, [bits(t) for t in (x, dy, grad)]))
    scratch = written[0]
    assert all(one is scratch for one in written)
    assert scratch.shape == grad.shape and scratch.stride() == grad.stride()
    assert scratch.dtype == grad.dtype and not scratch.isnan().any()


@interpreted
def test_candidates_are_those_worth_a_thought(measured, monkeypatch):
    """Those that the model puts far behind are left out, and those that fail to run."""
    monkeypatch.setattr(tuner, "WITHIN", 1.2)
    a, b = operands("forward")
    ranked = ranked_plans("forward", SHAPE, 2, H200)
    tune("forward", a, b)
    near = [plan for time, plan in ranked if time <= 1.2 * ranked[0][0]]
    assert 2 < len(near) < len(ranked)
    assert measured == [len(near)]

    def refuse_one(*args, plan, **choices):
        if plan == near[-1]:
            raise RuntimeError("out of shared memory")
        return multiply(*args, plan=plan, **choices)

    os.remove(tuned._file())
    forget()
    monkeypatch.setattr(fast, "multiply", refuse_one)
    assert tune("forward", a, b) == near[-2]
    assert measured == [len(near), len(near) - 1]


@interpreted
def test_where_no_candidate_runs(measured, monkeypatch, cache):
    """Nothing is found, and nothing is kept."""
    a, b = operands("forward")
    monkeypatch.setattr(tuner, "_runs", lambda call: False)
    assert tune("forward", a, b) == prepare("forward", a, b).plan
    assert not measured and not cache.exists()


@interpreted
def test_a_known_answer_is_not_measured_again(measured):
    """The second call of a key is a look-up."""
    a, b = operands("forward")
    found = tune("forward", a, b)
    assert tune("forward", a, b, out=torch.ones(96, 80, dtype=a.dtype)) == found
    assert len(measured) == 1


@interpreted
def test_nothing_is_measured_while_capturing(measured, monkeypatch, cache):
    """A benchmark would break the capture: the plan is the default, and not kept.

    triton-lang/triton#10596
    """
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    a, b = operands("forward")
    assert tune("forward", a, b) == fast_plan("forward", SHAPE, 2, H200)
    assert not measured and not cache.exists()


@interpreted
@pytest.mark.parametrize("what", ("interpreter", "fp32", "empty"))
def test_nothing_is_measured_without_a_choice(what, measured, monkeypatch, cache):
    """Where only pointers serve there is one plan."""
    a, b = operands("forward", (0, 64, 80) if what == "empty" else SHAPE)
    if what == "interpreter":
        monkeypatch.setattr(device, "INTERPRETER", replace(H200, capability="none"))
    elif what == "fp32":
        a, b = a.float(), b.float()
    assert tune("forward", a, b).kernel in BY_POINTERS
    assert not measured and not cache.exists()


@interpreted
@pytest.mark.parametrize("what", ("odd pitch", "odd start"))
def test_what_is_copied_has_a_choice(what, measured):
    """Plans are measured with the copies that they need."""
    a, b = operands("forward", layout="pitched")
    if what == "odd start":
        a, (_, b) = torch.ones(96, 72, dtype=b.dtype)[:, 1:65], operands("forward")
    assert tune("forward", a, b).kernel not in BY_POINTERS
    assert len(measured) == 1


@interpreted
@pytest.mark.parametrize(
    "op, choices",
    (
        ("backward", {}),
        ("dw", {"mode": "accumulate"}),
        ("dw", {"reduction": "sum"}),
        ("forward", {"mode": "accumulate"}),
        ("forward", {"out": torch.ones(3, 3)}),
    ),
    ids=str,
)
def test_refused_as_by_multiply(op, choices, measured):
    """What makes no sense is refused in the same sentence, before any measurement."""
    a, b = operands("forward")
    said = []
    for function in (multiply, tune):
        with pytest.raises(ValueError) as caught:
            function(op, a, b, **choices)
        said.append(str(caught.value))
    assert said[0] == said[1] and not measured


@interpreted
def test_deterministic_calls_have_a_plan_of_their_own(measured):
    """Tuned without it, a call under determinism adds in no order of arrival."""
    x, dy = operands("dw", LONG)
    tune("dw", x, dy)
    torch.use_deterministic_algorithms(True)
    try:
        assert prepare("dw", x, dy).plan.reduction != "atomic"
        assert tune("dw", x, dy).reduction != "atomic"
        assert prepare("dw", x, dy).plan == tune("dw", x, dy, reduction="workspace")
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(measured) == 2


class Clock:
    """A device without one: events say how much was called before them."""

    def __init__(self, monkeypatch):
        self.log = []
        clock = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                clock.log.append("event")
                self.time = sum(one for one in clock.log if one in (1, 2, 3))

            def elapsed_time(self, end):
                return end.time - self.time

        def total(lines, dim, out):
            clock.log.append("flush")

        facts = SimpleNamespace(L2_cache_size=1024)
        monkeypatch.setattr(torch, "sum", total)
        for name, stand_in in {
            "Event": Event,
            "current_device": lambda: "cpu",
            "get_device_properties": lambda _: facts,
            "synchronize": lambda: self.log.append("wait"),
            "_sleep": lambda cycles: self.log.append("sleep"),
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)


def test_candidates_take_turns(monkeypatch):
    """A turn is queued whole behind a pause, L2 is flushed before each candidate."""
    log = Clock(monkeypatch).log
    calls = [functools.partial(log.append, number) for number in (3, 1, 2)]
    assert tuner.medians(calls) == [3, 1, 2]
    turn = ["sleep"]
    for number in (3, 1, 2):
        turn += ["flush", "event", number, "event"]
    assert log == [*turn, "wait"] * (tuner.SETTLING + tuner.TURNS)


# For what it is kept


def asked(monkeypatch, op="dw", mode="overwrite", reduction=None):
    """What the plan of a product on such a device is kept for: find's arguments."""
    monkeypatch.setattr(device, "INTERPRETER", H200)
    a_shape, b_shape, out_shape = shapes(op, (4096, 512, 256))
    a, b = (torch.empty(size, dtype=torch.float16) for size in (a_shape, b_shape))
    question = fast.question(op, a, b, torch.empty(out_shape), mode, reduction)
    return question, a, b, torch.float32, (out_shape[1], 1)


def other(plans):
    """A plan that nobody would choose without having measured it."""
    return plans[-1][1]


def test_kept_plans_survive_a_process(monkeypatch, cache):
    """They are written whole and read back; others' plans stay."""
    for mode in ("overwrite", "accumulate"):
        product = asked(monkeypatch, mode=mode)
        plan = other(ranked_plans(**product[0]))
        tuned.keep(plan, *product)
        assert tuned.find(*product) == plan
        tuned._kept.cache_clear()
        assert tuned.find(*product) == plan
        tuned._kept.cache_clear()
    assert len(json.loads(cache.read_text())) == 2
    assert list(cache.parent.iterdir()) == [cache]  # no half of one


def test_the_file_is_read_once(monkeypatch, cache):
    """And deleting it forgets, from the next process on."""
    product = asked(monkeypatch)
    plan = other(ranked_plans(**product[0]))
    tuned.keep(plan, *product)
    cache.unlink()
    assert tuned.find(*product) == plan
    tuned._kept.cache_clear()
    assert tuned.find(*product) is None


def test_another_product_is_another_key(monkeypatch):
    """Layout, dtype, mode, reduction, device and every version are part of it.

    triton-lang/triton#2534
    """
    product = asked(monkeypatch)
    question, a, b, dtype, strides = product
    plan = other(ranked_plans(**question))
    tuned.keep(plan, *product)
    turned = a.T.contiguous().T
    pitched = torch.empty(4096, 264, dtype=torch.float16)[:, :256]
    bf16 = a.bfloat16(), b.bfloat16()
    sm_count = {"device": replace(H200, sm_count=78)}
    others = {
        "left operand swapped": (question, turned, b, dtype, strides),
        "right operand pitched": (question, a, pitched, dtype, strides),
        "output swapped": (question, a, b, dtype, (1, 512)),
        "output pitched": (question, a, b, dtype, (264, 1)),
        "dtype": (question, *bf16, dtype, strides),
        "output's dtype": (question, a, b, torch.float16, strides),
        "mode": asked(monkeypatch, mode="accumulate"),
        "reduction": asked(monkeypatch, reduction="none"),
        "device": (question | sm_count, a, b, dtype, strides),
        "shape": (question | {"shape": (8192, 512, 256)}, a, b, dtype, strides),
    }
    assert tuned.find(*product) == plan
    for what, changed in others.items():
        assert tuned._key(*changed) != tuned._key(*product), what
        assert tuned.find(*changed) is None, what
    for owner, name in ((torch, "__version__"), (tuned.triton, "__version__")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, "99.0")
            assert tuned.find(*product) is None
    monkeypatch.setattr(tuned, "_code", lambda: "of another day")
    assert tuned.find(*product) is None


@pytest.mark.parametrize(
    "text",
    ("", "{", "[]", "7", "\x00", '{"a": 1', "[" * 100_000, None),
    ids=("empty", "half", "list", "number", "binary", "cut", "deep", "folder"),
)
def test_broken_files_are_ignored(text, monkeypatch, cache):
    """As if there were none; a file is then written anew."""
    cache.parent.mkdir()
    if text is None:
        cache.mkdir()
    else:
        cache.write_text(text)
    product = asked(monkeypatch)
    assert tuned.find(*product) is None
    plan = other(ranked_plans(**product[0]))
    tuned.keep(plan, *product)
    assert tuned.find(*product) == plan
    if text is not None:
        assert list(json.loads(cache.read_text()).values()) == [asdict(plan)]


@pytest.mark.parametrize("change", ("tile", "programs", "kernel", "value"))
def test_kept_plans_that_do_not_fit_are_ignored(change, monkeypatch, cache):
    """A plan is one of those that there are to choose from, or it is none."""
    product = asked(monkeypatch)
    plan = other(ranked_plans(**product[0]))
    wrong = {
        "tile": {**asdict(plan), "tile": asdict(replace(plan.tile, block_t=48))},
        "programs": {**asdict(plan), "programs": 0},
        "kernel": {**asdict(plan), "kernel": "grouped"},
        "value": 7,
    }
    cache.parent.mkdir()
    cache.write_text(json.dumps({tuned._key(*product): wrong[change]}))
    assert tuned.find(*product) is None


def test_where_nothing_can_be_kept(monkeypatch):
    """Where there is no folder, a plan serves this process; nothing fails."""
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    product = asked(monkeypatch)
    plan = other(ranked_plans(**product[0]))
    tuned.keep(plan, *product)
    assert tuned.find(*product) == plan
    tuned._kept.cache_clear()
    assert tuned.find(*product) is None


def test_it_is_public():
    """`kernels.tune` is the function, not its module."""
    assert kernels.tune is tune


@pytest.mark.gpu
@pytest.mark.kernels("fast")
def test_tuned_product():
    """Tuned on scratch memory, a gradient is added to once, as exactly as before."""
    x, dy = (operand((2048, size), DTYPES[0], seed=size) for size in (256, 128))
    grad = operand((256, 128), torch.float32, seed=3)
    base, before = grad.clone(), [bits(t) for t in (x, dy, grad)]
    found = tune("dw", x, dy, out=grad, mode="accumulate")
    assert all(map(torch.equal, before, [bits(t) for t in (x, dy, grad)]))
    forget()  # what is kept in the file serves another process
    assert prepare("dw", x, dy, out=grad, mode="accumulate").plan == found
    multiply("dw", x, dy, out=grad, mode="accumulate")
    assert_as_exact_as_vendor(grad, "dw", x, dy, base)


@pytest.mark.gpu
@pytest.mark.kernels("fast")
def test_tuning_within_a_capture(cache):
    """A capture stays valid: it takes the default plan, and nothing is measured.

    triton-lang/triton#10596
    """
    x, w = operands("forward", (512, 256, 256))
    y = multiply("forward", x, w)  # compiled, before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tune("forward", x, w, out=y)
        multiply("forward", x, w, out=y)
    y.fill_(torch.nan)
    graph.replay()
    assert_exact(y, "forward", x, w)
    assert not cache.exists()
