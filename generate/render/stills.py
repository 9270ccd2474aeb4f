"""Still pictures of the charts: SVG that stands in until a live chart is wanted.

Plotly draws them in Chromium, through kaleido. They are committed, because
fonts differ between machines, and each is stamped with the digest of its
figure, so that an old picture is never shown.

There are two of each chart: for a column as narrow as a phone's, and for a wide
one. The style sheet shows the one that fits.
"""

import os
import re
import tempfile
from html import escape
from importlib.util import find_spec
from pathlib import Path

import plotly.io

from generate.doctor import chromium
from generate.render import palette
from generate.render.charts import Chart

# Width and letters of each picture, in px. On a phone the narrow one shrinks to
# 328 of its 400 px, and its letters to 12.
SIZES = {"narrow": (400, 15), "wide": (720, 14)}
# The pictures of one chart, by the names of SIZES.
Stills = dict[str, str]
STAMP = re.compile(r'<svg [^>]*\bdata-digest="([0-9a-f]+)"')
# Plotly's ids hold six random hexadecimal digits, the same in all of a picture.
RANDOM = re.compile(r'id="defs-([0-9a-f]{6})"')


def stamp(svg: str) -> str | None:
    """Digest of the figure that a picture shows."""
    found = STAMP.match(svg)
    return found and found[1]


def possible() -> bool:
    """Whether pictures can be drawn on this machine."""
    return find_spec("kaleido") is not None and chromium() is not None


def draw(charts: list[Chart]) -> dict[str, Stills]:
    """The SVGs of each chart, by its name."""
    os.environ["BROWSER_PATH"] = chromium()
    wanted = [(chart, size) for chart in charts for size in SIZES]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{chart.name}-{size}.svg" for chart, size in wanted]
        plotly.io.write_images(  # at once, since each call starts a browser
            fig=[_figure(chart, SIZES[size][1]) for chart, size in wanted],
            file=files,
            width=[SIZES[size][0] for _, size in wanted],
            height=[chart.height for chart, _ in wanted],
        )
        found = {chart.name: {} for chart in charts}
        for (chart, size), file in zip(wanted, files, strict=True):
            svg = file.read_text(encoding="utf-8")
            found[chart.name][size] = _clean(svg, chart, size)
    return found


def _figure(chart: Chart, letters: int) -> dict:
    """The figure as first seen: its selected group alone."""
    plain = chart.plain
    layout = plain["layout"]
    chosen = layout.get("meta", {}).get("select", {}).get("selected")
    shown = [
        {**trace, "uid": f"trace{number}"}
        for number, trace in enumerate(plain["data"])
        if trace.get("meta", {}).get("group", chosen) == chosen
    ]
    font = {**layout["font"], "size": letters, "family": "system-ui, sans-serif"}
    return {"data": shown, "layout": {**layout, "font": font}}


def _clean(svg: str, chart: Chart, size: str) -> str:
    """Colours by variables, the same bytes on every run, a name and a stamp."""
    for random in RANDOM.findall(svg):
        svg = svg.replace(random, f"-{chart.name}-{size}-")
    width, _ = SIZES[size]
    box = f'viewBox="0 0 {width} {chart.height}" preserveAspectRatio="xMinYMin meet"'
    name = f'class="still-{size}" role="img" aria-label="{escape(chart.title)}"'
    root = f'<svg data-digest="{chart.digest}" {name} {box}'
    svg = re.sub(r"^<svg [^>]*>", f'{root} xmlns="http://www.w3.org/2000/svg">', svg)
    return palette.with_variables(svg) + "\n"
