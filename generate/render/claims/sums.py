"""Claims about the order of additions and the buffer they end in."""

import struct

from generate.render.claims.base import (
    AT_STARVED,
    GEMM,
    MARGIN,
    SPLIT,
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
    more,
)
from generate.render.formats import mebibytes, ratio, shape_key
from generate.shapes import (
    DETERMINISM_FACTORS,
    DETERMINISM_SHAPES,
    MICRO_BATCHES,
    PARTIAL_FACTORS,
    SPLIT_FACTORS,
    STARVED,
)

determinism = Said("lesson/determinism", "6. Atomics or determinism")
accumulate = Said("lesson/accumulate", "7. Accumulate, never overwrite")


# Part 6: atomics or determinism


def fp32(value: float) -> float:
    """Rounded to single precision."""
    return struct.unpack("f", struct.pack("f", value))[0]


@determinism(
    "not-associative",
    "fp32 addition is not associative.",
)
def not_associative(m: Evidence) -> Verdict:
    large = float(2**24)
    left = fp32(fp32(large + 1) + 1)
    right = fp32(large + fp32(1 + 1))
    return (holds if left != right else fails)(
        f"(2²⁴ + 1) + 1 rounds to {left:.0f}, 2²⁴ + (1 + 1) to {right:.0f}."
    )


# Alone and under strain.
PATTERNS = ("distinct", "memory-pressure.distinct", "two-streams.distinct")


def repeated(m: Evidence, *launches: str) -> list[Number]:
    """How many bit patterns each series of runs gave, of all that were run."""
    return m.known(
        [
            f"determinism.{shape_key(shape)}.{launch}.{name}"
            for shape in DETERMINISM_SHAPES
            for launch in launches
            for name in PATTERNS
        ]
    )


@determinism(
    "atomics-differ",
    "Atomic adds land in any order, so two runs can differ in bits.",
)
def atomics_differ(m: Evidence) -> Verdict:
    factors = [s for s in DETERMINISM_FACTORS if s > 2]
    patterns = repeated(m, *(f"atomic.{s}" for s in factors))
    several = sum(p > 1 for p in patterns)
    of = f"{several} of {len(patterns)} series of runs"
    if several:
        return holds(
            f"With three splits or more, {of} gave several bit patterns for the same "
            f"operands, up to {max(patterns)}."
        )
    return fails(
        f"With three splits or more, {of} gave several bit patterns. That the order "
        "did not change here is no promise that it will not."
    )


@determinism(
    "runs-agree-within-error",
    "Runs of atomic adds disagree by less than each of them is off.",
)
def runs_agree_within_error(m: Evidence) -> Verdict:
    key = f"determinism.{shape_key(STARVED)}.atomic.8"
    spread, error = m[f"{key}.spread"], m[f"{key}.error"]
    apart = (
        f"With eight atomic splits {m[f'{key}.differing_pct']} of the elements "
        f"differed between runs, the worst by {spread} of the gradient's RMS. Against "
        f"fp64 a run is off by {error}, RMS over RMS."
    )
    if spread < error:
        return holds(
            f"{apart} So runs disagree by less than each is off anyway: a matter of "
            "repeating, not of accuracy."
        )
    return fails(
        f"{apart} So the worst element moves by more than the whole is off: runs that "
        "differ in bits need not agree to the last digits that are right."
    )


@determinism(
    "two-terms-repeat",
    "Two splits into a zeroed buffer repeat exactly; it takes three terms to differ.",
)
def two_terms_repeat(m: Evidence) -> Verdict:
    two, three = repeated(m, "atomic.2"), repeated(m, "atomic.3")
    if max(two) > 1:
        return fails(
            f"Two splits gave up to {max(two)} patterns. The order of two terms cannot "
            "do that, so something else differed between these runs."
        )
    if max(three) > 1:
        return holds(
            f"Two splits gave {max(two)} bit pattern in each of {len(two)} series of "
            f"runs, three gave up to {max(three)}: the line that commutativity draws."
        )
    return in_part(
        "Two splits gave one pattern, as they must. So did three here: their programs "
        "finished in the same order each time, which nothing promises."
    )


@determinism(
    "workspace-repeats",
    "Slices added in a fixed order repeat bit for bit.",
)
def workspace_repeats(m: Evidence) -> Verdict:
    patterns = repeated(m, *(f"workspace.{s}" for s in DETERMINISM_FACTORS))
    same = sum(p == 1 for p in patterns)
    return counted(
        same,
        len(patterns),
        f"The workspace form gave one bit pattern in {same} of {len(patterns)} series "
        "of runs, alone, under memory pressure or beside another stream; the most of "
        f"any was {max(patterns)}.",
    )


@determinism(
    "one-owner-repeats",
    "A tile with one owner has one order of addition and repeats bit for bit.",
)
def one_owner_repeats(m: Evidence) -> Verdict:
    patterns = repeated(m, "none.1")
    same = sum(p == 1 for p in patterns)
    return counted(
        same,
        len(patterns),
        f"Without a split, {same} of {len(patterns)} series of "
        f"runs gave one bit pattern; the most of any was {max(patterns)}.",
    )


@determinism(
    "workspace-is-traffic",
    "The price of the workspace is one more pass over it: memory traffic, not FLOPs.",
)
def workspace_is_traffic(m: Evidence) -> Verdict:
    tensor = m[f"occupancy.{shape_key(STARVED)}.reduce.none.4.tensor_pct"]
    point = m.point(m.measured.occupancy(STARVED, "reduce", "none", 4))
    held = 4 * 4 * point.K * point.N
    read = point.counters.dram_read_bytes
    sentence = (
        f"The reduce kernel kept the tensor pipe busy {tensor} of the time and read "
        f"{mebibytes(read)} from memory, for a workspace of {mebibytes(held)}."
    )
    if tensor >= 1:
        return fails(sentence)
    return holds(sentence) if read > held / 2 else in_part(sentence)


@determinism(
    "workspace-grows",
    "The workspace costs more as splits grow.",
)
def workspace_grows(m: Evidence) -> Verdict:
    few, many = (
        m[f"{SPLIT}.workspace.{s}.ms"] / m[f"{SPLIT}.atomic.{s}.ms"] for s in (2, 64)
    )
    sentence = (
        f"{AT_STARVED} it took {ratio(few)} the time of atomics with 2 splits and "
        f"{ratio(many)} with 64."
    )
    return (holds if longer(many, few) else fails)(sentence)


@determinism(
    "workspace-in-l2",
    "A small workspace need not reach HBM: it fits into L2.",
)
def workspace_in_l2(m: Evidence) -> Verdict:
    l2 = m["gpu.l2_mib"]
    if l2 > 16:
        return holds(
            f"The L2 of this GPU is {l2}. The first workspace of the table fits and "
            "may largely stay there."
        )
    return fails(
        f"The L2 of this GPU is {l2}. Even the first workspace of the table does not "
        "leave room for anything else there."
    )


@determinism(
    "atomics-by-split",
    "Atomics are near even with the workspace at 2 to 4 splits, and cheaper beyond.",
)
def atomics_by_split(m: Evidence) -> Verdict:
    forms = ("atomic", "workspace")
    pairs = {
        split_t: [m.get(f"{SPLIT}.{form}.{split_t}.ms") for form in forms]
        for split_t in SPLIT_FACTORS[1:]
    }
    timed = {s: pair for s, pair in pairs.items() if None not in pair}
    if not timed:
        m.known([f"{SPLIT}.{form}.2.ms" for form in forms])
        raise NotMeasured("no split was timed in both forms")
    atomic = [s for s, (a, w) in timed.items() if longer(w, a)]
    workspace = [s for s, (a, w) in timed.items() if longer(a, w)]
    even = [s for s in timed if s not in atomic + workspace]
    near = {2, 3, 4} <= set(even)
    beyond = all(s in atomic for s in timed if s > 4)

    def at(factors: list[int]) -> str:
        return f"S = {', '.join(map(str, factors))}" if factors else "no factor"

    return counted(
        near + beyond,
        2,
        f"Counting anything within {MARGIN} as even, atomics were faster at "
        f"{at(atomic)}, the workspace at {at(workspace)}, and the two were even at "
        f"{at(even)}.",
    )


@determinism(
    "atomics-are-cheap",
    "Atomics are the cheap reduction.",
)
def atomics_are_cheap(m: Evidence) -> Verdict:
    atomic, workspace = (m[f"{SPLIT}.{how}.best.ms"] for how in ("atomic", "workspace"))
    at = [m[f"{SPLIT}.{how}.best.split_t"] for how in ("atomic", "workspace")]
    both = f"atomic {atomic} at S = {at[0]}, workspace {workspace} at S = {at[1]}"
    if longer(workspace, atomic):
        return holds(
            "Each at its own best split, determinism cost "
            f"{more(workspace, atomic)}: {both}."
        )
    if longer(atomic, workspace):
        return fails(
            "Each at its own best split, the deterministic form was the faster one, "
            f"by {100 * (1 - workspace / atomic):.0f} %: {both}. The claim does not "
            "hold at this shape."
        )
    return in_part(
        f"Each at its own best split, the two are within {MARGIN}: {both}. At this "
        "shape determinism is close to free, if the split is chosen well."
    )


# Part 7: accumulate, never overwrite


# Micro-batches that agree on nothing, or on a small common part.
GRADIENTS = ("noise", "signal")


@accumulate(
    "bf16-drifts",
    "A gradient accumulated in bf16 drifts from micro-batch to micro-batch; in fp32 it "
    "does not.",
)
def bf16_drifts(m: Evidence) -> Verdict:
    last = MICRO_BATCHES[-1]
    first = {g: m[f"accumulation.{g}.bfloat16.1.error"] for g in GRADIENTS}
    brain = {g: m[f"accumulation.{g}.bfloat16.{last}.error"] for g in GRADIENTS}
    wide = {g: m[f"accumulation.{g}.float32.{last}.error"] for g in GRADIENTS}
    good = sum(brain[g] > 2 * first[g] and brain[g] > 2 * wide[g] for g in GRADIENTS)
    noise, signal = GRADIENTS
    return counted(
        good,
        2,
        f"After {last} micro-batches whose gradients have nothing in common, the bf16 "
        f"buffer was off by {brain[noise]} of the gradient's norm, after one by "
        f"{first[noise]}; the fp32 buffer by {wide[noise]}. Of gradients with a part "
        f"in common, bf16 was off by {brain[signal]} and fp32 by {wide[signal]}.",
    )


@accumulate(
    "partials-in-16-bits",
    "Partial sums in 16 bits cost accuracy.",
)
def partials_in_16_bits(m: Evidence) -> Verdict:
    split_t = max(PARTIAL_FACTORS)
    wide, half, brain = (
        m[f"partials.{d}.{split_t}.error"] for d in ("float32", "float16", "bfloat16")
    )
    good = (half > 2 * wide) + (brain > 2 * wide)
    return counted(
        good,
        2,
        f"With {split_t} splits the error is {brain} from bf16 partial sums, {half} "
        f"from fp16 and {wide} from fp32.",
    )


@accumulate(
    "splits-of-16-bits",
    "In bf16 every split added makes dW worse; in fp32 it makes dW better.",
)
def splits_of_16_bits(m: Evidence) -> Verdict:
    few, many = min(PARTIAL_FACTORS), max(PARTIAL_FACTORS)
    brain = [m[f"partials.bfloat16.{s}.error"] for s in (few, many)]
    wide = [m[f"partials.float32.{s}.error"] for s in (few, many)]
    numbers = (
        f"from {few} split to {many} the error goes from {brain[0]} to {brain[1]} with "
        f"bf16 partial sums and from {wide[0]} to {wide[1]} with fp32"
    )
    if brain[1] > brain[0] and wide[1] < wide[0]:
        return holds(f"In bf16 splitting makes dW worse, in fp32 better: {numbers}.")
    if brain[1] > brain[0]:
        return in_part(f"In bf16 splitting makes dW worse: {numbers}.")
    return fails(f"At this shape splitting did not make bf16 worse: {numbers}.")


@accumulate(
    "shorter-sums",
    "In fp32 a split makes dW more exact, because each program's sum is shorter.",
)
def shorter_sums(m: Evidence) -> Verdict:
    key = f"determinism.{shape_key(STARVED)}"
    plain, four = m[f"{key}.none.1.error"], m[f"{key}.workspace.4.error"]
    numbers = (
        f"unsplit, with {STARVED[0]} products an accumulator, dW is off by {plain}, "
        f"with four splits through the workspace by {four}."
    )
    if plain <= four:
        return fails(
            "In fp32 a split should help, since each program's sum is shorter. The "
            f"kernels do not show it: {numbers}"
        )
    helps = (
        "In fp32 a split helps, because each program's sum is shorter. The kernels "
        f"themselves show it: {numbers}"
    )
    if 3.2 * four < plain < 5 * four:
        return holds(
            f"{helps} That is about a quarter. Errors that fell either way at random "
            "would only halve, so these lean to one side: the sums of a tensor core "
            "look cut off rather than rounded."
        )
    return holds(helps)


@accumulate(
    "adding-costs",
    "Unsplit, adding to the gradient costs more than storing it: the old values must "
    "be read.",
)
def adding_costs(m: Evidence) -> Verdict:
    over, add = (m[f"{GEMM}.{call}.lesson.ms"] for call in ("dw", "dw+"))
    if longer(add, over):
        return holds(
            "At the worked shape, accumulating takes "
            f"{more(add, over)} longer in the lesson's kernels: {add} after {over}."
        )
    if longer(over, add):
        return fails(
            f"At the worked shape, accumulating is the faster of the two in these "
            f"kernels: {add} after {over}."
        )
    return in_part(
        f"At the worked shape the difference is within {MARGIN} in the lesson's "
        f"kernels: {add} accumulating, {over} overwriting."
    )


@accumulate(
    "atomics-accumulate",
    "With more splits the atomic add accumulates already, and needs no zeroing for it.",
)
def atomics_accumulate(m: Evidence) -> Verdict:
    over, add = (
        m[f"gemm.{shape_key(STARVED)}.{call}.lesson.ms"] for call in ("dw", "dw+")
    )
    split_t = m[f"{SPLIT}.planned.split_t"]
    if longer(over, add):
        why = (
            "T is split there, and a kernel that adds atomically needs no zeroing when "
            "it accumulates"
        )
        return (holds if split_t > 1 else in_part)(
            f"At T = 32768, K = N = 1024 accumulating is the faster of the two, {add} "
            f"after {over}{f': {why}' if split_t > 1 else ''}."
        )
    if longer(add, over):
        return fails(
            f"At T = 32768, K = N = 1024 accumulating takes {more(add, over)} longer: "
            f"{add} after {over}."
        )
    return in_part(
        f"At T = 32768, K = N = 1024 the two are within {MARGIN}: {add} accumulating, "
        f"{over} overwriting."
    )
