"""Claims about the plan: what it chooses, and how well it tells times."""

from generate.render.claims.base import (
    MARGIN,
    Evidence,
    Number,
    Said,
    Verdict,
    counted,
    fails,
    holds,
    in_part,
    longer,
)
from generate.render.formats import count, ratio, shape_key, shape_label
from generate.render.measured import CALL_LABELS, CALLS
from generate.shapes import LADDER_SHAPES, Shape

planning = Said("fast/plan", "Planned, not tuned")

# How far off a prediction may be, in percent, to be called near.
NEAR_PCT = 20
# Of the shapes of a sweep, the share at which a rule is to be near the best.
GOOD_SHARE = 0.95


def over_best(m: Evidence, field: str) -> dict[Shape, Number]:
    """Time over the best measured, of each shape that has it; field: in the key."""
    keys = {shape: field.format(shape_key(shape)) for shape in m.measured.split_shapes}
    m.known(list(keys.values()))
    found = {shape: m.get(key) for shape, key in keys.items()}
    return {shape: over for shape, over in found.items() if over is not None}


def planned(m: Evidence) -> dict[Shape, Number]:
    return over_best(m, "split.{}.planned.over_best")


def by_the_lesson(m: Evidence) -> dict[Shape, Number]:
    return over_best(m, "plan.{}.lesson.over_best")


def near(found: dict[Shape, Number]) -> int:
    """At how many shapes a choice is as good as the best."""
    return sum(not longer(over, 1) for over in found.values())


@planning(
    "planned-split",
    "The split planned from the shape alone is within 3 % of the best that was "
    "measured, at 95 % of the shapes or more.",
)
def planned_split(m: Evidence) -> Verdict:
    found = planned(m)
    good, worst = near(found), max(found, key=found.get)
    sentence = (
        f"Planned from the shape alone, the split is within {MARGIN} of the best "
        f"measured one at {good} of {count(len(found), 'shape')}; the worst choice "
        f"takes {found[worst]} the best time, at {shape_label(worst)}."
    )
    if good >= GOOD_SHARE * len(found):
        return holds(sentence)
    return (in_part if good else fails)(sentence)


@planning(
    "lesson-rule",
    "To split where tiles are fewer than SMs, until the SMs are full, is not the "
    "whole rule: with the last wave, resident programs and the epilogue's cost, more "
    "choices are right.",
)
def lesson_rule(m: Evidence) -> Verdict:
    simple, full = by_the_lesson(m), planned(m)
    both = [shape for shape in simple if shape in full]
    ours, theirs = (near({s: found[s] for s in both}) for found in (full, simple))
    sentence = (
        f"The lesson's rule is within {MARGIN} of the best split at {theirs} of "
        f"{count(len(both), 'shape')}, the full rule at {ours}."
    )
    return (holds if ours > theirs else fails)(sentence)


@planning(
    "rules-differ",
    "Where the two rules differ in time, the full one is the faster.",
)
def rules_differ(m: Evidence) -> Verdict:
    simple, full = by_the_lesson(m), planned(m)
    gains = {s: simple[s] / full[s] for s in simple if s in full}
    won = {s: gain for s, gain in gains.items() if longer(gain, 1)}
    lost = {s: 1 / gain for s, gain in gains.items() if longer(1 / gain, 1)}

    def at(found: dict[Shape, float]) -> str:
        shapes = sorted(found, key=found.get, reverse=True)
        return ", ".join(f"{shape_label(s)} ({ratio(found[s])})" for s in shapes)

    even = count(len(gains) - len(won) - len(lost), "shape")
    if not won and not lost:
        return fails(f"At none of {even} do the two differ by more than {MARGIN}.")
    words = [
        f"{name} wins at {at(found)}"
        for name, found in (("the full rule", won), ("the lesson's rule", lost))
        if found
    ]
    sentence = "; ".join(words) + f"; at {even} the two are within {MARGIN}."
    return counted(len(won), len(won) + len(lost), sentence[0].upper() + sentence[1:])


@planning(
    "model-near",
    "With one number fitted to a shape, the model of waves is within 20 % of the "
    "measured time at half of a shape's split factors or more.",
)
def model_near(m: Evidence) -> Verdict:
    half = over_best(m, "plan.{}.residual.half_pct")
    most = over_best(m, "plan.{}.residual.most_pct")
    good = sum(off <= NEAR_PCT for off in half.values())
    furthest = max(half, key=half.get)
    sentence = (
        f"At {good} of {count(len(half), 'shape')} the model is within {NEAR_PCT} % of "
        "the measured time for half of the split factors or more; at the worst, "
        f"{shape_label(furthest)}, for half of them within {half[furthest]}."
    )
    if most:
        worst = max(most, key=most.get)
        sentence += (
            f" Its largest residual of all is {most[worst]}, at {shape_label(worst)}."
        )
    return counted(good, len(half), sentence)


@planning(
    "fast-times-near",
    "The time of a planned fast kernel is told to 20 % at half of the products or "
    "more, of the recorded shapes and of further ones.",
)
def fast_times_near(m: Evidence) -> Verdict:
    good, words = 0, []
    for section, name in (("gemms", "recorded"), ("further", "further")):
        key = f"predicted.{section}"
        half, most = m[f"{key}.half_pct"], m[f"{key}.most_pct"]
        good += half <= NEAR_PCT
        words.append(
            f"of {m[f'{key}.count']} products at the {name} shapes half are within "
            f"{half} of the prediction, 95 of 100 within {most}, and on average they "
            f"take {m[f'{key}.bias']} the predicted time"
        )
    sentence = "; ".join(words)
    return counted(good, 2, f"{sentence[0].upper()}{sentence[1:]}.")


@planning(
    "planned-kernel",
    "The planned kernel is the fastest rung of the ladder, or within 3 % of it.",
)
def planned_kernel(m: Evidence) -> Verdict:
    keys = {
        (shape, call): f"plan.{shape_key(shape)}.{call}.rung.over_best"
        for shape in LADDER_SHAPES
        for call in CALLS
    }
    m.known(list(keys.values()))
    found = {place: m.get(key) for place, key in keys.items()}
    found = {place: over for place, over in found.items() if over is not None}
    good = sum(not longer(over, 1) for over in found.values())
    shape, call = worst = max(found, key=found.get)
    return counted(
        good,
        len(found),
        f"At {good} of {count(len(found), 'product')} of the ladder the planned kernel "
        f"is the fastest rung or within {MARGIN} of it; the worst choice takes "
        f"{found[worst]} the time of the fastest, {CALL_LABELS[call]} at "
        f"{shape_label(shape)}.",
    )
