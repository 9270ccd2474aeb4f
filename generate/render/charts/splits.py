"""Chart "splits": time of dW against the split factor, one shape at a time."""

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
    doublings,
    framed,
    hover,
    select,
    timed,
)
from generate.render.formats import (
    count,
    milliseconds,
    ratio,
    shape_label,
    significant,
)
from generate.render.measured import Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.shapes import STARVED, Shape

COLUMNS = (
    *DIMENSIONS,
    Column("reduction", "Reduction", numeric=False),
    Column("split_t", "Split factor"),
    *TIMED,
    Column("mark", "Mark", numeric=False),
)
# Differences up to this share of a time are not called a gain.
NOISE = 0.02
NAMES = {
    "none": "no split: one program a tile",
    "atomic": "atomic adds",
    "workspace": "workspace, then reduce",
}
MARKERS = {
    "none": {"symbol": "square-open", "size": 13, "color": palette.VENDOR},
    "atomic": {"symbol": "diamond", "size": 9, "color": palette.DW},
    "workspace": {"symbol": "diamond-open", "size": 9, "color": palette.FOREGROUND},
}
for _marker in MARKERS.values():
    _marker["line"] = {"width": 2, "color": _marker["color"]}


def build(measured: Measurements) -> Chart | Missing:
    shapes = [s for s in measured.split_shapes if measured.splits(s)]
    if not shapes:
        return measured.best_split(STARVED)
    rows, traces, describe = [], [], {}
    for shape in shapes:
        found = _rows(measured, shape)
        rows += found
        traces += _traces(measured, shape, found)
        describe[shape_label(shape)] = _sentence(measured, shape)
    labels = [shape_label(shape) for shape in shapes]
    chosen = shape_label(STARVED if STARVED in shapes else shapes[0])
    return Chart(
        name="splits",
        title=f"Time of dW by split factor, {measured.gpu.name}",
        caption=_caption(measured, shapes),
        height=440,
        columns=COLUMNS,
        labels=3,
        rows=rows,
        grid=_grid(rows),
        figure=framed(
            traces,
            meta=select(labels, chosen, describe),
            xaxis=doublings(
                max(measured.split_factors),
                "split factor, programs a tile (log scale)",
            ),
            yaxis={"rangemode": "tozero", "title": {"text": "time, ms"}},
        ),
    )


def _rows(measured: Measurements, shape: Shape) -> list[Row]:
    best, planned = measured.best_split(shape), measured.planned_split(shape)
    rows = []
    for reduction, split_t in measured.split_launches(shape):
        point = measured.split(shape, reduction, split_t)
        marks = [
            word
            for word, other in (("best", best), ("planned", planned))
            if point is other
        ]
        rows.append(
            {
                **dimensions(shape),
                "reduction": reduction,
                "split_t": split_t,
                **timed(point),
                "mark": ", ".join(marks),
            }
        )
    return rows


def _grid(rows: list[Row]) -> Table:
    """Times by shape and reduction down, by split factor across."""
    factors = sorted({row["split_t"] for row in rows})
    lines: dict[tuple, dict[int, Row]] = {}
    plain: dict[tuple, Row] = {}
    for row in rows:
        shape = row["T"], row["K"], row["N"]
        if row["reduction"] == "none":
            plain[shape] = row
        else:
            lines.setdefault((shape, row["reduction"]), {})[row["split_t"]] = row
    heads = [Head("T × K × N"), Head("Reduction"), Head("no split", numeric=True)]
    heads += [Head(str(factor), numeric=True) for factor in factors]
    table = []
    for (shape, reduction), by_factor in lines.items():
        cells = [Cell(shape_label(shape), header=True), Cell(reduction)]
        cells.append(_time(plain.get(shape)))
        cells += [_time(by_factor.get(factor)) for factor in factors]
        table.append(cells)
    caption = (
        "Median time of dW in ms by split factor; * is the best of a shape. "
        "More digits, percentiles, samples and errors stand in the CSV and the JSON."
    )
    return Table(caption, heads, table)


def _time(row: Row | None) -> Cell:
    if row is None:
        return Cell("", numeric=True)
    if row.get("time_ms") is None:
        return Cell("not measured", numeric=True, reason=row[REASON.key])
    best = " *" if "best" in row["mark"] else ""
    return Cell(significant(row["time_ms"]) + best, numeric=True)


def _traces(measured: Measurements, shape: Shape, rows: list[Row]) -> list:
    shown = [row for row in rows if row.get("time_ms") is not None]
    group = {"group": shape_label(shape)}
    traces = []
    for reduction in ("atomic", "workspace", "none"):
        found = [row for row in shown if row["reduction"] == reduction]
        if found:
            traces.append(line(reduction, found, group))
    for row in shown:
        if "best" in row["mark"]:
            traces.append(star(row, group))
        if "planned" in row["mark"]:
            top = max(row["p80_ms"] for row in shown)
            split_t = measured.plan(shape).split_t
            traces.append(upright("planned", row, top, split_t, group))
    return traces


def line(reduction: str, rows: list[Row], group: dict) -> go.Scatter:
    name, marker = NAMES[reduction], MARKERS[reduction]
    return go.Scatter(
        name=name,
        meta=group,
        mode="markers" if reduction == "none" else "lines+markers",
        x=[row["split_t"] for row in rows],
        y=[row["time_ms"] for row in rows],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [row["p80_ms"] - row["time_ms"] for row in rows],
            "arrayminus": [row["time_ms"] - row["p20_ms"] for row in rows],
            "thickness": 1.5,
            "width": 3,
            "color": marker["color"],
        },
        marker=marker,
        line={"color": marker["color"], "width": 2},
        hoverinfo="text",
        hovertext=[hover(r, f"split factor {r['split_t']}, {name}") for r in rows],
    )


def star(row: Row, group: dict) -> go.Scatter:
    return go.Scatter(
        name="best",
        meta=group,
        mode="markers",
        x=[row["split_t"]],
        y=[row["time_ms"]],
        marker={
            "symbol": "star",
            "size": 17,
            "color": palette.DW,
            "line": {"color": palette.BACKGROUND, "width": 1.5},
        },
        hoverinfo="skip",
    )


def upright(
    name: str, row: Row, top: float, split_t: int, group: dict, dash: str = "dash"
) -> go.Scatter:
    """A line at the recorded factor next to one that was chosen by a rule."""
    words = f"{name} split factor: {split_t}"
    if split_t != row["split_t"]:
        words += f"<br>nearest recorded: {row['split_t']}"
    return go.Scatter(
        name=name,
        meta=group,
        mode="lines",
        x=[row["split_t"]] * 2,
        y=[0, 1.05 * top],
        line={"color": palette.LIMIT, "width": 2, "dash": dash},
        hoverinfo="text",
        hovertext=[words] * 2,
    )


def _sentence(measured: Measurements, shape: Shape) -> str:
    """What a shape's curve shows, for whoever selects or hears it."""
    best, plain = measured.best_split(shape), measured.split(shape, "none", 1)
    label = shape_label(shape)
    if best.split_t == 1:
        return (
            f"{label}: no split is faster than one program a tile, "
            f"{milliseconds(best.time_ms)}."
        )
    way = "by atomics" if best.reduction == "atomic" else "through the workspace"
    words = (
        f"{label}: fastest at a split of {best.split_t} {way}, "
        f"{milliseconds(best.time_ms)}"
    )
    if not isinstance(plain, Missing):
        words += f"; one program a tile takes {milliseconds(plain.time_ms)}"
    return f"{words}."


def _caption(measured: Measurements, shapes: list[Shape]) -> str:
    words = [
        f"Each curve is dW at one shape on the {measured.gpu.name}, the whole "
        "operation: zeroing, partial sums and their addition. Choose a shape to see "
        "where its curve turns."
    ]
    gains = {}
    for shape in shapes:
        plain, best = measured.split(shape, "none", 1), measured.best_split(shape)
        if not isinstance(plain, Missing):
            gains[shape] = plain.time_ms / best.time_ms
    if gains:
        faster = sum(gain > 1 + NOISE for gain in gains.values())
        words.append(
            f"A split beats one program a tile by more than {100 * NOISE:.0f} % at "
            f"{faster} of {count(len(gains), 'shape')}" + (", " if faster else ".")
        )
        if faster:
            most = max(gains, key=gains.get)
            best = measured.best_split(most)
            words[-1] += (
                f"by most at {shape_label(most)}: {ratio(gains[most])} as fast with "
                f"{count(best.split_t, 'program')} a tile."
            )
    over = {s: _over(measured, s) for s in shapes}
    over = {shape: value for shape, value in over.items() if value is not None}
    if over:
        worst = max(over, key=over.get)
        words.append(
            "The factor planned from the shape alone (dashed) takes at most "
            f"{ratio(over[worst])} the best time ({shape_label(worst)})."
        )
    return " ".join(words)


def _over(measured: Measurements, shape: Shape) -> float | None:
    planned, best = measured.planned_split(shape), measured.best_split(shape)
    if isinstance(planned, Missing):
        return None
    return planned.time_ms / best.time_ms
