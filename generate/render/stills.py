"""Still pictures of the charts: SVG that stands in until a live chart is wanted.

Plotly draws them in Chromium, through kaleido. They are committed, because
fonts differ between machines, and each is stamped with the digest of its
figure, so that an old picture is never shown.
"""

import os
import re
import shutil
import tempfile
from html import escape
from importlib.util import find_spec
from pathlib import Path

import plotly.io

from generate.render import palette
from generate.render.charts import Chart

# On a phone the picture shrinks to 328 of its 400 px, and its letters to 12.
WIDTH, FONT_SIZE = 400, 15
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
STAMP = re.compile(r'<svg [^>]*\bdata-digest="([0-9a-f]+)"')
# Plotly's ids hold six random hexadecimal digits, the same in all of a picture.
RANDOM = re.compile(r'id="defs-([0-9a-f]{6})"')


def stamp(svg: str) -> str | None:
    """Digest of the figure that a picture shows."""
    found = STAMP.match(svg)
    return found and found[1]


def browser() -> str | None:
    """Path of a Chromium, from CHROMIUM or PATH."""
    named = os.environ.get("CHROMIUM")
    found = (shutil.which(name) for name in ([named] if named else BROWSERS))
    return next(filter(None, found), None)


def possible() -> bool:
    """Whether pictures can be drawn on this machine."""
    return find_spec("kaleido") is not None and browser() is not None


def draw(charts: list[Chart]) -> dict[str, str]:
    """The SVG of each chart, by its name."""
    os.environ["BROWSER_PATH"] = browser()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{chart.name}.svg" for chart in charts]
        plotly.io.write_images(
            fig=[_figure(chart) for chart in charts],
            file=files,
            width=WIDTH,
            height=[chart.height for chart in charts],
        )
        return {
            chart.name: _clean(file.read_text(encoding="utf-8"), chart)
            for chart, file in zip(charts, files, strict=True)
        }


def _figure(chart: Chart) -> dict:
    """The figure as first seen: its selected group alone."""
    plain = chart.figure.to_plotly_json()
    layout = plain["layout"]
    chosen = layout.get("meta", {}).get("select", {}).get("selected")
    shown = [
        {**trace, "uid": f"trace{number}"}
        for number, trace in enumerate(plain["data"])
        if trace.get("meta", {}).get("group", chosen) == chosen
    ]
    font = {**layout["font"], "size": FONT_SIZE, "family": "system-ui, sans-serif"}
    return {"data": shown, "layout": {**layout, "font": font}}


def _clean(svg: str, chart: Chart) -> str:
    """Colours by variables, the same bytes on every run, a name and a stamp."""
    for random in RANDOM.findall(svg):
        svg = svg.replace(random, f"-{chart.name}-")
    size = f'viewBox="0 0 {WIDTH} {chart.height}" preserveAspectRatio="xMinYMin meet"'
    name = f'role="img" aria-label="{escape(chart.title)}"'
    root = f'<svg data-digest="{chart.digest}" {name} {size}'
    svg = re.sub(r"^<svg [^>]*>", f'{root} xmlns="http://www.w3.org/2000/svg">', svg)
    return palette.with_variables(svg) + "\n"
