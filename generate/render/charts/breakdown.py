"""Chart "breakdown": forward, dX and dW of a layer, beside the vendor library."""

import plotly.graph_objects as go

from generate.render import palette
from generate.render.charts.base import (
    DIMENSIONS,
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
from generate.render.fact import LESSON
from generate.render.formats import milliseconds, ratio, shape_label, short
from generate.render.measured import (
    CALL_LABELS,
    CALLS,
    IMPLEMENTATIONS,
    STEP,
    Measurements,
    Missing,
)
from generate.schema import geometric_mean
from generate.shapes import WORKED, Shape

COLUMNS = (
    *DIMENSIONS,
    Column("gemm", "GEMM", numeric=False),
    Column("implementation", "Implementation", numeric=False),
    *TIMED,
    Column("tflops", "TFLOP/s"),
    Column("ratio", "Vendor time / our time"),
)
LESSON_FIGURE = "lesson figure"
COLOURS = {
    "forward": palette.FORWARD,
    "dx": palette.DX,
    "dw": palette.DW,
    "dw+": palette.DW,
}
# Bars lie about their GEMM's place on the axis, ours above the vendor's.
OFFSETS = {"lesson": -0.37, "vendor": 0.02}
WIDTH, OUTLINE = 0.35, 0.43
PLACES = list(CALL_LABELS.values())


def build(measured: Measurements) -> Chart | Missing:
    shapes = [s for s in measured.gemm_shapes if _any(measured, s)]
    if not shapes:
        return measured.gemm(WORKED, "forward", "lesson")
    rows, traces, describe = [], [], {}
    for shape in shapes:
        found = _rows(measured, shape)
        rows += found
        traces += _traces(shape, found)
        describe[shape_label(shape)] = _sentence(measured, shape)
    labels = [shape_label(shape) for shape in shapes]
    chosen = shape_label(WORKED if WORKED in shapes else shapes[0])
    return Chart(
        name="breakdown",
        title=f"Time of forward, dX and dW by shape, {measured.gpu.name}",
        caption=_caption(measured, shapes),
        height=440,
        columns=COLUMNS,
        labels=3,
        rows=rows,
        figure=framed(
            traces,
            meta=select(labels, chosen, describe),
            barmode="overlay",
            legend={"traceorder": "normal"},
            xaxis={"rangemode": "tozero", "title": {"text": "time, ms"}},
            yaxis={
                "range": [len(PLACES) - 0.5, -0.5],
                "tickvals": list(range(len(PLACES))),
                "ticktext": PLACES,
                "showgrid": False,
                "zeroline": False,
                "title": {"text": "GEMM"},
            },
        ),
    )


def _any(measured: Measurements, shape: Shape) -> bool:
    return any(
        not isinstance(measured.gemm(shape, call, implementation), Missing)
        for call in CALLS
        for implementation in IMPLEMENTATIONS
    )


def _rows(measured: Measurements, shape: Shape) -> list[Row]:
    rows = []
    for call, label in CALL_LABELS.items():
        points = {i: measured.gemm(shape, call, i) for i in IMPLEMENTATIONS}
        for implementation, point in points.items():
            row = {
                **dimensions(shape),
                "gemm": label,
                "implementation": implementation,
                **timed(point),
            }
            if not isinstance(point, Missing):
                row["tflops"] = point.tflops
            rows.append(row)
        if not any(isinstance(point, Missing) for point in points.values()):
            times = points["vendor"].time_ms, points["lesson"].time_ms
            rows[-1]["ratio"] = times[0] / times[1]
        if shape == WORKED:
            rows.append(
                {
                    **dimensions(shape),
                    "gemm": label,
                    "implementation": LESSON_FIGURE,
                    "time_ms": LESSON["layer_ms"].value / len(STEP),
                }
            )
    return rows


def _traces(shape: Shape, rows: list[Row]) -> list:
    group = {"group": shape_label(shape)}
    shown = [row for row in rows if row.get("time_ms") is not None]
    traces = []
    for implementation in ("lesson", "vendor"):
        found = [row for row in shown if row["implementation"] == implementation]
        if found:
            traces.append(_bars(implementation, found, group))
    figures = [row for row in shown if row["implementation"] == LESSON_FIGURE]
    if figures:
        traces.append(_outlines(figures, group))
    return traces


def _bars(implementation: str, rows: list[Row], group: dict) -> go.Bar:
    colours = dict(zip(PLACES, COLOURS.values(), strict=True))
    ours = implementation == "lesson"
    return go.Bar(
        name="lesson's kernels, in the GEMM's colour" if ours else "vendor library",
        meta=group,
        orientation="h",
        x=[row["time_ms"] for row in rows],
        y=[PLACES.index(row["gemm"]) for row in rows],
        offset=OFFSETS[implementation],
        width=WIDTH,
        marker={
            "color": [colours[row["gemm"]] if ours else palette.VENDOR for row in rows]
        },
        text=[milliseconds(row["time_ms"]) for row in rows],
        textposition="auto",
        textangle=0,
        insidetextanchor="end",
        insidetextfont={"color": palette.BACKGROUND},
        hoverinfo="text",
        hovertext=[_hover(row) for row in rows],
    )


def _hover(row: Row) -> str:
    who = "lesson's kernels" if row["implementation"] == "lesson" else "vendor library"
    words = hover(row, f"{row['gemm']}, {who}", f"{short(row['tflops'])} TFLOP/s")
    if row.get("ratio") is not None:
        words += f"<br>vendor time / our time {row['ratio']:.2f}"
    return words


def _outlines(rows: list[Row], group: dict) -> go.Scatter:
    """The lesson's figure as a dotted box around each GEMM's bars."""
    x, y = [], []
    for row in rows:
        place, time = PLACES.index(row["gemm"]), row["time_ms"]
        low, high = place - OUTLINE, place + OUTLINE
        x += [0, time, time, 0, None]
        y += [low, low, high, high, None]
    time = rows[0]["time_ms"]
    return go.Scatter(
        name=f"lesson figure for an H100, {milliseconds(time)} each",
        meta=group,
        mode="lines",
        x=x[:-1],
        y=y[:-1],
        line={"color": palette.FOREGROUND, "width": 2, "dash": "dot"},
        hoverinfo="skip",
    )


def _step(measured: Measurements, shape: Shape) -> dict[str, float] | None:
    """Time of forward, dX and accumulated dW together, by implementation."""
    sums = {}
    for implementation in IMPLEMENTATIONS:
        points = [measured.gemm(shape, call, implementation) for call in STEP]
        if any(isinstance(point, Missing) for point in points):
            return None
        sums[implementation] = sum(point.time_ms for point in points)
    return sums


def _sentence(measured: Measurements, shape: Shape) -> str:
    label, step = shape_label(shape), _step(measured, shape)
    if step is None:
        return f"{label}: not every GEMM was measured."
    return (
        f"{label}: forward, dX and accumulated dW take "
        f"{milliseconds(step['lesson'])} in the lesson's kernels and "
        f"{milliseconds(step['vendor'])} through the vendor library."
    )


def _caption(measured: Measurements, shapes: list[Shape]) -> str:
    words = [
        "All bars of a shape are the same number of FLOPs, so their lengths differ by "
        f"how well each GEMM uses the {measured.gpu.name}."
    ]
    step = _step(measured, WORKED) if WORKED in shapes else None
    if step:
        lesson = LESSON["layer_ms"].text
        words.append(
            f"At {shape_label(WORKED)}, forward, dX and accumulated dW take "
            f"{milliseconds(step['lesson'])} in the lesson's kernels, "
            f"{milliseconds(step['vendor'])} through the vendor library; the lesson's "
            f"figure for an H100 is {lesson} (dotted boxes: a third each)."
        )
    means = {call: _mean(measured, shapes, call) for call in STEP}
    if all(means.values()):
        parts = [f"{CALL_LABELS[c]} {ratio(m)}" for c, m in means.items()]
        words.append(
            "Vendor time over our time, geometric mean of all shapes: "
            f"{', '.join(parts)}."
        )
    return " ".join(words)


def _mean(measured: Measurements, shapes: list[Shape], call: str) -> float | None:
    ratios = []
    for shape in shapes:
        pair = [measured.gemm(shape, call, i) for i in IMPLEMENTATIONS]
        if not any(isinstance(point, Missing) for point in pair):
            ratios.append(pair[0].time_ms / pair[1].time_ms)
    return geometric_mean(ratios) if ratios else None
