"""Chart "training": the loss of every step, whoever computes the linear layers."""

import plotly.graph_objects as go

from generate.render import palette
from generate.render.charts.base import Chart, Column, framed
from generate.render.formats import count, significant
from generate.render.measured import Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.render.training import OURS, PLAIN, WAYS, absent, shown
from generate.schema import TrainingRun

STEP = Column("step", "Step")
# The page's table has so many steps, the downloads have all.
LISTED = 10
# What tells ours apart where their curves do not: a marker at some of the steps.
MARKED = 12
MARKERS = {
    "vendor": {"symbol": "diamond", "size": 8, "color": palette.VENDOR},
    "atomic": {"symbol": "circle", "size": 8, "color": palette.DW},
    "deterministic": {"symbol": "square-open", "size": 11, "color": palette.FOREGROUND},
    "main_grad": {"symbol": "triangle-up-open", "size": 11, "color": palette.DW},
}


def build(measured: Measurements) -> Chart | Missing:
    runs = of_one_seed(measured)
    if not any(way in OURS for way, *_ in runs):
        return absent(measured, "atomic")
    rows = [
        {STEP.key: step}
        | {name(key): run.losses_nats[step - 1] for key, run in runs.items()}
        for step in range(1, measured.recording.training.steps + 1)
    ]
    return Chart(
        name="training",
        title=f"Loss of a small language model, step by step, {measured.gpu.name}",
        caption=_caption(measured, runs),
        height=440,
        columns=(STEP, *(_column(key) for key in runs)),
        labels=1,
        rows=rows,
        grid=_grid(rows, runs),
        figure=framed(
            [
                line(key, [(row["step"], row[name(key)]) for row in rows])
                for key in runs
            ],
            xaxis={"title": {"text": "step"}, "rangemode": "tozero"},
            yaxis={"title": {"text": "loss, nats a byte"}, "rangemode": "tozero"},
        ),
    )


def of_one_seed(measured: Measurements) -> dict[tuple, TrainingRun]:
    """The runs that began alike, the vendor's first, way by way."""
    found = [key for key in shown(measured) if key[1] == PLAIN[0]]
    found.sort(key=lambda key: (list(WAYS).index(key[0]), key[1:]))
    return {key: shown(measured)[key] for key in found}


def _column(key: tuple) -> Column:
    return Column(name(key), f"{title(key)}, nats", digits=6)


def name(key: tuple) -> str:
    """Of a run's column: atomic_2, vendor_order_3."""
    way, _, order, repeat = key
    return f"{way}_order_{order}" if order else f"{way}_{repeat}"


def title(key: tuple) -> str:
    way, _, order, repeat = key
    return f"{WAYS[way]}, {f'order {order}' if order else f'run {repeat}'}"


def line(key: tuple, points: list[tuple]) -> go.Scatter:
    """A run's curve; runs of one way share a look, and the first has the legend."""
    way, _, order, repeat = key
    marker = MARKERS[way]
    first = not order and repeat == 1
    return go.Scatter(
        name=WAYS[way],
        legendgroup=way,
        showlegend=first,
        mode="lines+markers",
        x=[x for x, _ in points],
        y=[y for _, y in points],
        marker={
            **marker,
            "maxdisplayed": MARKED,
            "line": {"width": 2, "color": marker["color"]},
        },
        line={"color": marker["color"], "width": 1.5},
        hovertemplate=f"{title(key)}<br>step %{{x}}: %{{y}} nats<extra></extra>",
    )


def _grid(rows: list[dict], runs: dict[tuple, TrainingRun]) -> Table:
    """Some steps down, the first run of each way across."""
    firsts = [key for key in runs if key[2:] == (PLAIN[1], 1)]
    every = max(1, len(rows) // LISTED)
    listed = [rows[0], *(row for row in rows if not row["step"] % every)]
    heads = [Head("Step"), *(Head(WAYS[key[0]], numeric=True) for key in firsts)]
    cells = [
        [
            Cell(str(row["step"]), header=True),
            *(Cell(significant(row[name(key)], 4), numeric=True) for key in firsts),
        ]
        for row in {row["step"]: row for row in listed}.values()
    ]
    caption = (
        "Loss in nats a byte, the first run of each way. All steps of all runs stand "
        "in the CSV and the JSON."
    )
    return Table(caption, heads, cells)


def _caption(measured: Measurements, runs: dict[tuple, TrainingRun]) -> str:
    ways = ", ".join(
        f"{count(sum(key[0] == way for key in runs), 'run')} with {WAYS[way]}"
        for way in WAYS
        if any(key[0] == way for key in runs)
    )
    return (
        f"Mean loss of each step's batch, before the step, on the {measured.gpu.name}: "
        f"{ways}. All begin with the same parameters and see the same batches. Where "
        "they agree, one line hides the others."
    )
