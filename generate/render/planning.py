"""The plan beside what was measured: two rules for a split, and predicted times.

Nothing here chooses a launch. It asks `kernels.plan` what it chooses today, and looks
up in a recording what that choice took.
"""

import math
from dataclasses import dataclass, replace

from generate.render.fact import Fact, Facts, duration, missing, times
from generate.render.formats import (
    count,
    milliseconds,
    percent,
    ratio,
    shape_key,
    shape_label,
    significant,
    whole_percent,
)
from generate.render.measured import (
    CALLS,
    ITEMSIZE,
    Measurements,
    Missing,
)
from generate.render.tables import Cell, Head, Table
from generate.schema import FastConfiguration, GemmPoint, SplitPoint, geometric_mean
from generate.shapes import LADDER_SHAPES, STARVED, Shape
from kernels.plan import (
    LINE_BYTES,
    LONE_PROGRAM_TIME,
    PROGRAM_OVERHEAD_BLOCKS,
    RUNGS,
    Device,
    FastPlan,
    Layout,
    Tile,
    cdiv,
    contracted_blocks,
    expected_resident,
    fast_plan,
    filling_split,
    output_tiles,
    ranked_plans,
    split_time,
    waves,
)

# Sections with products by the fast kernels, and how pages call their shapes.
PREDICTED = {"gemms": "the recorded shapes", "further": "the further shapes"}


def facts(measured: Measurements) -> Facts:
    found = {}
    for shape in measured.split_shapes:
        found |= _rules(measured, shape)
    for section in PREDICTED:
        found |= _predicted(measured, section)
    for shape in LADDER_SHAPES:
        for call in CALLS:
            key = f"plan.{shape_key(shape)}.{call}.rung.over_best"
            found[key] = _rung(measured, shape, call)
    return found


def tables(measured: Measurements) -> dict[str, Table]:
    """Both rules at every shape of the sweep, and the model worked out at one."""
    return {
        "plan-rules": _rules_table(measured),
        "plan-waves": _waves_table(measured),
    }


# The split over T


def reduction_of(split_t: int) -> str:
    """How the plan adds up a split, unless determinism is asked for."""
    return "none" if split_t == 1 else "atomic"


def lesson_split(measured: Measurements, shape: Shape) -> int:
    """The lesson's rule: split when tiles < SMs, and no more than fills the SMs."""
    return filling_split(measured.plan(shape).tiles, measured.gpu.sm_count)


def model_blocks(measured: Measurements, shape: Shape, split_t: int) -> float:
    """The plan's time of a split in its own unit, a T-block; see `split_time`."""
    chosen, device = measured.plan(shape), measured.gpu.device
    resident = expected_resident("dw", chosen.tile, ITEMSIZE, device)
    blocks = contracted_blocks("dw", shape, chosen.tile)
    return split_time(split_t, chosen.tiles, blocks, device.sm_count, resident)


def modelled(measured: Measurements, shape: Shape) -> list[SplitPoint]:
    """Measured points of the form that the plan chooses among, by split factor."""
    found = measured.splits(shape, "none", "atomic")
    return [point for point in found if point.reduction == reduction_of(point.split_t)]


def block_ms(measured: Measurements, shape: Shape) -> float | None:
    """What one T-block of the model takes at a shape, in milliseconds.

    The geometric mean, over the measured factors, of measured time over the model's:
    the one number that is fitted to a shape. None where nothing was measured.
    """
    points = modelled(measured, shape)
    if not points:
        return None
    ratios = [p.time_ms / model_blocks(measured, shape, p.split_t) for p in points]
    return geometric_mean(ratios)


def residual(measured: Measurements, shape: Shape, point: SplitPoint) -> float:
    """Measured time over the model's, less one."""
    predicted = model_blocks(measured, shape, point.split_t)
    return point.time_ms / (block_ms(measured, shape) * predicted) - 1


def _rules(measured: Measurements, shape: Shape) -> Facts:
    key = f"plan.{shape_key(shape)}"
    split_t = lesson_split(measured, shape)
    point = measured.nearest_split(shape, reduction_of(split_t), split_t)
    note = f"split when tiles < SMs: {split_t}"
    time = duration(point)
    if not isinstance(point, Missing):
        if point.split_t != split_t:
            note += f"; the nearest recorded factor is {point.split_t}"
        time = Fact(time.value, time.text, f"{note}; {time.note}")
    best = duration(measured.best_split(shape))
    found = {
        f"{key}.lesson.split_t": Fact(split_t, str(split_t), note),
        f"{key}.lesson.ms": time,
        f"{key}.lesson.over_best": times(time, best, f"{note}; over the best time"),
    }
    points = modelled(measured, shape)
    if not points:
        why = missing(measured.split(shape, "none", 1).reason)
        return found | {f"{key}.residual.{name}_pct": why for name in ("half", "most")}
    sizes = sorted(100 * abs(residual(measured, shape, point)) for point in points)
    note = f"|measured / predicted − 1|, over {count(len(points), 'split factor')}"
    return found | {
        f"{key}.residual.half_pct": _percent(sizes[(len(sizes) - 1) // 2], note),
        f"{key}.residual.most_pct": _percent(sizes[-1], note),
    }


def _percent(value: float, note: str) -> Fact:
    return Fact(value, percent(value), note)


def _rules_table(measured: Measurements) -> Table:
    sms = measured.gpu.sm_count
    heads = [Head("T × K × N"), Head("Tiles", True), Head(f"Tiles ÷ {sms} SMs", True)]
    for rule in ("Lesson's rule", "Full rule"):
        heads += [Head(rule, True), Head("its time over the best", True)]
    heads += [Head("Best split", True), Head("its time", True)]
    rows = []
    for shape in measured.split_shapes:
        best, chosen = measured.best_split(shape), measured.plan(shape)
        cells = [
            Cell(shape_label(shape), header=True),
            Cell(str(chosen.tiles), numeric=True),
            Cell(f"{waves(chosen.tiles, sms):.2f}", numeric=True),
        ]
        split_t = lesson_split(measured, shape)
        simple = measured.nearest_split(shape, reduction_of(split_t), split_t)
        full = measured.planned_split(shape)
        for rule, point in ((split_t, simple), (chosen.split_t, full)):
            cells += _choice(rule, point, best)
        if isinstance(best, Missing):
            cells += [Cell("not measured", True, reason=best.reason)] * 2
        else:
            form = "" if best.reduction != "workspace" else ", workspace"
            cells += [Cell(f"{best.split_t}{form}", True)]
            cells += [Cell(milliseconds(best.time_ms), numeric=True)]
        rows.append(cells)
    caption = (
        "Two rules for the split over T, and the best that was measured, atomic or "
        "by workspace. In brackets the nearest recorded factor, where a rule's own "
        "was not recorded"
    )
    return Table(caption, heads, rows)


def _choice(split_t: int, point, best) -> list[Cell]:
    for found in (point, best):
        if isinstance(found, Missing):
            why = Cell("not measured", True, reason=found.reason)
            return [Cell(str(split_t), numeric=True), why]
    near = "" if point.split_t == split_t else f" ({point.split_t})"
    over = ratio(point.time_ms / best.time_ms)
    return [Cell(f"{split_t}{near}", numeric=True), Cell(over, numeric=True)]


def _waves_table(measured: Measurements) -> Table:
    """The model at the starved shape, one step after another."""
    chosen, device = measured.plan(STARVED), measured.gpu.device
    resident = expected_resident("dw", chosen.tile, ITEMSIZE, device)
    slots = device.sm_count * resident
    blocks = contracted_blocks("dw", STARVED, chosen.tile)
    scale = block_ms(measured, STARVED)
    rows = []
    for split_t in sorted({1, 2, 3, 4, 6, 8, 16, chosen.split_t}):
        full, rest = divmod(chosen.tiles * split_t, slots)
        each = cdiv(blocks, split_t) + PROGRAM_OVERHEAD_BLOCKS
        time = model_blocks(measured, STARVED, split_t)
        point = measured.split(STARVED, reduction_of(split_t), split_t)
        if isinstance(point, Missing):
            end = [Cell("not measured", True, reason=point.reason)] * 3
        else:
            shown = milliseconds(scale * time), milliseconds(point.time_ms)
            off = whole_percent(100 * residual(measured, STARVED, point))
            end = [Cell(text, numeric=True) for text in (*shown, off)]
        cells = (
            str(chosen.tiles * split_t),
            f"{full} full, {rest} left" if full else f"{rest} of {slots}",
            f"{time / each:g} × {each}",
            significant(time),
        )
        mark = ", planned" if split_t == chosen.split_t else ""
        rows.append(
            [
                Cell(f"{split_t}{mark}", header=True),
                *(Cell(text, numeric=True) for text in cells),
                *end,
            ]
        )
    heads = [Head("S")]
    heads += [
        Head(text, numeric=True)
        for text in (
            "Programs",
            f"In {slots} places",
            "Waves × (⌈B / S⌉ + c)",
            "Time, T-blocks",
            "Predicted",
            "Measured",
            "Residual",
        )
    ]
    caption = (
        f"The model at {shape_label(STARVED)}: B = {blocks}, c = "
        f"{PROGRAM_OVERHEAD_BLOCKS} T-blocks a program, ℓ = {LONE_PROGRAM_TIME}"
    )
    return Table(caption, heads, rows)


# The fast kernels


@dataclass(frozen=True)
class Prediction:
    """A product by the fast kernels as it was launched, timed and predicted.

    predicted_us: Missing where the plan has no time for such a launch.
    """

    section: str
    shape: Shape
    call: str
    point: GemmPoint | Missing
    predicted_us: float | Missing

    @property
    def over(self) -> float | Missing:
        """Measured time over the predicted one."""
        for side in (self.point, self.predicted_us):
            if isinstance(side, Missing):
                return side
        return 1000 * self.point.time_ms / self.predicted_us


def predictions(measured: Measurements, section: str) -> list[Prediction]:
    """Every product of a section that the fast kernels were recorded at."""
    look_up = {"gemms": measured.gemm, "further": measured.further}[section]
    shapes = dict.fromkeys(key[-3:] for key in measured.keys(section))
    found = []
    for shape in shapes:
        for call in CALLS:
            point = look_up(shape, call, "fast")
            time = point
            if not isinstance(point, Missing):
                time = predicted_us(point, measured.gpu.device)
            found.append(Prediction(section, shape, call, point, time))
    return found


def predicted_us(point: GemmPoint, device: Device) -> float | Missing:
    """What the plan expects today of the very launch that was timed."""
    made = point.configuration
    if not isinstance(made, FastConfiguration) or made.kernel == "grouped":
        return Missing("it ran as the lesson's kernel, which this model is not about")
    blocks = made.block_t, made.block_k, made.block_n
    tile = Tile(*blocks, made.num_warps, made.num_stages)
    tiles = output_tiles(point.op, point.shape, tile)
    launch = made.programs, made.parts, made.split_t, made.reduction
    launched = FastPlan(point.op, made.kernel, tile, tiles, *launch)
    for time, p in ranked_plans(
        point.op,
        point.shape,
        ITEMSIZE,
        device,
        mode=point.mode,
        layout=plain_layout(point.op, point.shape),
    ):
        # Older recordings do not say what was copied: then it is what is today.
        if p == replace(launched, copied=made.copied or p.copied):
            return time
    return Missing("it is not among the launches that are planned today")


def plain_layout(op: str, shape: Shape) -> Layout:
    """Of contiguous matrices of 16 bits, and dW of fp32, as all recordings have them.

    What `kernels.fast.ops.question` finds of such tensors, for a site without torch.
    """
    _, k, n = shape
    pitches = {"forward": (k, n), "dx": (n, n), "dw": (k, n)}[op]
    out_pitch = {"forward": 2 * n, "dx": 2 * k, "dw": 4 * n}[op]
    bytes_apart = [ITEMSIZE * pitch for pitch in pitches]
    return Layout(
        steps=tuple(0 if b % 16 else math.gcd(b, LINE_BYTES) for b in bytes_apart),
        out_fits=out_pitch % 16 == 0,
        widths=tuple(math.gcd(pitch, 8) for pitch in pitches),
    )


def _predicted(measured: Measurements, section: str) -> Facts:
    names = ("count", "half_pct", "most_pct", "bias")
    found = predictions(measured, section)
    over = [p.over for p in found if not isinstance(p.over, Missing)]
    if not over:
        why = found[0].over if found else _absent(measured, section)
        return {f"predicted.{section}.{name}": missing(why.reason) for name in names}
    sizes = sorted(100 * abs(value - 1) for value in over)
    note = f"measured / predicted, over {count(len(over), 'product')}"
    bias = geometric_mean(over)
    # The 95th of 100: so many, or more, are no further off.
    most = sizes[cdiv(95 * len(sizes), 100) - 1]
    return {
        f"predicted.{section}.count": Fact(len(over), str(len(over)), note),
        f"predicted.{section}.half_pct": _percent(sizes[(len(sizes) - 1) // 2], note),
        f"predicted.{section}.most_pct": _percent(most, note),
        f"predicted.{section}.bias": Fact(bias, ratio(bias), f"mean {note}"),
    }


def _absent(measured: Measurements, section: str) -> Missing:
    look_up = {"gemms": measured.gemm, "further": measured.further}[section]
    return look_up(STARVED, "forward", "fast")


def planned_kernel(measured: Measurements, shape: Shape, call: str) -> str:
    """The rung of the ladder that the plan chooses today."""
    op, mode = CALLS[call]
    return fast_plan(op, shape, ITEMSIZE, measured.gpu.device, mode=mode).kernel


def _rung(measured: Measurements, shape: Shape, call: str) -> Fact:
    """Time of the planned rung over that of the fastest of all."""
    kernel = planned_kernel(measured, shape, call)
    rungs = [measured.rung(shape, call, rung) for rung in ("lesson", *RUNGS)]
    timed = [point for point in rungs if not isinstance(point, Missing)]
    planned = measured.rung(shape, call, kernel)
    best = min(timed, key=lambda point: point.time_ms, default=planned)
    note = f"planned: {kernel}"
    if not isinstance(best, Missing):
        note += f"; fastest: {best.implementation}"
    return times(duration(planned), duration(best), note)
