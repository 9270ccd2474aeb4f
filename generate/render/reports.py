"""Public reports: what went wrong there, what holds here, and the tests that hold it.

The words stand in notes/reports.md. A test names a report in its docstring, and is
read as text, so that no torch is needed.
"""

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from generate.render.errors import RenderError
from generate.render.reference import inline

TESTS = "tests/kernels"
NAME = re.compile(r"\b[\w.-]+/[\w.-]+#\d+\b")
KIND = re.compile(r"^## (.+?) \{ #([a-z0-9-]+) \}\n(.*?)(?=^## |\Z)", re.M | re.S)
REPORT = re.compile(
    r"^### \[(\S+)\]\((https://github\.com/\S+)\)\n\n(.+?)\n\n(.+?)\n*(?=^### |\Z)",
    re.M | re.S,
)


@dataclass(frozen=True)
class Report:
    """there: what went wrong, here: what holds, both as HTML.

    tests: as pytest names them.
    """

    name: str
    address: str
    there: str
    here: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """Reports of one kind of fault."""

    title: str
    anchor: str
    reports: tuple[Report, ...]


@dataclass(frozen=True)
class Reports:
    kinds: tuple[Kind, ...]

    @cached_property
    def tests(self) -> set[str]:
        """Every test that names a report."""
        found = (report for kind in self.kinds for report in kind.reports)
        return {test for report in found for test in report.tests}

    @property
    def count(self) -> int:
        return sum(len(kind.reports) for kind in self.kinds)


def naming(root: Path) -> dict[str, list[str]]:
    """The tests that name a report, by its name."""
    found: dict[str, list[str]] = {}
    for file in sorted((root / TESTS).glob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for name in NAME.findall(ast.get_docstring(node) or ""):
                    found.setdefault(name, []).append(
                        f"{TESTS}/{file.name}::{node.name}"
                    )
    return found


def reports(root: Path, notes: str, name: str) -> Reports:
    """What the notes and the tests say, which must be of the same reports.

    RenderError, which says where, if one is missing in either or twice in the notes.
    """
    tests, kinds, seen = naming(root), [], set()
    for title, anchor, text in KIND.findall(notes):
        found = []
        for said in REPORT.findall(text):
            report, address, there, here = said
            if report in seen:
                raise RenderError(f"{name}: {report} stands twice")
            if re.sub(r"/(?:issues|pull)/", "#", address) != (
                f"https://github.com/{report}"
            ):
                raise RenderError(f"{name}: {address} is not that of {report}")
            if report not in tests:
                raise RenderError(f"{name}: no test of {TESTS} names {report}")
            seen.add(report)
            words = (inline(" ".join(part.split())) for part in (there, here))
            found.append(Report(report, address, *words, tuple(tests[report])))
        if len(found) != text.count("### "):
            raise RenderError(f"{name}: an entry below #{anchor} is no report")
        kinds.append(Kind(title, anchor, tuple(found)))
    if unsaid := sorted(tests.keys() - seen):
        raise RenderError(f"{name}: nothing is said of {', '.join(unsaid)}")
    return Reports(tuple(kinds))
