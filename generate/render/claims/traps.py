"""Claims about the traps: each a mistake made on purpose beside its fix."""

from functools import partial

from generate.render.claims.base import (
    Evidence,
    Number,
    Said,
    Verdict,
    fails,
    holds,
    in_part,
    longer,
)

traps = Said("lesson/traps", "9. The traps, collected")


TRAPS = {
    "transpose_first": "Launching a transpose first costs time and changes no result.",
    "small_grid": "A grid smaller than the machine is slow.",
    "idle_split": "A split that leaves its slice of the workspace unwritten spoils the "
    "gradient.",
    "overlapping_split": "Splits that overlap count tokens twice.",
    "uneven_split": "Shares that are rounded down leave tokens out.",
    "no_fill": "A masked tail without a fill value spoils the sum.",
    "overwrite": "Overwriting instead of accumulating loses earlier micro-batches.",
    "bf16_gradient": "Accumulating in bf16 loses small addends.",
    "partial_sums": "Partial sums in 16 bits lose accuracy.",
    "autotune": "Autotuning into a live accumulator adds the gradient several times.",
    "borrowed_strides": "Another tensor's strides read the gradient wrongly.",
    "offsets": "32-bit offsets fail beyond 2³¹ elements.",
    "atomic_bits": "A test that expects equal bits of atomics fails without a fault.",
    "not_zeroed": "A buffer that nobody zeroed spoils the gradient.",
    "too_many_splits": "Too many splits are slow.",
}


def trap(m: Evidence, name: str) -> Verdict:
    point = m.point(m.measured.trap(name))

    def both(field: str) -> list[Number]:
        return [m[f"trap.{name}.{form}.{field}"] for form in ("broken", "fixed")]

    if point.kind == "lost time":
        broken, fixed = both("ms")
        return (holds if longer(broken, fixed) else fails)(
            f"The mistake took {broken}, its fix {fixed}, on the same operands."
        )
    if point.kind == "blind check":
        broken, fixed = both("reading")
        means = [form.reading.meaning for form in (point.broken, point.fixed)]
        return (holds if broken != fixed else fails)(
            f"With the mistake: {broken} {means[0]}; with its fix: {fixed} {means[1]}."
        )
    broken, fixed = both("wrong_pct")
    sentence = (
        f"With the mistake {broken} of the elements were wrong, with its fix {fixed}."
    )
    if not broken:
        return fails(sentence)
    return (in_part if fixed else holds)(sentence)


for _name, _statement in TRAPS.items():
    traps(f"trap-{_name.replace('_', '-')}", _statement)(partial(trap, name=_name))
