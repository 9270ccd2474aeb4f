"""Chart "partials": error of dW from partial sums of 16 bits, by split factor."""

import plotly.graph_objects as go

from generate.render import palette
from generate.render.charts.base import (
    DIMENSIONS,
    REASON,
    Chart,
    Column,
    Row,
    decades,
    dimensions,
    doublings,
    framed,
)
from generate.render.formats import error, shape_label
from generate.render.measured import Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.schema import PartialsPoint

COLUMNS = (
    Column("partials", "Partial sums", numeric=False),
    Column("split_t", "Split factor"),
    *DIMENSIONS,
    Column("error", "Error against fp64"),
)
NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
MARKERS = {
    "bfloat16": {"symbol": "square-open", "size": 9, "color": palette.FOREGROUND},
    "float16": {"symbol": "triangle-up", "size": 10, "color": palette.FOREGROUND},
    "float32": {"symbol": "circle", "size": 8, "color": palette.DW},
}
for _marker in MARKERS.values():
    _marker["line"] = {"width": 2, "color": _marker["color"]}


def build(measured: Measurements) -> Chart | Missing:
    keys = [key[:2] for key in measured.keys("accumulation", "partials")]
    points = {key: measured.partials(*key) for key in keys}
    shown = [p for p in points.values() if isinstance(p, PartialsPoint)]
    if not shown:
        found = next(iter(points.values()), None)
        return found or measured.partials("float32", 1)
    rows = [_row(key, point) for key, point in points.items()]
    errors = [point.error for point in shown if point.error]
    return Chart(
        name="partials",
        title=f"Error of dW by the type of its partial sums, {measured.gpu.name}",
        caption=_caption(measured, shown),
        height=400,
        columns=COLUMNS,
        labels=1,
        rows=rows,
        grid=_grid(rows),
        figure=framed(
            _traces(rows),
            xaxis=doublings(
                max(point.split_t for point in shown), "split factor (log scale)"
            ),
            yaxis=decades(errors, "error against fp64 (log scale)"),
        ),
    )


def _row(key: tuple, point: PartialsPoint | Missing) -> Row:
    row = dict(zip(("partials", "split_t"), key, strict=True))
    if isinstance(point, Missing):
        return {**row, REASON.key: point.reason}
    return {**row, **dimensions(point.shape), "error": point.error}


def _grid(rows: list[Row]) -> Table:
    """Errors by split factor down, by type across."""
    heads = [Head("Split factor")]
    heads += [Head(f"{name} partial sums", numeric=True) for name in NAMES.values()]
    found = {(row["partials"], row["split_t"]): row for row in rows}
    table = []
    for split_t in sorted({row["split_t"] for row in rows}):
        cells = [Cell(str(split_t), header=True)]
        for dtype in NAMES:
            row = found.get((dtype, split_t))
            if row is None:
                cells.append(Cell("", numeric=True))
            elif row.get("error") is None:
                cells.append(Cell("not measured", True, reason=row[REASON.key]))
            else:
                cells.append(Cell(error(row["error"]), numeric=True))
        table.append(cells)
    return Table("Error of dW against fp64.", heads, table)


def _traces(rows: list[Row]) -> list[go.Scatter]:
    traces = []
    for dtype, name in NAMES.items():
        found = [row for row in rows if row["partials"] == dtype and row.get("error")]
        if not found:
            continue
        marker = MARKERS[dtype]
        traces.append(
            go.Scatter(
                name=f"{name} partial sums",
                mode="lines+markers",
                x=[row["split_t"] for row in found],
                y=[row["error"] for row in found],
                marker=marker,
                line={"color": marker["color"], "width": 2},
                hoverinfo="text",
                hovertext=[
                    f"split factor {row['split_t']}, {name} partial sums"
                    f"<br>error against fp64 {row['error']:.1e}"
                    for row in found
                ],
            )
        )
    return traces


def _caption(measured: Measurements, points: list[PartialsPoint]) -> str:
    words = [
        f"dW at {shape_label(points[0].shape)} on the {measured.gpu.name}, its slices "
        "summed in fp32, each partial sum rounded to the type and added in that type, "
        "in order. The inputs are bf16 throughout."
    ]
    by_type = {dtype: [p for p in points if p.partials == dtype] for dtype in NAMES}
    for dtype, found in by_type.items():
        if found:
            first = min(found, key=lambda point: point.split_t)
            last = max(found, key=lambda point: point.split_t)
            words.append(
                f"{NAMES[dtype]}: {error(first.error)} at {first.split_t}, "
                f"{error(last.error)} at {last.split_t}."
            )
    return " ".join(words)
