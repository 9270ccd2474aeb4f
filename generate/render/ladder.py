"""Facts of the fast kernels: the rungs that lead to them, and how far they reach.

`over_vendor` is the vendor's time over ours, from the same turns: above 1, ours is
the faster.
"""

from generate.render import formats
from generate.render.fact import Fact, Facts, duration, known, missing
from generate.render.formats import count, shape_key, shape_label
from generate.render.measured import (
    CALL_LABELS,
    CALLS,
    ITEMSIZE,
    Measurements,
    Missing,
)
from generate.render.tables import Cell, Head, Table
from generate.schema import FastConfiguration, GemmPoint, geometric_mean
from generate.shapes import (
    FURTHER_SHAPES,
    LADDER_SHAPES,
    LAUNCH_SHAPE,
    TRIED_SHAPES,
    Shape,
)
from kernels.plan import (
    LINE_BYTES,
    RUNGS,
    Tile,
    contracted_blocks,
    output_axes,
    output_tiles,
)

# What the public functions run, by call; dW has a deterministic form of its own.
PUBLIC = {
    call: ("fast", "deterministic") if op == "dw" else ("fast",)
    for call, (op, _) in CALLS.items()
}
# Every rung, and what was tried, and the one that its step is counted from. A split
# and stream-K each share what the persistent programs own alone.
BELOW = {
    "grouped": "lesson",
    "tiles": "grouped",
    "descriptor": "tiles",
    "persistent": "descriptor",
    "split": "persistent",
    "stream_k": "persistent",
    "specialized": "persistent",
}
RUNG_NAMES = {
    "lesson": "lesson",
    "grouped": "grouped",
    "tiles": "tiles",
    "descriptor": "descriptor",
    "persistent": "persistent",
    "split": "split",
    "stream_k": "stream-K",
}
KERNEL_NAMES = {**RUNG_NAMES, "pitched": "pitched"}
# Below so many of these tiles, as many as SMs, dW starves.
STARVED_TILE = Tile(64, 128, 256, 8, 3)
WAYS = ("bare", "public", "vendor")
# Of the table of the slowest products: so many of each call.
SLOWEST = 3


def facts(measured: Measurements, gemms: Facts) -> Facts:
    """gemms: the facts of section gemms, by key."""
    return {
        **_means(measured, gemms),
        **_deterministic(measured, gemms),
        **_rungs(measured),
        **_further(measured),
        **_launches(measured),
    }


def over_vendor(vendor: Fact, ours: Fact) -> Fact:
    return _over(vendor, ours, "vendor time / our time, in the same turns")


def starved_shapes(measured: Measurements) -> list[Shape]:
    """Shapes whose dW has fewer tiles of 128×256 than the GPU has SMs."""
    return [
        shape
        for shape in measured.gemm_shapes
        if output_tiles("dw", shape, STARVED_TILE) < measured.gpu.sm_count
    ]


def ladder_shapes(measured: Measurements) -> list[Shape]:
    """The site's shapes, then whatever else was recorded."""
    recorded = (key[-3:] for key in measured.keys("ladder"))
    return list(dict.fromkeys([*LADDER_SHAPES, *recorded]))


def further_shapes(measured: Measurements) -> list[Shape]:
    recorded = (key[-3:] for key in measured.keys("further"))
    return list(dict.fromkeys([*FURTHER_SHAPES, *recorded]))


def described(shape: Shape) -> bool:
    """Whether descriptors take plain bf16 matrices of this shape as they lie."""
    return shape[1] % 8 == shape[2] % 8 == 0


def evened(shape: Shape) -> bool:
    """Whether loads through pointers take several elements where descriptors do not."""
    return shape[1] % 2 == shape[2] % 2 == 0 and not described(shape)


def broken(shape: Shape) -> bool:
    """Whether rows of such plain matrices begin inside of lines of L2."""
    lines = LINE_BYTES // ITEMSIZE
    return described(shape) and (shape[1] % lines or shape[2] % lines) != 0


def _over(numerator: Fact, denominator: Fact, note: str) -> Fact:
    for side in (denominator, numerator):
        if side.value is None:
            return side
    value = numerator.value / denominator.value
    return Fact(value, formats.close_ratio(value), note)


def _mean_and_worst(ratios: dict[Shape, Fact], what: str) -> tuple[Fact, Fact]:
    """Of those that are known."""
    values = {s: fact.value for s, fact in ratios.items() if fact.value is not None}
    if not values:
        return (missing(next(iter(ratios.values())).note),) * 2
    note = f"{what}, over {count(len(values), 'shape')}"
    mean, worst = geometric_mean(list(values.values())), min(values, key=values.get)
    at = f"{note}; least at {shape_label(worst)}"
    return (
        Fact(mean, formats.close_ratio(mean), f"{note}, geometric mean"),
        Fact(values[worst], formats.close_ratio(values[worst]), at),
    )


def _means(measured: Measurements, gemms: Facts) -> Facts:
    found = {}
    for call, public in PUBLIC.items():
        for implementation in ("lesson", *public):
            field = "ratio" if implementation == "lesson" else "over_vendor"
            part = call if implementation == "lesson" else f"{call}.{implementation}"
            ratios = {
                shape: gemms[f"gemm.{shape_key(shape)}.{part}.{field}"]
                for shape in measured.gemm_shapes
            }
            mean, worst = _mean_and_worst(ratios, "vendor time / our time")
            found[f"ladder.geomean.{call}.{implementation}"] = mean
            found[f"ladder.worst.{call}.{implementation}"] = worst
    return found


def _deterministic(measured: Measurements, gemms: Facts) -> Facts:
    """What determinism costs a starved dW: time without it over time with it."""
    found, what = {}, "time of the default form / of the deterministic one"
    shapes = starved_shapes(measured)
    for call in ("dw", "dw+"):
        ratios = {}
        for shape in shapes:
            key = f"gemm.{shape_key(shape)}.{call}"
            ratio = _over(
                gemms[f"{key}.fast.ms"], gemms[f"{key}.deterministic.ms"], what
            )
            found[f"{key}.deterministic.over_fast"] = ratios[shape] = ratio
        if not ratios:
            ratios[()] = missing("no recorded shape starves this GPU")
        mean, worst = _mean_and_worst(ratios, f"{what}, starved shapes")
        found[f"ladder.deterministic.{call}.geomean"] = mean
        found[f"ladder.deterministic.{call}.worst"] = worst
    return found


def _rungs(measured: Measurements) -> Facts:
    found = {}
    for shape in ladder_shapes(measured):
        for call in CALLS:
            key = f"ladder.{shape_key(shape)}.{call}"
            tried = ("specialized",) if shape in TRIED_SHAPES else ()
            for rung in ("vendor", "lesson", *RUNGS, *tried):
                point = measured.rung(shape, call, rung)
                found[f"{key}.{rung}.ms"] = ours = duration(point)
                found[f"{key}.{rung}.tflops"] = _tflops(point)
                if rung != "vendor":
                    vendor = found[f"{key}.vendor.ms"]
                    found[f"{key}.{rung}.over_vendor"] = over_vendor(vendor, ours)
                if rung in BELOW:
                    below = BELOW[rung]
                    found[f"{key}.{rung}.step"] = _over(
                        found[f"{key}.{below}.ms"],
                        ours,
                        f"time of the {below} rung / time of this one",
                    )
    return found


def _further(measured: Measurements) -> Facts:
    found, shapes = {}, further_shapes(measured)
    for call in CALLS:
        ratios = {}
        for shape in shapes:
            vendor, ours = (
                duration(measured.further(shape, call, who))
                for who in ("vendor", "fast")
            )
            ratios[shape] = over_vendor(vendor, ours)
            found[f"further.{shape_key(shape)}.{call}.over_vendor"] = ratios[shape]
            if evened(shape):
                copied, pitched = (
                    duration(measured.further(shape, call, who))
                    for who in ("copied", "pitched")
                )
                found[f"further.{shape_key(shape)}.{call}.pitched.over_copied"] = _over(
                    copied, pitched, "time with copies / time through pointers"
                )
            if broken(shape):
                aligned = duration(measured.further(shape, call, "aligned"))
                found[f"further.{shape_key(shape)}.{call}.over_aligned"] = _over(
                    aligned, ours, "time planned for whole lines / our time"
                )
        mean, worst = _mean_and_worst(ratios, "vendor time / our time")
        found[f"further.geomean.{call}"], found[f"further.worst.{call}"] = mean, worst
    return found


def _launches(measured: Measurements) -> Facts:
    found = {}
    for call in CALLS:
        key = f"launch.{call}"
        for way in WAYS:
            found[f"{key}.{way}_us"] = _host(measured, call, way)
        found[f"{key}.overhead_us"] = _less(
            found[f"{key}.public_us"], found[f"{key}.bare_us"]
        )
    return found


def _less(public: Fact, bare: Fact) -> Fact:
    for side in (public, bare):
        if side.value is None:
            return side
    more = public.value - bare.value
    note = "a call of the public function less a bare launch, on the host"
    return Fact(more, formats.microseconds(more), note)


def _host(measured: Measurements, call: str, way: str) -> Fact:
    point = measured.launch(LAUNCH_SHAPE, call, way)
    if isinstance(point, Missing):
        return missing(point.reason)
    note = f"host time of a call, median of {count(len(point.host_us), 'sample')}"
    return Fact(point.time_us, formats.microseconds(point.time_us), note)


def _tflops(point: GemmPoint | Missing) -> Fact:
    if isinstance(point, Missing):
        return missing(point.reason)
    return known(point.tflops, formats.tflops)


def slowest(measured: Measurements) -> Table:
    """The products furthest behind the vendor's, and how each was launched."""
    heads = [Head("GEMM"), Head("T × K × N"), Head("Kernel")]
    heads += [
        Head(text, numeric=True)
        for text in (
            "Vendor ÷ ours",
            "Ours, ms",
            "Tile",
            "Tiles ÷ SMs",
            "Blocks a tile",
        )
    ]
    rows, reason = [], None
    for call in CALLS:
        pairs = []
        for shape in measured.gemm_shapes:
            vendor, ours = (
                measured.gemm(shape, call, who) for who in ("vendor", "fast")
            )
            lost = [point for point in (ours, vendor) if isinstance(point, Missing)]
            if lost:
                reason = reason or lost[0].reason
            else:
                pairs.append((vendor.time_ms / ours.time_ms, ours))
        pairs.sort(key=lambda pair: pair[0])
        rows += [_slow(measured, call, *pair) for pair in pairs[:SLOWEST]]
    if not rows:
        empty = Cell("not measured", reason=reason or "")
        rows = [[Cell("all", header=True), empty, *[Cell("")] * (len(heads) - 2)]]
    caption = f"The {SLOWEST} of each GEMM furthest behind, and how they were launched"
    return Table(caption, heads, rows)


def _slow(
    measured: Measurements, call: str, ratio: float, point: GemmPoint
) -> list[Cell]:
    made: FastConfiguration = point.configuration
    blocks = made.block_t, made.block_k, made.block_n
    tile = Tile(*blocks, made.num_warps, made.num_stages)
    tiles = output_tiles(point.op, point.shape, tile)
    rows, columns = output_axes(point.op)
    numbers = (
        formats.close_ratio(ratio),
        formats.significant(point.time_ms),
        f"{blocks[rows]}×{blocks[columns]}",
        f"{tiles / measured.gpu.sm_count:.2f}",
        str(contracted_blocks(point.op, point.shape, tile)),
    )
    name = KERNEL_NAMES[made.kernel]
    if made.split_t > 1:
        name += f", S = {made.split_t}"
    cells = [Cell(CALL_LABELS[call], header=True), Cell(shape_label(point.shape))]
    return [*cells, Cell(name), *(Cell(text, numeric=True) for text in numbers)]
