"""Chart "predicted": measured over predicted time of the fast kernels."""

import math

import plotly.graph_objects as go

from generate.render import palette
from generate.render.charts.base import (
    DIMENSIONS,
    REASON,
    TIMED,
    Chart,
    Column,
    Row,
    decades,
    dimensions,
    framed,
    hover,
    timed,
)
from generate.render.formats import (
    count,
    ratio,
    shape_label,
    short,
)
from generate.render.measured import CALL_LABELS, CALLS, Measurements, Missing
from generate.render.planning import PREDICTED, Prediction, predictions
from generate.render.tables import Cell, Head, Table
from generate.shapes import STARVED

COLUMNS = (
    *DIMENSIONS,
    Column("gemm", "GEMM", numeric=False),
    Column("section", "Section", numeric=False),
    Column("kernel", "Kernel", numeric=False),
    *TIMED,
    Column("predicted_ms", "Predicted, ms"),
    Column("over", "Measured ÷ predicted"),
)
# Of measured over predicted time, on a log axis.
TICKS = [0.25, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 4]
# The caption counts predictions that are off by no more.
NEAR = 0.2
LOOKS = {
    "forward": (palette.FORWARD, "circle"),
    "dx": (palette.DX, "square"),
    "dw": (palette.DW, "diamond"),
    "dw+": (palette.DW, "triangle-up"),
}


def build(measured: Measurements) -> Chart | Missing:
    found = [p for section in PREDICTED for p in predictions(measured, section)]
    shown = [p for p in found if not isinstance(p.over, Missing)]
    if not shown:
        if found:
            return next(p.over for p in found)
        return measured.gemm(STARVED, "forward", "fast")
    rows = [_row(p) for p in found]
    times = [row["predicted_ms"] for row in rows if row.get("over") is not None]
    over = [row["over"] for row in rows if row.get("over") is not None]
    ends = _range(times)
    return Chart(
        name="predicted",
        title=f"Measured over predicted time of the fast kernels, {measured.gpu.name}",
        caption=_caption(measured, shown),
        height=480,
        columns=COLUMNS,
        labels=3,
        rows=rows,
        grid=_grid(found),
        figure=framed(
            _traces(rows, ends),
            xaxis={**decades(times, "predicted time, ms (log scale)"), "range": ends},
            yaxis={
                "type": "log",
                "tickvals": TICKS,
                "range": _range([1, *over]),
                "title": {"text": "measured ÷ predicted (log scale)"},
            },
        ),
    )


def _range(values: list[float]) -> list[float]:
    """Of a log axis around the values, with room for their markers."""
    ends = math.log10(min(values)), math.log10(max(values))
    room = 0.04 * (ends[1] - ends[0]) + 0.01
    return [ends[0] - room, ends[1] + room]


def _row(p: Prediction) -> Row:
    row = {
        **dimensions(p.shape),
        "gemm": CALL_LABELS[p.call],
        "section": p.section,
        **timed(p.point),
    }
    if not isinstance(p.point, Missing) and p.point.configuration is not None:
        row["kernel"] = p.point.configuration.kernel
    if isinstance(p.over, Missing):
        return {**row, REASON.key: p.over.reason}
    return {
        **row,
        "predicted_ms": p.predicted_us / 1000,
        "over": p.over,
    }


def _grid(found: list[Prediction]) -> Table:
    """Measured over predicted time: a shape a line, a GEMM a column."""
    lines: dict[tuple, dict[str, Prediction]] = {}
    for p in found:
        lines.setdefault((p.section, p.shape), {})[p.call] = p
    heads = [Head("T × K × N"), Head("Section")]
    heads += [Head(CALL_LABELS[call], numeric=True) for call in CALLS]
    table = []
    for (section, shape), calls in lines.items():
        cells = [Cell(shape_label(shape), header=True), Cell(section)]
        for call in CALLS:
            over = calls[call].over
            if isinstance(over, Missing):
                cells.append(Cell("no prediction", True, reason=over.reason))
            else:
                cells.append(Cell(ratio(over), numeric=True))
        table.append(cells)
    caption = (
        "Measured over predicted time. The times themselves, kernels, samples and "
        "errors stand in the CSV and the JSON."
    )
    return Table(caption, heads, table)


def _traces(rows: list[Row], ends: list[float]) -> list[go.Scatter]:
    traces = [
        go.Scatter(
            name="as predicted",
            mode="lines",
            x=[10**end for end in ends],
            y=[1, 1],
            line={"color": palette.LIMIT, "width": 2, "dash": "dash"},
            hoverinfo="skip",
        )
    ]
    for section in PREDICTED:
        for call, (colour, symbol) in LOOKS.items():
            gemm = CALL_LABELS[call]
            found = [
                row
                for row in rows
                if (row["section"], row["gemm"]) == (section, gemm)
                and row.get("over") is not None
            ]
            if found:
                new = section == "further"
                marker = {
                    "color": colour,
                    "symbol": f"{symbol}-open" if new else symbol,
                    "size": 8,
                    "line": {"width": 1.5, "color": colour},
                }
                traces.append(_points(gemm, found, marker, not new))
    return traces


def _points(gemm: str, rows: list[Row], marker: dict, legend: bool) -> go.Scatter:
    return go.Scatter(
        name=gemm,
        mode="markers",
        showlegend=legend,
        x=[row["predicted_ms"] for row in rows],
        y=[row["over"] for row in rows],
        marker=marker,
        hoverinfo="text",
        hovertext=[
            hover(
                row,
                f"{gemm} at {shape_label((row['T'], row['K'], row['N']))}",
                f"{row['kernel']}: predicted {short(row['predicted_ms'])} ms, "
                f"measured {ratio(row['over'])} as long",
            )
            for row in rows
        ],
    )


def _caption(measured: Measurements, shown: list[Prediction]) -> str:
    words = [
        f"Each point is one product on the {measured.gpu.name} by the kernel that was "
        "chosen for it: its time, predicted from the shape alone, and how many times "
        "as long the whole operation took. On the dashed line the two agree. Filled: "
        "the recorded shapes. Open: further shapes, drawn at random, which the "
        "model was not fitted to. Copies that a product needs first are part of both "
        "times."
    ]
    for section, name in PREDICTED.items():
        over = [p.over for p in shown if p.section == section]
        if over:
            near = sum(abs(value - 1) <= NEAR for value in over)
            words.append(
                f"Of {count(len(over), 'product')} at {name} {near} are within "
                f"{100 * NEAR:.0f} % of the prediction, and measured over predicted "
                f"goes from {ratio(min(over))} to {ratio(max(over))}."
            )
    return " ".join(words)
