"""Chart "further": ours beside the vendor's at shapes that no plan was fitted to."""

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
    close_ratio,
    count,
    shape_label,
    significant,
)
from generate.render.ladder import KERNEL_NAMES, described, further_shapes
from generate.render.measured import CALL_LABELS, CALLS, Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.schema import geometric_mean
from generate.shapes import Shape

COLUMNS = (
    *DIMENSIONS,
    Column("gemm", "GEMM", numeric=False),
    Column("implementation", "Implementation", numeric=False),
    Column("kernel", "Kernel", numeric=False),
    *TIMED,
    Column("tflops", "TFLOP/s"),
    Column("gflop", "GFLOP of the product"),
    Column("ratio", "Vendor time / our time"),
)
MARKERS = {
    "forward": ("circle", palette.FORWARD),
    "dX": ("square", palette.DX),
    "dW": ("diamond", palette.DW),
    "dW +=": ("triangle-up", palette.DW),
}
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


def build(measured: Measurements) -> Chart | Missing:
    shapes = further_shapes(measured)
    rows = [row for shape in shapes for row in _rows(measured, shape)]
    shown = [row for row in rows if row.get("ratio")]
    if not shown:
        return measured.further(shapes[0], "forward", "fast")
    flops = [row["gflop"] for row in shown]
    x = decades(flops, "GFLOP, 2·T·K·N (log scale)")
    low, high = (pick(row["ratio"] for row in shown) for pick in (min, max))
    low, high = min(low, 0.8) / 1.06, max(high, 1.25) * 1.06
    return Chart(
        name="further",
        title=f"Vendor time over ours at further shapes, {measured.gpu.name}",
        caption=_caption(measured, shown),
        height=460,
        columns=COLUMNS,
        labels=3,
        rows=rows,
        grid=_grid(rows),
        figure=framed(
            [*_even(x["range"]), *_traces(shown)],
            hovermode="closest",
            legend={"traceorder": "normal"},
            xaxis=x,
            yaxis={
                "type": "log",
                "range": [math.log10(end) for end in (low, high)],
                "tickvals": [tick for tick in TICKS if low <= tick <= high],
                "ticktext": [f"{t:g}×" for t in TICKS if low <= t <= high],
                "title": {"text": "vendor time / our time (log scale)"},
            },
        ),
    )


def _rows(measured: Measurements, shape: Shape) -> list[Row]:
    rows = []
    for call in CALLS:
        vendor = measured.further(shape, call, "vendor")
        ours = measured.further(shape, call, "fast")
        for implementation, point in (("vendor", vendor), ("fast", ours)):
            row = {
                **dimensions(shape),
                "gemm": CALL_LABELS[call],
                "implementation": implementation,
                **timed(point),
            }
            if not isinstance(point, Missing):
                row["tflops"] = point.tflops
                row["gflop"] = point.flops / 1e9
                if point.configuration:
                    row["kernel"] = KERNEL_NAMES[point.configuration.kernel]
            rows.append(row)
        if not isinstance(vendor, Missing) and not isinstance(ours, Missing):
            rows[-1]["ratio"] = vendor.time_ms / ours.time_ms
    return rows


def _shape(row: Row) -> Shape:
    return row["T"], row["K"], row["N"]


def _even(ends: list[float]) -> list[go.Scatter]:
    """Where both take as long."""
    return [
        go.Scatter(
            name="even",
            mode="lines",
            showlegend=False,
            x=[10**end for end in ends],
            y=[1, 1],
            line={"color": palette.FOREGROUND, "width": 1.5},
            hoverinfo="skip",
        )
    ]


def _traces(shown: list[Row]) -> list[go.Scatter]:
    traces = []
    for gemm, (symbol, colour) in MARKERS.items():
        found = [row for row in shown if row["gemm"] == gemm]
        if not found:
            continue
        traces.append(
            go.Scatter(
                name=gemm,
                mode="markers",
                x=[row["gflop"] for row in found],
                y=[row["ratio"] for row in found],
                marker={
                    "symbol": [
                        symbol if described(_shape(row)) else f"{symbol}-open"
                        for row in found
                    ],
                    "size": 9,
                    "color": colour,
                    "line": {"width": 1.5, "color": colour},
                },
                hoverinfo="text",
                hovertext=[_hover(row) for row in found],
            )
        )
    return traces


def _hover(row: Row) -> str:
    shape = shape_label(_shape(row))
    lines = [f"{row['gemm']} at {shape}", f"vendor time / our time {row['ratio']:.3f}"]
    if row.get("kernel"):
        lines.append(f"kernel: {row['kernel']}")
    return hover(row, *lines)


def _grid(rows: list[Row]) -> Table:
    """Ratios by shape down, by GEMM across."""
    heads = [Head("T × K × N"), Head("GFLOP", numeric=True)]
    heads += [Head(f"{gemm}, vendor ÷ ours", numeric=True) for gemm in MARKERS]
    lines: dict[Shape, dict[str, Row]] = {}
    for row in rows:
        if row["implementation"] == "fast":
            lines.setdefault(_shape(row), {})[row["gemm"]] = row
    vendors = {
        (_shape(row), row["gemm"]): row
        for row in rows
        if row["implementation"] == "vendor"
    }
    table = []
    for shape, line in lines.items():
        t, k, n = shape
        gflop = Cell(significant(2 * t * k * n / 1e9), numeric=True)
        cells = [Cell(shape_label(shape), header=True), gflop]
        for gemm, row in line.items():
            why = row.get(REASON.key) or vendors[shape, gemm].get(REASON.key)
            text = "not measured" if why else close_ratio(row["ratio"])
            cells.append(Cell(text, numeric=True, reason=why or ""))
        table.append(cells)
    caption = (
        "Vendor time over ours, in the same turns. Times, percentiles, samples, "
        "errors and kernels stand in the CSV and the JSON."
    )
    return Table(caption, heads, table)


def _caption(measured: Measurements, shown: list[Row]) -> str:
    shapes = {_shape(row) for row in shown}
    words = [
        f"Each mark is one product at one of {count(len(shapes), 'shape')} on the "
        f"{measured.gpu.name}; above the line ours is the faster. Open marks are "
        "shapes whose K or N is no multiple of 8: descriptors cannot take all of their "
        "matrices as they lie."
    ]
    parts = []
    for gemm in MARKERS:
        found = [row["ratio"] for row in shown if row["gemm"] == gemm]
        if found:
            parts.append(f"{gemm} {close_ratio(geometric_mean(found))}")
    words.append(f"Geometric means: {', '.join(parts)}.")
    return " ".join(words)
