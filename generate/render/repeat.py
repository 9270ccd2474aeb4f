"""Two recordings of one GPU compared: how far a number can be trusted.

What was timed in both is matched by its key, and so is every ratio of two times
that one recording took in turns. What moved is explained only by what was logged
beside the times: clocks, throttle reasons, and the samples' own spread.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from generate.render.fact import Fact, Facts, known, missing
from generate.render.formats import count, percent, shape_label, signed_percent
from generate.render.measured import (
    CALL_LABELS,
    IMPLEMENTATIONS,
    Measurements,
    Missing,
)
from generate.render.tables import Cell, Head, Table
from generate.schema import DeviceState, Recording, Timed
from generate.shapes import Shape

# A change of a time beyond this share is listed, with what explains it.
MOVED = 0.03
# The clock explains a change if the two ratios agree within this share.
EXPLAINED = 0.01
LEVELS = (1, 3, 5)
WAYS = ("times", "ratios")

EXPLANATIONS = {
    "clock": "the SM clock changed as much",
    "throttle": "throttle reasons differ",
    "spread": "within the spread of its own samples",
    "unexplained": "not explained by what was logged",
}
POWER = "software power cap"


@dataclass(frozen=True)
class Pair:
    """One quantity in both recordings.

    op: whose colour it has, or None. parts: the timed points it is made of, one for
    a time, two for a ratio, in the first recording and in the second.
    """

    section: str
    what: str
    op: str | None
    shape: Shape | None
    first: float
    second: float
    parts: tuple[tuple[Timed, ...], tuple[Timed, ...]]

    @property
    def change(self) -> float:
        return self.second / self.first - 1

    @property
    def moved(self) -> bool:
        return abs(self.change) > MOVED

    @property
    def states(self) -> tuple[DeviceState | None, DeviceState | None]:
        return tuple(parts[0].state for parts in self.parts)

    @property
    def spreads(self) -> tuple[float, float]:
        """20th to 80th percentile over the median, in each recording."""
        return tuple(parts[0].spread for parts in self.parts)

    @property
    def explanation(self) -> str:
        """Why a time moved, as far as the log says; a name of EXPLANATIONS."""
        first, second = self.states
        clocks = [state and state.clock_sm_mhz for state in (first, second)]
        if all(clocks) and clocks[0] != clocks[1]:
            slower = clocks[0] / clocks[1]
            if abs((1 + self.change) / slower - 1) <= EXPLAINED:
                return "clock"
        reasons = [state and state.throttle for state in (first, second)]
        if None not in reasons and set(reasons[0]) != set(reasons[1]):
            return "throttle"
        if max(self.spreads) >= abs(self.change):
            return "spread"
        return "unexplained"

    @property
    def capped(self) -> bool:
        """Whether the power limit held back the clock both times."""
        reasons = [state.throttle if state else () for state in self.states]
        return all(POWER in (found or ()) for found in reasons)


@dataclass(frozen=True)
class Spread:
    """How the changes of several quantities lie."""

    changes: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.changes)

    @property
    def low(self) -> float:
        """The 5th percentile of the changes."""
        return self._percentile(self.changes, 5)

    @property
    def high(self) -> float:
        return self._percentile(self.changes, 95)

    @property
    def most(self) -> float:
        """95 of 100 lie this close together, whichever way they moved."""
        return self._percentile([abs(change) for change in self.changes], 95)

    @property
    def half(self) -> float:
        """Half lie this close together."""
        return statistics.median(abs(change) for change in self.changes)

    def within(self, level: float) -> float:
        """Share of the quantities that changed by no more than `level`."""
        close = sum(abs(change) <= level for change in self.changes)
        return close / len(self.changes)

    @staticmethod
    def _percentile(values, rank: int) -> float:
        if len(values) == 1:
            return values[0]
        return statistics.quantiles(values, n=100, method="inclusive")[rank - 1]


@dataclass(frozen=True)
class Same:
    """Something that is no time, counted where both recordings hold it."""

    what: str
    same: int
    compared: int


class Repetition:
    """The earlier and the later of two recordings that should say the same."""

    def __init__(self, first: Measurements, second: Measurements):
        self.first, self.second = first, second

    @cached_property
    def times(self) -> list[Pair]:
        first, second = _times(self.first), _times(self.second)
        return [
            Pair(*key, a.time_ms, b.time_ms, ((a,), (b,)))
            for key, a in first.items()
            if (b := second.get(key)) is not None
        ]

    @cached_property
    def ratios(self) -> list[Pair]:
        first, second = _ratios(self.first), _ratios(self.second)
        return [
            Pair(*key, _ratio(a), _ratio(b), (a, b))
            for key, a in first.items()
            if (b := second.get(key)) is not None
        ]

    @property
    def moved(self) -> list[Pair]:
        """Times that moved, by how far."""
        found = [pair for pair in self.times if pair.moved]
        return sorted(found, key=lambda pair: -abs(pair.change))

    @property
    def spreads(self) -> dict[tuple[str, str], Spread]:
        """By section, "all" being the first, and by "times" or "ratios"."""
        found: dict[tuple[str, str], list[float]] = {}
        for way in WAYS:
            for pair in getattr(self, way):
                for section in ("all", pair.section):
                    found.setdefault((section, way), []).append(pair.change)
        return {key: Spread(tuple(changes)) for key, changes in found.items()}

    @property
    def board(self) -> str | None:
        """Whether it was one board; None if a recording does not say."""
        units = [m.gpu.unit for m in (self.first, self.second)]
        if None in units:
            return None
        return "one board" if units[0] == units[1] else "two boards"

    @property
    def best_splits(self) -> Same:
        """Shapes whose fastest split came out the same."""
        best = [_best(m) for m in (self.first, self.second)]
        return _same("Best split of a shape: reduction and factor", *best)

    @property
    def best_split_cost(self) -> float | None:
        """The most time that the first's best splits lose to the second's own."""
        costs = []
        for shape, launch in _best(self.first).items():
            point, best = (
                self.second.split(shape, *launch),
                self.second.best_split(shape),
            )
            if not isinstance(point, Missing) and not isinstance(best, Missing):
                costs.append(point.time_ms / best.time_ms - 1)
        return max(costs, default=None)

    @property
    def winners(self) -> Same:
        """Products for which the same implementation was the faster."""
        winners = [
            {k: _ratio(both) > 1 for k, both in _ratios(m).items() if k[0] == "gemms"}
            for m in (self.first, self.second)
        ]
        return _same("Which of vendor and lesson is the faster", *winners)

    @property
    def equal(self) -> list[Same]:
        """What is no time, where it was compared at all."""
        both = self.first, self.second
        found = [
            _same(what, *(counted(m) for m in both))
            for what, counted in COUNTED.items()
        ]
        found += [self.best_splits, self.winners]
        return [same for same in found if same.compared]


def repetition(measured: Measurements) -> Repetition | Missing:
    """A recording with the newest other one that should say the same.

    Where it has none, the newest two of its GPU that should.
    """
    mine, gpu = measured.recording, measured.gpu.name
    others = [r for r in measured.found if r.name != mine.name]
    for one in (mine, *(r for r in reversed(others) if r.environment.gpu.name == gpu)):
        alike = [r for r in others if r != one and _like(r) == _like(one)]
        if alike:
            both = sorted([one, alike[-1]], key=measured.found.index)
            return Repetition(*(Measurements(recording) for recording in both))
    if any(r.environment.gpu.name == gpu for r in others):
        return Missing(
            f"no other recording of the {gpu} was made by the same kernels, recorder "
            "and software"
        )
    return Missing(f"there is one recording of the {gpu}")


def _like(recording: Recording) -> tuple:
    """What two recordings must share for their times to be the same quantity."""
    environment = recording.environment
    return (
        environment.gpu.name,
        environment.kernels_sha256,
        environment.harness_version,
        environment.software,
    )


# What was timed, by section, words, op and shape


def _times(measured: Measurements) -> dict[tuple, Timed]:
    return {
        key: point
        for key, point in _points(measured)
        if not isinstance(point, Missing) and point.time_ms is not None
    }


def _points(measured: Measurements) -> Iterator[tuple[tuple, Timed | Missing]]:
    ceilings = measured.recording.ceilings
    if ceilings:
        yield ("ceilings", "copy", None, None), ceilings.copy_
        for point in ceilings.points:
            what = f"vendor's product, {point.dtype}"
            yield ("ceilings", what, None, point.shape), point
    for shape in measured.gemm_shapes:
        for call in CALL_LABELS:
            for implementation in IMPLEMENTATIONS:
                key = _gemm(shape, call, implementation)
                yield key, measured.gemm(shape, call, implementation)
    for shape in measured.split_shapes:
        for launch in measured.split_launches(shape):
            yield _split(shape, *launch), measured.split(shape, *launch)
    for implementation, reduction, split_t, *shape in measured.keys("determinism"):
        launch = implementation, reduction, split_t
        words = "vendor" if reduction is None else f"{reduction}, {split_t}"
        key = ("determinism", f"dW, {words}", "dw", tuple(shape))
        yield key, measured.determinism(tuple(shape), *launch)
    for op, implementation, way, *shape in measured.keys("transposes"):
        key = _transpose(tuple(shape), op, implementation, way)
        yield key, measured.transpose(tuple(shape), op, implementation, way)


def _gemm(shape: Shape, call: str, implementation: str) -> tuple:
    op = call.removesuffix("+")
    return "gemms", f"{CALL_LABELS[call]}, {implementation}", op, shape


def _split(shape: Shape, reduction: str, split_t: int) -> tuple:
    words = "no split" if reduction == "none" else f"{reduction}, {split_t}"
    return "splits", f"dW, {words}", "dw", shape


def _transpose(shape: Shape, op: str, implementation: str, way: str) -> tuple:
    what = f"{CALL_LABELS[op]}, {implementation}, {way}"
    return "transposes", what, op, shape


def _ratios(measured: Measurements) -> dict[tuple, tuple[Timed, Timed]]:
    """Two times that were taken in turns: the first is divided by the second."""
    times, found = _times(measured), {}

    def add(key: tuple, words: str, other: tuple) -> None:
        section, _, op, shape = key
        if key in times and other in times:
            found[section, words, op, shape] = times[key], times[other]

    for shape in measured.gemm_shapes:
        for call, label in CALL_LABELS.items():
            vendor, ours = (_gemm(shape, call, i) for i in IMPLEMENTATIONS)
            add(vendor, f"{label}, vendor / lesson", ours)
    for shape in measured.split_shapes:
        plain = _split(shape, "none", 1)
        for launch in measured.split_launches(shape):
            split = _split(shape, *launch)
            if split != plain:
                add(plain, f"dW, no split / {split[1].removeprefix('dW, ')}", split)
    for op, implementation, way, *shape in measured.keys("transposes"):
        plain = _transpose(tuple(shape), op, implementation, "in place")
        other = _transpose(tuple(shape), op, implementation, way)
        if other != plain:
            add(other, f"{other[1]} / in place", plain)
    return found


def _ratio(parts: tuple[Timed, Timed]) -> float:
    return parts[0].time_ms / parts[1].time_ms


def _best(measured: Measurements) -> dict[Shape, tuple]:
    points = {s: measured.best_split(s) for s in measured.split_shapes}
    return {
        shape: (point.reduction, point.split_t)
        for shape, point in points.items()
        if not isinstance(point, Missing)
    }


# What is no time: one function a kind, from a recording to values by key


def _compiled(measured: Measurements) -> dict:
    fields = (
        "programs",
        "num_warps",
        "registers_per_thread",
        "spilled_registers_per_thread",
        "shared_memory_bytes",
        "resident_programs",
    )
    points = {launch: measured.occupancy(*launch) for launch in measured.launches}
    return {
        (launch, field): getattr(point, field)
        for launch, point in points.items()
        if not isinstance(point, Missing)
        for field in fields
    }


def _configurations(measured: Measurements) -> dict:
    return {
        key: found
        for key, point in _times(measured).items()
        if (found := getattr(point, "configuration", None)) is not None
    }


def _errors(measured: Measurements) -> dict:
    """Errors of what adds in a fixed order; atomic adds may differ in the last bits."""
    return {
        key: point.error
        for key, point in _times(measured).items()
        if getattr(point, "error", None) is not None and "atomic" not in key[1]
    }


def _patterns(measured: Measurements) -> dict:
    found = {}
    for implementation, reduction, split_t, *shape in measured.keys("determinism"):
        point = measured.determinism(tuple(shape), implementation, reduction, split_t)
        if reduction == "workspace" and not isinstance(point, Missing):
            for repeats in point.repeats:
                found[split_t, *shape, repeats.condition] = repeats.distinct
    return found


def _slots(measured: Measurements) -> dict:
    found = {}
    for implementation, reduction, split_t, *shape in measured.keys("timelines"):
        if implementation == "stream_k":
            point = measured.stream_k_timeline(tuple(shape))
        else:
            point = measured.timeline(tuple(shape), split_t)
        if not isinstance(point, Missing):
            found[implementation, reduction, split_t, *shape] = (
                point.trace.sms,
                point.trace.resident,
            )
    return found


def _accumulated(measured: Measurements) -> dict:
    section = measured.recording.accumulation
    points = (*section.points, *section.partials) if section else ()
    return {point.key: point.error for point in points}


def _outcomes(measured: Measurements) -> dict:
    section = measured.recording.verification
    return {p.name: p.outcome for p in section.points} if section else {}


COUNTED: dict[str, Callable[[Measurements], dict]] = {
    "Programs, warps, registers, shared memory and resident programs of a kernel": (
        _compiled
    ),
    "Tiles and split that a time was taken with": _configurations,
    "Errors against fp64, atomic adds left out": _errors,
    "Bit patterns that the workspace gave": _patterns,
    "SMs that worked, and the most programs on one": _slots,
    "Errors after accumulation and of 16-bit partial sums": _accumulated,
    "Outcomes of the GPU tests": _outcomes,
}


def _same(what: str, first: dict, second: dict) -> Same:
    both = [key for key in first if key in second]
    same = sum(first[key] == second[key] for key in both)
    return Same(what, same, len(both))


# For pages: facts, and tables


SECTIONS = ("all", "ceilings", "gemms", "splits", "determinism", "transposes")
SPREADS = (
    "count",
    "median_pct",
    "p5_pct",
    "p95_pct",
    "most_pct",
    "half_pct",
    *(f"within_{level}_pct" for level in LEVELS),
)


def facts(measured: Measurements) -> Facts:
    """Every key that the page on repeating asks for."""
    found = repetition(measured)
    if isinstance(found, Missing):
        return dict.fromkeys(_KEYS, missing(found.reason))
    moved = [pair.explanation for pair in found.moved]
    spreads = found.spreads
    numbers = {
        "repeat.first": known(found.first.recording.name),
        "repeat.second": known(found.second.recording.name),
        "repeat.board": known(
            found.board, reason="a recording does not say which board it ran on"
        ),
        "repeat.days": known(_days(found)),
        "repeat.own": known(
            measured.recording.name
            in (found.first.recording.name, found.second.recording.name)
        ),
        "repeat.moved": known(len(moved)),
        "repeat.moved.capped": known(sum(pair.capped for pair in found.moved)),
        **{f"repeat.moved.{name}": known(moved.count(name)) for name in EXPLANATIONS},
    }
    for section in SECTIONS:
        for way in WAYS:
            key = f"repeat.{section}.{way}"
            numbers |= _spread(key, spreads.get((section, way)))
    for name, same in (("best", found.best_splits), ("winner", found.winners)):
        numbers[f"repeat.{name}.same"] = known(same.same)
        numbers[f"repeat.{name}.compared"] = known(same.compared)
    cost = found.best_split_cost
    numbers["repeat.best.cost_pct"] = known(
        None if cost is None else 100 * cost, percent, "the two share no split"
    )
    numbers["repeat.equal.same"] = known(sum(same.same for same in found.equal))
    numbers["repeat.equal.compared"] = known(sum(same.compared for same in found.equal))
    return numbers


def _days(found: Repetition) -> int:
    dates = [m.recording.environment.recorded_on for m in (found.first, found.second)]
    return (dates[1] - dates[0]).days


def _spread(key: str, spread: Spread | None) -> Facts:
    if spread is None:
        absent = missing("the two recordings share none")
        return {f"{key}.{name}": absent for name in SPREADS}
    number = count(len(spread.changes), "quantity", "quantities")
    shares = {
        "median_pct": spread.median,
        "p5_pct": spread.low,
        "p95_pct": spread.high,
        "most_pct": spread.most,
        "half_pct": spread.half,
        **{f"within_{level}_pct": spread.within(level / 100) for level in LEVELS},
    }
    return {
        f"{key}.count": known(len(spread.changes)),
        **{
            f"{key}.{name}": Fact(100 * share, percent(100 * share), f"of {number}")
            for name, share in shares.items()
        },
    }


_KEYS = (
    "repeat.first",
    "repeat.second",
    "repeat.board",
    "repeat.days",
    "repeat.own",
    "repeat.moved",
    "repeat.moved.capped",
    *(f"repeat.moved.{name}" for name in EXPLANATIONS),
    *(
        f"repeat.{section}.{way}.{name}"
        for section in SECTIONS
        for way in WAYS
        for name in SPREADS
    ),
    "repeat.best.same",
    "repeat.best.compared",
    "repeat.best.cost_pct",
    "repeat.winner.same",
    "repeat.winner.compared",
    "repeat.equal.same",
    "repeat.equal.compared",
)


def tables(found: Repetition, *verdicts: dict[str, str]) -> dict[str, Table]:
    """verdicts: of the first recording and of the second on each claim."""
    equal = [*found.equal, _same("Verdicts on the lesson's claims", *verdicts)]
    return {
        "summary": _summary(found),
        "moved": _moved(found),
        "equal": _equal([same for same in equal if same.compared]),
    }


def _summary(found: Repetition) -> Table:
    heads = [Head("Section"), Head("What")]
    heads += [
        Head(text, numeric=True)
        for text in (
            "Compared",
            "Median change",
            "5th percentile",
            "95th percentile",
            *(f"Within {level} %" for level in LEVELS),
        )
    ]
    rows = []
    for section in SECTIONS:
        for way in WAYS:
            spread = found.spreads.get((section, way))
            if spread is None:
                continue
            cells = [str(len(spread.changes))]
            cells += [
                signed_percent(100 * c)
                for c in (spread.median, spread.low, spread.high)
            ]
            cells += [percent(100 * spread.within(level / 100)) for level in LEVELS]
            rows.append(
                [
                    Cell(section, header=True),
                    Cell(way),
                    *(Cell(text, numeric=True) for text in cells),
                ]
            )
    caption = "Change from the first recording to the second, by section"
    return Table(caption, heads, rows)


def _moved(found: Repetition) -> Table:
    heads = [Head("Time of"), Head("T × K × N"), Head("Change", numeric=True)]
    heads += [Head("What explains it")]
    heads += [
        Head(text, numeric=True)
        for text in (
            "First, ms",
            "Second, ms",
            "Spread of its samples",
            "SM clock, MHz",
            "Power, W",
        )
    ]
    heads += [Head("Throttled by")]
    rows = [
        [
            Cell(f"{pair.section}: {pair.what}", header=True),
            Cell(shape_label(pair.shape) if pair.shape else ""),
            Cell(signed_percent(100 * pair.change), numeric=True),
            Cell(EXPLANATIONS[pair.explanation]),
            *(Cell(f"{ms:.4g}", numeric=True) for ms in (pair.first, pair.second)),
            Cell(_both(percent(100 * s) for s in pair.spreads), numeric=True),
            Cell(_both(map(_clock, pair.states)), numeric=True),
            Cell(_both(map(_power, pair.states)), numeric=True),
            Cell(_both(map(_throttled, pair.states))),
        ]
        for pair in found.moved
    ]
    caption = (
        f"Times that moved by more than {100 * MOVED:.0f} %, and what was logged with "
        "them: first → second"
    )
    return Table(caption, heads, rows)


def _both(texts) -> str:
    """What holds in the first and in the second recording, once if it is the same."""
    return " → ".join(dict.fromkeys(texts))


def _clock(state: DeviceState | None) -> str:
    known = state and state.clock_sm_mhz
    return "not known" if known is None else str(known)


def _power(state: DeviceState | None) -> str:
    known = state and state.power_w
    return "not known" if known is None else f"{known:.0f}"


def _throttled(state: DeviceState | None) -> str:
    known = state and state.throttle
    return "not known" if known is None else ", ".join(known) or "nothing"


def _equal(found: list[Same]) -> Table:
    heads = [
        Head("What"),
        Head("Compared", numeric=True),
        Head("The same", numeric=True),
    ]
    rows = [
        [
            Cell(same.what, header=True),
            Cell(str(same.compared), numeric=True),
            Cell(str(same.same), numeric=True),
        ]
        for same in found
    ]
    return Table("What is no time, compared for equality", heads, rows)
