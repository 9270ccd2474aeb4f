"""Claims about the two gradients and the operands they read transposed."""

from generate.render.claims.base import (
    AT_STARVED,
    AT_WORKED,
    GEMM,
    MARGIN,
    NOISE,
    Evidence,
    NotMeasured,
    Said,
    Verdict,
    counted,
    fails,
    holds,
    in_part,
    longer,
    span,
)
from generate.render.formats import count, ratio, shape_key, significant
from generate.render.measured import CALL_LABELS, ITEMSIZE, OPS, Missing
from generate.shapes import STARVED, TRANSPOSE_SHAPES, WORKED
from kernels.plan import (
    choose_tile,
    contracted_axis,
    contracted_blocks,
    output_axes,
    output_tiles,
)

# All three GEMMs of these have at least a tile for each SM of an H100.
BALANCED = (WORKED, (8192, 4096, 4096), (8192, 8192, 28672))

two_gradients = Said("lesson/two-gradients", "1. Two gradients as shapes")
stride_swap = Said("lesson/stride-swap", "2. A transpose is a stride swap")
dx = Said("lesson/dx", "3. Kernel 1: dX")
dx_file = Said("kernels/dx", "The dX kernel")


# Part 1: two gradients as shapes


@two_gradients(
    "equal-flops",
    "Forward, dX and dW cost the same FLOPs: 2·T·K·N each.",
)
def equal_flops(m: Evidence) -> Verdict:
    t, k, n = WORKED
    words, work = [], set()
    for op in OPS:
        tile = choose_tile(op, ITEMSIZE, m.measured.gpu.device)
        tiles = output_tiles(op, WORKED, tile)
        blocks = contracted_blocks(op, WORKED, tile)
        work.add(2 * tiles * blocks * tile.block_t * tile.block_k * tile.block_n)
        words.append(f"{CALL_LABELS[op]} {tiles} tiles × {blocks} blocks")
    grids = ", ".join(words)
    if work == {2 * t * k * n}:
        each = significant(2 * t * k * n / 1e12)
        return holds(f"{AT_WORKED} each is {each} TFLOP: {grids}.")
    return in_part(
        f"{AT_WORKED} the tiles planned for this GPU leave tails, so the three "
        f"products do not issue the same work: {grids}."
    )


@two_gradients(
    "one-letter-each",
    "What differs is the dimension that is summed over and the operand that is read "
    "transposed.",
)
def one_letter_each(m: Evidence) -> Verdict:
    stored = {(0, 1): "X", (1, 2): "W", (0, 2): "dY"}
    words, sums, turned = [], [], []
    for op in OPS:
        (rows, columns), summed = output_axes(op), contracted_axis(op)
        pairs = [(rows, summed), (summed, columns)]
        read = [stored[pair[::-1]] for pair in pairs if pair[::-1] in stored]
        sums.append(summed)
        turned.append(tuple(read))
        words.append(
            f"{CALL_LABELS[op]} sums over {'TKN'[summed]} and reads "
            f"{' and '.join(read) or 'nothing'} transposed"
        )
    different = len(set(sums)) == len(set(turned)) == len(OPS)
    return (holds if different else fails)(
        f"By their index formulas, {'; '.join(words)}."
    )


@two_gradients(
    "grids",
    "A grid is the output's tiles, ⌈rows / block⌉·⌈columns / block⌉, for dW times "
    "SPLIT_T.",
)
def grids(m: Evidence) -> Verdict:
    found = [m.measured.occupancy(*launch) for launch in m.measured.launches]
    points = [
        p
        for p in found
        if not isinstance(p, Missing) and p.configuration and p.kernel in OPS
    ]
    if not points:
        m.point(m.measured.occupancy(WORKED, "dw", "none", 1))
        raise NotMeasured("no launch has its configuration")
    good = 0
    for point in points:
        blocks = point.configuration
        tiles = output_tiles(point.kernel, point.shape, blocks)
        good += point.programs == tiles * point.split_t
    return counted(
        good,
        len(points),
        f"{good} of {count(len(points), 'recorded launch', 'recorded launches')} had "
        "just so many programs.",
    )


@two_gradients(
    "equal-time",
    "Equal FLOPs need not mean equal time.",
)
def equal_time(m: Evidence) -> Verdict:
    times = {CALL_LABELS[op]: m[f"{GEMM}.{op}.lesson.ms"] for op in OPS}
    slow, fast = max(times, key=times.get), min(times, key=times.get)
    if longer(times[slow], times[fast]):
        return holds(
            f"{AT_WORKED} {slow} took {times[slow]} in the lesson's kernels, "
            f"{ratio(times[slow] / times[fast])} the time of {fast}, {times[fast]}."
        )
    return fails(
        f"{AT_WORKED} they do here: the lesson's kernels took between "
        f"{times[fast]} and {times[slow]}, which is even within {MARGIN}."
    )


# Part 2: a transpose is a stride swap


def over_the_swap(m: Evidence, way: str, *implementations: str) -> list[float]:
    """Time of a way over that of the swap, for each product timed both ways."""
    keys = [
        f"transpose.{shape_key(shape)}.{op}.{implementation}"
        for shape in TRANSPOSE_SHAPES
        for op in ("dx", "dw")
        for implementation in implementations
    ]
    pairs = [(m.get(f"{key}.{way}.ms"), m.get(f"{key}.in-place.ms")) for key in keys]
    found = [other / swap for other, swap in pairs if other and swap]
    return found or [m[f"{keys[0]}.{way}.ms"] / m[f"{keys[0]}.in-place.ms"]]


@stride_swap(
    "transposes-free",
    "A transpose is a stride swap: reading the operand transposed costs no time.",
)
def transposes_free(m: Evidence) -> Verdict:
    ratios = [1 / over for over in over_the_swap(m, "copied-before", "lesson")]
    even = sum(r <= 1 + NOISE for r in ratios)
    sentence = (
        f"Reading in place took {span(ratios)} the time of reading a transpose that "
        f"lies in memory as such, and no longer, within {MARGIN}, in {even} of "
        f"{len(ratios)} products."
    )
    if min(ratios) < 1 - NOISE:
        sentence += (
            " Where it is well below 1, the kernel is faster on the operand as it "
            "lies than on a copy of its transpose: such a copy would not pay even if "
            "it were free."
        )
    return counted(even, len(ratios), sentence)


@stride_swap(
    "copy-costs",
    "Launching a transpose first costs time.",
)
def copy_costs(m: Evidence) -> Verdict:
    ratios = over_the_swap(m, "copied-first", "lesson", "vendor")
    slower = sum(r > 1 + NOISE for r in ratios)
    return counted(
        slower,
        len(ratios),
        f"With the copy first, a product took {span(ratios)} the time of the swap; in "
        f"{slower} of {len(ratios)} products, ours and the vendor library's, that is "
        f"longer by more than {MARGIN}.",
    )


@stride_swap(
    "copy-is-no-plain-copy",
    "A transposing copy seldom reaches the bandwidth of a plain one.",
)
def copy_is_no_plain_copy(m: Evidence) -> Verdict:
    key = f"transpose.{shape_key(STARVED)}.dw.lesson"
    copy, place = m[f"{key}.the-copy-alone.ms"], m[f"{key}.in-place.ms"]
    bandwidth = m["ceilings.copy_tbps"]
    moved = 2 * 2 * STARVED[0] * STARVED[1]
    reached = moved / copy / 1e9
    numbers = (
        f"Copying X moves its bytes at {reached:.2f} TB/s, where a plain copy reached "
        f"{bandwidth} on {m.word('gpu.name')}."
    )
    if reached < 0.8 * bandwidth:
        added = 100 * moved / bandwidth / 1e9 / place
        return holds(
            f"{numbers} A transposing copy must read or write across rows, so it is no "
            "plain copy. This one is PyTorch's; at the bandwidth of the plain one it "
            f"would still add {added:.0f} % to the GEMM (modeled)."
        )
    return fails(
        f"{numbers} So this copy is bound by memory traffic and by nothing else."
    )


@stride_swap(
    "copy-takes-memory",
    "The swap takes no memory; the copy takes that of a second operand.",
)
def copy_takes_memory(m: Evidence) -> Verdict:
    keys = [
        f"transpose.{shape_key(shape)}.{op}.lesson"
        for shape in TRANSPOSE_SHAPES
        for op in ("dx", "dw")
    ]
    swap = m.known([f"{key}.in-place.extra_mib" for key in keys])
    copy = m.known([f"{key}.copied-first.extra_mib" for key in keys])
    good = (max(swap) < 1) + (min(copy) >= 1)
    return counted(
        good,
        2,
        f"Over operands and output the swap took at most {max(swap)}, the copy from "
        f"{min(copy)} to {max(copy)}.",
    )


@stride_swap(
    "near-the-vendor",
    "Read by strides, dX and dW come within a tenth of the vendor library where there "
    "are tiles enough.",
)
def near_the_vendor(m: Evidence) -> Verdict:
    ratios = {
        op: m.known([f"gemm.{shape_key(shape)}.{op}.ratio" for shape in BALANCED])
        for op in ("dx", "dw")
    }
    found = [*ratios["dx"], *ratios["dw"]]
    good = sum(r >= 0.9 for r in found)
    return counted(
        good,
        len(found),
        f"Vendor time over ours was {min(ratios['dx'])} to {max(ratios['dx'])} for dX "
        f"and {min(ratios['dw'])} to {max(ratios['dw'])} for dW, 0.90× or more in "
        f"{good} of {len(found)} cases.",
    )


# Part 3: dX, and its file


@dx(
    "dx-has-tiles",
    "dX is the easy one: T is huge, and so is its grid.",
)
def dx_has_tiles(m: Evidence) -> Verdict:
    sms = m["gpu.sm_count"]
    tile = choose_tile("dx", ITEMSIZE, m.measured.gpu.device)
    tiles = output_tiles("dx", STARVED, tile)
    sentence = (
        f"{AT_STARVED} dX has {tiles} tiles for {sms} SMs, {tiles / sms:.1f} each."
    )
    return (holds if tiles >= sms else fails)(sentence)


@dx(
    "turned-load",
    "dX does as well as forward: reading W by swapped strides does not show.",
)
def turned_load(m: Evidence) -> Verdict:
    forward, dx = m["summary.forward.geomean"], m["summary.dx.geomean"]
    if dx < forward - NOISE:
        return fails(
            f"dX stands further from the vendor library than forward does, {dx} "
            f"against {forward}. The turned load is one candidate; that forward and dX "
            "contract different dimensions, and so have loops of different length, is "
            "another. The ratios alone cannot tell them apart."
        )
    if dx > forward + NOISE:
        return holds(
            f"dX stands closer to the vendor library than forward does, {dx} against "
            f"{forward}: the turned load is not what holds the lesson's kernels back."
        )
    return holds(
        f"The two lie within three hundredths of each other, {dx} and {forward}: on "
        "average over these shapes, reading W by swapped strides does not show."
    )


@dx(
    "as-exact",
    "With an fp32 accumulator and one cast at the end, results are as exact as the "
    "vendor library's.",
)
def as_exact(m: Evidence) -> Verdict:
    found = []
    for shape in m.measured.gemm_shapes:
        for op in OPS:
            both = [m.measured.gemm(shape, op, who) for who in ("lesson", "vendor")]
            if not any(isinstance(p, Missing) or not p.error for p in both):
                found.append(both[0].error / both[1].error)
    if not found:
        m.point(m.measured.gemm(WORKED, "dx", "lesson"))
        raise NotMeasured("no output was compared with fp64")
    good = sum(r <= 1 + NOISE for r in found)
    return counted(
        good,
        len(found),
        f"Against fp64, the error of the lesson's kernels is {span(found)} that of the "
        f"vendor library, no larger in {good} of {len(found)} products.",
    )


@dx(
    "any-size",
    "Masked on every axis with fill 0, the kernels are right at any size.",
)
def any_size(m: Evidence) -> Verdict:
    tests, failed = m["verification.tests"], m["verification.failed"]
    if failed:
        return fails(
            f"Not all passed: {failed} of {tests} failed, and the points of the "
            "kernels they cover are left out of the charts."
        )
    return holds(
        f"No test failed: {m['verification.passed']} of {tests} passed; any other was "
        "skipped."
    )


@dx_file(
    "dx-takes-no-place",
    "Reading W transposed takes no place on an SM away.",
)
def dx_takes_no_place(m: Evidence) -> Verdict:
    occupancy = f"occupancy.{shape_key(WORKED)}"
    ours, forward = (m[f"{occupancy}.{op}.none.1.resident"] for op in ("dx", "forward"))
    if ours >= forward:
        here, there = (
            m[f"{occupancy}.{op}.none.1.registers"] for op in ("dx", "forward")
        )
        return holds(
            "Reading W transposed takes no place away: an SM holds as many programs "
            f"of dX as of forward, {ours} and {forward}. Registers a thread: {here} "
            f"here, {there} in forward."
        )
    return fails(
        f"An SM holds {ours} of these programs at once and {forward} of forward's: on "
        "this GPU the two are not compiled alike."
    )
