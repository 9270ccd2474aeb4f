"""Chart "accumulation": error of a gradient buffer over its micro-batches."""

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
    select,
)
from generate.render.formats import count, error
from generate.render.measured import Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.schema import AccumulationPoint

COLUMNS = (
    Column("gradient", "Gradient", numeric=False),
    Column("buffer", "Buffer", numeric=False),
    Column("micro_batches", "Micro-batches"),
    *DIMENSIONS,
    Column("error", "Error against fp64"),
    Column("unchanged_pct", "Elements the last one left unchanged, %"),
)
GRADIENTS = {
    "signal": "signal: a small part in common",
    "noise": "noise: nothing in common",
}
NAMES = {"bfloat16": "bf16 buffer", "float32": "fp32 buffer"}
MARKERS = {
    "bfloat16": {"symbol": "square-open", "size": 9, "color": palette.FOREGROUND},
    "float32": {"symbol": "circle", "size": 8, "color": palette.DW},
}
for _marker in MARKERS.values():
    _marker["line"] = {"width": 2, "color": _marker["color"]}


def build(measured: Measurements) -> Chart | Missing:
    keys = [key[:3] for key in measured.keys("accumulation")]
    points = {key: measured.accumulation(*key) for key in keys}
    shown = [p for p in points.values() if isinstance(p, AccumulationPoint)]
    if not shown:
        found = next(iter(points.values()), None)
        return found or measured.accumulation("signal", "bfloat16", 1)
    rows = [_row(key, point) for key, point in points.items()]
    groups = [g for g in GRADIENTS if any(point.gradient == g for point in shown)]
    labels = {gradient: GRADIENTS[gradient] for gradient in groups}
    batches = doublings(
        max(point.micro_batches for point in shown), "micro-batches (log scale)"
    )
    errors = [point.error for point in shown if point.error]
    return Chart(
        name="accumulation",
        title=f"Error of an accumulated gradient, {measured.gpu.name}",
        caption=_caption(measured, shown),
        height=420,
        columns=COLUMNS,
        labels=1,
        rows=rows,
        grid=_grid(rows, groups),
        figure=framed(
            [trace for gradient in groups for trace in _traces(gradient, rows)],
            meta=select(
                list(labels.values()),
                labels[groups[0]],
                {labels[g]: _sentence(g, shown) for g in groups},
                label="Gradients of the micro-batches",
            ),
            xaxis=batches,
            yaxis=decades(errors, "error against fp64 (log scale)"),
        ),
    )


def _row(key: tuple, point: AccumulationPoint | Missing) -> Row:
    row = dict(zip(("gradient", "buffer", "micro_batches"), key, strict=True))
    if isinstance(point, Missing):
        return {**row, REASON.key: point.reason}
    return {
        **row,
        **dimensions(point.shape),
        "error": point.error,
        "unchanged_pct": 100 * point.unchanged_share,
    }


def _grid(rows: list[Row], gradients: list[str]) -> Table:
    """Errors by micro-batches down, by gradient and buffer across."""
    across = [(gradient, buffer) for gradient in gradients for buffer in NAMES]
    heads = [Head("Micro-batches")]
    heads += [Head(f"{g}, {NAMES[b]}", numeric=True) for g, b in across]
    heads += [Head(f"{g}, left unchanged in bf16", numeric=True) for g in gradients]
    found = {(r["gradient"], r["buffer"], r["micro_batches"]): r for r in rows}
    table = []
    for batches in sorted({row["micro_batches"] for row in rows}):
        cells = [Cell(str(batches), header=True)]
        for key in across:
            cells.append(_cell(found.get((*key, batches)), "error", error))
        for gradient in gradients:
            row = found.get((gradient, "bfloat16", batches))
            cells.append(_cell(row, "unchanged_pct", "{:.3g} %".format))
        table.append(cells)
    caption = (
        "Error of the buffer against the sum in fp64, and the share of the elements "
        "that the last micro-batch added to and left as they were. More digits stand "
        "in the CSV and the JSON."
    )
    return Table(caption, heads, table)


def _cell(row: Row | None, key: str, write) -> Cell:
    if row is None:
        return Cell("", numeric=True)
    if row.get(key) is None:
        return Cell("not measured", numeric=True, reason=row[REASON.key])
    return Cell(write(row[key]), numeric=True)


def _traces(gradient: str, rows: list[Row]) -> list[go.Scatter]:
    traces = []
    for buffer, name in NAMES.items():
        found = [
            row
            for row in rows
            if (row["gradient"], row["buffer"]) == (gradient, buffer)
            and row.get("error")
        ]
        if not found:
            continue
        marker = MARKERS[buffer]
        traces.append(
            go.Scatter(
                name=name,
                meta={"group": GRADIENTS[gradient]},
                mode="lines+markers",
                x=[row["micro_batches"] for row in found],
                y=[row["error"] for row in found],
                marker=marker,
                line={"color": marker["color"], "width": 2},
                hoverinfo="text",
                hovertext=[_hover(row, name) for row in found],
            )
        )
    return traces


def _hover(row: Row, name: str) -> str:
    return (
        f"{name} after {count(row['micro_batches'], 'micro-batch', 'micro-batches')}"
        f"<br>error against fp64 {row['error']:.1e}"
        f"<br>the last one left {row['unchanged_pct']:.3g} % of its elements unchanged"
    )


def _last(points: list[AccumulationPoint], gradient: str) -> dict:
    """The point of the most micro-batches, by buffer."""
    found = {}
    for point in points:
        best = found.get(point.buffer)
        if point.gradient == gradient and (
            best is None or point.micro_batches > best.micro_batches
        ):
            found[point.buffer] = point
    return found


def _sentence(gradient: str, points: list[AccumulationPoint]) -> str:
    last = _last(points, gradient)
    parts = [
        f"{NAMES[buffer]}: error {error(point.error)} after "
        f"{count(point.micro_batches, 'micro-batch', 'micro-batches')}"
        for buffer, point in last.items()
    ]
    if "bfloat16" in last:
        share = 100 * last["bfloat16"].unchanged_share
        parts.append(
            f"the last one left {share:.3g} % of the bf16 buffer's elements unchanged"
        )
    return f"{GRADIENTS[gradient].capitalize()}. {'; '.join(parts)}."


def _caption(measured: Measurements, points: list[AccumulationPoint]) -> str:
    one = points[0]
    drawn = measured.recording.accumulation.gradient_distribution
    words = [
        f"Micro-batches of {one.T} tokens, each a gradient of {one.K} × {one.N}, added "
        f"up on the {measured.gpu.name} and compared with their sum in fp64: the norm "
        "of the difference over that of the sum."
    ]
    for gradient in GRADIENTS:
        last = _last(points, gradient)
        if len(last) < 2:
            continue
        words.append(
            f"After {last['bfloat16'].micro_batches} micro-batches of {gradient} the "
            f"bf16 buffer is off by {error(last['bfloat16'].error)}, the fp32 buffer "
            f"by {error(last['float32'].error)}."
        )
    return " ".join([*words, f"Each is Xᵀ·dY of its own draw. {drawn}."])
