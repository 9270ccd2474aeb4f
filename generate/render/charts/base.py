"""What the charts share: a figure over its rows, and the figure's frame."""

import hashlib
import json
import math
import statistics
from dataclasses import dataclass
from functools import cached_property

import plotly.graph_objects as go

from generate.render import palette
from generate.render.formats import power_of_ten, rounded, short
from generate.render.measured import Missing
from generate.render.rows import REASON, Column, Row, Rows
from generate.render.tables import Table

DIMENSIONS = (Column("T", "T"), Column("K", "K"), Column("N", "N"))
TIMED = (
    Column("time_ms", "Time, ms (median)"),
    Column("p20_ms", "20th percentile, ms"),
    Column("p80_ms", "80th percentile, ms"),
    Column("samples", "Samples"),
    Column("error", "Error against fp64"),
)


@dataclass(frozen=True)
class Chart(Rows):
    """A figure, its words and the rows that it shows.

    grid: the table of the page, where one row a point would be too long to read.
    """

    caption: str
    height: int
    figure: go.Figure
    grid: Table | None = None

    @property
    def plain(self) -> dict:
        """The figure as it is drawn: plain lists, and every number rounded."""
        figure = self.figure.to_plotly_json()
        figure["layout"].pop("template", None)
        return _rounded(figure)

    @cached_property
    def spec(self) -> str:
        """The figure as the browser reads it: JSON, colours as CSS variables."""
        text = json.dumps(self.plain, ensure_ascii=False, allow_nan=False)
        return palette.with_variables(text) + "\n"

    @cached_property
    def digest(self) -> str:
        """Stamps the still picture with the figure that it shows."""
        return hashlib.sha256(self.spec.encode()).hexdigest()[:16]

    @property
    def table(self) -> Table:
        return self.grid or super().table


def _rounded(part):
    """A part of a figure, its numbers to the digits that its file holds."""
    if isinstance(part, dict):
        return {key: _rounded(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_rounded(value) for value in part]
    return rounded(part) if isinstance(part, float) else part


def timed(point) -> Row:
    """The columns TIMED of a point, or the reason why they are empty."""
    if isinstance(point, Missing):
        return {REASON.key: point.reason}
    low, *_, high = statistics.quantiles(point.samples_ms, n=5)
    return {
        "time_ms": point.time_ms,
        "p20_ms": low,
        "p80_ms": high,
        "samples": len(point.samples_ms),
        "error": point.error,
    }


def dimensions(shape: tuple[int, int, int]) -> Row:
    return dict(zip("TKN", shape, strict=True))


def hover(row: Row, *first: str) -> str:
    """What a timed row says on hover, below its own first lines."""
    spread = f"{short(row['p20_ms'])} to {short(row['p80_ms'])} ms"
    lines = [
        *first,
        f"{short(row['time_ms'])} ms, median of {row['samples']}",
        f"20th to 80th percentile {spread}",
    ]
    if row["error"] is not None:
        lines.append(f"error against fp64 {row['error']:.1e}")
    return "<br>".join(lines)


def framed(traces: list, **layout) -> go.Figure:
    """A figure in the look that all charts share."""
    axis = {
        "gridcolor": palette.GRID,
        "linecolor": palette.GRID,
        "tickcolor": palette.GRID,
        "zerolinecolor": palette.GRID,
        "automargin": True,
        "fixedrange": True,
        "title": {"standoff": 8},
    }
    axes = ["xaxis", "yaxis", *(name for name in layout if "axis" in name)]
    figure = go.Figure(traces)
    figure.update_layout(
        template=None,
        font={"color": palette.FOREGROUND, "size": 14},
        paper_bgcolor=palette.NOTHING,
        plot_bgcolor=palette.NOTHING,
        margin={"l": 0, "r": 14, "t": 0, "b": 0},
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "itemclick": False,
            "itemdoubleclick": False,
        },
        hoverlabel={
            "align": "left",
            "bgcolor": palette.BACKGROUND,
            "bordercolor": palette.FOREGROUND,
            "font": {"color": palette.FOREGROUND},
        },
        **dict.fromkeys(axes, axis),
    )
    return figure.update_layout(layout)


def doublings(most: int, title: str) -> dict:
    """A log axis from 1 on with a tick at each power of two, or at every other."""
    bits = most.bit_length()
    powers = [2**n for n in range(0, bits, 1 if bits < 9 else 2)]
    return {
        "type": "log",
        "tickvals": powers,
        "range": [math.log10(end) for end in (0.85, 1.18 * most)],
        "title": {"text": title},
    }


def decades(values: list[float], title: str) -> dict:
    """A log axis over whole powers of ten around the values."""
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    return {
        "type": "log",
        "tickvals": [float(f"1e{power}") for power in range(low, high + 1)],
        "ticktext": [power_of_ten(power) for power in range(low, high + 1)],
        "range": [low - 0.1, high + 0.1],
        # Plotly takes exponents for narrower than they are.
        "title": {"text": title, "standoff": 16},
    }


def select(
    groups: list[str],
    selected: str,
    describe: dict[str, str],
    label: str = "Shape T × K × N",
) -> dict:
    """layout.meta of a chart that shows one shape, or other group, at a time."""
    choice = {"label": label, "groups": groups, "selected": selected}
    return {"select": choice, "describe": describe}
