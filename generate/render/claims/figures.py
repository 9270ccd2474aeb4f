"""Claims about what a layer costs, and about the GPU measured."""

from generate.render.claims.base import (
    GEMM,
    MARGIN,
    Evidence,
    Said,
    Verdict,
    counted,
    fails,
    holds,
    in_part,
    longer,
    more,
)
from generate.render.measured import CALL_LABELS, OPS
from generate.schema import SANITIZER_TOOLS
from generate.shapes import WORKED

worked_numbers = Said("lesson/worked-numbers", "8. Worked numbers")
next_lesson = Said("lesson/next", "11. What comes next")
hardware = Said("hardware", "The GPU measured")


# Part 8: worked numbers


def about(value: float, figure: float) -> bool:
    """Whether a value is what "about" a figure means: within a tenth."""
    return abs(value / figure - 1) <= 0.1


@worked_numbers(
    "gemm-tflop",
    "One GEMM of the layer is about 0.96 TFLOP.",
)
def gemm_tflop(m: Evidence) -> Verdict:
    t, k, n = WORKED
    tflop = 2 * t * k * n / 1e12
    sentence = f"2·{t}·{k}·{n} is {tflop:.3f} TFLOP."
    return (holds if about(tflop, 0.96) else fails)(sentence)


@worked_numbers(
    "layer-tflop",
    "The three together are 2.9 TFLOP per layer and step.",
)
def layer_tflop(m: Evidence) -> Verdict:
    t, k, n = WORKED
    tflop = 6 * t * k * n / 1e12
    sentence = f"3·2·{t}·{k}·{n} is {tflop:.3f} TFLOP."
    return (holds if about(tflop, 2.9) else fails)(sentence)


@worked_numbers(
    "sm-count",
    "The GPU has about 132 SMs.",
)
def sm_count(m: Evidence) -> Verdict:
    sms = m["gpu.sm_count"]
    return (holds if about(sms, 132) else fails)(
        f"{m.word('gpu.name')} has {sms}; the lesson's figure is an H100's."
    )


@worked_numbers(
    "sustained-rate",
    "The GPU sustains about 490 TFLOP/s in bf16.",
)
def sustained_rate(m: Evidence) -> Verdict:
    rate = m["ceilings.gemm_tflops"]
    return (holds if about(rate, 490) else fails)(
        f"The fastest vendor product of the ceilings ran at {rate} on "
        f"{m.word('gpu.name')}; the lesson's figure is an H100's."
    )


@worked_numbers(
    "memory-bandwidth",
    "Memory delivers 3.35 TB/s.",
)
def memory_bandwidth(m: Evidence) -> Verdict:
    bandwidth = m["ceilings.copy_tbps"]
    return (holds if about(bandwidth, 3.35) else fails)(
        f"A device copy moved {bandwidth} on {m.word('gpu.name')}; the lesson's figure "
        "is an H100's, from its datasheet."
    )


@worked_numbers(
    "layer-time",
    "The three GEMMs take about 5.9 ms.",
)
def layer_time(m: Evidence) -> Verdict:
    vendor, lesson = (m[f"{GEMM}.sum.{who}.ms"] for who in ("vendor", "lesson"))
    good = about(vendor, 5.9) + about(lesson, 5.9)
    return counted(
        good,
        2,
        f"On {m.word('gpu.name')} they took {vendor} through the vendor library and "
        f"{lesson} through the lesson's kernels; the lesson's figure is an H100's.",
    )


@worked_numbers(
    "dw-is-slowest",
    "dW is the slowest of the three.",
)
def dw_is_slowest(m: Evidence) -> Verdict:
    words, good = [], 0
    names = {
        "vendor": "Through the vendor library",
        "lesson": "in the lesson's kernels",
    }
    for implementation, name in names.items():
        times = {op: m[f"{GEMM}.{op}.{implementation}.ms"] for op in OPS}
        slowest = max(times, key=times.get)
        good += slowest == "dw"
        took = f"{name} {CALL_LABELS[slowest]} takes the longest, {times[slowest]}"
        if slowest != "dw":
            level = (
                "" if longer(times[slowest], times["dw"]) else f", even within {MARGIN}"
            )
            took += f", and dW {times['dw']}{level}"
        words.append(took)
    return counted(good, 2, f"{'; '.join(words)}.")


@worked_numbers(
    "compute-bound",
    "The three GEMMs of the worked layer are bound by arithmetic, not by memory.",
)
def compute_bound(m: Evidence) -> Verdict:
    t, k, n = WORKED
    rate, bandwidth = m["ceilings.gemm_tflops"], m["ceilings.copy_tbps"]
    flops, ridge = 2 * t * k * n, rate / bandwidth
    moved = {
        "forward": 2 * (t * k + k * n + t * n),
        "dx": 2 * (t * n + k * n + t * k),
        "dw": 2 * (t * k + t * n) + 4 * k * n,
    }
    bound = [CALL_LABELS[op] for op in OPS if flops / moved[op] > ridge]
    balance = (
        f"This GPU's measured ceilings, {rate} and {bandwidth}, balance at "
        f"{ridge:.0f} FLOPs a byte."
    )
    if len(bound) == 3:
        return holds(
            f"{balance} All three are compute-bound, with room to spare for reading "
            "operands more than once."
        )
    return counted(
        len(bound),
        3,
        f"{balance} By that count {' and '.join(bound) or 'none'} of the three is "
        "compute-bound; the rest wait for memory here.",
    )


@worked_numbers(
    "library-is-faster",
    "The vendor library is faster than kernels that are written to be read.",
)
def library_is_faster(m: Evidence) -> Verdict:
    vendor, lesson = (m[f"{GEMM}.sum.{who}.ms"] for who in ("vendor", "lesson"))
    if longer(lesson, vendor):
        return holds(
            "Over the three together the lesson's kernels need "
            f"{more(lesson, vendor)} more time than the library. They load through "
            "plain pointers, with one tile size and no tuning: they are written to be "
            "read."
        )
    return fails(
        "Over the three together the lesson's kernels need no more time than the "
        f"library, {lesson} and {vendor}."
    )


# Part 11: what comes next


VOCABULARY = 128256


@next_lesson(
    "logits-are-large",
    "A [T, vocabulary] matrix would blow the memory budget.",
)
def logits_are_large(m: Evidence) -> Verdict:
    memory = m["gpu.memory_gib"]
    t, k = 8192, 4096
    held = 8 * t * VOCABULARY / 2**30
    rest = 2 * (k * VOCABULARY + t * k) / 2**30
    sentence = (
        f"With T = {t} and a vocabulary of {VOCABULARY}, logits and their gradient "
        f"take {held:.1f} GiB where all that went in takes {rest:.1f} GiB; this GPU "
        f"has {memory}."
    )
    if held > memory:
        return holds(sentence)
    return in_part(f"{sentence} They grow with T, the memory does not.")


@next_lesson(
    "logits-do-not-starve",
    "dW of the logits projection has tiles enough.",
)
def logits_do_not_starve(m: Evidence) -> Verdict:
    tiles, sms = m.tiles(4096, VOCABULARY), m["gpu.sm_count"]
    sentence = f"Its output is K×V: {tiles} tiles for {sms} SMs."
    if tiles >= sms:
        return holds(f"{sentence} There is nothing to split.")
    return fails(sentence)


@hardware(
    "below-the-peak",
    "The vendor library stays below the datasheet's peak.",
)
def below_the_peak(m: Evidence) -> Verdict:
    peak, best = m["ceilings.peak_tflops"], m["ceilings.gemm_tflops"]
    if best < peak:
        return holds(
            f"The fastest vendor product of the ceilings ran at {best} of {peak}, so "
            '"percent of peak" says little about a kernel: these pages compare with '
            "the vendor's time on the same chip in the same minute instead."
        )
    return fails(
        f"The fastest vendor product of the ceilings ran at {best}, the computed peak "
        f"is {peak}: the clock taken for it is lower than the one the chip ran at."
    )


@hardware(
    "sanitizer-clean",
    "compute-sanitizer finds no error in any kernel.",
)
def sanitizer_clean(m: Evidence) -> Verdict:
    keys = [f"sanitizer.{tool}" for tool in SANITIZER_TOOLS]
    m.known([f"{key}.errors" for key in keys])
    told, faults, absent = [], 0, []
    for tool, key in zip(SANITIZER_TOOLS, keys, strict=True):
        errors = m.get(f"{key}.errors")
        if errors is None:
            absent.append(tool)
            continue
        warnings, launches = m[f"{key}.warnings"], m[f"{key}.launches"]
        faults += errors + warnings
        told.append(f"{tool} {errors} and {warnings} in {launches} launches")
    sentence = f"Errors and warnings that name a kernel: {', '.join(told)}"
    if faults:
        return fails(f"{sentence}.")
    if absent:
        return in_part(f"{sentence}. {' and '.join(absent)} did not run.")
    return holds(f"{sentence}; each reported the kernel broken on purpose for it.")
