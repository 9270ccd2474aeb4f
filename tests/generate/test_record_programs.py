"""Programs that the recorder starts: which device they see, and how they end."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from generate.record import occupancy, programs, sanitizer, verification
from generate.schema import Verification
from tests.kernels.test_plan import H200

# Starts a program that outlives it, and says which.
LEAVES_ONE = "sleep 60 & echo $!; echo x::y PASSED; wait"


@pytest.fixture
def second():
    """A context of the second device."""
    return SimpleNamespace(
        device=SimpleNamespace(index=1), facts=H200, only=(), advance=lambda: None
    )


@pytest.fixture
def ended(monkeypatch):
    """Whether all is over that was started in the meantime."""
    groups = []
    begin = subprocess.Popen

    def popen(*arguments, **options):
        assert options["start_new_session"]
        groups.append(begin(*arguments, **options))
        return groups[-1]

    monkeypatch.setattr(programs.subprocess, "Popen", popen)

    def lives(pid: str) -> bool:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            state, _, group = file.read().rpartition(")")[2].split()[:3]
            return state != "Z" and int(group) in {process.pid for process in groups}
        return False

    def over() -> bool:
        deadline = time.monotonic() + 5
        while any(map(lives, filter(str.isdecimal, os.listdir("/proc")))):
            if time.monotonic() > deadline:
                return False
        return bool(groups)

    return over


def test_every_program_sees_the_recorded_device_alone(monkeypatch, second):
    """Counters, tests and sanitizer are of the second device, by whatever number."""
    seen = []

    class Started:
        pid, returncode, stdout = 2**30, 0, ()

        def __init__(self, command, env, **_):
            seen.append(env["CUDA_VISIBLE_DEVICES"])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def communicate(self, timeout):
            metrics = (name.split(".")[0] for name in occupancy.METRICS.values())
            return "\n".join(["Version 1", "{}", *metrics]), None

    monkeypatch.setattr(programs.subprocess, "Popen", Started)
    monkeypatch.setattr(occupancy.shutil, "which", lambda name: name)
    monkeypatch.setattr(programs, "find_sanitizer", lambda: "compute-sanitizer")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**37, 2**37))
    monkeypatch.setattr(sanitizer, "_compile", lambda context: None)
    second.header = {}
    for before, expected in ((None, "1"), ("3,5", "5")):
        if before:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
        else:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        starts = (
            lambda: occupancy._counters(second, 1),
            lambda: verification.steps.__wrapped__(second),
            lambda: verification.record(second),
            lambda: sanitizer.record(second),
        )
        for start in starts:
            seen.clear()
            with contextlib.suppress(Exception):
                start()
            assert set(seen) == {expected}


def test_a_program_that_takes_too_long_leaves_none_behind(second, ended):
    """What it started is not measured beside the next section."""
    with pytest.raises(programs.Unreadable, match="longer than 0.2 s"):
        programs.run(["sh", "-c", LEAVES_ONE], second, 0.2)
    assert ended()


def test_an_interrupted_test_run_leaves_none_behind(second, ended):
    """Ctrl-C among the tests ends them, and no thread holds the recorder back."""

    def interrupt():
        raise KeyboardInterrupt

    second.advance = interrupt
    with pytest.raises(KeyboardInterrupt):
        verification._run(["sh", "-c", LEAVES_ONE], second, 60)
    assert all(
        thread.daemon or not isinstance(thread, threading.Timer)
        for thread in threading.enumerate()
    )
    assert ended()


def test_an_error_ends_programs_that_threads_wait_for(second, ended):
    """Ctrl-C among the sanitizer's runs does not wait for them."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), programs.waiting() as threads:
        threads.submit(programs.run, command, second, 60)
        while not programs._running:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert time.monotonic() - begin < 30
    assert ended()


def test_a_small_device_has_few_test_runners():
    """One has room in any memory; six have the cores and memory of a large host."""
    found = [verification.workers_for(gib << 30) for gib in (0, 2, 6, 8, 140)]
    assert found[:3] == [1, 1, min(2, os.cpu_count())]
    assert sorted(found) == found and found[-1] <= verification.WORKERS


@pytest.mark.parametrize(
    "message",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.00 GiB",
        'failed on setup with "torch.OutOfMemoryError: CUDA out of memory"',
        "RuntimeError: Triton Error [CUDA]: out of memory",
    ],
)
def test_too_little_memory_fails_no_kernel(tmp_path, maker, message):
    """A test that does not fit the device withholds no kernel from the charts."""
    report = tmp_path / "report.xml"
    report.write_text(
        f"""<testsuite><testcase classname="a" name="b"><properties><property
        name="kernels" value="dw"/></properties><failure
        message="{message.replace('"', "&quot;")}"/></testcase></testsuite>"""
    )
    (outcome,) = verification.outcomes(report)
    assert (outcome.outcome, outcome.kernels) == ("skipped", ("dw",))
    points = (*maker.verification().points, outcome)
    section = maker.verification().model_copy(update={"points": points})
    assert isinstance(section, Verification) and section.failed_kernels == set()
