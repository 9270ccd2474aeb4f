"""The SM timeline: dW's programs on the SMs that ran them, as one picture.

A launch is drawn as a few paths: time across, a row an SM, a lane for each program
that an SM holds at once. All launches of a shape, one a split factor and one in
stream-K form, share one scale of time. The first shape stands in the page, the
others in files that the browser asks for.
"""

import functools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice, pairwise
from typing import Literal

import jinja2

from generate.render.formats import (
    count,
    microseconds,
    percent,
    rounded,
    shape_key,
    shape_label,
    signed_percent,
)
from generate.render.measured import Measurements, Missing
from generate.render.rows import REASON, Column, Row, Rows
from generate.render.tables import Cell, Head, Table
from generate.schema import OccupancyPoint, TimelinePoint, Trace
from generate.shapes import STARVED, TIMELINE_FACTORS, TIMELINE_SHAPES, Shape

# A launch by its split factor, or the one that has none.
Form = int | Literal["stream_k"]
STREAM_K = "stream_k"
FORMS: tuple[Form, ...] = (*TIMELINE_FACTORS, STREAM_K)
COLUMNS = (
    Column("T", "T"),
    Column("K", "K"),
    Column("N", "N"),
    Column("implementation", "Implementation", numeric=False),
    Column("split_t", "Split factor"),
    Column("programs", "Programs"),
    Column("sms", "SMs that ran one"),
    Column("fill_pct", "Fill by the trace, %", digits=3),
    Column("sm_active_pct", "SM-active share by Nsight Compute, %", digits=3),
    Column("difference_points", "Fill less SM-active share, points", digits=2),
    Column("makespan_us", "Makespan, µs"),
    Column("waves", "Waves"),
    Column("resident", "Most programs at once on an SM"),
    Column("resident_programs", "Programs an SM has room for"),
    Column("overhead_pct", "Change of the operation's time by tracing, %", digits=2),
)
# The page's table: a short head for each column of a launch's numbers, and how they
# are written.
TABLE = {
    "programs": ("Programs", "{}"),
    "sms": ("SMs", "{}"),
    "fill_pct": ("Fill, %", "{:.1f}"),
    "sm_active_pct": ("SM-active, %", "{:.1f}"),
    "difference_points": ("Apart, points", "{:+.1f}"),
    "makespan_us": ("Makespan, µs", "{:.1f}"),
    "waves": ("Waves", "{}"),
    "resident": ("At once", "{}"),
    "resident_programs": ("Room", "{}"),
    "overhead_pct": ("Tracing, %", "{:+.1f}"),
}
# The picture's units: across its whole time, and down an SM's row.
ACROSS, ROW = 1000, 4


@dataclass(frozen=True)
class Launch:
    """A traced launch and what its trace, and the counters, say of it."""

    point: TimelinePoint
    sm_count: int
    sm_active_pct: float | None
    """By Nsight Compute, of the same launch untraced."""
    counters_reason: str | None

    @property
    def trace(self) -> Trace:
        return self.point.trace

    @property
    def programs(self) -> int:
        return len(self.trace.sm)

    @property
    def fill_pct(self) -> float:
        return 100 * self.trace.fill(self.sm_count)

    @property
    def makespan_us(self) -> float:
        return self.trace.makespan_ns / 1000

    @property
    def overhead_pct(self) -> float:
        return 100 * self.point.overhead

    @property
    def difference_points(self) -> float | None:
        """Fill less the SM-active share."""
        active = self.sm_active_pct
        return None if active is None else self.fill_pct - active

    @property
    def makespan(self) -> str:
        return microseconds(self.makespan_us)

    @property
    def filled(self) -> str:
        return percent(self.fill_pct)

    @property
    def says(self) -> str:
        """What the picture shows, for whoever does not see it and whoever does."""
        form = f"Split factor {self.point.split_t}"
        if self.point.implementation == STREAM_K:
            form = "Stream-K"
        return (
            f"{form}: {count(self.programs, 'program')} on {self.trace.sms} of "
            f"{self.sm_count} SMs, done after {self.makespan}. SMs "
            f"held a program for {self.filled} of that time. At most "
            f"{self.trace.resident} at once on one SM, which has room for "
            f"{self.point.resident_programs}; {count(self.trace.waves, 'wave')}. "
            f"Tracing changed the operation's time by "
            f"{signed_percent(self.overhead_pct)}."
        )


@dataclass(frozen=True)
class State:
    """A launch of a picture. drawn: its bars; end: where they end."""

    form: Form
    launch: Launch | Missing
    drawn: str = ""
    end: float = 0

    @property
    def name(self) -> str:
        return "stream-K" if self.form == STREAM_K else f"S = {self.form}"


@dataclass(frozen=True)
class Picture:
    """A shape in each form, on one scale of time."""

    shape: Shape
    sm_count: int
    states: tuple[State, ...]
    until_ns: int

    @property
    def key(self) -> str:
        return shape_key(self.shape)

    @property
    def label(self) -> str:
        return shape_label(self.shape)

    @property
    def height(self) -> int:
        return ROW * self.sm_count

    @property
    def traced(self) -> list[State]:
        return [s for s in self.states if isinstance(s.launch, Launch)]

    @property
    def best(self) -> State:
        """The split factor whose programs were done first, if any was traced."""
        factors = [state for state in self.traced if state.form != STREAM_K]
        return min(factors or self.traced, key=lambda state: state.launch.makespan_us)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round times along the picture: where, in percent, and what they say."""
        longest = self.until_ns / 1000
        times = range(0, int(longest) + 1, _round_step(longest, 5))
        return [(rounded(100e3 * t / self.until_ns), f"{t} µs") for t in times]

    @property
    def rows(self) -> list[tuple[float, str]]:
        """SMs that are named beside their row, and where, in percent."""
        sms = range(0, self.sm_count, _round_step(self.sm_count, 7))
        return [(rounded(100 * (sm + 0.5) / self.sm_count), f"{sm}") for sm in sms]


def shapes(measured: Measurements) -> list[Shape]:
    """The site's shapes, then whatever else was traced."""
    traced = (key[3:] for key in measured.keys("timelines"))
    return list(dict.fromkeys([*TIMELINE_SHAPES, *traced]))


def forms(measured: Measurements) -> tuple[Form, ...]:
    """The split factors, and stream-K if it was recorded at any shape."""
    recorded = (key[0] for key in measured.keys("timelines"))
    return FORMS if STREAM_K in recorded else TIMELINE_FACTORS


def launch(measured: Measurements, shape: Shape, form: Form) -> Launch | Missing:
    if form == STREAM_K:
        point = measured.stream_k_timeline(shape)
    else:
        point = measured.timeline(shape, form)
    if isinstance(point, Missing):
        return point
    counted = profiled(measured, shape, form)
    if isinstance(counted, Missing):
        active, reason = None, counted.reason
    elif counted.counters is None:
        active, reason = None, counted.counters_reason
    else:
        active, reason = counted.counters.sm_active_pct, None
    return Launch(point, measured.gpu.sm_count, active, reason)


def profiled(
    measured: Measurements, shape: Shape, form: Form
) -> OccupancyPoint | Missing:
    """What profilers read of the same launch, untraced."""
    if form == STREAM_K:
        return measured.occupancy(shape, "fast", "atomic", 1)
    reduction = "none" if form == 1 else "atomic"
    return measured.occupancy(shape, "dw", reduction, form)


def launches(measured: Measurements) -> list[Launch]:
    """Every launch that was traced."""
    found = (launch(measured, s, f) for s in shapes(measured) for f in FORMS)
    return [one for one in found if isinstance(one, Launch)]


@functools.lru_cache(maxsize=8)
def pictures(measured: Measurements) -> list[Picture] | Missing:
    """A picture of each shape that was traced, the starved one first."""
    found = [_picture(measured, shape) for shape in shapes(measured)]
    found = [picture for picture in found if picture.traced]
    if not found:
        return measured.timeline(STARVED, 1)
    return sorted(found, key=lambda picture: picture.shape != STARVED)


def rows(measured: Measurements) -> Rows:
    """The numbers of every launch, for the table and the downloads."""
    return Rows(
        name="timelines",
        title=f"dW's launches as traced, {measured.gpu.name}",
        columns=COLUMNS,
        labels=3,
        rows=[
            {
                **dict(zip("TKN", shape, strict=True)),
                "implementation": STREAM_K if form == STREAM_K else "lesson",
                "split_t": None if form == STREAM_K else form,
                **_row(launch(measured, shape, form)),
            }
            for shape in shapes(measured)
            for form in forms(measured)
        ],
    )


def table(measured: Measurements) -> Table:
    """The rows as the page shows them."""
    caption = (
        f"dW's launches on {measured.gpu.name}. SM-active: by Nsight Compute, and how "
        "far fill is from it. At once: the most programs on one SM, and how many it "
        "has room for. Tracing: what it changed of the operation's time."
    )
    heads = [Head("T × K × N"), Head("S", True)]
    heads += [Head(head, True) for head, _ in TABLE.values()]
    lines = []
    for row in rows(measured).rows:
        cells = [Cell(shape_label((row["T"], row["K"], row["N"])), header=True)]
        split_t = row["split_t"]
        cells.append(Cell("stream-K") if split_t is None else Cell(f"{split_t}", True))
        for key, (_, written) in TABLE.items():
            if row.get(key) is None:
                cells.append(Cell("not measured", True, reason=row[REASON.key]))
            else:
                text = written.format(row[key]).replace("-", "−")
                cells.append(Cell(text, True))
        lines.append(cells)
    names = [line[0].text for line in lines] + [""]
    ends = {at for at, (name, then) in enumerate(pairwise(names)) if name != then}
    return Table(caption, heads, lines, frozenset(ends))


def files(measured: Measurements, templates: jinja2.Environment) -> dict[str, str]:
    """What stands beside a recording's charts: the table, and all but the figure's
    frame of each shape's picture."""
    drawn = pictures(measured)
    if isinstance(drawn, Missing):
        return {}
    read = rows(measured)
    found = {"timelines.csv": read.csv, "timelines.data.json": read.data(measured)}
    body = templates.get_template("partials/timeline-body.html.j2")
    for picture in drawn:
        found[f"timeline-{picture.key}.html"] = body.render(picture=picture)
    return found


def _row(found: Launch | Missing) -> Row:
    if isinstance(found, Missing):
        return {REASON.key: found.reason}
    return {
        "programs": found.programs,
        "sms": found.trace.sms,
        "fill_pct": found.fill_pct,
        "sm_active_pct": found.sm_active_pct,
        "difference_points": found.difference_points,
        "makespan_us": found.makespan_us,
        "waves": found.trace.waves,
        "resident": found.trace.resident,
        "resident_programs": found.point.resident_programs,
        "overhead_pct": found.overhead_pct,
        REASON.key: found.counters_reason,
    }


def _picture(measured: Measurements, shape: Shape) -> Picture:
    found = {form: launch(measured, shape, form) for form in forms(measured)}
    traced = [one for one in found.values() if isinstance(one, Launch)]
    sm_count = measured.gpu.sm_count
    if not traced:
        return Picture(shape, sm_count, (), 0)
    until = max(one.trace.makespan_ns for one in traced)
    row_of = _rows_of([one.trace for one in traced], sm_count)
    states = []
    for form, one in found.items():
        if isinstance(one, Missing):
            states.append(State(form, one))
            continue
        lanes = max(one.point.resident_programs, one.trace.resident)
        drawn = draw(one.trace, row_of, lanes, until)
        end = rounded(100 * one.trace.makespan_ns / until)
        states.append(State(form, one, drawn, end))
    return Picture(shape, len(row_of), tuple(states), until)


def _rows_of(traces: list[Trace], sm_count: int) -> dict[int, int]:
    """Row of each SM by its number; numbers may leave some out."""
    used = {sm for trace in traces for sm in trace.sm}
    unused = (sm for sm in numbers() if sm not in used)
    sms = [*used, *islice(unused, max(0, sm_count - len(used)))]
    return {sm: row for row, sm in enumerate(sorted(sms))}


def draw(trace: Trace, row_of: dict[int, int], lanes: int, until_ns: int) -> str:
    """The bars of a launch: paths as long as they took, and where a bar follows
    another without a gap, a seam between them."""
    # Rows of an odd number of lanes would meet in the same colour.
    bars_height = ROW - lanes % 2
    height = bars_height / lanes

    def x(time_ns: int) -> int:
        return round(ACROSS * time_ns / until_ns)

    slots = defaultdict(list)
    spans = zip(trace.sm, trace.lanes, trace.start_ns, trace.end_ns, strict=True)
    for sm, lane, start, end in spans:
        slots[row_of[sm], lane].append((x(start), x(end)))
    idle = [
        _box(x(start), x(end), ROW * row, bars_height)
        for row, start, end in _idle(trace, row_of)
        if x(end) > x(start)
    ]
    bars, seams = ([], []), []
    for (row, lane), placed in sorted(slots.items()):
        top = ROW * row + height * lane
        for start, end, follows in _joined(sorted(placed)):
            bars[lane % 2].append(_box(start, end, top, height))
            seams += [f"M{at} {top:g}v{height:g}" for at in follows]
    paths = {"idle": idle, "first": bars[0], "second": bars[1], "seam": seams}
    return "".join(
        f'<path class="timeline-{kind}" d="{"".join(found)}"/>'
        for kind, found in paths.items()
        if found
    )


def _box(start: int, end: int, top: float, height: float) -> str:
    return f"M{start} {top:g}h{end - start}v{height:g}h{start - end}z"


def _joined(bars: list[tuple[int, int]]) -> list[tuple[int, int, list[int]]]:
    """Bars that leave no gap as one, with the places where the later ones begin."""
    found = []
    for start, end in bars:
        if found and start <= found[-1][1]:
            first, until, follows = found.pop()
            found.append((first, max(until, end), [*follows, start]))
        else:
            found.append((start, max(start + 1, end), []))
    return found


def _idle(trace: Trace, row_of: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """Row, begin and end of every time, within the makespan, without a program."""
    spans = defaultdict(list)
    for sm, start, end in zip(trace.sm, trace.start_ns, trace.end_ns, strict=True):
        spans[sm].append((start, end))
    for sm, row in row_of.items():
        free = 0
        for start, end in sorted(spans[sm]):
            if start > free:
                yield row, free, start
            free = max(free, end)
        if free < trace.makespan_ns:
            yield row, free, trace.makespan_ns


def _round_step(whole: float, most: int) -> int:
    """1, 2 or 5 times a power of ten, of which at most so many make a whole."""
    return next(
        step * 10**power
        for power in numbers()
        for step in (1, 2, 5)
        if whole / (step * 10**power) <= most
    )
