"""The gallery: each trap's difference, what it did, and who noticed.

A trap is a module of kernels/traps/, read here as text. Its words are the entry
of notes/traps.md under the same name, with hyphens.
"""

import ast
import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from generate.render import entries, source
from generate.render.errors import RenderError
from generate.render.formats import count, error, significant
from generate.render.measured import Measurements, Missing
from generate.schema import CheckOutcome, TrapPoint
from kernels.traps import TRAPS

KINDS = ("wrong result", "lost time", "blind check")
SEEN_IN = re.compile(r"^\*\*Seen in:\*\* (.+?)(?:\n\n|\n*\Z)", re.M | re.S)
MARKER = re.compile(r"^ *# \[[a-z0-9-]+\]\n", re.M)
# Where an entry says why no trap of the gallery belongs to it.
LEFT_OUT = "**Not in the gallery:**"
SECTION = re.compile(r"^## .+? \{ #([a-z0-9-]+) \}\n(.*?)(?=^## |\Z)", re.M | re.S)
# Upper ends of the steps of a picture, over the RMS of the output.
LEVELS = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0)
LEVEL_NAMES = ("up to 0.1 %", "1 %", "10 %", "30 %", "100 %", "300 %", "more")
# The check that most kernels get.
USUAL = "round sizes, fresh memory"
OUTCOMES = {
    (False, True): "caught",
    (True, True): "missed",
    (False, False): "refuses both",
    (True, False): "prefers the mistake",
}

Grid = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Picture:
    """words: what it shows, for whoever does not see it."""

    svg: str
    words: str


@dataclass(frozen=True)
class Exhibit:
    """says: the mistake in one line. case: the operands that show it.

    report: where it was seen in public, as Markdown.
    """

    name: str
    kind: str
    title: str
    says: str
    case: str
    report: str
    difference: str
    point: TrapPoint | Missing

    @property
    def anchor(self) -> str:
        return anchor(self.name)

    @property
    def reason(self) -> str | None:
        """Why there is no measurement."""
        return self.point.reason if isinstance(self.point, Missing) else None

    @property
    def said(self) -> dict[str, str]:
        """The outcome of each check that was run."""
        if isinstance(self.point, Missing):
            return {}
        return {said.check: outcome(said) for said in self.point.checks}

    @property
    def outcomes(self) -> dict[str, list[str]]:
        """The checks of each outcome."""
        found = {name: [] for name in OUTCOMES.values()}
        for check, name in self.said.items():
            found[name].append(check)
        return {name: checks for name, checks in found.items() if checks}

    @property
    def pictures(self) -> dict[str, Picture]:
        """The output of each form, by its name, if the mistake is in it."""
        if isinstance(self.point, Missing):
            return {}
        broken, fixed = self.point.broken, self.point.fixed
        if not broken.wrong_elements or broken.picture is None or not fixed.picture:
            return {}
        bound = max(
            (v for row in fixed.picture for v in row if v is not None), default=0
        )
        return {
            "Broken": Picture(svg(broken.picture), words(broken.picture, bound)),
            "Fixed": Picture(svg(fixed.picture), words(fixed.picture, bound)),
        }


@dataclass(frozen=True)
class Gallery:
    """The exhibits by kind, what each check does, and the steps of a picture."""

    exhibits: list[Exhibit]
    checking: dict[str, str]
    levels: tuple[str, ...] = LEVEL_NAMES

    @property
    def checks(self) -> list[str]:
        """Every check that was run on any trap."""
        return list(dict.fromkeys(check for e in self.exhibits for check in e.said))

    @property
    def outcomes(self) -> set[str]:
        return {said for exhibit in self.exhibits for said in exhibit.said.values()}


def anchor(name: str) -> str:
    return name.replace("_", "-")


def outcome(said: CheckOutcome) -> str:
    return OUTCOMES[said.broken_passes, said.fixed_passes]


def gallery(root: Path, measured: Measurements, notes: str) -> Gallery:
    """Every trap, by kind. RenderError if traps and entries do not pair."""
    sections = dict(SECTION.findall(notes))
    titles = entries.entries(notes)
    wanted = {anchor(name) for name in TRAPS}
    found = {name for name, text in sections.items() if LEFT_OUT not in text}
    for name in sorted(wanted ^ found):
        which = "kernels/traps has no such trap" if name in found else "has no entry"
        raise RenderError(f"notes/traps.md: #{name}: {which}")
    exhibits = []
    for name in TRAPS:
        file = root / "kernels" / "traps" / f"{name}.py"
        seen = SEEN_IN.search(sections[anchor(name)])
        exhibits.append(
            Exhibit(
                name=name,
                title=titles[anchor(name)].title,
                report=seen[1] if seen else "",
                difference=_difference(root, file),
                **_about(file),
                point=measured.trap(name),
            )
        )
    exhibits.sort(key=lambda exhibit: KINDS.index(exhibit.kind))
    return Gallery(exhibits, _checking(root / "kernels" / "traps" / "checks.py"))


def _about(file: Path) -> dict[str, str]:
    """What a trap's file says of itself."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    said = {"says": ast.get_docstring(tree)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "KIND":
            said["kind"] = ast.literal_eval(node.value)
        if isinstance(node, ast.FunctionDef) and node.name == "case":
            said["case"] = ast.get_docstring(node)
    return said


def _checking(file: Path) -> dict[str, str]:
    """What each check does, by its name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    says = {
        node.name: ast.get_docstring(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    (checks,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and node.target.id == "CHECKS"
    )
    return {
        ast.literal_eval(name): says[function.id]
        for name, function in zip(checks.keys, checks.values, strict=True)
    }


def _difference(root: Path, file: Path) -> str:
    """A kernel against the lesson's, where it is the mistake, and the calls."""
    lesson = root / "kernels" / "dw.py"
    call = source.definitions(file)
    calls = source.changes(call["broken"], call["fixed"], "broken", "fixed")
    if not (kernel := _kernel(file)):
        return calls
    shown = f"traps/{file.name}", lesson.name
    return source.changes(kernel, _kernel(lesson), *shown) + f"\n{calls}"


def _kernel(file: Path) -> str:
    """What stands between a file's first marker and its calls, without markers."""
    text = file.read_text(encoding="utf-8").partition("# [broken]\n")[0]
    first = MARKER.search(text)
    return MARKER.sub("", text[first.end() :]).strip() if first else ""


# The picture: a grid over the output, each cell as far off as its worst element


def level(value: float | None) -> int | None:
    """The step of a cell; None if an element of it is not finite."""
    if value is None:
        return None
    return sum(value > end for end in LEVELS)


def svg(grid: Grid) -> str:
    """Rows are K, columns are N; alike neighbors are one box."""
    boxes: dict[tuple, int] = {}
    drawn: dict[int | None, list[str]] = {}
    for y, row in enumerate((*grid, ())):
        runs, x = {}, 0
        for step, cells in groupby(map(level, row)):
            width = len(list(cells))
            runs[step, x, width] = boxes.pop((step, x, width), y)
            x += width
        for (step, left, width), top in boxes.items():
            box = f"M{left} {top}h{width}V{y}h-{width}z"
            drawn.setdefault(step, []).append(box)
        boxes = runs
    paths = "".join(
        f'<path class="trap-{"nan" if step is None else step}" d="{"".join(found)}"/>'
        for step, found in drawn.items()
    )
    size = f"0 0 {len(grid[0])} {len(grid)}"
    return f'<svg class="trap-map" viewBox="{size}" aria-hidden="true">{paths}</svg>'


def words(grid: Grid, bound: float) -> str:
    """Which cells are further off than `bound`, and how far."""
    rows, columns = len(grid), len(grid[0])
    off = {
        (y, x)
        for y, row in enumerate(grid)
        for x, value in enumerate(row)
        if value is None or value > bound
    }
    worst = max((v for row in grid for v in row if v is not None), default=None)
    broken = sum(value is None for row in grid for value in row)
    if not off:
        return f"No cell is further off than {share(worst)}."
    down, across = {y for y, _ in off}, {x for _, x in off}
    whole = len(off) == len(down) * len(across)
    if len(off) == rows * columns:
        where = "Every cell"
    elif whole and len(across) == columns:
        where = span(down, rows, "row")
    elif whole and len(down) == rows:
        where = span(across, columns, "column")
    elif whole:
        where = f"{span(down, rows, 'row')}, {span(across, columns, 'column').lower()}"
    else:
        where = f"{len(off)} of {rows * columns} cells"
    said = [f"{where}: off"]
    if worst is not None and worst > bound:
        said.append(f"by up to {share(worst)}")
    if broken == rows * columns:
        said = ["Every cell holds a value that is not finite"]
    elif broken:
        said.append(f"and {count(broken, 'cell')} not finite")
    return " ".join(said) + "."


def share(value: float) -> str:
    """How far off, over the output's RMS."""
    if value < LEVELS[0]:
        return f"{error(value)} of dW's RMS"
    if value < 1:
        return f"{significant(100 * value, 2)} % of dW's RMS"
    return f"{significant(value, 2)} times dW's RMS"


def span(found: set[int], total: int, one: str) -> str:
    """Rows or columns of cells in words: the last 3 of 32 rows."""
    low, high, number = min(found), max(found), len(found)
    if number == total:
        return f"Every {one}"
    if high - low + 1 == number:
        if number == 1 and 0 < low < total - 1:
            return f"{one.capitalize()} {low + 1} of {total}"
        end = {0: "first", total - number: "last"}.get(low)
        if end:
            few = "" if number == 1 else f" {number}"
            return f"The {end}{few} of {total} {one}s"
        return f"{one.capitalize()}s {low + 1} to {high + 1} of {total}"
    return f"{number} of {total} {one}s"
