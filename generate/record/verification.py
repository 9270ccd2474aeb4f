"""Section `verification`: the GPU tests, run on the device that is recorded."""

import functools
import os
import re
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch

from generate.record import programs, without_paths
from generate.record.context import Context
from generate.schema import TestOutcome, Verification

TESTS = programs.ROOT / "tests" / "kernels"
# Of WORKERS; fewer have as much longer.
TIMEOUT_S = 400
# These take times, or most of a small GPU's memory, and run when the others are done.
ALONE = ("test_gpu.py", "test_traps.py")
# Most tests wait for the compiler, which uses one core each, and take memory.
WORKERS = 6
WORKER_BYTES = 3 << 30
# How a test says that the device has too little memory for it.
NO_MEMORY = re.compile(
    r"\bOutOfMemoryError\b|\[CUDA\]: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
)


@functools.cache
def steps(context: Context) -> int:
    """How many tests there are."""
    command = [*_pytest("--collect-only"), "--quiet", str(TESTS)]
    try:
        said = programs.run(command, context, TIMEOUT_S, may_fail=True)
    except programs.Unreadable:
        return 1
    return max(1, said.count("::"))


def record(context: Context) -> Verification:
    # The tests are a process of their own and need the memory.
    torch.cuda.empty_cache()
    workers = workers_for(torch.cuda.mem_get_info(context.device)[0])
    timeout_s = TIMEOUT_S * WORKERS / workers
    together = [f"--numprocesses={workers}", "--dist=loadgroup", str(TESTS)]
    together += [f"--ignore={TESTS / name}" for name in ALONE]
    begin, points = time.perf_counter(), ()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        for chosen in (together, [str(TESTS / name) for name in ALONE]):
            command = _pytest("-v", f"--junitxml={report}", *chosen)
            said = _run(command, context, timeout_s)
            if not report.is_file():
                raise RuntimeError(f"pytest wrote no report, it said: {said}")
            points += outcomes(report)
            report.unlink()
    duration = time.perf_counter() - begin
    return Verification(
        section="verification",
        **context.header,
        points=points,
        duration_s=round(duration, 1),
    )


def workers_for(free_bytes: int) -> int:
    """How many processes run tests at once, for the cores and the device's memory."""
    return max(1, min(WORKERS, os.cpu_count() or 1, free_bytes // WORKER_BYTES))


def _pytest(*options: str) -> list[str]:
    program = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider"]
    return [*program, *options]


def _run(command: list[str], context: Context, timeout_s: float) -> str:
    """Run pytest, a step for every test it names; the last line it said."""
    said = "nothing"
    with programs.started(command, context) as process:
        # A test that hangs must not hang the recording.
        watchdog = threading.Timer(timeout_s, programs.kill, [process])
        watchdog.daemon = True
        watchdog.start()
        try:
            for line in process.stdout:
                said = line.strip() or said
                # Outcome and name, in either order.
                if "::" in line and re.search(
                    r"\b(PASSED|FAILED|ERROR|SKIPPED)\b", line
                ):
                    context.advance()
        finally:
            watchdog.cancel()
    return without_paths(said)


def outcomes(report: Path) -> tuple[TestOutcome, ...]:
    """Outcome of every test of a JUnit report, with the kernels it names."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        outcome, message = "passed", None
        for tag, word in (("failure", "failed"), ("error", "error"), ("skipped",) * 2):
            element = case.find(tag)
            if element is not None:
                outcome = word
                lines = (element.get("message") or word).strip().splitlines()
                message = without_paths(lines[0] if lines else word)
                # That says nothing of a kernel.
                if NO_MEMORY.search(message):
                    outcome = "skipped"
        kernels = [
            name
            for item in case.iter("property")
            if item.get("name") == "kernels"
            for name in item.get("value").split(",")
        ]
        found.append(
            TestOutcome(
                name=f"{case.get('classname')}::{case.get('name')}",
                outcome=outcome,
                kernels=tuple(kernels),
                message=message,
            )
        )
    return tuple(found)
