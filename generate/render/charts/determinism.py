"""Chart "determinism": bit patterns of many runs of dW, by split factor."""

import plotly.graph_objects as go

from generate.render import formats, palette
from generate.render.charts.base import (
    DIMENSIONS,
    REASON,
    TIMED,
    Chart,
    Column,
    Row,
    decades,
    dimensions,
    doublings,
    framed,
    hover,
    select,
    timed,
)
from generate.render.evidence import CONDITIONS
from generate.render.formats import count, shape_label
from generate.render.measured import Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.schema import DeterminismPoint
from generate.shapes import STARVED, Shape

# As columns name the conditions.
PREFIXES = dict(zip(CONDITIONS, ("alone", "pressure", "streams"), strict=True))
COLUMNS = (
    *DIMENSIONS,
    Column("implementation", "Implementation", numeric=False),
    Column("reduction", "Reduction", numeric=False),
    Column("split_t", "Split factor"),
    Column("runs", "Runs"),
    *(
        Column(f"{prefix}_{key}", f"{head}, {condition}")
        for condition, prefix in PREFIXES.items()
        for key, head in (
            ("distinct", "Bit patterns"),
            ("differing_pct", "Elements that differ, %"),
            ("spread", "Largest spread over RMS"),
        )
    ),
    *TIMED,
)
NAMES = {
    "atomic": "atomic adds",
    "workspace": "workspace, then reduce",
    "none": "no split: one program a tile",
    "vendor": "vendor library",
}
SUBJECTS = {
    "atomic": "atomic adds",
    "workspace": "the workspace",
    "none": "one program a tile",
    "vendor": "the vendor library",
}
# Open marks are the larger, so that a filled one shows inside.
MARKERS = {
    "atomic": {"symbol": "diamond", "size": 9, "color": palette.DW},
    "workspace": {"symbol": "diamond-open", "size": 14, "color": palette.FOREGROUND},
    "none": {"symbol": "square-open", "size": 12, "color": palette.FOREGROUND},
    "vendor": {"symbol": "x", "size": 10, "color": palette.VENDOR},
}
for _marker in MARKERS.values():
    _marker["line"] = {"width": 2, "color": _marker["color"]}
# Where the vendor library stands on the axis of split factors: it chooses its own.
OWN_CHOICE = 0.5


def build(measured: Measurements) -> Chart | Missing:
    launches = measured.keys("determinism")
    points = {launch: _point(measured, launch) for launch in launches}
    shown = [p for p in points.values() if isinstance(p, DeterminismPoint)]
    shown = [point for point in shown if point.repeats]
    if not shown:
        found = next(iter(points.values()), None)
        return found or measured.determinism(STARVED, "lesson", "atomic", 2)
    rows = [_row(launch, point) for launch, point in points.items()]
    shapes = list(dict.fromkeys(point.shape for point in shown))
    groups = {shape: [p for p in shown if p.shape == shape] for shape in shapes}
    most = max(point.repeats[0].runs for point in shown)
    factors = doublings(
        max(point.split_t or 1 for point in shown),
        "split factor, programs a tile (log scale)",
    )
    factors["tickvals"] = [OWN_CHOICE, *factors["tickvals"]]
    factors["ticktext"] = ["its own", *map(str, factors["tickvals"][1:])]
    factors["range"][0] = -0.48
    patterns = decades([1, most], "bit patterns (log scale)")
    patterns["range"] = [-0.15, patterns["range"][1] + 0.15]
    patterns["ticktext"] = [f"{value:g}" for value in patterns["tickvals"]]
    labels = [shape_label(shape) for shape in shapes]
    chosen = shape_label(STARVED if STARVED in shapes else shapes[0])
    return Chart(
        name="determinism",
        title=f"Bit patterns of repeated runs of dW, {measured.gpu.name}",
        caption=_caption(measured, shown),
        height=420,
        columns=COLUMNS,
        labels=3,
        rows=rows,
        grid=_grid(rows),
        figure=framed(
            [trace for shape in shapes for trace in _traces(shape, rows)],
            meta=select(
                labels,
                chosen,
                {
                    shape_label(shape): f"{shape_label(shape)}: {_sentence(found)}."
                    for shape, found in groups.items()
                },
            ),
            xaxis=factors,
            yaxis=patterns,
        ),
    )


def _point(measured: Measurements, launch: tuple) -> DeterminismPoint | Missing:
    implementation, reduction, split_t, *shape = launch
    return measured.determinism(tuple(shape), implementation, reduction, split_t)


def _row(launch: tuple, point: DeterminismPoint | Missing) -> Row:
    implementation, reduction, split_t, *shape = launch
    row = {
        **dimensions(tuple(shape)),
        "implementation": implementation,
        "reduction": reduction,
        "split_t": split_t,
        **timed(point),
    }
    if isinstance(point, Missing):
        return row
    for repeats in point.repeats:
        prefix = PREFIXES[repeats.condition]
        share = 100 * repeats.differing_elements / (point.K * point.N)
        row["runs"] = repeats.runs
        row[f"{prefix}_distinct"] = repeats.distinct
        row[f"{prefix}_differing_pct"] = share
        row[f"{prefix}_spread"] = repeats.largest_spread
    return row


def _grid(rows: list[Row]) -> Table:
    """A row a launch, what it gave alone in full, and the patterns under strain."""
    heads = [Head("T × K × N"), Head("Form")]
    heads += [
        Head(text, numeric=True)
        for text in (
            "Split factor",
            "Patterns, alone",
            "memory pressure",
            "two streams",
            "Elements that differ, %",
            "Largest spread over RMS",
            "Error against fp64",
            "Time, ms",
        )
    ]
    table = []
    for row in rows:
        shape = shape_label((row["T"], row["K"], row["N"]))
        form = NAMES[row["reduction"] or "vendor"]
        split_t = "its own" if row["split_t"] is None else str(row["split_t"])
        cells = [Cell(shape, header=True), Cell(form), Cell(split_t, numeric=True)]
        for key, write in (
            ("alone_distinct", str),
            ("pressure_distinct", str),
            ("streams_distinct", str),
            ("alone_differing_pct", formats.significant),
            ("alone_spread", formats.error),
            ("error", formats.error),
            ("time_ms", formats.significant),
        ):
            value, reason = row.get(key), row.get(REASON.key)
            if value is None:
                cells.append(
                    Cell("not measured" if reason else "", True, reason=reason or "")
                )
            else:
                cells.append(Cell(write(value), numeric=True))
        table.append(cells)
    caption = (
        "dW run again and again on the same operands. Differing elements and their "
        "spread are those of the runs alone; the other conditions' stand in the CSV "
        "and the JSON, with percentiles of the times."
    )
    return Table(caption, heads, table)


def _traces(shape: Shape, rows: list[Row]) -> list:
    group = {"group": shape_label(shape)}
    found = [
        row
        for row in rows
        if row.get("alone_distinct") and (row["T"], row["K"], row["N"]) == shape
    ]
    most = max(row["runs"] for row in found)
    traces = [
        go.Scatter(
            name=f"every one of {most} runs different",
            meta=group,
            mode="lines",
            x=[OWN_CHOICE, max(row["split_t"] or 1 for row in found)],
            y=[most, most],
            line={"color": palette.LIMIT, "width": 2},
            legendrank=2000,
            hoverinfo="skip",
        )
    ]
    for form, name in NAMES.items():
        ours = [row for row in found if (row["reduction"] or "vendor") == form]
        if ours:
            traces.append(_marks(form, name, ours, group))
    return traces


def _marks(form: str, name: str, rows: list[Row], group: dict) -> go.Scatter:
    marker = MARKERS[form]
    return go.Scatter(
        name=name,
        meta=group,
        mode="lines+markers" if len(rows) > 1 else "markers",
        cliponaxis=False,
        x=[row["split_t"] or OWN_CHOICE for row in rows],
        y=[row["alone_distinct"] for row in rows],
        marker=marker,
        line={"color": marker["color"], "width": 2},
        hoverinfo="text",
        hovertext=[_hover(row, name) for row in rows],
    )


def _hover(row: Row, name: str) -> str:
    factor = "" if row["split_t"] is None else f", split factor {row['split_t']}"
    lines = [f"{name}{factor}"]
    for condition, prefix in PREFIXES.items():
        distinct = row.get(f"{prefix}_distinct")
        if distinct is not None:
            patterns = count(distinct, "bit pattern")
            lines.append(f"{condition}: {patterns} in {row['runs']} runs")
    if row["alone_distinct"] > 1:
        lines.append(
            f"{row['alone_differing_pct']:.3g} % of elements differ, the worst by "
            f"{row['alone_spread']:.1e} of the RMS"
        )
    return hover(row, *lines)


def _sentence(points: list[DeterminismPoint]) -> str:
    """Which forms repeated in every condition, and which did not."""
    parts, steady = [], []
    for form, subject in SUBJECTS.items():
        found = [p for p in points if (p.reduction or "vendor") == form]
        varied = {p.split_t for p in found if any(r.distinct > 1 for r in p.repeats)}
        same = {p.split_t for p in found} - varied
        split = form in ("atomic", "workspace")
        if varied:
            words = f"{subject} gave different bits"
            words += f" at {_factors(varied)}" if split else ""
            words += f" and the same at {_factors(same)}" if same else ""
            parts.append(words)
        elif found:
            steady.append(f"{subject} at every split" if split else subject)
    if steady:
        *others, last = steady
        subjects = f"{', '.join(others)} and {last}" if others else last
        parts.append(f"{subjects} gave the same bits every time")
    return "; ".join(parts)


def _factors(factors: set[int]) -> str:
    *others, last = map(str, sorted(factors))
    if not others:
        return f"a split of {last}"
    return f"splits of {', '.join(others)} and {last}"


def _caption(measured: Measurements, points: list[DeterminismPoint]) -> str:
    runs = max(point.repeats[0].runs for point in points)
    conditions = {r.condition for point in points for r in point.repeats}
    listed = ", ".join(name for name in CONDITIONS if name in conditions)
    words = [
        f"{runs} runs of dW in each form on the same operands, on the "
        f"{measured.gpu.name}: how many different outputs there were, bit for bit. At "
        "1 every run gave the same bits. The marks are the runs alone. Counting every "
        f"condition ({listed}) and shape: {_sentence(points)}."
    ]
    spreads = [r.largest_spread for p in points for r in p.repeats if r.distinct > 1]
    if spreads:
        words.append(
            "Where runs differed, no element moved by more than "
            f"{formats.error(max(spreads))} of the gradient's RMS."
        )
    return " ".join(words)
