"""Section `verification`: the GPU tests, run on the device that is recorded."""

import functools
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch

from generate.record.context import Context
from generate.schema import TestOutcome, Verification

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "kernels"
TIMEOUT_S = 400
# These take times, or most of a small GPU's memory, and run when the others are done.
ALONE = ("test_gpu.py", "test_traps.py")
# Most tests wait for the compiler, which uses one core each.
WORKERS = 6


@functools.cache
def steps(context: Context) -> int:
    """How many tests there are."""
    ran = subprocess.run(
        [*_pytest("--collect-only"), "--quiet", str(TESTS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return max(1, ran.stdout.count("::"))


def record(context: Context) -> Verification:
    # The tests are a process of their own and need the memory.
    torch.cuda.empty_cache()
    workers = min(WORKERS, os.cpu_count() or 1)
    together = [f"--numprocesses={workers}", "--dist=loadgroup", str(TESTS)]
    together += [f"--ignore={TESTS / name}" for name in ALONE]
    begin, points = time.perf_counter(), ()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        for chosen in (together, [str(TESTS / name) for name in ALONE]):
            said = _run(_pytest("-v", f"--junitxml={report}", *chosen), context)
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


def _pytest(*options: str) -> list[str]:
    program = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider"]
    return [*program, *options]


def _run(command: list[str], context: Context) -> str:
    """Run pytest, a step for every test it names; the last line it said."""
    said = "nothing"
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": visible(context)},
    ) as process:
        # A test that hangs must not hang the recording.
        watchdog = threading.Timer(TIMEOUT_S, process.kill)
        watchdog.start()
        for line in process.stdout:
            said = line.strip() or said
            # Outcome and name, in either order.
            if "::" in line and re.search(r"\b(PASSED|FAILED|ERROR|SKIPPED)\b", line):
                context.advance()
        watchdog.cancel()
    return said


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
                message = lines[0] if lines else word
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


def visible(context: Context) -> str:
    """The recorded device alone, in the numbering this process sees."""
    index = context.device.index
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",")[index] if seen else str(index)
