"""The recorder of training, as far as it runs without a GPU."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from generate.record import training

ROOT = Path(__file__).parents[2]
TINY = training.MODEL.model_copy(
    update={
        "layers": 1,
        "width": 32,
        "heads": 2,
        "context_tokens": 16,
        "batch_sequences": 4,
        "autocast_dtype": "float16",
    }
)
# Every way once and the deterministic one twice, in Triton's interpreter.
INTERPRETED = """
from generate.record import training
from tests.generate.test_record_training import TINY, without_a_gpu
without_a_gpu(setattr)
text = training.read_text()[0][:640]
for way in (*training.LINEAR, "deterministic"):
    run = training.train(way, 0, 0, text, 96, TINY, 2)
    print(run.model_dump_json())
"""


def without_a_gpu(patch):
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        patch(torch.cuda, name, lambda *_: None)
    patch(torch.cuda, "memory_allocated", lambda *_: 0)
    patch(torch.cuda, "max_memory_allocated", lambda *_: 1)


@pytest.fixture
def no_gpu(monkeypatch):
    without_a_gpu(monkeypatch.setattr)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is too small for more
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def text() -> torch.Tensor:
    return training.read_text()[0]


def test_every_way_trains_in_the_interpreter():
    """All ways begin alike and take their steps; the deterministic one repeats; a
    gradient in main_grad is the same gradient."""
    ran = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    runs = [json.loads(line) for line in ran.stdout.splitlines()]
    vendor, atomic, fixed, kept, again = runs
    for run in runs:
        assert len(run["losses_nats"]) == 2
        assert run["losses_nats"] == pytest.approx(vendor["losses_nats"], rel=1e-3)
        assert run["losses_nats"][0] > run["losses_nats"][1]
    assert fixed["parameters_sha256"] == again["parameters_sha256"]
    assert fixed["losses_nats"] == again["losses_nats"]
    assert kept["parameters_sha256"] == atomic["parameters_sha256"]
    assert vendor["parameters_sha256"] != atomic["parameters_sha256"]


@pytest.mark.filterwarnings("ignore:In CPU autocast")
def test_it_learns_more_than_how_often_bytes_occur(no_gpu, text, monkeypatch):
    """A short run on the CPU ends below the entropy of single bytes."""
    described = training.read_text()[1]
    monkeypatch.setattr(training, "LEARNING_RATE", 5e-3)
    monkeypatch.setattr(training, "RISING_STEPS", 10)
    small = TINY.model_copy(
        update={"width": 64, "batch_sequences": 32, "autocast_dtype": "float32"}
    )
    run = training.train("vendor", 0, 0, text[:50_000], 2_000, small, 100)
    assert run.losses_nats[0] == pytest.approx(math.log(256), rel=0.1)
    assert run.held_out_nats < described.byte_entropy_nats - 0.3


def test_a_shuffled_batch_holds_the_same_sequences():
    """Orders differ in nothing but the order; seeds differ in the sequences."""

    def drawn(seed, order):
        return list(training.batches(10_000, TINY, seed, order, 5))

    plain, shuffled, other = drawn(0, 0), drawn(0, 3), drawn(1, 0)
    for one, two, three in zip(plain, shuffled, other, strict=True):
        assert torch.equal(one.sort().values, two.sort().values)
        assert not torch.equal(one.sort().values, three.sort().values)
    assert any(not torch.equal(a, b) for a, b in zip(plain, shuffled, strict=True))


def test_no_byte_sees_what_comes_after_it(text):
    """Another last byte changes the last prediction and no other."""
    network = training.Transformer(TINY, torch.nn.Linear)
    tokens = text[: TINY.context_tokens].long()[None]
    changed = tokens.clone()
    changed[0, -1] += 1
    differs = (network(tokens) != network(changed)).any(-1)[0]
    assert differs.tolist() == [False] * (TINY.context_tokens - 1) + [True]


def test_the_held_out_end_is_never_trained_on(no_gpu, text):
    """Windows end where the held-out bytes begin."""
    ends = [
        starts.max() + TINY.context_tokens
        for starts in training.batches(1000, TINY, 0, 0, 200)
    ]
    assert max(ends) < 1000
    windows = training.windows(text, torch.tensor([0, 7]), TINY)
    assert windows.shape == (2, TINY.context_tokens + 1)
    assert torch.equal(windows[1], text[7 : 8 + TINY.context_tokens].long())


def test_the_model_is_described_as_it_is():
    """The recorded number of parameters is counted, not remembered."""
    with torch.device("meta"):
        network = training.Transformer(training.MODEL, torch.nn.Linear)
    found = sum(p.numel() for p in network.parameters())
    assert found == training.MODEL.parameters


def test_equal_bits_have_equal_digests():
    """The last bit of one parameter is seen."""
    one, two = (torch.nn.Linear(3, 2) for _ in range(2))
    two.load_state_dict(one.state_dict())
    assert training.digest(one) == training.digest(two)
    with torch.no_grad():
        two.bias[1] = two.bias[1].nextafter(two.bias[1] + 1)
    assert training.digest(one) != training.digest(two)


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (lambda *_: torch.tensor(torch.nan, requires_grad=True), "loss .* is nan"),
        (lambda *_: 1 / 0, "^ZeroDivisionError"),
    ],
)
def test_a_run_that_fails_is_skipped(no_gpu, text, monkeypatch, fails, reason):
    """A loss that is not finite, and any error, are a reason and no crash."""
    monkeypatch.setattr(training, "loss_of", fails)
    monkeypatch.setattr(training, "STEPS", 2)
    point = training.point(("vendor", 0, 0, 1), text[:1000], 100, TINY)
    assert point.run is None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(point.skipped_reason)
