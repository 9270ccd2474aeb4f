"""Rendering: recordings and templates in, pages and chart files out.

Needs neither torch nor Triton nor a GPU.
"""

import functools
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from generate.render import choice, explore, timelines
from generate.render import stills as pictures
from generate.render.charts import Chart, charts
from generate.render.claims import Judged
from generate.render.errors import RenderError
from generate.render.facts import facts
from generate.render.files import ASSETS, synchronise
from generate.render.measured import Measurements, Missing
from generate.render.pages import Pages, templates
from generate.schema import SECTIONS, Recording, json_schema, recordings

__all__ = ["RenderError", "render"]

Charts = dict[str, Chart | Missing]


@dataclass(frozen=True)
class Computed:
    """What follows from recordings alone, whatever pages make of it."""

    measured: Measurements
    judgement: Judged
    charts: Charts


@functools.lru_cache(maxsize=4)
def _computed(found: tuple[Recording, ...]) -> tuple[Computed, ...]:
    everything = [Measurements(recording, found) for recording in found]
    return tuple(
        Computed(measured, Judged(measured, facts(measured)), charts(measured))
        for measured in everything
    )


def render(root: Path, check: bool = False, stills: bool | None = None) -> list[str]:
    """Render the site of `root`; paths, relative to it, that changed.

    check: write nothing, only say what is stale. stills: whether pictures of
    changed charts are drawn anew; by default where kaleido and Chromium are.
    Raises RenderError and DataError.
    """
    found = recordings(root / "data")
    if not found:
        raise RenderError(
            "data/ holds no recording: make one with `python -m generate record`"
        )
    computed = _computed(tuple(found))
    everything = [one.measured for one in computed]
    judged = [one.judgement for one in computed]
    chosen = _default([measured.recording for measured in everything])
    wanted = {
        f"{ASSETS}/recording.schema.json": _schema(),
        f"{ASSETS}/site.css": _styles(root),
    }
    stale, partials = [], templates(root)
    for one in computed:
        measured, judgement, drawn = one.measured, one.judgement, dict(one.charts)
        if measured.recording is not chosen:
            del drawn["repeat"]  # its page is of two recordings, and offers no other
        wanted |= _files(measured, drawn, judgement)
        wanted |= {
            f"{_folder(measured)}/{name}": text
            for name, text in timelines.files(measured, partials).items()
        }
        if len(found) > 1:
            page = choice.text(measured, drawn, partials)
            wanted[f"{_folder(measured)}/page.json"] = page
        widget = explore.data(measured, everything)
        wanted[f"{_folder(measured)}/explore.json"] = explore.text(widget)
        if measured.recording is chosen:
            svgs, stale = _stills(root, measured, drawn, check, stills)
            folder = _folder(measured)
            wanted |= {
                f"{folder}/{name}-{size}.svg": svg
                for name, both in svgs.items()
                for size, svg in both.items()
            }
            pages = Pages(
                root=root,
                measured=measured,
                judgement=judgement,
                judged=judged,
                charts=drawn,
                explore=explore.context(widget),
                stills={n: s for n, s in svgs.items() if n not in stale},
                folder=folder.removeprefix("docs/"),
            )
            wanted |= pages.render()
    changed = synchronise(root, wanted, check)
    if check:
        folder = _folder(Measurements(chosen))
        names = (f"{folder}/{n}-{size}.svg" for n in stale for size in pictures.SIZES)
        changed = sorted({*changed, *names})
    return changed


@functools.cache
def _schema() -> str:
    return _json(json_schema())


def _styles(root: Path) -> str:
    """The hand-written style sheets as one, which a phone waits for but once."""
    sheets = sorted((root / "docs/assets/css").glob("*.css"))
    # What is about all pages comes first; the others are about parts of some.
    sheets.sort(key=lambda sheet: sheet.stem != "site")
    return "\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets)


def _default(found: list[Recording]) -> Recording:
    """The newest recording with all its sections, or the newest."""
    complete = [r for r in found if len(r.sections) == len(SECTIONS)]
    return (complete or found)[-1]


def _folder(measured: Measurements) -> str:
    return f"{ASSETS}/{measured.recording.name}"


def _files(measured: Measurements, drawn: Charts, judgement: Judged) -> dict[str, str]:
    """Chart files, facts and claims of one recording, by path."""
    folder = _folder(measured)
    files = {f"{folder}/facts.json": _facts_json(measured, judgement)}
    for name, chart in drawn.items():
        if not isinstance(chart, Missing):
            files[f"{folder}/{name}.json"] = chart.spec
            files[f"{folder}/{name}.csv"] = chart.csv
            files[f"{folder}/{name}.data.json"] = chart.data(measured)
    return files


def _facts_json(measured: Measurements, judgement: Judged) -> str:
    """A fact or a claim a line, so that a diff names what changed."""
    environment = measured.recording.environment
    about = {
        "recording": measured.recording.name,
        "gpu": measured.gpu.name,
        "recorded_on": environment.recorded_on.isoformat(),
        "record": measured.record,
    }
    lines = [f"  {json.dumps(key)}: {_line(value)}" for key, value in about.items()]
    facts = {key: fact.as_json() for key, fact in judgement.facts.items()}
    claims = {
        anchor: {"verdict": verdict.outcome, "html": judgement.html(anchor)}
        for anchor, verdict in judgement.verdicts.items()
    }
    for name, found in (("facts", facts), ("claims", claims)):
        entries = ",\n".join(
            f"    {json.dumps(k)}: {_line(v)}" for k, v in found.items()
        )
        lines.append(f'  "{name}": {{\n{entries}\n  }}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _stills(
    root: Path, measured: Measurements, drawn: Charts, check: bool, wanted: bool | None
) -> tuple[dict[str, pictures.Stills], list[str]]:
    """The pictures on disk or drawn anew, and the names of those not current."""
    present = [chart for chart in drawn.values() if isinstance(chart, Chart)]
    svgs, stale = {}, []
    for chart in present:
        both = svgs[chart.name] = {}
        for size in pictures.SIZES:
            file = root / _folder(measured) / f"{chart.name}-{size}.svg"
            if file.is_file():
                both[size] = file.read_text(encoding="utf-8")
        stamps = [pictures.stamp(both.get(size, "")) for size in pictures.SIZES]
        if set(stamps) != {chart.digest}:
            stale.append(chart.name)
    if not stale or check:
        return svgs, stale
    if wanted is False or not pictures.possible():
        print(
            f"stills of {', '.join(stale)} are not current and were not drawn: "
            "`make render` draws them, it needs a Chromium",
            file=sys.stderr,
        )
        return svgs, stale
    svgs |= pictures.draw([chart for chart in present if chart.name in stale])
    return svgs, []


def _line(value) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _json(value) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
