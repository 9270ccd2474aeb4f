"""Chart "repeat": what two recordings of one GPU disagree on, over its time."""

import math

import plotly.graph_objects as go

from generate.render import palette
from generate.render.charts.base import Chart, Column, Row, framed, select
from generate.render.formats import (
    count,
    milliseconds,
    percent,
    shape_label,
    signed_percent,
)
from generate.render.measured import Measurements, Missing
from generate.render.repeat import (
    EXPLANATIONS,
    MOVED,
    Pair,
    Repetition,
    repetition,
)
from generate.render.tables import Cell, Head, Table

COLUMNS = (
    Column("section", "Section", numeric=False),
    Column("quantity", "Quantity", numeric=False),
    Column("what", "What", numeric=False),
    Column("T", "T"),
    Column("K", "K"),
    Column("N", "N"),
    Column("first", "First recording", digits=6),
    Column("second", "Second recording", digits=6),
    Column("change_pct", "Change, %"),
    Column("first_spread_pct", "Spread of the first's samples, %"),
    Column("second_spread_pct", "Spread of the second's samples, %"),
    Column("first_clock_sm_mhz", "SM clock in the first, MHz"),
    Column("second_clock_sm_mhz", "SM clock in the second, MHz"),
    Column("first_power_w", "Power in the first, W"),
    Column("second_power_w", "Power in the second, W"),
    Column("first_throttle", "Throttled in the first by", numeric=False),
    Column("second_throttle", "Throttled in the second by", numeric=False),
    Column("explanation", "What explains a time that moved", numeric=False),
)
TIMES, RATIOS = "times", "ratios of times taken in turns"
QUANTITIES = {"times": "time, ms", "ratios": "ratio of times"}
LOOKS = {
    "forward": ("forward", palette.FORWARD, "circle"),
    "dx": ("dX", palette.DX, "square"),
    "dw": ("dW", palette.DW, "diamond"),
    None: ("ceilings", palette.VENDOR, "triangle-up"),
}


def build(measured: Measurements) -> Chart | Missing:
    found = repetition(measured)
    if isinstance(found, Missing):
        return found
    if not found.times:
        return Missing("the two recordings share no time")
    rows = [_row("times", pair) for pair in found.times]
    rows += [_row("ratios", pair) for pair in found.ratios]
    groups = {TIMES: found.times, RATIOS: found.ratios}
    groups = {name: pairs for name, pairs in groups.items() if pairs}
    changes = [100 * pair.change for pairs in groups.values() for pair in pairs]
    reach = 1.1 * max(*map(abs, changes), 100 * MOVED)
    times = [_length(pair) for pairs in groups.values() for pair in pairs]
    ends = [math.log10(min(times)) - 0.08, math.log10(max(times)) + 0.08]
    traces = [t for name, pairs in groups.items() for t in _traces(name, pairs)]
    described = {name: _sentence(found, name) for name in groups}
    return Chart(
        name="repeat",
        title=f"Change between two recordings of the {measured.gpu.name}",
        caption=_caption(found),
        height=460,
        columns=COLUMNS,
        labels=3,
        rows=rows,
        grid=_grid(found),
        figure=framed(
            traces,
            meta=select(list(groups), TIMES, described, label="Compare"),
            xaxis={
                "type": "log",
                "range": ends,
                "tickvals": _ticks(ends),
                "ticktext": [f"{tick:g}" for tick in _ticks(ends)],
                "title": {"text": "time, ms (log scale)"},
            },
            yaxis={
                "range": [-reach, reach],
                "ticksuffix": " %",
                "title": {"text": "change"},
            },
            shapes=[_line(0, "solid"), _line(MOVED, "dot"), _line(-MOVED, "dot")],
        ),
    )


def _row(way: str, pair: Pair) -> Row:
    row = {
        "section": pair.section,
        "quantity": QUANTITIES[way],
        "what": pair.what,
        **dict(zip("TKN", pair.shape or (None,) * 3, strict=True)),
        "first": pair.first,
        "second": pair.second,
        "change_pct": 100 * pair.change,
    }
    if way == "ratios":
        return row
    for name, spread, state in zip(
        ("first", "second"), pair.spreads, pair.states, strict=True
    ):
        row[f"{name}_spread_pct"] = 100 * spread
        if state is not None:
            row[f"{name}_clock_sm_mhz"] = state.clock_sm_mhz
            row[f"{name}_power_w"] = state.power_w
            if state.throttle is not None:
                row[f"{name}_throttle"] = ", ".join(state.throttle) or "nothing"
    if pair.moved:
        row["explanation"] = EXPLANATIONS[pair.explanation]
    return row


def _length(pair: Pair) -> float:
    """Where a pair stands on the axis of times, ms: by its first recording."""
    return pair.parts[0][-1].time_ms


def _ticks(ends: list[float]) -> list[float]:
    powers = range(math.floor(ends[0]), math.ceil(ends[1]) + 1)
    return [float(f"1e{p}") for p in powers if ends[0] <= p <= ends[1]]


def _line(share: float, dash: str) -> dict:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": 100 * share,
        "y1": 100 * share,
        "line": {"color": palette.LIMIT, "width": 1.5, "dash": dash},
        "layer": "below",
    }


def _traces(name: str, pairs: list[Pair]) -> list[go.Scatter]:
    traces = []
    for op, (label, colour, symbol) in LOOKS.items():
        found = [pair for pair in pairs if pair.op == op]
        if found:
            marker = {"color": colour, "symbol": symbol, "size": 7, "opacity": 0.75}
            traces.append(_points(label, name, found, marker))
    if name == TIMES:
        marks = {"explained by the log": "circle-open", "not explained": "x-thin"}
        for label, symbol in marks.items():
            open_ = label == "not explained"
            found = [
                pair
                for pair in pairs
                if pair.moved and (pair.explanation == "unexplained") == open_
            ]
            line = {"color": palette.FOREGROUND, "width": 2}
            marker = {"color": palette.FOREGROUND, "symbol": symbol, "size": 14}
            if found:
                marker["line"] = line
                traces.append(_points(label, name, found, marker))
    return traces


def _points(label: str, name: str, pairs: list[Pair], marker: dict) -> go.Scatter:
    return go.Scatter(
        name=label,
        meta={"group": name},
        mode="markers",
        x=[_length(pair) for pair in pairs],
        y=[100 * pair.change for pair in pairs],
        marker=marker,
        hoverinfo="text",
        hovertext=[_hover(name, pair) for pair in pairs],
    )


def _hover(name: str, pair: Pair) -> str:
    write = milliseconds if name == TIMES else "{:.3g}".format
    lines = [f"{pair.section}: {pair.what}"]
    if pair.shape:
        lines.append(shape_label(pair.shape))
    lines.append(f"{write(pair.first)} → {write(pair.second)}")
    lines.append(f"change {signed_percent(100 * pair.change)}")
    if name == TIMES and pair.moved:
        lines.append(EXPLANATIONS[pair.explanation])
    return "<br>".join(lines)


def _sentence(found: Repetition, name: str) -> str:
    way = "times" if name == TIMES else "ratios"
    spread = found.spreads["all", way]
    return (
        f"{len(spread.changes)} {name}: 95 of 100 changed by at most "
        f"{percent(100 * spread.most)}, half of them by less than "
        f"{percent(100 * spread.half)}."
    )


def _caption(found: Repetition) -> str:
    first, second = found.first.recording.name, found.second.recording.name
    words = [
        f"Each mark is one quantity of {first}, and how much {second} differs from it. "
        f"The dotted lines stand at ±{100 * MOVED:.0f} %."
    ]
    moved = found.moved
    if moved:
        explained = sum(pair.explanation != "unexplained" for pair in moved)
        words.append(
            f"{len(moved)} of {count(len(found.times), 'time')} lie beyond them: what "
            f"was logged explains {explained} (ringed), and leaves "
            f"{len(moved) - explained} open (crossed)."
        )
    else:
        words.append(f"None of {count(len(found.times), 'time')} lies beyond them.")
    return " ".join(words)


def _grid(found: Repetition) -> Table:
    """Changes of the three GEMMs by shape; every other quantity is in the files."""
    pairs = [*found.times, *found.ratios]
    pairs = [pair for pair in pairs if pair.section == "gemms"]
    columns = list(dict.fromkeys(pair.what for pair in pairs))
    by_shape: dict[tuple, dict[str, Pair]] = {}
    for pair in pairs:
        by_shape.setdefault(pair.shape, {})[pair.what] = pair
    rows = [
        [
            Cell(shape_label(shape), header=True),
            *(
                Cell(
                    signed_percent(100 * line[what].change) if what in line else "",
                    numeric=True,
                )
                for what in columns
            ),
        ]
        for shape, line in by_shape.items()
    ]
    caption = (
        "Change of each GEMM's time and of its ratio, by shape. Splits, transposes, "
        "ceilings, clocks and explanations stand in the CSV and the JSON."
    )
    heads = [Head("T × K × N"), *(Head(what, numeric=True) for what in columns)]
    return Table(caption, heads, rows)
