"""Section `verification`: the GPU tests, run on the device that is recorded."""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch

from generate.record.context import Context
from generate.schema import TestOutcome, Verification

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 400


def steps(context: Context) -> int:
    return 1


def record(context: Context) -> Verification:
    # The tests are a process of their own and need the memory.
    torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        begin = time.perf_counter()
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-m",
                "gpu",
                "-q",
                "-p",
                "no:cacheprovider",
            ]
            + [f"--junitxml={report}", str(ROOT / "tests" / "kernels")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": _visible(context)},
        )
        duration = time.perf_counter() - begin
        if not report.is_file():
            words = (ran.stdout + ran.stderr).strip().splitlines() or ["nothing"]
            raise RuntimeError(f"pytest wrote no report, it said: {words[-1]}")
        points = outcomes(report)
    context.advance()
    return Verification(
        section="verification",
        **context.header,
        points=points,
        duration_s=round(duration, 1),
    )


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


def _visible(context: Context) -> str:
    """The recorded device alone, in the numbering this process sees."""
    index = context.device.index
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",")[index] if seen else str(index)
