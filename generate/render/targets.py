"""What the fast kernels are to reach, and what a recording says they reached.

A target over many products is judged where all of them were measured; where some were
not, it shows what the others gave, and stays without a verdict.
"""

from dataclasses import dataclass
from typing import Literal

from generate.render.claims.base import NOISE
from generate.render.formats import (
    close_ratio,
    count,
    microseconds,
    milliseconds,
    percent,
    ratio,
    shape_label,
    signed_percent,
)
from generate.render.ladder import starved_shapes
from generate.render.measured import CALL_LABELS, CALLS, STEP, Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.schema import geometric_mean
from generate.shapes import FURTHER_SHAPES, GEMM_SHAPES, LAUNCH_SHAPE, WORKED, Shape

WRITTEN = {"×": close_ratio, "ms": milliseconds, "%": percent, "µs": microseconds}


@dataclass(frozen=True)
class Target:
    """One row: what is measured in `unit`, and how much it is to be, at least or most.

    where: the shapes that it is of, or the one that decided it. missing: why it was
    not measured, or not in full.
    """

    what: str
    sense: Literal["≥", "≤"]
    limit: float
    unit: Literal["×", "ms", "%", "µs"]
    value: float | None
    where: str = ""
    missing: str | None = None

    @property
    def outcome(self) -> Literal["met", "missed", "not measured"]:
        if self.missing is not None:
            return "not measured"
        sides = self.value, self.limit
        low, high = sides if self.sense == "≤" else sides[::-1]
        return "met" if low <= high else "missed"

    @property
    def wanted(self) -> str:
        return f"{self.sense} {WRITTEN[self.unit](self.limit)}"

    @property
    def measured(self) -> str:
        if self.value is None:
            return "not measured"
        return WRITTEN[self.unit](self.value)

    @property
    def apart(self) -> float | None:
        """Measured over wanted, less one, in percent; None without a verdict."""
        if self.missing is not None:
            return None
        return 100 * (self.value / self.limit - 1)

    def as_json(self) -> dict:
        return {
            "target": self.what,
            "sense": self.sense,
            "limit": self.limit,
            "unit": self.unit,
            "value": self.value,
            "where": self.where,
            "outcome": self.outcome,
            "not_measured_reason": self.missing,
        }


def targets(measured: Measurements) -> list[Target]:
    """Every target, in the order in which they were set."""
    return [
        *_worked(measured),
        *_recorded(measured),
        *_deterministic(measured),
        _planned(measured),
        *_further(measured),
        _launches(measured),
    ]


def table(measured: Measurements) -> Table:
    rows = []
    for target in targets(measured):
        none = target.missing or "" if target.value is None else ""
        apart = "" if target.apart is None else signed_percent(target.apart)
        rows.append(
            [
                Cell(target.what, header=True),
                Cell(target.wanted, numeric=True),
                Cell(target.measured, numeric=True, reason=none),
                Cell(apart, numeric=True),
                Cell(target.outcome, reason=target.missing or ""),
                Cell(target.where),
            ]
        )
    heads = [
        Head("Target"),
        Head("Wanted", numeric=True),
        Head("Measured", numeric=True),
        Head("Apart", numeric=True),
        Head("Verdict"),
        Head("Where"),
    ]
    caption = (
        "What the fast kernels are to reach. Ratios are of times, means are geometric; "
        "apart is measured over wanted, less one"
    )
    return Table(caption, heads, rows)


@dataclass(frozen=True)
class _Ratios:
    """Vendor time over ours, or the like, by shape and call; and what is missing."""

    found: dict[tuple[Shape, str], float]
    missing: str | None

    def mean(self, what: str, limit: float, shapes: int) -> Target:
        value = geometric_mean(list(self.found.values())) if self.found else None
        shown = len({shape for shape, _ in self.found})
        where = f"{shown} of {count(shapes, 'shape')}" if shown else ""
        return Target(what, "≥", limit, "×", value, where, self.missing)

    def least(self, what: str, limit: float) -> Target:
        if not self.found:
            return Target(what, "≥", limit, "×", None, "", self.missing)
        worst = min(self.found, key=self.found.get)
        value, where = self.found[worst], _place(*worst)
        return Target(what, "≥", limit, "×", value, where, self.missing)


def _ratios(pairs: dict) -> _Ratios:
    """pairs: by shape and call, two points; the first's time over the second's."""
    found, why = {}, None
    for place, (above, below) in pairs.items():
        reasons = [p.reason for p in (below, above) if isinstance(p, Missing)]
        if reasons:
            why = why or (_place(*place), reasons[0])
        else:
            found[place] = above.time_ms / below.time_ms
    if not pairs:
        return _Ratios(found, "no recorded shape starves this GPU")
    # Where nothing was measured, the first place has no reason of its own.
    return _Ratios(found, why and (": ".join(why) if found else why[1]))


def _place(shape: Shape, call: str) -> str:
    return f"{CALL_LABELS[call]} at {shape_label(shape)}"


def _against_vendor(look_up, shapes, calls=CALLS) -> _Ratios:
    return _ratios(
        {
            (shape, call): [look_up(shape, call, by) for by in ("vendor", "fast")]
            for shape in shapes
            for call in calls
        }
    )


def _worked(measured: Measurements) -> list[Target]:
    name, parts = shape_label(WORKED), " + ".join(CALL_LABELS[call] for call in STEP)
    sums, reasons = {}, {}
    for by in ("vendor", "fast"):
        points = [measured.gemm(WORKED, call, by) for call in STEP]
        missing = [point.reason for point in points if isinstance(point, Missing)]
        if missing:
            reasons[by] = missing[0]
        else:
            sums[by] = sum(point.time_ms for point in points)
    why = reasons.get("fast") or reasons.get("vendor")
    gain = None if why else sums["vendor"] / sums["fast"]
    time, no_time = sums.get("fast"), reasons.get("fast")
    return [
        Target(f"{name}, vendor ÷ ours", "≥", 1.05, "×", gain, parts, why),
        Target(f"{name}, ours", "≤", 3.75, "ms", time, parts, no_time),
    ]


def _recorded(measured: Measurements) -> list[Target]:
    rows, of = [], len(GEMM_SHAPES)
    for call in CALLS:
        ratios = _against_vendor(measured.gemm, GEMM_SHAPES, [call])
        what = f"{CALL_LABELS[call]}, {of} shapes, mean vendor ÷ ours"
        rows.append(ratios.mean(what, 1.0, of))
    ratios = _against_vendor(measured.gemm, GEMM_SHAPES)
    return [*rows, ratios.least("worst of these, vendor ÷ ours", 0.95)]


def _deterministic(measured: Measurements) -> list[Target]:
    rows, shapes = [], starved_shapes(measured)
    for call in ("dw", "dw+"):
        pairs = {
            (shape, call): [
                measured.gemm(shape, call, by) for by in ("fast", "deterministic")
            ]
            for shape in shapes
        }
        what = f"{CALL_LABELS[call]}, starved shapes, mean default ÷ deterministic"
        rows.append(_ratios(pairs).mean(what, 0.97, len(shapes)))
    return rows


def _planned(measured: Measurements) -> Target:
    """Over the shapes that were swept."""
    over, why = {}, None
    for shape in measured.split_shapes:
        planned, best = measured.planned_split(shape), measured.best_split(shape)
        reasons = [p.reason for p in (planned, best) if isinstance(p, Missing)]
        if reasons:
            why = why or reasons[0]
        else:
            over[shape] = planned.time_ms / best.time_ms
    what = f"planned splits within {100 * NOISE:.0f} % of the best"
    if not over:
        return Target(what, "≥", 95.0, "%", None, "", why)
    near = sum(value <= 1 + NOISE for value in over.values())
    worst = max(over, key=over.get)
    where = (
        f"{near} of {count(len(over), 'shape')}; worst {shape_label(worst)}, "
        f"{ratio(over[worst])} the best"
    )
    return Target(what, "≥", 95.0, "%", 100 * near / len(over), where, why)


def _further(measured: Measurements) -> list[Target]:
    ratios = _against_vendor(measured.further, FURTHER_SHAPES)
    of = len(FURTHER_SHAPES)
    return [
        ratios.mean(f"{of} further shapes, mean vendor ÷ ours", 0.95, of),
        ratios.least(f"{of} further shapes, worst vendor ÷ ours", 0.80),
    ]


def _launches(measured: Measurements) -> Target:
    over, why = {}, None
    for call in CALLS:
        pair = [measured.launch(LAUNCH_SHAPE, call, way) for way in ("public", "bare")]
        reasons = [p.reason for p in pair if isinstance(p, Missing)]
        if reasons:
            why = why or reasons[0]
        else:
            over[call] = pair[0].time_us - pair[1].time_us
    what = "host time of a call over a bare launch"
    if not over:
        return Target(what, "≤", 15.0, "µs", None, "", why)
    worst = max(over, key=over.get)
    where = f"most: {_place(LAUNCH_SHAPE, worst)}"
    return Target(what, "≤", 15.0, "µs", over[worst], where, why)
