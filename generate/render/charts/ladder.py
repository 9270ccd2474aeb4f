"""Chart "ladder": the rate of each rung, beside the vendor's in the same turns."""

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
from generate.render.formats import ratio, shape_label, short, significant
from generate.render.ladder import RUNG_NAMES, ladder_shapes
from generate.render.measured import CALL_LABELS, CALLS, Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.shapes import WORKED, Shape

COLUMNS = (
    *DIMENSIONS,
    Column("gemm", "GEMM", numeric=False),
    Column("rung", "Rung", numeric=False),
    *TIMED,
    Column("tflops", "TFLOP/s"),
    Column("ratio", "Vendor time / our time"),
    Column("launch", "Launch", numeric=False),
)
VENDOR = "vendor"
NAMES = {VENDOR: "vendor library", **RUNG_NAMES}
COLOURS = {
    "forward": palette.FORWARD,
    "dX": palette.DX,
    "dW": palette.DW,
    "dW +=": palette.DW,
}
WIDTH = 0.88
# Rows of the picture: a GEMM's name, its rungs, and a little room below.
ROOM = 0.4
PIXELS_PER_ROW = 24


def build(measured: Measurements) -> Chart | Missing:
    shapes = ladder_shapes(measured)
    rows = [row for shape in shapes for row in _rows(measured, shape)]
    shown = [row for row in rows if row.get("tflops")]
    if not any(row["rung"] != VENDOR for row in shown):
        return measured.rung(WORKED, "forward", "lesson")
    shapes = [s for s in shapes if any(_shape(row) == s for row in shown)]
    places, heads = _places(shown)
    last = max(places.values()) + ROOM + 0.5
    labels = [shape_label(shape) for shape in shapes]
    chosen = shape_label(WORKED if WORKED in shapes else shapes[0])
    limits = _limits(measured)
    most = max([rate for _, rate, _ in limits] or [row["tflops"] for row in shown])
    return Chart(
        name="ladder",
        title=f"Rate of every rung by shape, {measured.gpu.name}",
        caption=_caption(measured, rows),
        height=round(PIXELS_PER_ROW * (last + 0.6)) + 90,
        columns=COLUMNS,
        labels=3,
        rows=rows,
        grid=_grid(rows),
        figure=framed(
            [
                *(t for shape in shapes for t in _traces(shape, rows, places)),
                *(_limit(*limit, last) for limit in limits),
            ],
            meta=select(
                labels, chosen, {shape_label(s): _sentence(s, rows) for s in shapes}
            ),
            barmode="overlay",
            legend={"traceorder": "normal"},
            xaxis={
                "range": [0, 1.03 * most],
                "title": {"text": "TFLOP/s, of the whole operation"},
            },
            yaxis={
                "range": [last, -0.6],
                "tickvals": [*heads.values(), *places.values()],
                "ticktext": [
                    *(f"<b>{gemm}</b>" for gemm in heads),
                    *(NAMES[rung] for _, rung in places),
                ],
                "showgrid": False,
                "zeroline": False,
            },
        ),
    )


def _shape(row: Row) -> Shape:
    return row["T"], row["K"], row["N"]


def _rows(measured: Measurements, shape: Shape) -> list[Row]:
    rows = []
    for call in CALLS:
        vendor = measured.rung(shape, call, VENDOR)
        for rung in NAMES:
            point = measured.rung(shape, call, rung)
            row = {
                **dimensions(shape),
                "gemm": CALL_LABELS[call],
                "rung": rung,
                **timed(point),
            }
            if not isinstance(point, Missing):
                row["tflops"] = point.tflops
                row["launch"] = _launch(point)
                if rung != VENDOR and not isinstance(vendor, Missing):
                    row["ratio"] = vendor.time_ms / point.time_ms
            rows.append(row)
    return rows


def _launch(point) -> str | None:
    """Tile, split and stages of a launch of ours."""
    made = point.configuration
    if made is None:
        return None
    blocks = f"{made.block_t}×{made.block_k}×{made.block_n} (T×K×N)"
    words = [f"blocks {blocks}, {made.num_warps} warps, {made.num_stages} stages"]
    if made.split_t > 1:
        words.append(f"split {made.split_t}, {made.reduction}")
    elif made.reduction != "none":
        words.append(f"shares added up: {made.reduction}")
    return ", ".join(words)


def _places(shown: list[Row]) -> tuple[dict[tuple, float], dict[str, float]]:
    """Where on the axis each rung of a GEMM lies, and each GEMM's name.

    A rung that runs a GEMM at no shape has no place among its rungs.
    """
    run = {(row["gemm"], row["rung"]) for row in shown}
    places, heads, at = {}, {}, 0.0
    for gemm in COLOURS:
        rungs = [r for r in RUNG_NAMES if (gemm, r) in run]
        if not rungs:
            continue
        heads[gemm] = at
        for number, rung in enumerate(rungs, 1):
            places[gemm, rung] = at + number
        at += len(rungs) + 1 + ROOM
    return places, heads


def _grid(rows: list[Row]) -> Table:
    """Rates by shape and GEMM down, by rung across."""
    heads = [Head("T × K × N"), Head("GEMM")]
    heads += [Head(name, numeric=True) for name in NAMES.values()]
    lines: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        line = lines.setdefault((_shape(row), row["gemm"]), {})
        line[row["rung"]] = row
    table = []
    for (shape, gemm), line in lines.items():
        cells = [Cell(shape_label(shape), header=True), Cell(gemm)]
        table.append([*cells, *(_cell(line[rung]) for rung in NAMES)])
    caption = (
        "TFLOP/s by the median time, and vendor time over ours in brackets. Times, "
        "percentiles, samples, errors and the launches stand in the CSV and the JSON."
    )
    return Table(caption, heads, table)


def _cell(row: Row) -> Cell:
    if row.get("tflops") is None:
        return Cell("not measured", numeric=True, reason=row[REASON.key])
    over = f" ({ratio(row['ratio'])})" if row.get("ratio") else ""
    return Cell(significant(row["tflops"]) + over, numeric=True)


def _traces(shape: Shape, rows: list[Row], places: dict[tuple, float]) -> list:
    mine = [row for row in rows if _shape(row) == shape]
    at = {id(row): places.get((row["gemm"], row["rung"])) for row in mine}
    placed = [row for row in mine if at[id(row)] is not None]
    run = [row for row in placed if row.get("tflops")]
    group = {"group": shape_label(shape)}
    traces = [
        go.Bar(
            name="the rungs, in the GEMM's colour",
            meta=group,
            orientation="h",
            x=[row["tflops"] for row in run],
            y=[at[id(row)] for row in run],
            width=WIDTH,
            marker={"color": [COLOURS[row["gemm"]] for row in run]},
            text=[_label(row) for row in run],
            textposition="auto",
            textangle=0,
            insidetextanchor="start",
            insidetextfont={"color": palette.BACKGROUND},
            hoverinfo="text",
            hovertext=[_hover(row) for row in run],
        )
    ]
    lost = [row for row in placed if not row.get("tflops")]
    if lost:
        traces.append(
            go.Scatter(
                name="not measured",
                meta=group,
                mode="text",
                showlegend=False,
                x=[0] * len(lost),
                y=[at[id(row)] for row in lost],
                text=["  not measured"] * len(lost),
                textposition="middle right",
                hoverinfo="text",
                hovertext=[row[REASON.key] for row in lost],
            )
        )
    vendors = [r for r in mine if r["rung"] == VENDOR and r.get("tflops")]
    vendors = [row for row in vendors if any(g == row["gemm"] for g, _ in places)]
    return [*traces, _vendor(vendors, places, group)] if vendors else traces


def _label(row: Row) -> str:
    over = f" · {ratio(row['ratio'])}" if row.get("ratio") else ""
    return f"{significant(row['tflops'])}{over}"


def _vendor(rows: list[Row], places: dict[tuple, float], group: dict) -> go.Scatter:
    """The vendor's rate as a line through the rungs of its GEMM."""
    x, y, words = [], [], []
    for row in rows:
        rungs = [place for (gemm, _), place in places.items() if gemm == row["gemm"]]
        x += [row["tflops"]] * 2 + [None]
        y += [min(rungs) - 0.5, max(rungs) + 0.5, None]
        words += [_hover(row)] * 2 + [""]
    return go.Scatter(
        name="vendor library, in the same turns",
        meta=group,
        mode="lines",
        x=x[:-1],
        y=y[:-1],
        line={"color": palette.VENDOR, "width": 3},
        hoverinfo="text",
        hovertext=words[:-1],
    )


def _limits(measured: Measurements) -> list[tuple[str, float, str]]:
    """What the vendor's products of the ceilings reached, and the datasheet's peak."""
    ceilings, found = measured.recording.ceilings, []
    if ceilings is None:
        return found
    if any(point.time_ms is not None for point in ceilings.points):
        found.append(("fastest of the ceilings", ceilings.gemm_tflops, "dot"))
    peak = ceilings.peak_tflops(measured.gpu)
    if peak is not None:
        found.append(("datasheet peak", peak, "dashdot"))
    return found


def _limit(name: str, rate: float, dash: str, last: float) -> go.Scatter:
    words = f"{name}: {significant(rate)} TFLOP/s"
    return go.Scatter(
        name=words,
        mode="lines",
        x=[rate] * 2,
        y=[-0.6, last],
        line={"color": palette.LIMIT, "width": 2, "dash": dash},
        hoverinfo="text",
        hovertext=[words] * 2,
    )


def _hover(row: Row) -> str:
    who = NAMES[row["rung"]]
    who = who if row["rung"] == VENDOR else f"rung {who}"
    lines = [f"{row['gemm']}, {who}", f"{short(row['tflops'])} TFLOP/s"]
    if row.get("ratio"):
        lines.append(f"vendor time / our time {row['ratio']:.3f}")
    if row.get("launch"):
        lines.append(row["launch"])
    return hover(row, *lines)


def _best(shape: Shape, rows: list[Row]) -> dict[str, Row]:
    """The fastest rung of each GEMM at a shape."""
    best = {}
    for row in rows:
        if _shape(row) == shape and row["rung"] != VENDOR and row.get("tflops"):
            best[row["gemm"]] = max(
                best.get(row["gemm"], row), row, key=lambda r: r["tflops"]
            )
    return best


def _sentence(shape: Shape, rows: list[Row]) -> str:
    parts = [
        f"{gemm} {NAMES[row['rung']]}, {significant(row['tflops'])} TFLOP/s"
        for gemm, row in _best(shape, rows).items()
    ]
    return f"{shape_label(shape)}, the fastest rung: {'; '.join(parts)}."


def _caption(measured: Measurements, rows: list[Row]) -> str:
    words = [
        f"Each bar is one rung at one shape on the {measured.gpu.name}: FLOPs of the "
        "product over the median time of the whole operation, and vendor time over "
        "ours. All rungs and the vendor library took turns, call by call. Dotted lines "
        "are for orientation: the fastest vendor product of the ceilings, which a run "
        "at a higher clock may pass, and what the datasheet allows at the highest "
        "clock."
    ]
    if any(row.get(REASON.key) for row in rows):
        words.append("Where a rung has no bar, the table has the reason.")
    best = _best(WORKED, rows)
    parts = [
        f"{gemm} from {significant(first['tflops'])} to {significant(row['tflops'])}"
        for gemm, row in best.items()
        if (first := _lesson(gemm, rows)) is not None
    ]
    if parts:
        words.append(
            f"At {shape_label(WORKED)}, from the lesson to the fastest rung, in "
            f"TFLOP/s: {', '.join(parts)}."
        )
    return " ".join(words)


def _lesson(gemm: str, rows: list[Row]) -> Row | None:
    for row in rows:
        if (_shape(row), row["gemm"], row["rung"]) == (WORKED, gemm, "lesson"):
            return row if row.get("tflops") else None
    return None
