"""The reference: how functions and classes are called, and their docstrings.

Both are read from the code as text, so that neither torch nor Triton is needed.
"""

import ast
import re
from dataclasses import dataclass
from html import escape
from itertools import groupby
from textwrap import dedent

from kernels import SOURCES

# Paragraphs end at an empty line, and at a line that ends with its sentence.
LINE = re.compile(r"\n\n|(?<=\.)\n")
SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Entry:
    """listing: how a function is called, or what a class holds, without any body.
    prose: the docstring, in Markdown. methods: those that have one.
    """

    address: str
    listing: str
    prose: str
    methods: tuple["Entry", ...] = ()


def address(file: str, name: str) -> str:
    """Where it is imported from, such as "kernels.plan.Tile"."""
    module = file.replace("/", ".")
    public = SOURCES.get(name) == module
    return f"kernels.{name}" if public else f"kernels.{module}.{name}"


def entry(code: str, address: str) -> Entry:
    """The entry of a function or class, whose code is given as it is written."""
    node, lines = ast.parse(code).body[0], code.splitlines()
    if isinstance(node, ast.FunctionDef):
        head = f"{_head(node, lines)} ..."
        return Entry(address, head, _prose(node, _arguments(node)))
    fields, methods, names = [], [], []
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and _shown(part.target.id):
            names.append(part.target.id)
            fields.append(f"    {ast.get_source_segment(code, part)}")
        if isinstance(part, ast.FunctionDef) and _shown(part.name):
            methods.append(part)
    for method in methods:
        names += _arguments(method) if method.name == "__init__" else []
    parts = ["\n".join(fields)] if fields else []
    parts += [f"{_head(method, lines)} ..." for method in methods]
    return Entry(
        address,
        f"{_head(node, lines)}\n" + "\n\n".join(parts),
        _prose(node, names),
        tuple(
            Entry(f"{address}.{method.name}", "", _prose(method, _arguments(method)))
            for method in methods
            if ast.get_docstring(method)
        ),
    )


def _shown(name: str) -> bool:
    return name == "__init__" or not name.startswith("_")


def _head(node: ast.FunctionDef | ast.ClassDef, lines: list[str]) -> str:
    """Everything before the body, as it is written."""
    first = min(part.lineno for part in (node, *node.decorator_list))
    head = lines[first - 1 : node.body[0].lineno - 1]
    while head[-1].lstrip().startswith("#"):
        head.pop()
    return "\n".join(head)


def _arguments(node: ast.FunctionDef) -> list[str]:
    return [part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)]


def _prose(node: ast.FunctionDef | ast.ClassDef, names: list[str]) -> str:
    """A docstring in Markdown; a sentence that says what a name means is an item.

    names: arguments or fields. Indented lines are code; the rest is HTML, lest
    Markdown find marks of its own in it.
    """
    name = "|".join(map(re.escape, names)) or "(?!)"
    item = re.compile(rf"(?:{name})(?:, (?:{name}))*: ")
    sentence = re.compile(rf"(?<=\.) |(?<=;) (?={item.pattern})")
    parts = []
    docstring = (ast.get_docstring(node) or "").splitlines()
    for code, group in groupby(docstring, lambda line: line.startswith("    ")):
        text = "\n".join(group)
        if code:
            parts.append(("code", f"````python\n{dedent(text)}\n````"))
            continue
        for line in LINE.split(text):
            said = sentence.split(" ".join(line.split()))
            for listed, some in groupby(said, lambda part: bool(item.match(part))):
                if listed:
                    parts += [("item", _item(*part.split(": ", 1))) for part in some]
                elif paragraph := inline(" ".join(some)):
                    parts.append(("text", f"<p>{paragraph}</p>"))
    blocks = []
    for kind, some in groupby(parts, lambda part: part[0]):
        texts = [text for _, text in some]
        blocks += ["\n".join(["<ul>", *texts, "</ul>"])] if kind == "item" else texts
    return "\n\n".join(blocks)


def _item(names: str, text: str) -> str:
    return f"<li><code>{names}</code>: {inline(text)}</li>"


def inline(text: str) -> str:
    """A sentence as HTML: what stands in backticks is code."""
    return SPAN.sub(r"<code>\1</code>", escape(text, quote=False))
