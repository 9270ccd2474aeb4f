"""Chart "tiles": output tiles of dW against the SMs that could work on them."""

import math

import plotly.graph_objects as go

from generate.render import palette
from generate.render.charts.base import Chart, Column, Row, framed
from generate.render.formats import count, shape_label, short
from generate.render.measured import Measurements

STARVED = "fewer tiles than SMs"
ONE_EACH = "a tile for every SM"
FULL = "a tile for every program that fits"

COLUMNS = (
    Column("K", "K"),
    Column("N", "N"),
    Column("tiles", "Output tiles, 128×128"),
    Column("tiles_per_sm", "Tiles / SM"),
    Column("sms_with_a_tile_pct", "SMs with a tile, %"),
    Column("verdict", "Verdict", numeric=False),
)


def build(measured: Measurements) -> Chart:
    sms, (resident, recorded) = measured.gpu.sm_count, measured.resident()
    slots = sms * resident
    layers = dict.fromkeys(shape[1:] for shape in measured.gemm_shapes)
    rows = [_row(k, n, measured.tiles(k, n), sms, slots) for k, n in layers]
    rows.sort(key=lambda row: -row["tiles"])
    return Chart(
        name="tiles",
        title=f"Output tiles of dW by layer, and the SMs of the {measured.gpu.name}",
        caption=_caption(rows, measured.gpu.name, sms, resident, recorded),
        height=460,
        columns=COLUMNS,
        labels=2,
        rows=rows,
        figure=_figure(rows, sms, slots, recorded),
    )


def _row(k: int, n: int, tiles: int, sms: int, slots: int) -> Row:
    verdict = STARVED if tiles < sms else ONE_EACH if tiles < slots else FULL
    return {
        "K": k,
        "N": n,
        "tiles": tiles,
        "tiles_per_sm": tiles / sms,
        "sms_with_a_tile_pct": 100 * min(tiles, sms) / sms,
        "verdict": verdict,
    }


def _figure(rows: list[Row], sms: int, slots: int, recorded: bool) -> go.Figure:
    looks = {
        FULL: {"color": palette.DW},
        ONE_EACH: {
            "color": palette.DW,
            "pattern": {
                "shape": ".",
                "fgcolor": palette.BACKGROUND,
                "bgcolor": palette.DW,
                "size": 7,
            },
        },
        STARVED: {
            "color": palette.NOTHING,
            "line": {"color": palette.LIMIT, "width": 2},
            "pattern": {"shape": "/", "fgcolor": palette.LIMIT, "size": 7},
        },
    }
    traces = []
    for verdict, marker in looks.items():
        found = [row for row in rows if row["verdict"] == verdict]
        if found:
            traces.append(
                go.Bar(
                    name=verdict,
                    orientation="h",
                    x=[row["tiles"] for row in found],
                    y=[shape_label((row["K"], row["N"])) for row in found],
                    text=[str(row["tiles"]) for row in found],
                    textposition="outside",
                    cliponaxis=False,
                    marker=marker,
                    hoverinfo="text",
                    hovertext=[_hover(row, sms) for row in found],
                )
            )
    lines, marks = [_line(sms)], [_mark(sms, count(sms, "SM"), "right")]
    if slots > sms:
        lines.append(_line(slots, "solid" if recorded else "dash"))
        marks.append(_mark(slots, f"{slots} fit at once", "left"))
    order = [shape_label((row["K"], row["N"])) for row in reversed(rows)]
    low, high = 8, max(row["tiles"] for row in rows) * 6
    ends = [math.log10(low), math.log10(high)]
    powers = [10**e for e in range(1, math.floor(ends[1]) + 1)]
    return framed(
        traces,
        barmode="overlay",
        bargap=0.25,
        legend={"traceorder": "normal", "y": 1.08},
        xaxis={
            "type": "log",
            "range": ends,
            "tickvals": powers,
            "ticktext": [str(power) for power in powers],
            "title": {"text": "output tiles of dW (log scale)"},
        },
        yaxis={
            "type": "category",
            "categoryorder": "array",
            "categoryarray": order,
            "showgrid": False,
            "title": {"text": "layer, K × N"},
        },
        shapes=lines,
        annotations=marks,
    )


def _line(tiles: int, dash: str = "solid") -> dict:
    return {
        "type": "line",
        "x0": tiles,
        "x1": tiles,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": palette.LIMIT, "width": 2, "dash": dash},
    }


def _mark(tiles: int, text: str, anchor: str) -> dict:
    return {
        "text": text,
        "x": math.log10(tiles),
        "xanchor": anchor,
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": palette.LIMIT},
    }


def _hover(row: Row, sms: int) -> str:
    return (
        f"K = {row['K']}, N = {row['N']}<br>{count(row['tiles'], 'tile')} for "
        f"{sms} SMs: {short(row['tiles_per_sm'])} each<br>{row['verdict']}"
    )


def _caption(rows: list[Row], gpu: str, sms: int, resident: int, recorded: bool) -> str:
    starved = sum(row["verdict"] == STARVED for row in rows)
    one_each = sum(row["verdict"] == ONE_EACH for row in rows)
    layers = count(len(rows), "layer")
    if starved:
        words = (
            f"{starved} of {layers} give dW fewer output tiles than the {gpu} has SMs "
            f"({sms}): the hatched bars. With one program a tile, the other SMs have "
            "nothing to do."
        )
    else:
        words = (
            f"All {layers} give dW at least a tile for each SM of the {gpu} ({sms})."
        )
    if resident > 1:
        source = "as recorded" if recorded else "as planned"
        words += f" {resident} programs fit on an SM at once ({source}), so "
        words += f"{sms * resident} tiles fill the GPU"
        words += f"; {one_each} more stop short of that." if one_each else "."
    return words + (
        " T is not on the chart: more tokens lengthen each tile's sum and add no tile."
    )
