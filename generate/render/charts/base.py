"""What the charts share: rows and columns, the figure's frame, their files.

Rows come first. The figure, the table and both downloads are made from them,
so the four cannot disagree.
"""

import csv
import hashlib
import io
import json
import statistics
from dataclasses import dataclass

import plotly.graph_objects as go

from generate.render import palette
from generate.render.formats import rounded, shape_label
from generate.render.measured import Measurements, Missing
from generate.render.tables import Cell, Head, Table

Row = dict[str, int | float | str | None]


@dataclass(frozen=True)
class Column:
    """One column: `key` names it, with its unit, in CSV and JSON."""

    key: str
    head: str
    numeric: bool = True


DIMENSIONS = (Column("T", "T"), Column("K", "K"), Column("N", "N"))
TIMED = (
    Column("time_ms", "Time, ms (median)"),
    Column("p20_ms", "20th percentile, ms"),
    Column("p80_ms", "80th percentile, ms"),
    Column("samples", "Samples"),
    Column("error", "Error against fp64"),
)
REASON = Column("not_measured_reason", "Why not measured", numeric=False)


@dataclass(frozen=True)
class Chart:
    """A figure, its words and the rows that it shows.

    labels: how many of the first columns name a row, a shape's dimensions. grid:
    the table of the page, where one row a point would be too long to read.
    """

    name: str
    title: str
    caption: str
    height: int
    columns: tuple[Column, ...]
    labels: int
    rows: list[Row]
    figure: go.Figure
    grid: Table | None = None

    @property
    def spec(self) -> str:
        """The figure as the browser reads it: JSON, colours as CSS variables."""
        plain = self.figure.to_plotly_json()
        plain["layout"].pop("template", None)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        return palette.with_variables(text) + "\n"

    @property
    def digest(self) -> str:
        """Stamps the still picture with the figure that it shows."""
        return hashlib.sha256(self.spec.encode()).hexdigest()[:16]

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """The columns, and reasons where a row has no measurement."""
        if any(row.get(REASON.key) for row in self.rows):
            return (*self.columns, REASON)
        return self.columns

    @property
    def csv(self) -> str:
        stream = io.StringIO()
        keys = [column.key for column in self.shown_columns]
        writer = csv.DictWriter(
            stream, keys, extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(self.rows)
        return stream.getvalue()

    def data(self, measured: Measurements) -> str:
        """The rows as JSON, with what they are and where they come from."""
        columns = self.shown_columns
        keys = [column.key for column in columns]
        rows = [json.dumps({key: row.get(key) for key in keys}) for row in self.rows]
        about = {
            "chart": self.name,
            "title": self.title,
            "gpu": measured.gpu.name,
            "recording": measured.recording.name,
            "columns": {column.key: column.head for column in columns},
        }
        fields = [f"  {json.dumps(k)}: {_json(v)}" for k, v in about.items()]
        points = ",\n".join(f"    {row}" for row in rows)
        return "{\n" + ",\n".join(fields) + ',\n  "rows": [\n' + points + "\n  ]\n}\n"

    @property
    def table(self) -> Table:
        if self.grid is not None:
            return self.grid
        labels = self.columns[: self.labels]
        columns = self.shown_columns[self.labels :]
        heads = [Head(shape_label(tuple(column.key for column in labels)))]
        heads += [Head(column.head, column.numeric) for column in columns]
        return Table(self.title, heads, [self._cells(row) for row in self.rows])

    def _cells(self, row: Row) -> list[Cell]:
        labels = self.columns[: self.labels]
        name = shape_label(tuple(row[column.key] for column in labels))
        cells = [Cell(name, header=True)]
        for column in self.shown_columns[self.labels :]:
            value = row.get(column.key)
            text = f"{value:.10g}" if isinstance(value, float) else str(value)
            cells.append(Cell("" if value is None else text, column.numeric))
        return cells


def timed(point) -> Row:
    """The columns TIMED of a point, or the reason why they are empty."""
    if isinstance(point, Missing):
        return {REASON.key: point.reason}
    low, *_, high = statistics.quantiles(point.samples_ms, n=5)
    return {
        "time_ms": rounded(point.time_ms),
        "p20_ms": rounded(low),
        "p80_ms": rounded(high),
        "samples": len(point.samples_ms),
        "error": rounded(point.error),
    }


def dimensions(shape: tuple[int, int, int]) -> Row:
    return dict(zip("TKN", shape, strict=True))


def hover(row: Row, *first: str) -> str:
    """What a timed row says on hover, below its own first lines."""
    spread = f"{row['p20_ms']:g} to {row['p80_ms']:g} ms"
    lines = [
        *first,
        f"{row['time_ms']:g} ms, median of {row['samples']}",
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
        xaxis=axis,
        yaxis=axis,
    )
    return figure.update_layout(layout)


def select(groups: list[str], selected: str, describe: dict[str, str]) -> dict:
    """layout.meta of a chart that shows one shape at a time."""
    choice = {"label": "Shape T × K × N", "groups": groups, "selected": selected}
    return {"select": choice, "describe": describe}


def _json(value) -> str:
    return json.dumps(value, ensure_ascii=False)
