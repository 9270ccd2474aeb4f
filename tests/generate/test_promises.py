"""The page of what the functions promise: the same table, in fewer lines."""

import ast
import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from generate.render import promises
from generate.render.errors import RenderError
from generate.render.promises import QUESTIONS, ROWS, table
from kernels.promises import REFUSALS, promise

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "generate" / "templates" / "training" / "contract.md.j2"


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_row_has_its_answer_on_one_line(name: str):
    """Merged, "any" included, no row is lost, and none is answered twice."""
    question, asked = QUESTIONS[name], 0
    lines = [[cell.text for cell in line] for line in table(question, ROWS).rows]
    for row in ROWS:
        if row.call not in question.calls:
            continue
        if not (answer := question.answer(row, promise(row))):
            continue
        asked += 1
        values = [promises._label(getattr(row, axis)) for axis in question.axes]
        found = [
            tuple(line[len(values) :])
            for line in lines
            if all(
                text == "any" or value in text.split(", ")
                for value, text in zip(values, line[: len(values)], strict=True)
            )
        ]
        assert found == [answer], row
    assert asked > len(lines)


@pytest.mark.parametrize(
    "name, axis",
    (
        ("results", "call"),
        ("y", "autocast"),
        ("dx", "first"),
        ("dw", "mode"),
        ("bits", "determinism"),
        ("together", "casts"),
    ),
)
def test_what_decides_is_named(name: str, axis: str):
    """A question that forgets an axis stops the render, in a sentence that says so."""
    question = QUESTIONS[name]
    left = {other: head for other, head in question.axes.items() if other != axis}
    with pytest.raises(RenderError, match=f"^{question.caption}: more than "):
        table(replace(question, axes=left), ROWS)


def test_every_refusal_is_on_the_page(site):
    """Each with its error, its first words and a test that there is."""
    text = site.text(PAGE.read_text("utf-8"))
    for wrong, refusal in REFUSALS.items():
        shown = f">{wrong[0].upper()}{escape(wrong[1:])}</span></a> | "
        assert f"{shown}`{refusal.error}` | `{refusal.begins}` |" in text, wrong
    assert f"lists {len(ROWS)} combinations" in text


def test_the_tests_that_it_names_exist(site):
    """Whoever follows a link to a test finds a function of that name there."""
    text = site.text(PAGE.read_text("utf-8"))
    named = re.findall(r'title="(tests/[^":]+)::(\w+)', text)
    assert len(named) > len(REFUSALS)
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        assert name in {getattr(node, "name", "") for node in tree.body}, name
