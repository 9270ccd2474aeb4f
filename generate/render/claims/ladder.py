"""Claims about the fast kernels: each rung's step, and how far the last one reaches."""

from functools import partial

from generate.render.claims.base import (
    AT_STARVED,
    AT_WORKED,
    GEMM,
    MARGIN,
    Evidence,
    NotMeasured,
    Number,
    Said,
    Verdict,
    counted,
    fails,
    holds,
    in_part,
    longer,
)
from generate.render.formats import close_ratio, count, shape_key, shape_label
from generate.render.ladder import (
    BELOW,
    RUNG_NAMES,
    broken,
    described,
    evened,
    further_shapes,
    ladder_shapes,
    starved_shapes,
)
from generate.render.measured import CALL_LABELS, CALLS, STEP
from generate.schema import geometric_mean
from generate.shapes import STARVED, TRIED_SHAPES, WORKED, Shape
from kernels.plan import BY_POINTERS, RUNGS, contracted_axis

ladder = Said("fast/ladder", "As fast as the vendor library")

# What the fast kernels are held to: vendor time over ours, but for times.
STEP_RATIO, STEP_MS = 1.05, 3.75
MEAN, WORST = 1.0, 0.95
DETERMINISTIC = 0.97
FURTHER_MEAN, FURTHER_WORST = 0.95, 0.80
OVERHEAD_US = 15
# A contraction of so many products or fewer is called short.
SHORT = 1024
# Of these dW the last wave of whole tiles is nearly empty.
LAST_WAVES = ((16384, 768, 3072), (4096, 2880, 2880))
PLACES = {
    WORKED: AT_WORKED,
    STARVED: AT_STARVED,
    **{
        (t, k, n): f"At T = {t}, " + (f"K = N = {k}" if k == n else f"K = {k}, N = {n}")
        for t, k, n in (*LAST_WAVES, *TRIED_SHAPES[1:])
    },
}


def ratios(m: Evidence, name: str, shapes: list[Shape]) -> dict[Shape, Number]:
    """Those that were measured, of "prefix.SHAPE.rest". NotMeasured if none was."""
    keys = {shape: name.replace("SHAPE", shape_key(shape)) for shape in shapes}
    if not keys:
        raise NotMeasured("no recorded shape is of this kind")
    found = {s: n for s, key in keys.items() if (n := m.get(key)) is not None}
    return found or {shapes[0]: m[keys[shapes[0]]]}


def products(m: Evidence, name: str, shapes: list[Shape]) -> dict[tuple, Number]:
    """Of every call, by call and shape; CALL in a name stands for it."""
    keys = {
        (call, shape): name.replace("CALL", call).replace("SHAPE", shape_key(shape))
        for call in CALLS
        for shape in shapes
    }
    found = {at: n for at, key in keys.items() if (n := m.get(key)) is not None}
    if not found:
        m.known(list(keys.values()))
    return found


def mean(found: dict) -> float:
    return geometric_mean(list(map(float, found.values())))


def short_of(value: float, target: float) -> str:
    """By how much of a target something misses it."""
    return f"{100 * (1 - value / target):.1f} %"


def joined(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


@ladder(
    "worked-step",
    "A step of the worked layer takes at most 3.75 ms, and the vendor library at least "
    "1.05 times as long.",
)
def worked_step(m: Evidence) -> Verdict:
    vendor, ours = (m[f"{GEMM}.sum.{who}.ms"] for who in ("vendor", "fast"))
    ratio = m[f"{GEMM}.sum.fast.over_vendor"]
    missed = []
    if ratio < STEP_RATIO:
        missed.append(f"{short_of(ratio, STEP_RATIO)} short of {STEP_RATIO} times")
    if ours > STEP_MS:
        missed.append(f"{100 * (ours / STEP_MS - 1):.1f} % over {STEP_MS} ms")
    aims = f"{STEP_RATIO} times and {STEP_MS} ms"
    aim = f"Both aims, {aims}, are met."
    if missed:
        aim = f"The aims are {aims}: that is {joined(missed)}."
    return counted(
        2 - len(missed),
        2,
        f"Forward, dX and accumulated dW of the worked layer take {ours} together, "
        f"and {vendor} through the vendor library: {ratio} our time. {aim}",
    )


def mean_of_call(m: Evidence, call: str) -> Verdict:
    found = ratios(m, f"gemm.SHAPE.{call}.fast.over_vendor", m.measured.gemm_shapes)
    geomean, worst = (m[f"ladder.{what}.{call}.fast"] for what in ("geomean", "worst"))
    least = min(found, key=found.get)
    words = (
        f"Over {count(len(found), 'shape')} the vendor library takes {geomean} the "
        f"time of our {CALL_LABELS[call]} in the geometric mean, and {worst} at the "
        f"worst, {shape_label(least)}."
    )
    if geomean >= MEAN:
        return holds(words)
    return fails(f"{words} That is {short_of(geomean, MEAN)} short of even.")


for _call, _name, _anchor in (
    ("forward", "forward", "forward-keeps-up"),
    ("dx", "dX", "dx-keeps-up"),
    ("dw", "dW, overwriting,", "dw-keeps-up"),
    ("dw+", "dW, accumulating,", "accumulated-dw-keeps-up"),
):
    ladder(
        _anchor,
        f"Over all shapes {_name} is as fast as the vendor library's, in the geometric "
        "mean.",
    )(partial(mean_of_call, call=_call))


@ladder(
    "no-shape-far-behind",
    "No product at any shape falls below 0.95 of the vendor library's speed.",
)
def no_shape_far_behind(m: Evidence) -> Verdict:
    found = products(m, "gemm.SHAPE.CALL.fast.over_vendor", m.measured.gemm_shapes)
    return least_of_all(found, WORST)


def least_of_all(found: dict[tuple, Number], target: float) -> Verdict:
    call, shape = least = min(found, key=found.get)
    good = sum(ratio >= target for ratio in found.values())
    short = (
        f", {short_of(found[least], target)} short of {target:.2f}"
        if found[least] < target
        else ""
    )
    return counted(
        good,
        len(found),
        f"{good} of {count(len(found), 'product')} reach {target:.2f} of the "
        f"library's speed or more. The slowest beside it is {CALL_LABELS[call]} at "
        f"{shape_label(shape)}: {found[least]}{short}.",
    )


@ladder(
    "determinism-nearly-free",
    "Where dW starves, its deterministic form reaches 0.97 of the default's speed, in "
    "the geometric mean.",
)
def determinism_nearly_free(m: Evidence) -> Verdict:
    calls = ("dw", "dw+")
    over, add = (m[f"ladder.deterministic.{call}.geomean"] for call in calls)
    least = [m[f"ladder.deterministic.{call}.worst"] for call in calls]
    missed = [
        f"{short_of(value, DETERMINISTIC)} for {CALL_LABELS[call]}"
        for call, value in zip(calls, (over, add), strict=True)
        if value < DETERMINISTIC
    ]
    aim = f" That misses {DETERMINISTIC} by {joined(missed)}." if missed else ""
    starved = len(starved_shapes(m.measured))
    return counted(
        2 - len(missed),
        2,
        f"Over {count(starved, 'starved shape')} it reaches {over} of the speed "
        f"overwriting and {add} accumulating, {min(least)} at the worst.{aim}",
    )


# Each rung, and what was tried, against the one it stands on


def step(m: Evidence, rung: str, cases: dict[Shape, tuple[str, ...]]) -> Verdict:
    """Gains, losses and ties of a rung, at each shape and call."""
    key = f"ladder.{{}}.{{}}.{rung}.step"
    keys = [
        key.format(shape_key(s), call) for s, calls in cases.items() for call in calls
    ]
    steps = m.known(keys)
    words, below = [], RUNG_NAMES[BELOW[rung]]
    for shape, calls in cases.items():
        found = {c: m.get(key.format(shape_key(shape), c)) for c in calls}
        named = [f"{f} for {CALL_LABELS[c]}" for c, f in found.items() if f is not None]
        if named:
            words.append(
                f"{PLACES[shape]} the step from the {below} rung is {joined(named)}."
            )
    gains = sum(longer(ratio, 1) for ratio in steps)
    losses = sum(longer(1, ratio) for ratio in steps)
    return counted(
        gains,
        len(steps),
        f"{' '.join(words)} Counting what is within {MARGIN} as even, "
        f"{gains} of {len(steps)} gain and {losses} lose.",
    )


ALIKE = {WORKED: STEP, STARVED: STEP}
DW = ("dw", "dw+")
for _rung, _anchor, _said, _cases in (
    (
        "grouped",
        "grouped-order-pays",
        "Tiles in an order that L2 likes are faster than tiles row by row.",
        ALIKE,
    ),
    (
        "tiles",
        "chosen-tiles-pay",
        "A tile chosen for the shape is faster than one tile for all.",
        ALIKE,
    ),
    (
        "descriptor",
        "descriptors-pay",
        "Whole tiles copied by descriptors are faster than loads through pointers.",
        ALIKE,
    ),
    (
        "persistent",
        "persistence-pays",
        "Programs that go on from tile to tile are faster than one program a tile.",
        ALIKE,
    ),
    (
        "split",
        "split-adds-pay",
        "Where dW starves, several programs a tile are faster than one.",
        {STARVED: DW},
    ),
    (
        "stream_k",
        "stream-k-pays",
        "Sharing the last tiles in blocks makes dW faster, whatever the shape.",
        {shape: ("dw+",) for shape in (WORKED, STARVED, *LAST_WAVES)},
    ),
    (
        "specialized",
        "specialized-warps-pay",
        "Warps of their own for loading and for multiplying make the persistent kernel "
        "faster.",
        dict.fromkeys(TRIED_SHAPES, tuple(CALLS)),
    ),
):
    ladder(_anchor, _said)(partial(step, rung=_rung, cases=_cases))


@ladder(
    "shared-forward-and-dx",
    "Sharing their last tiles in blocks makes forward and dX faster, too, whatever the "
    "shape.",
)
def shared_forward_and_dx(m: Evidence) -> Verdict:
    keys = {
        (call, shape): f"ladder.{shape_key(shape)}.{call}.stream_k.step"
        for call in ("forward", "dx")
        for shape in ladder_shapes(m.measured)
    }
    m.known(list(keys.values()))
    steps = {at: n for at, key in keys.items() if (n := m.get(key)) is not None}
    gains = sum(longer(ratio, 1) for ratio in steps.values())
    losses = sum(longer(1, ratio) for ratio in steps.values())
    ends = [
        f"{steps[at]} for {CALL_LABELS[at[0]]} at {shape_label(at[1])}"
        for at in (pick(steps, key=steps.get) for pick in (min, max))
    ]
    return counted(
        gains,
        len(steps),
        f"The step from the persistent rung is between {joined(ends)}. Counting what "
        f"is within {MARGIN} as even, {gains} of {len(steps)} gain and {losses} lose.",
    )


@ladder(
    "no-one-rung",
    "No one rung is the fastest dW at every shape.",
)
def no_one_rung(m: Evidence) -> Verdict:
    shapes, near = 0, dict.fromkeys(("lesson", *RUNGS), 0)
    first = f"ladder.{shape_key(WORKED)}.dw+.lesson.ms"
    for shape in ladder_shapes(m.measured):
        key = f"ladder.{shape_key(shape)}.dw+"
        times = {rung: m.get(f"{key}.{rung}.ms") for rung in near}
        times = {rung: time for rung, time in times.items() if time is not None}
        shapes += bool(times)
        for rung, time in times.items():
            near[rung] += not longer(time, min(times.values()))
    if not shapes:
        m.known([first])
        raise NotMeasured("no dW of the ladder was measured")
    named = [f"{RUNG_NAMES[r]} at {n}" for r, n in near.items() if n]
    words = (
        f"The fastest accumulated dW of {count(shapes, 'shape')}, or one within "
        f"{MARGIN} of it, is that of {joined(named)}."
    )
    everywhere = [RUNG_NAMES[r] for r, n in near.items() if n == shapes]
    if everywhere:
        return fails(f"{words} So {everywhere[-1]} would do for all of them.")
    return holds(f"{words} So a plan has to choose.")


@ladder(
    "not-every-step-gains",
    "Not every step is a gain for every product at every shape.",
)
def not_every_step_gains(m: Evidence) -> Verdict:
    steps = {
        (rung, call, shape): f"ladder.{shape_key(shape)}.{call}.{rung}.step"
        for rung in RUNGS
        for call in CALLS
        for shape in ladder_shapes(m.measured)
    }
    found = {at: n for at, key in steps.items() if (n := m.get(key)) is not None}
    if not found:
        m.known(list(steps.values()))
    lost = {at: ratio for at, ratio in found.items() if longer(1, ratio)}
    words = (
        f"Of {len(found)} steps that were measured {len(lost)} lose more than {MARGIN}"
    )
    if not lost:
        return fails(f"{words}.")
    worst = {}
    for rung in RUNGS:
        mine = {at: ratio for at, ratio in lost.items() if at[0] == rung}
        if mine:
            worst[rung] = min(mine, key=mine.get)
    named = [
        f"{RUNG_NAMES[rung]} {lost[at]} for {CALL_LABELS[at[1]]} at "
        f"{shape_label(at[2])}"
        for rung, at in worst.items()
    ]
    return holds(f"{words}. The worst of each rung that has any: {'; '.join(named)}.")


# Why something is behind


@ladder(
    "short-contractions",
    "Forward and dX are furthest behind where the contraction is short.",
)
def short_contractions(m: Evidence) -> Verdict:
    sides = {True: {}, False: {}}
    for call in ("forward", "dx"):
        found = ratios(m, f"gemm.SHAPE.{call}.fast.over_vendor", m.measured.gemm_shapes)
        for shape, ratio in found.items():
            sides[shape[contracted_axis(call)] <= SHORT][call, shape] = ratio
    if not all(sides.values()):
        raise NotMeasured("all contractions that were recorded are alike")
    brief, rest = mean(sides[True]), mean(sides[False])
    words = (
        f"Where a sum has {SHORT} products or fewer, the vendor library takes "
        f"{close_ratio(brief)} our time in the geometric mean, elsewhere "
        f"{close_ratio(rest)}."
    )
    if longer(rest, brief):
        return holds(
            f"{words} A short sum leaves less to hide the first loads and the store "
            "of a tile behind."
        )
    return (fails if longer(brief, rest) else in_part)(words)


@ladder(
    "starved-dw-keeps-up",
    "A starved dW is no further behind than one with tiles enough.",
)
def starved_dw_keeps_up(m: Evidence) -> Verdict:
    starved = starved_shapes(m.measured)
    others = [s for s in m.measured.gemm_shapes if s not in starved]
    name = "gemm.SHAPE.dw+.fast.over_vendor"
    few, many = (mean(ratios(m, name, shapes)) for shapes in (starved, others))
    words = (
        f"The vendor library takes {close_ratio(few)} our time for accumulated dW "
        f"where it starves and {close_ratio(many)} where it does not, in the "
        "geometric mean."
    )
    return (fails if longer(many, few) else holds)(words)


# Shapes that no plan was fitted to


@ladder(
    "unfitted-means",
    "At shapes that no plan was fitted to, each product reaches 0.95 of the vendor "
    "library's speed, in the geometric mean.",
)
def unfitted_means(m: Evidence) -> Verdict:
    found = {call: m[f"further.geomean.{call}"] for call in CALLS}
    missed = [
        f"{short_of(value, FURTHER_MEAN)} for {CALL_LABELS[call]}"
        for call, value in found.items()
        if value < FURTHER_MEAN
    ]
    numbers = joined([f"{v} for {CALL_LABELS[c]}" for c, v in found.items()])
    aim = f" That misses {FURTHER_MEAN} by {joined(missed)}." if missed else ""
    return counted(
        len(found) - len(missed),
        len(found),
        f"Vendor time over ours is {numbers} there, in the geometric mean.{aim}",
    )


@ladder(
    "unfitted-worst",
    "At shapes that no plan was fitted to, no product falls below 0.80 of the vendor "
    "library's speed.",
)
def unfitted_worst(m: Evidence) -> Verdict:
    name = "further.SHAPE.CALL.over_vendor"
    return least_of_all(products(m, name, further_shapes(m.measured)), FURTHER_WORST)


@ladder(
    "wide-loads-beat-copies",
    "Loads of as many elements as the rows allow, through pointers, are faster than "
    "copies for the copy engine.",
)
def wide_loads_beat_copies(m: Evidence) -> Verdict:
    shapes = [shape for shape in further_shapes(m.measured) if evened(shape)]
    found = products(m, "further.SHAPE.CALL.pitched.over_copied", shapes)
    gains = {at for at, ratio in found.items() if longer(ratio, 1)}
    losses = sum(longer(1, ratio) for ratio in found.values())
    (call, shape), most = max(found.items(), key=lambda item: item[1])
    chosen = sum(
        m.point(m.measured.further(shape, call, "fast")).configuration.kernel
        == "pitched"
        for call, shape in gains
    )
    return counted(
        len(gains),
        len(found),
        f"Of {count(len(found), 'product')} whose rows begin at an even number of "
        f"elements and not at a multiple of 8, copies take up to {close_ratio(most)} "
        f"the time of such loads, for {CALL_LABELS[call]} at {shape_label(shape)}. "
        f"Counting what is within {MARGIN} as even, {len(gains)} gain and {losses} "
        f"lose; the plan chose the loads for {chosen} of those that gain.",
    )


@ladder(
    "lines-are-counted",
    "Where rows begin inside of lines of L2, a plan that knows it is faster than one "
    "that does not.",
)
def lines_are_counted(m: Evidence) -> Verdict:
    shapes = [shape for shape in further_shapes(m.measured) if broken(shape)]
    found = products(m, "further.SHAPE.CALL.over_aligned", shapes)
    gains = sum(longer(ratio, 1) for ratio in found.values())
    losses = sum(longer(1, ratio) for ratio in found.values())
    (call, shape), most = max(found.items(), key=lambda item: item[1])
    return counted(
        gains,
        len(found),
        f"At {count(len(found), 'product')} of the further shapes that makes another "
        f"launch. Planned as if all rows began at whole lines they take "
        f"{close_ratio(mean(found))} the time in the geometric mean, and up to "
        f"{close_ratio(most)}, for {CALL_LABELS[call]} at {shape_label(shape)}. "
        f"Counting what is within {MARGIN} as even, {gains} gain by it and {losses} "
        "lose.",
    )


@ladder(
    "odd-sizes-keep-up",
    "What descriptors cannot take as it lies is as fast as the vendor library's, in "
    "the geometric mean.",
)
def odd_sizes_keep_up(m: Evidence) -> Verdict:
    name = "further.SHAPE.CALL.over_vendor"
    found = products(m, name, further_shapes(m.measured))
    odd = {at: ratio for at, ratio in found.items() if not described(at[1])}
    even = {at: ratio for at, ratio in found.items() if described(at[1])}
    if not odd or not even:
        raise NotMeasured("sizes of one kind alone were measured")
    pointed = sum(
        m.point(m.measured.further(shape, call, "fast")).configuration.kernel
        in BY_POINTERS
        for call, shape in odd
    )
    ways = [
        f"{'all' if number == len(odd) else number} through {way}"
        for number, way in (
            (len(odd) - pointed, "copies of what descriptors cannot take"),
            (pointed, "pointers"),
        )
        if number
    ]
    there, elsewhere = mean(odd), mean(even)
    words = (
        f"Where K or N is no multiple of 8, in {count(len(odd), 'product')}, "
        f"{joined(ways)}, the vendor library takes {close_ratio(there)} our time in "
        f"the geometric mean; elsewhere {close_ratio(elsewhere)}."
    )
    if there >= MEAN:
        return holds(words)
    return fails(f"{words} That is {short_of(there, MEAN)} short of even.")


@ladder(
    "broken-rows-fall-behind",
    "Where rows begin inside of lines of L2, products are further behind the vendor "
    "library's than where they begin at whole ones.",
)
def broken_rows_fall_behind(m: Evidence) -> Verdict:
    name = "further.SHAPE.CALL.over_vendor"
    found = products(m, name, further_shapes(m.measured))
    inside = {at: ratio for at, ratio in found.items() if broken(at[1])}
    whole = {
        at: ratio
        for at, ratio in found.items()
        if described(at[1]) and not broken(at[1])
    }
    if not inside or not whole:
        raise NotMeasured("rows of one kind alone were measured")
    behind = [at for at, ratio in found.items() if ratio < FURTHER_WORST]
    words = (
        f"Vendor time over ours is {close_ratio(mean(whole))} in the geometric mean of "
        f"{count(len(whole), 'further product')} whose rows begin at whole lines, and "
        f"{close_ratio(mean(inside))} of {len(inside)} whose rows descriptors take but "
        f"which begin inside of lines. Of the {count(len(behind), 'product')} below "
        f"{FURTHER_WORST:.2f}, {sum(at in inside for at in behind)} are of those."
    )
    return holds(words) if longer(mean(whole), mean(inside)) else fails(words)


# The host


@ladder(
    "small-host-overhead",
    "A call costs the host at most 15 µs more than the bare launch of its kernel.",
)
def small_host_overhead(m: Evidence) -> Verdict:
    found = {call: m[f"launch.{call}.overhead_us"] for call in CALLS}
    good = sum(time <= OVERHEAD_US for time in found.values())
    numbers = joined([f"{time} for {CALL_LABELS[c]}" for c, time in found.items()])
    over = max(found.values()) - OVERHEAD_US
    aim = f" That is up to {over:.1f} µs too many." if over > 0 else ""
    if min(found.values()) < 0:
        aim += (
            " Less than nothing is what a call of known tensors saves: it launches "
            "what was compiled for them, where Triton's launcher looks at every "
            "argument anew."
        )
    return counted(good, len(found), f"Beyond that launch it takes {numbers}.{aim}")


@ladder(
    "library-calls-are-cheaper",
    "A call of the vendor library costs the host less than one of ours.",
)
def library_calls_are_cheaper(m: Evidence) -> Verdict:
    pairs = [(m[f"launch.{c}.vendor_us"], m[f"launch.{c}.public_us"]) for c in CALLS]
    cheaper = sum(longer(ours, vendor) for vendor, ours in pairs)
    vendor, ours = max(pairs, key=lambda pair: pair[1])
    return counted(
        cheaper,
        len(pairs),
        f"The host spends less on the vendor library's call for {cheaper} of "
        f"{len(pairs)} products; our most costly call takes {ours}, the library's for "
        f"the same product {vendor}.",
    )
