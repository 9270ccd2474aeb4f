"""Facts of training: whether runs agree, whether they repeat, what a step costs."""

import itertools
import math
from collections.abc import Sequence
from statistics import fmean, median

from generate.render import formats
from generate.render.fact import Fact, Facts, known, missing, times
from generate.render.formats import count
from generate.render.measured import Measurements, Missing
from generate.schema import TrainingRun

# Who computes the linear layers, as readers see it.
WAYS = {
    "vendor": "nn.Linear",
    "atomic": "Linear",
    "deterministic": "Linear, deterministic",
    "main_grad": "Linear, main_grad",
}
OURS = ("atomic", "deterministic", "main_grad")
# Of all steps, the first ones, in which little has been amplified yet.
EARLY = 1 / 3
# Seed and order of the run that all others are held against.
PLAIN = (0, 0)
SETUP = (
    "steps",
    "layers",
    "width",
    "heads",
    "context",
    "sequences",
    "tokens",
    "parameters",
    "text",
    "text_bytes",
    "held_out_bytes",
    "byte_entropy",
    "optimizer",
    "dtype",
)
NOISE = (
    "runs",
    "pairs",
    "least",
    "apart",
    "early",
    "held_out",
    "seeds",
    "seeds_held_out",
)
EACH = (
    "runs",
    "distinct",
    "ms",
    "host_ms",
    "over_vendor",
    "held_out",
    "peak",
    "apart",
    "early",
    "held_out_apart",
)


def facts(measured: Measurements) -> Facts:
    return {
        f"training.{name}": fact
        for name, fact in {
            **_setup(measured),
            **_noise(measured),
            **_each(measured),
        }.items()
    }


def shown(measured: Measurements) -> dict[tuple, TrainingRun]:
    """Every run that may be shown, by way, seed, order and repeat."""
    found = {}
    for key in measured.keys("training"):
        point = measured.training(*key)
        if not isinstance(point, Missing):
            found[key] = point.run
    return found


def absent(measured: Measurements, way: str) -> Missing:
    """Why no run of a way is shown."""
    found = [key for key in measured.keys("training") if key[0] == way]
    key = found[0] if found else (way, *PLAIN, 1)
    point = measured.training(*key)
    return point if isinstance(point, Missing) else Missing("no such run was made")


def same(runs: dict[tuple, TrainingRun], way: str) -> list[TrainingRun]:
    """The runs of a way in which nothing differs."""
    return [run for key, run in runs.items() if key[:3] == (way, *PLAIN)]


def orders(runs: dict[tuple, TrainingRun]) -> list[TrainingRun]:
    """The vendor's, one for each order of the sequences, the plain one first."""
    return [
        run
        for (way, seed, _, repeat), run in sorted(runs.items())
        if (way, seed, repeat) == ("vendor", PLAIN[0], 1)
    ]


def seeds(runs: dict[tuple, TrainingRun]) -> list[TrainingRun]:
    """The vendor's, one for each seed."""
    return [
        run
        for (way, _, order, repeat), run in sorted(runs.items())
        if (way, order, repeat) == ("vendor", PLAIN[1], 1)
    ]


def apart(one: Sequence[float], two: Sequence[float]) -> float:
    """Root of the mean, over all steps, of the squared difference of two losses."""
    return math.sqrt(fmean((a - b) ** 2 for a, b in zip(one, two, strict=True)))


def beginning(losses: Sequence[float]) -> Sequence[float]:
    return losses[: max(1, round(EARLY * len(losses)))]


def _span(values: list[float]) -> float:
    return max(values) - min(values)


def _setup(measured: Measurements) -> Facts:
    section = measured.recording.training
    if section is None:
        return dict.fromkeys(SETUP, missing(absent(measured, "vendor").reason))
    model, text = section.model, section.text

    def number(value: int) -> Fact:
        return Fact(value, f"{value:,}")

    found = (
        number(section.steps),
        number(model.layers),
        number(model.width),
        number(model.heads),
        number(model.context_tokens),
        number(model.batch_sequences),
        number(model.batch_tokens),
        number(model.parameters),
        known(text.name),
        number(text.text_bytes),
        number(text.held_out_bytes),
        known(text.byte_entropy_nats, formats.nats),
        known(section.optimizer),
        known(model.autocast_dtype),
    )
    return dict(zip(SETUP, found, strict=True))


def _noise(measured: Measurements) -> Facts:
    """By how much torch.nn.Linear disagrees with itself."""
    runs = shown(measured)
    plain, begun = orders(runs), seeds(runs)
    why = missing(
        "the runs of nn.Linear that others are held against were not all made"
        if plain
        else absent(measured, "vendor").reason
    )
    found = dict.fromkeys(NOISE, why)
    if len(plain) > 1:
        curves = [run.losses_nats for run in plain]
        far = [apart(a, b) for a, b in itertools.combinations(curves, 2)]
        begun_at = [beginning(losses) for losses in curves]
        early = max(apart(a, b) for a, b in itertools.combinations(begun_at, 2))
        span = _span([run.held_out_nats for run in plain])
        note = f"over {count(len(plain), 'order')} of the sequences in a batch"
        found["runs"] = known(len(plain))
        found["pairs"] = known(len(far))
        found["least"] = Fact(min(far), formats.nats(min(far)), note)
        found["apart"] = Fact(max(far), formats.nats(max(far)), note)
        found["early"] = Fact(early, formats.nats(early), note)
        found["held_out"] = Fact(span, formats.nats(span), note)
    if len(begun) > 1:
        span = _span([run.held_out_nats for run in begun])
        note = f"over {count(len(begun), 'seed')}"
        found["seeds"] = known(len(begun))
        found["seeds_held_out"] = Fact(span, formats.nats(span), note)
    return {f"noise.{name}": fact for name, fact in found.items()}


def _each(measured: Measurements) -> Facts:
    runs = shown(measured)
    plain, found = orders(runs), {}
    for way in WAYS:
        mine = same(runs, way)
        each = dict.fromkeys(EACH, missing(absent(measured, way).reason))
        if mine:
            each |= _one(mine)
        if mine and way != "vendor" and plain:
            each |= _against(mine, plain)
        elif way == "vendor":
            its = missing("it is what the others are held against")
            each["apart"] = each["early"] = each["held_out_apart"] = its
        each["over_vendor"] = times(
            each["ms"], found.get("vendor.ms", each["ms"]), "over nn.Linear's time"
        )
        found |= {f"{way}.{name}": fact for name, fact in each.items()}
    return found


def _one(mine: list[TrainingRun]) -> Facts:
    """What the runs of one way say by themselves."""
    step = median(ms for run in mine for ms in run.step_ms)
    host = median(ms for run in mine for ms in run.host_ms)
    distinct = len({(run.parameters_sha256, run.losses_nats) for run in mine})
    peak, again = max(run.peak_bytes for run in mine), count(len(mine), "run")
    note = f"median of all steps of {again}"
    return {
        "runs": known(len(mine)),
        "distinct": Fact(distinct, str(distinct), f"in {again}")
        if len(mine) > 1
        else missing("it was run once"),
        "ms": Fact(step, formats.milliseconds(step), note),
        "host_ms": Fact(host, formats.milliseconds(host), note),
        "held_out": known(mine[0].held_out_nats, formats.nats),
        "peak": Fact(peak / 2**30, formats.gibibytes(peak)),
    }


def _against(mine: list[TrainingRun], plain: list[TrainingRun]) -> Facts:
    """How far the runs of a way are from the vendor's, the furthest of them."""
    far, early = (
        max(
            fmean(apart(of(run.losses_nats), of(other.losses_nats)) for other in plain)
            for run in mine
        )
        for of in (tuple, beginning)
    )
    middle = fmean(other.held_out_nats for other in plain)
    off = max(abs(run.held_out_nats - middle) for run in mine)
    note = f"mean of {count(len(plain), 'distance')} to runs of nn.Linear"
    return {
        "apart": Fact(far, formats.nats(far), note),
        "early": Fact(early, formats.nats(early), note),
        "held_out_apart": Fact(
            off, formats.nats(off), f"from the mean of {count(len(plain), 'run')}"
        ),
    }
