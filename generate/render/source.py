"""Annotated source: a tested file itself, cut at its `# [name]` comments.

Notes bind to the names, in order. A name that vanished, was renamed, moved or
has no note stops the render. Lines of a note that begin with `Guarded by:` or
`Avoids:` name one test or one trap each.
"""

import ast
import difflib
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path

from generate.render.errors import RenderError

MARKER = re.compile(r"# \[([a-z0-9-]+)\]")
HEADING = re.compile(r"^## (\S+)[ \t]*$", re.MULTILINE)
# A line of a note that names a test, or a trap by its anchor.
BINDING = re.compile(r"^(Guarded by|Avoids): (.+)$\n?", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")
# What stands before a file's first marker.
HEAD = "head"


@dataclass(frozen=True)
class Block:
    """Consecutive lines of a file, without the blank ones around them."""

    name: str
    first: int
    lines: tuple[str, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class Annotated:
    """guards: tests, as pytest names them. traps: anchors of traps."""

    block: Block
    note: str
    guards: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()

    @property
    def whole_tests(self) -> list[str]:
        return [test for test in self.guards if "[" not in test]

    @property
    def cases(self) -> list[str]:
        return [test for test in self.guards if "[" in test]


def blocks(file: Path) -> list[Block]:
    """The file cut at its markers: comments on a line of their own.

    They are found with `tokenize`, so text within strings never counts.
    """
    source = file.read_text(encoding="utf-8")
    lines = source.splitlines()
    cuts = [(0, HEAD)]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row = token.start[0]
        marker = MARKER.fullmatch(token.string)
        if token.type == tokenize.COMMENT and marker:
            if lines[row - 1].strip() == token.string:
                cuts.append((row, marker[1]))
    names = [name for _, name in cuts]
    for name in names:
        if names.count(name) > 1:
            raise RenderError(f"{file.name}: the marker [{name}] stands twice")
    ends = [row - 1 for row, _ in cuts[1:]] + [len(lines)]
    found = []
    for (start, name), end in zip(cuts, ends, strict=True):
        while start < end and not lines[start].strip():
            start += 1
        while start < end and not lines[end - 1].strip():
            end -= 1
        if start == end and name != HEAD:
            raise RenderError(f"{file.name}: the marker [{name}] has no code")
        if start < end:
            found.append(Block(name, start + 1, tuple(lines[start:end])))
    return found


def notes(text: str) -> dict[str, str]:
    """The sections of a notes file, by their `## name`, in order."""
    _, *parts = HEADING.split(text)
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def annotated(file: Path, notes_name: str, notes_text: str) -> list[Annotated]:
    """Each block of a file with its note. RenderError if they do not pair."""
    code, prose = blocks(file), notes(notes_text)
    markers = [block.name for block in code]
    if markers != list(prose):
        raise RenderError(
            f"{file.parent.name}/{file.name} has the markers {', '.join(markers)}, "
            f"but {notes_name} has notes for {', '.join(prose)}: they must be the "
            "same, in the same order"
        )
    rows = [_bound(block, prose[block.name]) for block in code]
    for row in rows:
        if not row.note:
            raise RenderError(f"{notes_name}: the note of [{row.block.name}] is empty")
    return rows


def _bound(block: Block, text: str) -> Annotated:
    """A block with its note, and what the note binds it to."""
    bound = {"Guarded by": [], "Avoids": []}
    for kind, name in BINDING.findall(text):
        bound[kind].append(name)
    note = BINDING.sub("", text).strip()
    return Annotated(block, note, tuple(bound["Guarded by"]), tuple(bound["Avoids"]))


def block(file: Path, name: str) -> Block:
    """One block of a file. RenderError if it has no such marker."""
    found = {block.name: block for block in blocks(file)}
    if name not in found:
        raise RenderError(
            f"{file.parent.name}/{file.name} has no marker [{name}]; it has "
            f"{', '.join(found)}"
        )
    return found[name]


def difference(before: Path, after: Path, letters: dict[str, str]) -> str:
    """What changes from one file to another, as `diff -u` says it.

    letters: words of the first file and what to read instead of each.
    """
    old = WORD.sub(
        lambda word: letters.get(word[0], word[0]), before.read_text(encoding="utf-8")
    )
    read = f"{before.name}, letters exchanged" if letters else before.name
    return changes(old, after.read_text(encoding="utf-8"), read, after.name)


def changes(old: str, new: str, before: str, after: str) -> str:
    """What changes from one text to another; before, after: what they are called."""
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), before, after, lineterm=""
    )
    return "\n".join(lines)


def definitions(file: Path) -> dict[str, str]:
    """Functions, classes and other names of a file, by name, as they are written."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = {}
    for node in ast.parse(text).body:
        first = node.lineno
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
            first = min([first, *(part.lineno for part in node.decorator_list)])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        else:
            continue
        found[name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found
