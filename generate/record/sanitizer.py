"""Section `sanitizer`: what compute-sanitizer finds in a run of every kernel.

Each of its tools watches the program `generate.record.sanitized`, whose kernels are
compiled beforehand, and beside it one kernel that is broken so that this tool must
report it: the silence of a tool that misses that one means nothing. Where the
sanitizer is missing, fails or takes too long, the reason is recorded.
"""

import json
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from generate.record import programs, without_paths
from generate.record.context import Context
from generate.record.programs import Unreadable
from generate.record.sanitized import CONTROLS, kernel_names
from generate.schema import SANITIZER_TOOLS, Launched, Sanitizer, SanitizerPoint

PROGRAM = "generate.record.sanitized"
TIMEOUT_S = 60
# Processes that compile what the tools then run.
PARTS = 8
# Reports whose words are kept.
KEPT = 5
# What is asked of the sanitizer, where its version knows it. With checks of the
# device's heap, every kernel of the framework would be loaded at the start.
OPTIONS = (
    ("--print-limit", "0"),
    ("--show-backtrace", "no"),
    ("--check-device-heap", "no"),
    ("--destroy-on-device-error", "kernel"),
)
# Of a tool alone. The host reads back what descriptors wrote, which initcheck does
# not see; and as it sees writes of watched kernels alone, it has to watch all.
TOOL_OPTIONS = {"initcheck": (("--check-api-memory-access", "no"),)}
PROGRAM_OPTIONS = {"initcheck": ("--cleared",)}
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) errors?\b(?! were not printed)")
RACES = re.compile(
    r"RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) w"
)
UNPRINTED = "not printed"
PREFIX = "========="
# Heads of lines that are no reports.
SAYINGS = (
    "COMPUTE-SANITIZER",
    "ERROR SUMMARY",
    "RACECHECK SUMMARY",
    "Error: process didn't",
    "Target application",
)


@dataclass(frozen=True)
class Reports:
    """What the sanitizer said: counts of its summary, and each report on a line."""

    errors: int
    warnings: int
    lines: tuple[str, ...]

    def naming(self, *kernels: str, warnings: bool = False) -> int:
        """How many of its errors, or warnings, name one of the kernels."""
        named = re.compile(rf"\b({'|'.join(kernels)})\b")
        return sum(
            bool(named.search(line)) and line.startswith("Warning:") == warnings
            for line in self.lines
        )


def steps(context: Context) -> int:
    return PARTS + 2 * len(SANITIZER_TOOLS)


def record(context: Context) -> Sanitizer:
    path = programs.find_sanitizer()
    version = reason = None
    if path is None:
        reason = "compute-sanitizer is not installed"
    else:
        version, reason = _version(path, context)
    reason = reason or _compile(context)
    if reason:
        points = [_point(tool, reason, reason) for tool in SANITIZER_TOOLS]
    else:
        with programs.waiting() as threads:
            watched = partial(_watched, path, context)
            points = list(threads.map(watched, SANITIZER_TOOLS))
    return Sanitizer(
        section="sanitizer", **context.header, version=version, points=tuple(points)
    )


def read(words: str) -> Reports:
    """The reports and the summary in what the sanitizer wrote. Unreadable, if none."""
    reports: list[str] = []
    for line in words.splitlines():
        text = line.removeprefix(PREFIX)
        if text == line or not text.strip():
            continue
        # Further lines of a report are set in by more than one space.
        if text.startswith("  ") and reports:
            reports[-1] += f" {text.strip()}"
        else:
            reports.append(text.strip())
    summary, races = SUMMARY.search(words), RACES.search(words)
    if not (summary or races) or UNPRINTED in words:
        heard = "; ".join(r for r in reports if not r.startswith(SAYINGS)) or "nothing"
        raise Unreadable(f"compute-sanitizer gave no whole summary, it said: {heard}")
    errors, warnings = races.groups() if races else (summary[1], 0)
    lines = [without_paths(r) for r in reports if not r.startswith(SAYINGS)]
    return Reports(int(errors), int(warnings), tuple(lines))


def _version(path: str, context: Context) -> tuple[str | None, str | None]:
    """Its version, or why it does not run."""
    try:
        said = _run([path, "--version"], context).splitlines()
    except Unreadable as error:
        return None, f"compute-sanitizer does not run: {error}"
    found = [line for line in said if line.startswith("Version")]
    if not found:
        return None, "compute-sanitizer does not say its version"
    return f"compute-sanitizer {found[0].removeprefix('Version ')}", None


def _compile(context: Context) -> str | None:
    """Compile every kernel of the program; why it fails by itself, if it does."""

    def run(part: int) -> str | None:
        try:
            said = _run(_program("--part", f"{part}/{PARTS}"), context)
            wrong = _tally(said)["wrong"]
        except (Unreadable, TypeError) as error:
            return f"the program gives no result without the sanitizer: {error}"
        finally:
            context.advance()
        return f"without the sanitizer, {wrong[0]}" if wrong else None

    with programs.waiting(min(PARTS, os.cpu_count() or 1)) as threads:
        return next(filter(None, list(threads.map(run, range(PARTS)))), None)


def _watched(path: str, context: Context, tool: str) -> SanitizerPoint:
    """A tool's run over the program, and at the same time over its control."""

    def watch(*arguments: str) -> tuple[str, str, Reports, float] | str:
        """The command, what the program and the tool said, seconds; or why not."""
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            command = [path, *options, *_libraries(path), "--log-file", str(log)]
            command += _program(*arguments)
            begin = time.perf_counter()
            try:
                said = _run(command, context, may_fail=True)
                words = log.read_text("utf-8", "replace") if log.is_file() else ""
                reports = read(words)
            except Unreadable as error:
                return str(error)
            finally:
                context.advance()
        shown = ["compute-sanitizer", *options, "python", "-m", PROGRAM]
        seconds = round(time.perf_counter() - begin, 1)
        return " ".join([*shown, *arguments]), said, reports, seconds

    options = _options(path, context, tool)
    with programs.waiting() as threads:
        control = threads.submit(watch, "--control", tool)
        ran, control = watch(*PROGRAM_OPTIONS.get(tool, ())), control.result()
    return _point(tool, ran, control)


def _point(
    tool: str,
    ran: tuple[str, str, Reports, float] | str,
    control: tuple[str, str, Reports, float] | str,
) -> SanitizerPoint:
    fields = dict.fromkeys(
        ("command", "launches", "results", "wrong", "reported_errors")
        + ("reported_warnings", "errors", "warnings", "reports", "duration_s")
    )
    reason = ran if isinstance(ran, str) else None
    if reason is None:
        command, said, reports, seconds = ran
        tally, ours = _tally(said), kernel_names()
        fields = {
            "command": command,
            **(tally or {"launches": (), "results": 0, "wrong": ()}),
            "reported_errors": reports.errors,
            "reported_warnings": reports.warnings,
            "errors": reports.naming(*ours),
            "warnings": reports.naming(*ours, warnings=True),
            "reports": reports.lines[:KEPT],
            "duration_s": seconds,
        }
        if tally is None and not reports.lines:
            last = programs.last_line(said)
            reason = f"the program ended early, it said: {last}"
        elif fields["errors"] + fields["warnings"] > reports.errors + reports.warnings:
            reason = "compute-sanitizer reported more than it summed up"
        if reason:
            fields = dict.fromkeys(fields)
    kernel, _ = CONTROLS[tool]
    missed = isinstance(control, str)
    return SanitizerPoint(
        tool=tool,
        **fields,
        skipped_reason=reason,
        control_kernel=kernel,
        control_errors=None if missed else control[2].naming(kernel),
        control_reason=control if missed else None,
    )


def _tally(said: str) -> dict | None:
    """The program's own account, a line of its own; None if it did not come so far."""
    for line in said.splitlines():
        if line.startswith('{"launches": '):
            found = json.loads(line)
            launches = tuple(
                Launched(kernel=kernel, times=times)
                for kernel, times in sorted(found["launches"].items())
            )
            return {**found, "launches": launches, "wrong": tuple(found["wrong"])}
    return None


def _options(path: str, context: Context, tool: str) -> list[str]:
    known = _run([path, "--help"], context, may_fail=True)
    options = [*OPTIONS, *TOOL_OPTIONS.get(tool, ())]
    found = ["--tool", tool]
    found += [word for pair in options if pair[0] in known for word in pair]
    if tool != "initcheck":
        name = "--kernel-name" if "--kernel-name " in known else "--kernel-regex"
        for kernel in (*kernel_names(), CONTROLS[tool][0]):
            found += [name, f"kne={kernel}"]
    return found


def _libraries(path: str) -> list[str]:
    """Where a wheel has its libraries, in which the program in it does not look."""
    folder = Path(path).resolve().parents[1] / "lib"
    there = (folder / "libsanitizer-collection.so").is_file()
    return ["--injection-path", str(folder)] if there else []


def _program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", PROGRAM, *arguments]


def _run(command: list[str], context: Context, may_fail: bool = False) -> str:
    """What a command says. Unreadable if it fails, or takes too long."""
    variables = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return programs.run(command, context, TIMEOUT_S, may_fail, **variables)
