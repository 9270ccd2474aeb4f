"""Chart "apart": how far each training run is from the first one of nn.Linear."""

from generate.render.charts.base import Chart, Column, decades, framed
from generate.render.charts.training import line, name, of_one_seed, title
from generate.render.formats import milliseconds, nats, significant
from generate.render.measured import Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.render.training import OURS, PLAIN, WAYS, absent, apart
from generate.schema import TrainingRun

STEPS = Column("last_step", "Up to step")
FIRST = ("vendor", *PLAIN, 1)
# A difference is the root of a mean over so many steps.
BLOCK = 10
# Of a digest, enough to tell two apart at a glance.
DIGITS = 8


def build(measured: Measurements) -> Chart | Missing:
    runs = of_one_seed(measured)
    if FIRST not in runs:
        return absent(measured, "vendor")
    others = {key: run for key, run in runs.items() if key != FIRST}
    if not any(way in OURS for way, *_ in others):
        return absent(measured, "atomic")
    first, steps = runs[FIRST].losses_nats, measured.recording.training.steps
    rows = []
    for last in range(BLOCK, steps + 1, BLOCK):
        block = slice(last - BLOCK, last)
        far = {
            name(key): apart(run.losses_nats[block], first[block])
            for key, run in others.items()
        }
        rows.append({STEPS.key: last, **far})
    curves = {
        key: [(row[STEPS.key], row[name(key)]) for row in rows if row[name(key)]]
        for key in others
    }
    values = [y for points in curves.values() for _, y in points]
    if not values:
        return Missing("no run differs from the first of nn.Linear at any step")
    alike = [key for key, points in curves.items() if not points]
    return Chart(
        name="apart",
        title=f"Distance from the first run of nn.Linear, {measured.gpu.name}",
        caption=_caption(alike),
        height=420,
        columns=(STEPS, *(Column(name(key), f"{title(key)}, nats") for key in others)),
        labels=1,
        rows=rows,
        grid=_grid(measured, runs),
        figure=framed(
            [_line(key, points) for key, points in curves.items() if points],
            xaxis={"title": {"text": "step"}, "rangemode": "tozero"},
            yaxis=decades(values, "difference of the losses, nats (log scale)"),
        ),
    )


def _line(key: tuple, points: list[tuple]):
    """As in the chart of losses; the vendor's first other order has the legend."""
    drawn = line(key, points)
    if key[0] == FIRST[0]:
        drawn.update(name="nn.Linear, other order", mode="lines")
        drawn.update(showlegend=key[2] == 1)
    return drawn


def _grid(measured: Measurements, runs: dict[tuple, TrainingRun]) -> Table:
    """Every run there was, one a row, those from other seeds among them."""
    heads = [
        Head("Linear layers"),
        *(Head(text, numeric=True) for text in ("Seed", "Order", "Run")),
        Head("Held-out loss, nats", numeric=True),
        Head("From the first, nats", numeric=True),
        Head("A step", numeric=True),
        Head("Host", numeric=True),
        Head("Parameters, SHA-256"),
    ]
    first, table = runs[FIRST], []
    for key in measured.keys("training"):
        point = measured.training(*key)
        way, seed, order, repeat = key
        cells = [Cell(WAYS[way], header=True)]
        cells += [Cell(str(number), numeric=True) for number in (seed, order, repeat)]
        if isinstance(point, Missing):
            cells += [Cell("not measured", True, reason=point.reason)] * 5
        else:
            run = point.run
            far = nats(apart(run.losses_nats, first.losses_nats)).removesuffix(" nats")
            host = sorted(run.host_ms)[len(run.host_ms) // 2]
            cells += [
                Cell(significant(run.held_out_nats, 5), numeric=True),
                Cell("other batches" if seed != PLAIN[0] else far, numeric=True),
                Cell(milliseconds(run.time_ms), numeric=True),
                Cell(milliseconds(host), numeric=True),
                Cell(run.parameters_sha256[:DIGITS]),
            ]
        table.append(cells)
    caption = (
        "Every run in the order it was made. Step and host are medians; order 0 is the "
        "order in which the sequences of a batch were drawn. Equal digests are equal "
        "bits of all parameters after the last step."
    )
    return Table(caption, heads, table)


def _caption(alike: list[tuple]) -> str:
    words = [
        f"Root of the mean squared difference of two losses of the same batch, over "
        f"{BLOCK} steps. Grey: nn.Linear against itself, with the sequences of each "
        "batch in other orders."
    ]
    if alike:
        names = "; ".join(map(title, alike))
        words.append(f"Not drawn, for no step of theirs differs: {names}.")
    return " ".join(words)
