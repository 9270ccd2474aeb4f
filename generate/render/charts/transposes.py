"""Chart "transposes": dX and dW by swapped strides, or after a copy."""

import plotly.graph_objects as go

from generate.render import palette
from generate.render.charts.base import (
    DIMENSIONS,
    REASON,
    TIMED,
    Chart,
    Column,
    Row,
    dimensions,
    framed,
    hover,
    select,
    timed,
)
from generate.render.evidence import TRANSPOSED, WAYS
from generate.render.formats import (
    milliseconds,
    ratio,
    shape_label,
    short,
    significant,
)
from generate.render.measured import (
    CALL_LABELS,
    IMPLEMENTATIONS,
    Measurements,
    Missing,
)
from generate.render.tables import Cell, Head, Table
from generate.schema import TransposePoint
from generate.shapes import STARVED, WORKED, Shape

COLUMNS = (
    *DIMENSIONS,
    Column("gemm", "GEMM", numeric=False),
    Column("implementation", "Implementation", numeric=False),
    Column("way", "Transpose", numeric=False),
    *TIMED,
    Column("extra_mib", "Memory beyond operands and output, MiB"),
)
IN_PLACE, FIRST, BEFORE, COPY = WAYS
COLOURS = {"dx": palette.DX, "dw": palette.DW}
WHO = {"lesson": "lesson's kernels", "vendor": "vendor library"}
# Bars lie about their place on the axis, one of each way below the other.
OFFSETS = {IN_PLACE: -0.42, FIRST: -0.14, BEFORE: 0.14}
WIDTH = 0.26
NAMES = {
    IN_PLACE: "in place",
    FIRST: "copied first",
    BEFORE: "copied beforehand",
    COPY: "the copy alone",
}


def build(measured: Measurements) -> Chart | Missing:
    keys = measured.keys("transposes")
    points = {key: _point(measured, key) for key in keys}
    shown = [p for p in points.values() if isinstance(p, TransposePoint)]
    if not shown:
        found = next(iter(points.values()), None)
        return found or measured.transpose(WORKED, "dx", "lesson", IN_PLACE)
    rows = [_row(key, point) for key, point in points.items()]
    shapes = list(dict.fromkeys(point.shape for point in shown))
    labels = [shape_label(shape) for shape in shapes]
    chosen = shape_label(STARVED if STARVED in shapes else shapes[0])
    places = [(op, i) for op in TRANSPOSED for i in reversed(IMPLEMENTATIONS)]
    return Chart(
        name="transposes",
        title=f"A transpose by strides and by a copy, {measured.gpu.name}",
        caption=_caption(measured, points),
        height=520,
        columns=COLUMNS,
        labels=3,
        rows=rows,
        grid=_grid(rows),
        figure=framed(
            [t for shape in shapes for t in _traces(shape, rows, places)],
            meta=select(
                labels, chosen, {shape_label(s): _sentence(s, points) for s in shapes}
            ),
            barmode="overlay",
            # Room for the times at the ends of the bars.
            margin={"l": 0, "r": 72, "t": 0, "b": 0},
            legend={"traceorder": "normal"},
            xaxis={"rangemode": "tozero", "title": {"text": "time, ms"}},
            yaxis={
                "range": [len(places) - 0.5, -0.5],
                "tickvals": list(range(len(places))),
                "ticktext": [f"{CALL_LABELS[op]},<br>{WHO[i]}" for op, i in places],
                "showgrid": False,
                "zeroline": False,
            },
        ),
    )


def _point(measured: Measurements, key: tuple) -> TransposePoint | Missing:
    op, implementation, way, *shape = key
    return measured.transpose(tuple(shape), op, implementation, way)


def _row(key: tuple, point: TransposePoint | Missing) -> Row:
    op, implementation, way, *shape = key
    row = {
        **dimensions(tuple(shape)),
        "gemm": CALL_LABELS[op],
        "implementation": implementation,
        "way": way,
        **timed(point),
    }
    if not isinstance(point, Missing) and point.extra_bytes is not None:
        row["extra_mib"] = point.extra_bytes / 2**20
    return row


def _grid(rows: list[Row]) -> Table:
    """Times by shape, GEMM and implementation down, by way across."""
    heads = [Head("T × K × N"), Head("GEMM"), Head("By")]
    heads += [Head(f"{NAMES[way]}, ms", numeric=True) for way in WAYS]
    heads += [
        Head("copied first ÷ in place", numeric=True),
        Head("extra MiB, in place", numeric=True),
        Head("copied first", numeric=True),
    ]
    lines: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        shape = shape_label((row["T"], row["K"], row["N"]))
        line = lines.setdefault((shape, row["gemm"], row["implementation"]), {})
        line[row["way"]] = row
    table = []
    for (shape, gemm, who), ways in lines.items():
        cells = [Cell(shape, header=True), Cell(gemm), Cell(WHO[who])]
        cells += [_cell(ways.get(way), "time_ms") for way in WAYS]
        pair = [ways.get(way, {}).get("time_ms") for way in (FIRST, IN_PLACE)]
        cost = "" if None in pair else ratio(pair[0] / pair[1])
        cells.append(Cell(cost, numeric=True))
        cells += [_cell(ways.get(way), "extra_mib") for way in (IN_PLACE, FIRST)]
        table.append(cells)
    caption = (
        "Median times, and the memory that the allocator gave beyond operands and "
        "output. Percentiles, samples and errors stand in the CSV and the JSON."
    )
    return Table(caption, heads, table)


def _cell(row: Row | None, key: str) -> Cell:
    if row is not None and row.get(key) is not None:
        return Cell(significant(row[key]), numeric=True)
    if row is not None and row.get(REASON.key):
        return Cell("not measured", numeric=True, reason=row[REASON.key])
    return Cell("", numeric=True)


def _traces(shape: Shape, rows: list[Row], places: list[tuple]) -> list[go.Bar]:
    found = {
        (row["gemm"], row["implementation"], row["way"]): row
        for row in rows
        if (row["T"], row["K"], row["N"]) == shape and row.get("time_ms")
    }
    traces = []
    for way in (IN_PLACE, FIRST, BEFORE):
        ours = {
            place: found[key]
            for place, (op, who) in enumerate(places)
            if (key := (CALL_LABELS[op], who, way)) in found
        }
        colours = [COLOURS[places[place][0]] for place in ours]
        if ours:
            traces.append(_bars(shape, way, ours, colours))
    copies = {
        place: found[key]
        for place, (op, who) in enumerate(places)
        if (key := (CALL_LABELS[op], who, COPY)) in found
        and (CALL_LABELS[op], who, FIRST) in found
    }
    if copies:
        colours = [COLOURS[places[place][0]] for place in copies]
        traces.append(_bars(shape, COPY, copies, colours))
    return traces


def _bars(shape: Shape, way: str, rows: dict[int, Row], colours: list) -> go.Bar:
    copy = way == COPY
    text = (
        {}
        if copy
        else {
            "text": [milliseconds(row["time_ms"]) for row in rows.values()],
            "textposition": "outside",
            "cliponaxis": False,
        }
    )
    return go.Bar(
        name=NAMES[way],
        meta={"group": shape_label(shape)},
        orientation="h",
        x=[row["time_ms"] for row in rows.values()],
        y=list(rows),
        offset=OFFSETS[FIRST if copy else way],
        width=WIDTH,
        marker=_look(way, colours),
        hoverinfo="text",
        hovertext=[_hover(row) for row in rows.values()],
        **text,
    )


def _look(way: str, colours: list[str]) -> dict:
    """A bar's marker: filled, outlined, dotted, or hatched as what it costs."""
    outline = {"color": palette.NOTHING, "line": {"color": colours, "width": 2}}
    dots = {"shape": ".", "fgcolor": colours, "size": 8, "solidity": 0.25}
    hatch = {"shape": "/", "fgcolor": palette.LIMIT, "size": 7}
    return {
        IN_PLACE: {"color": colours},
        FIRST: outline,
        BEFORE: {**outline, "pattern": dots},
        COPY: {"color": palette.NOTHING, "pattern": hatch},
    }[way]


def _hover(row: Row) -> str:
    lines = [f"{row['gemm']}, {WHO[row['implementation']]}", NAMES[row["way"]]]
    if row.get("extra_mib") is not None:
        lines.append(f"{short(row['extra_mib'])} MiB beyond operands and output")
    return hover(row, *lines)


def _cost(points: dict, shape: Shape, op: str, implementation: str) -> float | None:
    """Time with the copy over the time without it."""
    pair = [points.get((op, implementation, way, *shape)) for way in (FIRST, IN_PLACE)]
    if not all(isinstance(point, TransposePoint) for point in pair):
        return None
    return pair[0].time_ms / pair[1].time_ms


def _sentence(shape: Shape, points: dict) -> str:
    parts = []
    for op in TRANSPOSED:
        cost = _cost(points, shape, op, "lesson")
        if cost is not None:
            parts.append(f"{ratio(cost)} ({CALL_LABELS[op]})")
    if not parts:
        return f"{shape_label(shape)}: not measured in full."
    return (
        f"{shape_label(shape)}: in the lesson's kernels copying first takes "
        f"{' and '.join(parts)} the time in place."
    )


def _caption(measured: Measurements, points: dict) -> str:
    words = [
        f"The whole operation on the {measured.gpu.name}: dX with W, dW with X read "
        "by swapped strides; with a transposed copy made first; and with a copy that "
        "was made before the clock started. The hatched share is the copy, timed on "
        "its own."
    ]
    costs = {
        (shape, op): cost
        for op, implementation, way, *size in points
        if implementation == "lesson"
        and way == FIRST
        and (cost := _cost(points, shape := tuple(size), op, implementation))
    }
    if costs:
        low, high = min(costs, key=costs.get), max(costs, key=costs.get)
        words.append(
            f"In the lesson's kernels copying first takes {ratio(costs[low])} "
            f"({CALL_LABELS[low[1]]} at {shape_label(low[0])}) to {ratio(costs[high])} "
            f"({CALL_LABELS[high[1]]} at {shape_label(high[0])}) the time in place."
        )
    return " ".join(words)
