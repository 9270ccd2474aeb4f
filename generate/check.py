"""Check recordings beyond their schema: physics, consistency, identity.

Bounds come from the recording's own device, never from a fixed plausible
maximum, so that an honest number of an unknown, faster GPU passes.
"""

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from generate.schema import (
    Accumulation,
    Ceilings,
    DataError,
    DeterminismPoint,
    GemmPoint,
    Gpu,
    LaunchPoint,
    OccupancyPoint,
    Recording,
    SanitizerPoint,
    Shape,
    SplitPoint,
    TimelinePoint,
    Timelines,
    Training,
    TransposePoint,
    TrapPoint,
    recordings,
)
from kernels import plan

# How far a point may lie above a measured ceiling: under a power limit the clock
# wanders by about that much within one run.
TOLERANCE = 1.15
# Slower than this many times the roofline, and this much more, is no timing of
# a GEMM but a wrong unit: kernels that read odd sizes element by element take up to
# 200 times the roofline, a wrong unit 1000. 1 ms is room for launches at tiny sizes.
SLOWEST = 500
LAUNCH_MS = 1.0
# Relative error above this is a wrong result, not rounding: bf16 keeps 8 bits.
LARGEST_ERROR = 2**-7
# Of any GPU with tensor cores: the FLOPs it does while it copies a byte of memory.
FLOPS_PER_BYTE = 10, 5000
# Between these bounds lies what a call costs a host, in microseconds.
HOST_US = 0.1, 10_000
# Sections of products of the kernels and the vendor's, each a whole operation.
TIMED = ("gemms", "ladder", "further", "splits", "determinism", "transposes")
# Times must grow where the contraction is this many times deeper and no other
# dimension is smaller, between sizes of these multiples: what does not divide so well
# is read in other ways, which cost more than size does.
MORE_WORK = 4
EVEN = 64
# Nor need they below this roofline of the larger: launches take as long.
GROWS_FROM_MS = 0.02


def check(data: Path) -> list[str]:
    """Faults of every recording under `data`, one sentence each; none is good.

    Each names the file and the field.
    """
    try:
        found = recordings(data)
    except DataError as error:
        return [str(error)]
    if not found:
        return [f"{data}: holds no recording"]
    faults = []
    contents: dict[str, Recording] = {}
    for recording in found:
        faults += [
            f"{recording.folder / where}: {what}" for where, what in _faults(recording)
        ]
        content = _content(recording)
        if content in contents:
            faults.append(
                f"{recording.folder}: holds the same measurements as "
                f"{contents[content].folder}"
            )
        contents[content] = recording
    return faults


def floor_ms(shape: Shape, read_bytes: int, ceilings: Ceilings, gpu: Gpu) -> float:
    """The least time for a GEMM: its FLOPs or its reads, whichever takes longer.

    FLOPs at the larger of the datasheet's peak and the vendor's best run; bytes
    at the measured copy bandwidth.
    """
    best = max(ceilings.gemm_peak_tflops, ceilings.peak_tflops(gpu) or 0)
    by_flops = shape.flops / best / 1e9
    by_bytes = read_bytes / ceilings.copy_.bandwidth_tbps / 1e9
    return max(by_flops, by_bytes)


def _faults(recording: Recording) -> Iterator[tuple[str, str]]:
    """(file, what is wrong) for everything that is wrong with a recording."""
    yield from _consistency(recording)
    gpu, ceilings = recording.environment.gpu, recording.ceilings
    if ceilings:
        yield from _ceilings(ceilings, gpu)
    if ceilings and ceilings.measured:
        for name in TIMED:
            if section := getattr(recording, name):
                yield from _physics(f"{name}.json", section.points, ceilings, gpu)
                yield from _growth(f"{name}.json", section.points, ceilings, gpu)
        if recording.timelines:
            yield from _operations(recording.timelines, ceilings, gpu)
    yield from _states(recording)
    for name, faults in (
        ("launches", _launch),
        ("occupancy", _occupancy),
        ("timelines", _timeline),
        ("determinism", _repeats),
        ("traps", _trap),
        ("sanitizer", _sanitizer),
    ):
        section = getattr(recording, name)
        for index, point in enumerate(section.points if section else ()):
            yield from faults(f"points[{index}]", point, gpu)
    if recording.accumulation:
        yield from _accumulation(recording.accumulation)
    if recording.training:
        for field, fault in _training(recording.training, ceilings, gpu):
            yield "training.json", f"{field}: {fault}"


def _consistency(recording: Recording) -> Iterator[tuple[str, str]]:
    first = recording.environment
    for name, section in recording.sections.items():
        for field in ("harness_version", "kernels_sha256"):
            if getattr(section, field) != getattr(first, field):
                yield f"{name}.json", f"{field}: differs from environment.json"


def _ceilings(ceilings: Ceilings, gpu: Gpu) -> Iterator[tuple[str, str]]:
    if not ceilings.measured:
        yield "ceilings.json", "points: a copy and one product must have samples_ms"
        return
    peak = ceilings.peak_tflops(gpu)
    if peak and ceilings.gemm_peak_tflops > peak:
        yield (
            "ceilings.json",
            f"points.samples_ms: {ceilings.gemm_peak_tflops:.0f} TFLOP/s is above the "
            f"datasheet's {peak:.0f}",
        )
    if peak and ceilings.gemm_tflops < peak / SLOWEST:
        yield (
            "ceilings.json",
            f"points.samples_ms: {ceilings.gemm_tflops:.2g} TFLOP/s is no rate of a "
            f"device of {peak:.0f}; are the samples in ms?",
        )
    least, most = FLOPS_PER_BYTE
    ratio = ceilings.gemm_tflops / ceilings.copy_.bandwidth_tbps
    if not least <= ratio <= most:
        yield (
            "ceilings.json",
            f"copy.samples_ms: no device does {ratio:.3g} FLOPs while it copies a "
            "byte; are the samples in ms?",
        )
    if ceilings.copy_.copied_bytes > gpu.memory_bytes:
        yield "ceilings.json", "copy.copied_bytes: the device has less memory"


def _physics(
    file: str, points: tuple, ceilings: Ceilings, gpu: Gpu
) -> Iterator[tuple[str, str]]:
    for index, point in enumerate(points):
        where = f"points[{index}]"
        if (getattr(point, "extra_bytes", None) or 0) > gpu.memory_bytes:
            yield file, f"{where}.extra_bytes: the device has less memory"
        if not point.judged:
            continue
        if point.error is not None and point.error > LARGEST_ERROR:
            yield file, f"{where}.error: {point.error:.2g} is no rounding error"
        if point.samples_ms is None:
            continue
        for what in _operation(point, point.samples_ms, ceilings, gpu):
            yield file, f"{where}.samples_ms: {what}"


def _operations(
    section: Timelines, ceilings: Ceilings, gpu: Gpu
) -> Iterator[tuple[str, str]]:
    """Faults of the operations that are timed beside a trace, and of its length."""
    for index, point in enumerate(section.points):
        if point.trace is None:
            continue
        for field, samples in (
            ("plain_ms", point.plain_ms),
            ("traced_ms", point.traced_ms),
            ("trace.end_ns", (point.trace.makespan_ns / 1e6,)),
        ):
            for what in _operation(point, samples, ceilings, gpu):
                yield "timelines.json", f"points[{index}].{field}: {what}"


def _operation(
    point: Shape, samples: tuple[float, ...], ceilings: Ceilings, gpu: Gpu
) -> Iterator[str]:
    """What is wrong with the samples of a whole product."""
    ceiling = ceilings.gemm_peak_tflops
    floor = floor_ms(point, _read_bytes(point), ceilings, gpu)
    fastest, median = min(samples), statistics.median(samples)
    if fastest < floor / TOLERANCE:
        yield f"{fastest:.3g} ms is below the roofline of {floor:.3g} ms"
    rate = point.flops / median / 1e9
    if rate > TOLERANCE * ceiling:
        yield f"{rate:.0f} TFLOP/s is above the measured ceiling of {ceiling:.0f}"
    if median > SLOWEST * floor + LAUNCH_MS:
        yield (
            f"{median:.3g} ms is more than {SLOWEST} times the roofline of "
            f"{floor:.3g} ms; are the samples in ms?"
        )


def _states(recording: Recording) -> Iterator[tuple[str, str]]:
    """States that the device cannot have been in."""
    gpu = recording.environment.gpu
    for name, section in recording.sections.items():
        timed = [*enumerate(getattr(section, "points", ()))]
        timed += [("copy", section.copy_)] if name == "ceilings" else []
        for place, point in timed:
            state = getattr(point, "state", None)
            for field, most in (
                ("clock_sm_mhz", gpu.clock_max_sm_mhz),
                ("clock_memory_mhz", gpu.clock_max_memory_mhz),
                # For a moment power may be above its limit.
                ("power_w", gpu.power_limit_w and 2 * gpu.power_limit_w),
            ):
                read = state and getattr(state, field)
                if read and most and read > TOLERANCE * most:
                    where = place if place == "copy" else f"points[{place}]"
                    yield (
                        f"{name}.json",
                        f"{where}.state.{field}: {read:g} is above {most:g}, which "
                        "the device may reach",
                    )


def _read_bytes(
    point: GemmPoint | SplitPoint | DeterminismPoint | TransposePoint | TimelinePoint,
) -> int:
    """Bytes of the two operands, which a cold cache makes every call read."""
    itemsize = 4 if point.dtype == "float32" else 2
    t, k, n = point.shape
    op = getattr(point, "op", "dw")
    elements = {"forward": t * k + k * n, "dx": t * n + k * n, "dw": t * k + t * n}
    return elements[op] * itemsize


def _growth(
    file: str, points: tuple, ceilings: Ceilings, gpu: Gpu
) -> Iterator[tuple[str, str]]:
    """Times that do not grow with the contraction.

    Only it: an output that is several times larger may take no longer on a GPU
    that the smaller one left idle.
    """
    timed = [
        (i, point)
        for i, point in enumerate(points)
        if point.samples_ms and not any(size % EVEN for size in point.shape)
    ]
    alike = defaultdict(list)
    for i, point in timed:
        alike[point.key[: -len(point.shape)]].append((i, point.shape, point))
    for i, small in timed:
        axis = plan.contracted_axis(getattr(small, "op", "dw"))
        shape = small.shape
        for j, larger, large in alike[small.key[: -len(shape)]]:
            if larger[axis] < MORE_WORK * shape[axis]:
                continue
            if floor_ms(large, _read_bytes(large), ceilings, gpu) < GROWS_FROM_MS:
                continue
            inside = all(a <= b for a, b in zip(shape, larger, strict=True))
            if inside and large.time_ms <= small.time_ms:
                yield (
                    file,
                    f"points[{j}].samples_ms: {large.time_ms:.3g} ms is no longer "
                    f"than points[{i}], whose contraction is a quarter or less",
                )


def _launch(where: str, point: LaunchPoint, gpu: Gpu) -> Iterator[tuple[str, str]]:
    least, most = HOST_US
    if point.host_us and not least <= point.time_us <= most:
        yield (
            "launches.json",
            f"{where}.host_us: a call costs no host {point.time_us:.3g} µs; are the "
            "samples in µs?",
        )


def _occupancy(
    where: str, point: OccupancyPoint, gpu: Gpu
) -> Iterator[tuple[str, str]]:
    planned = plan.resident_programs(
        point.registers_per_thread,
        point.shared_memory_bytes,
        point.num_warps,
        gpu.device,
    )
    if planned != point.resident_programs:
        yield (
            "occupancy.json",
            f"{where}.resident_programs: the driver said {point.resident_programs}, "
            f"registers, shared memory and warps allow {planned}",
        )
    theoretical = 100 * plan.occupancy(
        point.resident_programs, point.num_warps, gpu.device
    )
    counters = point.counters
    if counters and counters.achieved_occupancy_pct > theoretical * TOLERANCE:
        yield (
            "occupancy.json",
            f"{where}.counters.achieved_occupancy_pct: "
            f"{counters.achieved_occupancy_pct:.0f} is above the theoretical "
            f"{theoretical:.0f}",
        )


def _timeline(where: str, point: TimelinePoint, gpu: Gpu) -> Iterator[tuple[str, str]]:
    file, trace = "timelines.json", point.trace
    if trace is None:
        return
    if trace.sms > gpu.sm_count:
        yield (
            file,
            f"{where}.trace.sm: {trace.sms} SMs ran, the device has {gpu.sm_count}",
        )
    if trace.resident > point.resident_programs:
        yield (
            file,
            f"{where}.trace: {trace.resident} programs ran on an SM at once, the "
            f"driver allows {point.resident_programs}",
        )
    if point.configuration:
        c = point.configuration
        tile = plan.Tile(c.block_t, c.block_k, c.block_n, c.num_warps, c.num_stages)
        programs = plan.output_tiles("dw", point.shape, tile) * point.split_t
        programs = getattr(c, "programs", programs)
        if programs != len(trace.sm):
            yield (
                file,
                f"{where}.trace.sm: {len(trace.sm)} programs are traced, "
                f"{programs} were launched",
            )
    longest = max(point.traced_ms)
    if trace.makespan_ns / 1e6 > TOLERANCE * longest:
        yield (
            file,
            f"{where}.trace.end_ns: the programs ran for {trace.makespan_ns} ns, the "
            f"longest operation took {longest:.3g} ms",
        )


def _repeats(
    where: str, point: DeterminismPoint, gpu: Gpu
) -> Iterator[tuple[str, str]]:
    for index, repeats in enumerate(point.repeats):
        differs = (
            repeats.distinct > 1,
            repeats.differing_elements > 0,
            repeats.largest_spread > 0,
        )
        if repeats.distinct > repeats.runs or any(differs) != all(differs):
            yield (
                "determinism.json",
                f"{where}.repeats[{index}].distinct: {repeats.distinct} bit patterns "
                f"in {repeats.runs} runs, with {repeats.differing_elements} elements "
                f"that differ by up to {repeats.largest_spread:g}",
            )


def _trap(where: str, point: TrapPoint, gpu: Gpu) -> Iterator[tuple[str, str]]:
    fixed = point.fixed
    if fixed and fixed.error is not None and fixed.error > LARGEST_ERROR:
        yield (
            "traps.json",
            f"{where}.fixed.error: {fixed.error:.2g} is no rounding error",
        )


def _sanitizer(
    where: str, point: SanitizerPoint, gpu: Gpu
) -> Iterator[tuple[str, str]]:
    file = "sanitizer.json"
    if point.skipped_reason:
        return
    reported = point.reported_errors + point.reported_warnings
    if point.errors > point.reported_errors or point.warnings > point.reported_warnings:
        yield (
            file,
            f"{where}.errors: {point.errors} and {point.warnings} warnings name our "
            f"kernels, the tool reported {point.reported_errors} and "
            f"{point.reported_warnings}",
        )
    if point.reported_warnings and point.tool != "racecheck":
        yield (
            file,
            f"{where}.reported_warnings: {point.tool} knows none, "
            f"got {point.reported_warnings}",
        )
    if bool(reported) != bool(point.reports):
        yield (
            file,
            f"{where}.reports: {len(point.reports)} are kept of {reported} reported",
        )
    if not reported and not (point.launches and point.results):
        yield (
            file,
            f"{where}.launches: nothing was reported, and nothing ran",
        )


def _accumulation(section: Accumulation) -> Iterator[tuple[str, str]]:
    for name, dtype in (("points", "buffer"), ("partials", "partials")):
        for index, point in enumerate(getattr(section, name)):
            single = getattr(point, dtype) == "float32"
            if single and point.error > LARGEST_ERROR:
                yield (
                    "accumulation.json",
                    f"{name}[{index}].error: {point.error:.2g} is no rounding error",
                )


def _training(
    section: Training, ceilings: Ceilings | None, gpu: Gpu
) -> Iterator[tuple[str, str]]:
    """Runs that are not of one experiment, or contradict themselves or each other."""
    text, model = section.text, section.model
    if text.held_out_bytes >= text.text_bytes:
        yield "text.held_out_bytes", f"all {text.text_bytes} bytes are held out"
    floor = 0.0
    if ceilings and ceilings.measured:
        # Of the blocks alone: a forward product of each weight, and two backward.
        weights = model.layers * 12 * model.width**2
        best = max(ceilings.gemm_peak_tflops, ceilings.peak_tflops(gpu) or 0)
        floor = 3 * 2 * model.batch_tokens * weights / best / 1e9
    first: dict[int, float] = {}
    ends: dict[str, tuple] = {}
    for index, point in enumerate(section.points):
        run, where = point.run, f"points[{index}].run"
        if run is None:
            continue
        if len(run.losses_nats) != section.steps:
            yield (
                f"{where}.losses_nats",
                f"{len(run.losses_nats)} steps, the section has {section.steps}",
            )
        if run.peak_bytes > gpu.memory_bytes:
            yield f"{where}.peak_bytes", "the device has less memory"
        pairs = zip(run.host_ms, run.step_ms, strict=True)
        if any(host > step for host, step in pairs):
            yield f"{where}.host_ms", "a step was queued after it had run"
        if min(run.step_ms) < floor / TOLERANCE:
            yield (
                f"{where}.step_ms",
                f"{min(run.step_ms):.3g} ms is below the roofline of {floor:.3g} ms",
            )
        if floor and run.time_ms > SLOWEST * floor + LAUNCH_MS:
            yield (
                f"{where}.step_ms",
                f"{run.time_ms:.3g} ms is more than {SLOWEST} times the roofline of "
                f"{floor:.3g} ms; are the samples in ms?",
            )
        began = first.setdefault(point.seed, run.losses_nats[0])
        if abs(run.losses_nats[0] / began - 1) > LARGEST_ERROR:
            yield (
                f"{where}.losses_nats",
                f"begins at {run.losses_nats[0]:.4g}, another run of seed "
                f"{point.seed} at {began:.4g}",
            )
        came_by = (point.seed, point.order, run.losses_nats, run.held_out_nats)
        if ends.setdefault(run.parameters_sha256, came_by) != came_by:
            yield (
                f"{where}.parameters_sha256",
                "another run has come to these bits by other losses",
            )


def _content(recording: Recording) -> str:
    """A name for what was measured, whatever its files and keys are called."""
    measured = {
        name: section.model_dump(mode="json", by_alias=True).get("points")
        for name, section in recording.sections.items()
        if name not in ("verification", "sanitizer")
    }
    text = json.dumps(measured, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
