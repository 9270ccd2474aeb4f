"""Facts of the evidence: what happened when the lesson was put to the test.

One function a section, and one key for every point that the site asks for,
whether a recording holds it or not.
"""

from collections import Counter
from math import log
from statistics import median

from generate.render import formats, timelines
from generate.render.fact import Fact, Facts, duration, known, missing, times
from generate.render.formats import count, shape_key
from generate.render.measured import IMPLEMENTATIONS, Measurements, Missing
from generate.render.traps import USUAL, outcome
from generate.schema import DeterminismPoint, Effect, TrapPoint
from generate.shapes import (
    DETERMINISM_FACTORS,
    DETERMINISM_SHAPES,
    MICRO_BATCHES,
    PARTIAL_FACTORS,
    TIMELINE_FACTORS,
    TIMELINE_SHAPES,
    TRANSPOSE_SHAPES,
    Shape,
)
from kernels.plan import occupancy
from kernels.traps import TRAPS

# Implementation, reduction and split factor, as in the keys of points.
REPEATED = (
    ("vendor", None, None),
    ("lesson", "none", 1),
    *(
        ("lesson", reduction, split_t)
        for reduction in ("atomic", "workspace")
        for split_t in DETERMINISM_FACTORS
    ),
)
TRACED = (
    "fill_pct",
    "makespan_us",
    "sms",
    "resident",
    "waves",
    "programs",
    "overhead_pct",
    "difference_points",
)
# What goes by the name of occupancy, or is taken for it.
READINGS = {
    "utilization_pct": "nvidia-smi's GPU-Util",
    "ncu_sm_active_pct": "Nsight Compute's SM-active share",
    "achieved_pct": "Nsight Compute's achieved occupancy",
    "theoretical_pct": "the theoretical occupancy",
}
# A trace and the counters agree if they are no further apart.
AGREED_POINTS = 5
CONDITIONS = ("alone", "memory pressure", "two streams")
FORMS = ("broken", "fixed")
EFFECT = ("error", "wrong_pct", "non_finite", "ms", "reading")
GRADIENTS = ("noise", "signal")
BUFFERS = ("float32", "bfloat16")
PARTIALS = ("float32", "float16", "bfloat16")
TRANSPOSED = ("dx", "dw")
WAYS = ("in place", "copied first", "copied before", "the copy alone")


def facts(measured: Measurements) -> Facts:
    return {
        **_timelines(measured),
        **_determinism(measured),
        **_accumulation(measured),
        **_partials(measured),
        **_transposes(measured),
        **_traps(measured),
    }


def _timelines(measured: Measurements) -> Facts:
    found = _agreement(measured)
    for shape in timelines.shapes(measured):
        key = f"timeline.{shape_key(shape)}"
        for form in timelines.FORMS:
            read = {**_traced(measured, shape, form), **_counted(measured, shape, form)}
            for name, fact in read.items():
                found[f"{key}.{form}.{name}"] = fact
        chosen = measured.plan(shape).split_t
        near = min(TIMELINE_FACTORS, key=lambda factor: abs(log(factor / chosen)))
        note = f"planned split: {chosen}; the nearest factor that was traced"
        found[f"{key}.planned.split_t"] = Fact(near, str(near), note)
        found |= _nearest(found, f"{key}.1", f"{key}.nearest-20")
    return found


def _agreement(measured: Measurements) -> Facts:
    """What tracing costs, and how far fill and the SM-active share are apart."""
    found = timelines.launches(measured)
    if not found:
        shape, factor = TIMELINE_SHAPES[0], TIMELINE_FACTORS[0]
        reason = timelines.launch(measured, shape, factor).reason
        names = ("timer_ns", "overhead_pct", "compared", "within", "largest")
        return {f"timeline.{name}": missing(reason) for name in names}
    resolution = measured.recording.timelines.timer_resolution_ns
    overhead = median(launch.overhead_pct for launch in found)
    apart = [launch.difference_points for launch in found]
    apart = [abs(points) for points in apart if points is not None]
    within = sum(points <= AGREED_POINTS for points in apart)
    reason = found[0].counters_reason
    return {
        "timeline.timer_ns": known(resolution, "{} ns".format),
        "timeline.overhead_pct": known(overhead, formats.signed_percent),
        "timeline.compared": known(len(apart) or None, str, reason),
        "timeline.within": known(within if apart else None, str, reason),
        "timeline.largest": known(
            max(apart, default=None), "{:.1f} points".format, reason
        ),
    }


def _traced(measured: Measurements, shape: Shape, form: timelines.Form) -> Facts:
    launch = timelines.launch(measured, shape, form)
    if isinstance(launch, Missing):
        return dict.fromkeys(TRACED, missing(launch.reason))
    return {
        "fill_pct": known(launch.fill_pct, formats.percent),
        "makespan_us": known(launch.makespan_us, formats.microseconds),
        "sms": known(launch.trace.sms),
        "resident": known(launch.trace.resident),
        "waves": known(launch.trace.waves),
        "programs": known(launch.programs),
        "overhead_pct": known(launch.overhead_pct, formats.signed_percent),
        "difference_points": known(
            launch.difference_points, formats.points, launch.counters_reason
        ),
    }


def _counted(measured: Measurements, shape: Shape, form: timelines.Form) -> Facts:
    """What profilers say of the launch, by the names of timeline facts."""
    point = timelines.profiled(measured, shape, form)
    if isinstance(point, Missing):
        return dict.fromkeys(READINGS, missing(point.reason))
    counters, reason = point.counters, point.counters_reason
    share = occupancy(point.resident_programs, point.num_warps, measured.gpu.device)
    return {
        "utilization_pct": known(
            point.utilization_pct, formats.percent, point.utilization_reason
        ),
        "ncu_sm_active_pct": known(
            counters and counters.sm_active_pct, formats.percent, reason
        ),
        "achieved_pct": known(
            counters and counters.achieved_occupancy_pct, formats.percent, reason
        ),
        "theoretical_pct": known(100 * share, formats.percent),
    }


def _nearest(found: Facts, launch: str, key: str) -> Facts:
    """Which reading of a launch comes nearest to the lesson's 20 %."""
    known_ones = [
        (abs(found[f"{launch}.{name}"].value - 20), words, found[f"{launch}.{name}"])
        for name, words in READINGS.items()
        if found[f"{launch}.{name}"].value is not None
    ]
    if not known_ones:
        absent = found[f"{launch}.ncu_sm_active_pct"]
        return {f"{key}.reading": absent, f"{key}.pct": absent}
    _, words, fact = min(known_ones, key=lambda one: one[0])
    return {f"{key}.reading": known(words), f"{key}.pct": fact}


def _determinism(measured: Measurements) -> Facts:
    planned = [(*launch, *shape) for shape in DETERMINISM_SHAPES for launch in REPEATED]
    found = {}
    for launch in dict.fromkeys([*planned, *measured.keys("determinism")]):
        implementation, reduction, split_t, *shape = launch
        point = measured.determinism(tuple(shape), implementation, reduction, split_t)
        name = "vendor" if reduction is None else f"{reduction}.{split_t}"
        key = f"determinism.{shape_key(shape)}.{name}"
        found[f"{key}.ms"] = duration(point)
        found[f"{key}.error"] = _error(point)
        repeats = _repeats(point, "alone")
        for name, fact in repeats.items():
            found[f"{key}.{name}"] = fact
        for condition in CONDITIONS[1:]:
            repeats = _repeats(point, condition)
            for name in ("distinct", "spread"):
                found[f"{key}.{condition.replace(' ', '-')}.{name}"] = repeats[name]
    return found


def _repeats(point: DeterminismPoint | Missing, condition: str) -> Facts:
    names = ("runs", "distinct", "differing", "differing_pct", "spread")
    if isinstance(point, Missing):
        return dict.fromkeys(names, missing(point.reason))
    repeats = point.under(condition)
    if repeats is None:
        return dict.fromkeys(
            names, missing(f"it was not run in the condition: {condition}")
        )
    note = f"{condition}, {count(repeats.runs, 'run')}"
    share = 100 * repeats.differing_elements / (point.K * point.N)
    spread = repeats.largest_spread
    return {
        "runs": known(repeats.runs),
        "distinct": Fact(repeats.distinct, str(repeats.distinct), note),
        "differing": Fact(
            repeats.differing_elements, str(repeats.differing_elements), note
        ),
        "differing_pct": Fact(
            share, formats.percent(share), f"of all elements; {note}"
        ),
        "spread": Fact(
            spread,
            formats.error(spread),
            f"of the worst element, over the RMS of all; {note}",
        ),
    }


def _accumulation(measured: Measurements) -> Facts:
    planned = [(g, b, m) for g in GRADIENTS for b in BUFFERS for m in MICRO_BATCHES]
    recorded = (key[:3] for key in measured.keys("accumulation"))
    found = {}
    for key in dict.fromkeys([*planned, *recorded]):
        point = measured.accumulation(*key)
        name = ".".join(["accumulation", *map(str, key)])
        found[f"{name}.error"] = _error(point)
        found[f"{name}.unchanged_pct"] = (
            missing(point.reason)
            if isinstance(point, Missing)
            else known(100 * point.unchanged_share, formats.percent)
        )
    return found


def _partials(measured: Measurements) -> Facts:
    planned = [(dtype, split_t) for dtype in PARTIALS for split_t in PARTIAL_FACTORS]
    recorded = (key[:2] for key in measured.keys("accumulation", "partials"))
    return {
        f"partials.{dtype}.{split_t}.error": _error(measured.partials(dtype, split_t))
        for dtype, split_t in dict.fromkeys([*planned, *recorded])
    }


def _transposes(measured: Measurements) -> Facts:
    planned = [
        (op, implementation, *shape)
        for shape in TRANSPOSE_SHAPES
        for op in TRANSPOSED
        for implementation in IMPLEMENTATIONS
    ]
    recorded = ((*key[:2], *key[3:]) for key in measured.keys("transposes"))
    found = {}
    for op, implementation, *shape in dict.fromkeys([*planned, *recorded]):
        key = f"transpose.{shape_key(shape)}.{op}.{implementation}"
        for way in WAYS:
            point = measured.transpose(tuple(shape), op, implementation, way)
            name = f"{key}.{way.replace(' ', '-')}"
            found[f"{name}.ms"] = duration(point)
            found[f"{name}.extra_mib"] = _extra(point)
        found[f"{key}.cost"] = times(
            found[f"{key}.copied-first.ms"],
            found[f"{key}.in-place.ms"],
            "copied first / in place",
        )
    return found


def _traps(measured: Measurements) -> Facts:
    points = {name: measured.trap(name) for name in TRAPS}
    found = {
        f"trap.{name}.{field}": fact
        for name, point in points.items()
        for field, fact in _trap(point).items()
    }
    ran = [point for point in points.values() if not isinstance(point, Missing)]
    checks = [c for p in ran if p.kind == "wrong result" for c in p.checks]
    usual = [outcome(c) for c in checks if c.check == USUAL]
    why = "no trap of this recording was run"
    found["traps.shown"] = known(len(ran) or None, reason=why)
    found["traps.tried"] = known(len(usual) or None, reason=why)
    missed = usual.count("missed") if usual else None
    found["traps.missed"] = known(missed, reason=why)
    caught = Counter(c.check for c in checks if outcome(c) == "caught")
    most = max(caught.values(), default=0) if checks else None
    found["traps.most_caught"] = known(most, reason=why)
    return found


def _trap(point: TrapPoint | Missing) -> Facts:
    names = [f"{form}.{name}" for form in FORMS for name in EFFECT]
    if isinstance(point, Missing):
        reason = missing(point.reason)
        return dict.fromkeys([*names, "slowdown", "caught", "missed"], reason)
    effects = [*_effect(point.broken), *_effect(point.fixed)]
    found = dict(zip(names, effects, strict=True))
    found["slowdown"] = times(found["broken.ms"], found["fixed.ms"], "broken / fixed")
    for wanted in ("caught", "missed"):
        checks = [c.check for c in point.checks if outcome(c) == wanted]
        found[wanted] = Fact(len(checks), ", ".join(checks) or "none")
    return found


def _effect(effect: Effect) -> tuple[Fact, ...]:
    """One fact for each of EFFECT."""
    error = wrong = broken = missing("the mistake is not in its result")
    if effect.elements:
        share = 100 * effect.wrong_elements / effect.elements
        counted = f"{effect.wrong_elements} of {effect.elements} elements"
        nearly = 99.95 <= share < 100
        text = "over 99.9 %" if nearly else f"{formats.significant(share)} %"
        wrong = Fact(share, text, counted)
        broken = known(effect.non_finite_elements)
        error = Fact(None, "none is finite", "no element of it can be compared")
    if effect.error is not None:
        write = formats.error if effect.error < 0.1 else formats.significant
        error = Fact(effect.error, write(effect.error), "of finite elements")
    ms = duration(effect) if effect.samples_ms else missing("it was not timed")
    reading = missing("it gives no reading")
    if effect.reading:
        value = effect.reading.value
        text = f"{value:.0f}" if value == int(value) else formats.significant(value)
        text = f"{text} {effect.reading.unit}"
        reading = Fact(value, text, effect.reading.meaning)
    return error, wrong, broken, ms, reading


def _error(point) -> Fact:
    if isinstance(point, Missing):
        return missing(point.reason)
    return known(point.error, formats.error, "its output was not compared with fp64")


def _extra(point) -> Fact:
    if isinstance(point, Missing):
        return missing(point.reason)
    if point.extra_bytes is None:
        return missing("the allocator's peak was not read")
    return Fact(point.extra_bytes / 2**20, formats.mebibytes(point.extra_bytes))
