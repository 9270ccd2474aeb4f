"""Chart "plan": measured and modelled time of dW by split factor, and the residual."""

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
    select,
    timed,
)
from generate.render.charts.splits import line, star, upright
from generate.render.formats import (
    milliseconds,
    ratio,
    shape_label,
    short,
    significant,
    whole_percent,
)
from generate.render.measured import Measurements, Missing
from generate.render.planning import (
    block_ms,
    lesson_split,
    model_blocks,
    modelled,
    reduction_of,
    residual,
)
from generate.render.tables import Cell, Head, Table
from generate.shapes import STARVED, Shape

COLUMNS = (
    *DIMENSIONS,
    Column("reduction", "Reduction", numeric=False),
    Column("split_t", "Split factor"),
    *TIMED,
    Column("model_blocks", "Model, T-blocks"),
    Column("predicted_ms", "Predicted, ms"),
    Column("residual_pct", "Residual, %"),
    Column("mark", "Mark", numeric=False),
)
BEST, PLANNED, LESSON = "best", "planned", "lesson's rule"
DASHES = {PLANNED: "dashdot", LESSON: "dot"}


def build(measured: Measurements) -> Chart | Missing:
    shapes = [s for s in measured.split_shapes if modelled(measured, s)]
    if not shapes:
        return measured.best_split(STARVED)
    rows, traces = [], []
    for shape in shapes:
        found = _rows(measured, shape)
        rows += found
        traces += _traces(measured, shape, found)
    labels = [shape_label(shape) for shape in shapes]
    chosen = shape_label(STARVED if STARVED in shapes else shapes[0])
    most = max(abs(row["residual_pct"]) for row in rows if "residual_pct" in row)
    x = doublings(
        max(measured.split_factors), "split factor, programs a tile (log scale)"
    )
    return Chart(
        name="plan",
        title=f"Measured and modelled time of dW, {measured.gpu.name}",
        caption=_caption(measured, shapes),
        height=620,
        columns=COLUMNS,
        labels=3,
        rows=rows,
        grid=_grid(measured, shapes, rows),
        figure=framed(
            traces,
            meta=select(
                labels, chosen, {shape_label(s): _sentence(measured, s) for s in shapes}
            ),
            xaxis={**x, "anchor": "y2"},
            yaxis={
                "rangemode": "tozero",
                "domain": [0.36, 1],
                "title": {"text": "time, ms"},
            },
            yaxis2={
                "range": [-1.15 * most, 1.15 * most],
                "domain": [0, 0.28],
                "title": {"text": "residual, %"},
            },
        ),
    )


def _rows(measured: Measurements, shape: Shape) -> list[Row]:
    """Every recorded launch, with the model's time where the plan may choose it."""
    lesson = lesson_split(measured, shape)
    marked = {
        BEST: measured.best_split(shape),
        PLANNED: measured.planned_split(shape),
        LESSON: measured.nearest_split(shape, reduction_of(lesson), lesson),
    }
    scale, rows = block_ms(measured, shape), []
    for reduction, split_t in measured.split_launches(shape):
        point = measured.split(shape, reduction, split_t)
        row = {
            **dimensions(shape),
            "reduction": reduction,
            "split_t": split_t,
            **timed(point),
            "mark": ", ".join(name for name, at in marked.items() if at is point),
        }
        if point in modelled(measured, shape):
            blocks = model_blocks(measured, shape, split_t)
            row |= {
                "model_blocks": blocks,
                "predicted_ms": scale * blocks,
                "residual_pct": 100 * residual(measured, shape, point),
            }
        rows.append(row)
    return rows


def _grid(measured: Measurements, shapes: list[Shape], rows: list[Row]) -> Table:
    """What the plan chooses among: measured, predicted and residual, by factor."""
    factors = sorted({row["split_t"] for row in rows})
    heads = [Head("T × K × N"), Head("dW")]
    heads += [Head(str(factor), numeric=True) for factor in factors]
    table = []
    for shape in shapes:
        by_factor = {
            row["split_t"]: row
            for row in rows
            if (row["T"], row["K"], row["N"]) == shape
            and row["reduction"] == reduction_of(row["split_t"])
        }
        for name, key, write in (
            ("measured, ms", "time_ms", significant),
            ("predicted, ms", "predicted_ms", significant),
            ("residual", "residual_pct", whole_percent),
        ):
            cells = [Cell(shape_label(shape), header=True), Cell(name)]
            cells += [_cell(by_factor.get(s), key, write) for s in factors]
            table.append(cells)
    caption = (
        "Time of dW by split factor, unsplit or with atomic adds, and the model's. "
        "The workspace form, percentiles, samples and errors stand in the CSV and the "
        "JSON."
    )
    return Table(caption, heads, table)


def _cell(row: Row | None, key: str, write) -> Cell:
    if row is None:
        return Cell("", numeric=True)
    if row.get(key) is None:
        return Cell("not measured", numeric=True, reason=row[REASON.key])
    return Cell(write(row[key]), numeric=True)


def _traces(measured: Measurements, shape: Shape, rows: list[Row]) -> list:
    shown = [row for row in rows if row.get("time_ms") is not None]
    found = [row for row in shown if "residual_pct" in row]
    group = {"group": shape_label(shape)}
    traces = []
    for reduction in ("workspace", "atomic", "none"):
        ours = [row for row in shown if row["reduction"] == reduction]
        if ours:
            traces.append(line(reduction, ours, group))
    traces.append(_model(found, group))
    top = max(row["p80_ms"] for row in shown)
    chosen = {
        PLANNED: measured.plan(shape).split_t,
        LESSON: lesson_split(measured, shape),
    }
    for name, split_t in chosen.items():
        for row in shown:
            if name in row["mark"]:
                dash = DASHES[name]
                traces.append(upright(name, row, top, split_t, group, dash))
    traces += [star(row, group) for row in shown if BEST in row["mark"]]
    return [*traces, *_residuals(found, group)]


def _model(rows: list[Row], group: dict) -> go.Scatter:
    return go.Scatter(
        name="the model",
        meta=group,
        mode="lines",
        x=[row["split_t"] for row in rows],
        y=[row["predicted_ms"] for row in rows],
        line={"color": palette.DW, "width": 2.5, "dash": "dash"},
        hoverinfo="text",
        hovertext=[_says(row) for row in rows],
    )


def _residuals(rows: list[Row], group: dict) -> list[go.Scatter]:
    """Stems from zero, in the lower panel."""
    x, y = [], []
    for row in rows:
        x += [row["split_t"], row["split_t"], None]
        y += [0, row["residual_pct"], None]
    common = {"name": "residual", "meta": group, "yaxis": "y2", "showlegend": False}
    colour = {"color": palette.DW}
    return [
        go.Scatter(
            mode="lines",
            x=x,
            y=y,
            line={**colour, "width": 3},
            hoverinfo="skip",
            **common,
        ),
        go.Scatter(
            mode="markers",
            x=[row["split_t"] for row in rows],
            y=[row["residual_pct"] for row in rows],
            marker={**colour, "symbol": "diamond", "size": 8},
            hoverinfo="text",
            hovertext=[_says(row) for row in rows],
            **common,
        ),
    ]


def _says(row: Row) -> str:
    return (
        f"split factor {row['split_t']}<br>"
        f"predicted {short(row['predicted_ms'])} ms, "
        f"{short(row['model_blocks'])} T-blocks<br>measured "
        f"{short(row['time_ms'])} ms: "
        f"{whole_percent(row['residual_pct'])}"
    )


def _sentence(measured: Measurements, shape: Shape) -> str:
    """What the rules chose at a shape, for whoever selects or hears it."""
    best, full = measured.best_split(shape), measured.planned_split(shape)
    lesson = lesson_split(measured, shape)
    simple = measured.nearest_split(shape, reduction_of(lesson), lesson)
    words = f"{shape_label(shape)}: best {_launch(best.split_t, best)}"
    for name, split_t, point in (
        ("planned", measured.plan(shape).split_t, full),
        ("by the lesson's rule", lesson, simple),
    ):
        if not isinstance(point, Missing):
            over = ratio(point.time_ms / best.time_ms)
            words += f"; {name} {_launch(split_t, point)}, {over} the best"
    return f"{words}."


def _launch(split_t: int, point) -> str:
    near = "" if point.split_t == split_t else f" (recorded: {point.split_t})"
    return f"{split_t}{near}, {milliseconds(point.time_ms)}"


def _caption(measured: Measurements, shapes: list[Shape]) -> str:
    points = [(s, p) for s in shapes for p in modelled(measured, s)]
    sizes = [abs(residual(measured, *place)) for place in points]
    worst = max(range(len(points)), key=sizes.__getitem__)
    shape, point = points[worst]
    off = whole_percent(100 * residual(measured, shape, point))
    return (
        f"dW on the {measured.gpu.name}: measured (solid) and as the plan's model has "
        "it (dashed). The model counts in T-blocks; what one takes in milliseconds is "
        "the one number fitted to each shape: the geometric mean, over its split "
        "factors, of measured over modelled time. Below: measured over predicted, less "
        "one. The workspace form is drawn for comparison; the model is of the atomic "
        f"one. The largest residual of any shape is {off}, at {shape_label(shape)} "
        f"with a split factor of {point.split_t}."
    )
