"""The numbers that prose may use, each under its key.

`facts` makes one flat table of every key a template may ask for. What was not
measured stands in it too, with the reason, so that a key which is not there is
a typing error.
"""

import functools

from generate.render import evidence, formats, ladder, planning, repeat, training
from generate.render.fact import Fact, Facts, duration, known, missing, times
from generate.render.formats import count, shape_key
from generate.render.ladder import PUBLIC, over_vendor
from generate.render.measured import (
    CALLS,
    IMPLEMENTATIONS,
    OPS,
    STEP,
    Measurements,
    Missing,
)
from generate.schema import SANITIZER_TOOLS, geometric_mean
from generate.shapes import STARVED, WORKED
from kernels.plan import occupancy


@functools.lru_cache(maxsize=16)
def facts(measured: Measurements) -> Facts:
    gemms = _gemms(measured)
    return {
        **_gpu(measured),
        **_recording(measured),
        **_ceilings(measured),
        **gemms,
        **_summary(measured, gemms),
        **ladder.facts(measured, gemms),
        **_splits(measured),
        **planning.facts(measured),
        **_occupancy(measured),
        **evidence.facts(measured),
        **training.facts(measured),
        **_verification(measured),
        **_sanitizer(measured),
        **repeat.facts(measured),
    }


def _gpu(measured: Measurements) -> Facts:
    gpu = measured.gpu
    return {
        "gpu.name": Fact(gpu.name, gpu.name),
        "gpu.sm_count": Fact(gpu.sm_count, str(gpu.sm_count)),
        "gpu.clock_mhz": known(
            gpu.clock_max_sm_mhz, formats.megahertz, gpu.nvml_reason
        ),
        "gpu.memory_gib": Fact(
            gpu.memory_bytes / 2**30, formats.gibibytes(gpu.memory_bytes)
        ),
        "gpu.l2_mib": Fact(
            gpu.l2_cache_bytes / 2**20, formats.mebibytes(gpu.l2_cache_bytes)
        ),
    }


def _recording(measured: Measurements) -> Facts:
    environment = measured.recording.environment
    software = environment.software
    words = {
        "name": measured.recording.name,
        "date": environment.recorded_on.isoformat(),
        "torch": software.torch,
        "triton": software.triton,
        "driver": software.driver,
    }
    return {f"recording.{name}": known(word) for name, word in words.items()}


def _ceilings(measured: Measurements) -> Facts:
    ceilings = measured.recording.ceilings
    names = ("copy_tbps", "gemm_tflops", "peak_tflops")
    if ceilings is None:
        absent = missing("this recording has no section ceilings")
        return {f"ceilings.{name}": absent for name in names}
    copy, gemm = ceilings.copy_, missing("no product of the vendor's ran")
    if any(point.time_ms is not None for point in ceilings.points):
        gemm = known(ceilings.gemm_tflops, formats.tflops)
    return {
        "ceilings.copy_tbps": missing(copy.skipped_reason)
        if copy.time_ms is None
        else known(copy.bandwidth_tbps, formats.terabytes),
        "ceilings.gemm_tflops": gemm,
        "ceilings.peak_tflops": known(
            ceilings.peak_tflops(measured.gpu),
            formats.tflops,
            ceilings.flops_reason or measured.gpu.nvml_reason,
        ),
    }


def _ratio(vendor: Fact, ours: Fact) -> Fact:
    """Vendor time over our time: above 1, ours is the faster."""
    for side in (ours, vendor):
        if side.value is None:
            return side
    value = vendor.value / ours.value
    return Fact(value, formats.ratio(value), "vendor time / our time")


def _gemms(measured: Measurements) -> Facts:
    found = {}
    for shape in measured.gemm_shapes:
        key = f"gemm.{shape_key(shape)}"
        for call in CALLS:
            for implementation in (*IMPLEMENTATIONS, *PUBLIC[call]):
                point = measured.gemm(shape, call, implementation)
                name = f"{key}.{call}.{implementation}"
                found[f"{name}.ms"] = duration(point)
                found[f"{name}.tflops"] = (
                    missing(point.reason)
                    if isinstance(point, Missing)
                    else Fact(point.tflops, formats.tflops(point.tflops))
                )
            found[f"{key}.{call}.ratio"] = _ratio(
                found[f"{key}.{call}.vendor.ms"], found[f"{key}.{call}.lesson.ms"]
            )
            for implementation in PUBLIC[call]:
                found[f"{key}.{call}.{implementation}.over_vendor"] = over_vendor(
                    found[f"{key}.{call}.vendor.ms"],
                    found[f"{key}.{call}.{implementation}.ms"],
                )
        for implementation in (*IMPLEMENTATIONS, "fast"):
            parts = [found[f"{key}.{call}.{implementation}.ms"] for call in STEP]
            found[f"{key}.sum.{implementation}.ms"] = _sum(parts)
        found[f"{key}.sum.ratio"] = _ratio(
            found[f"{key}.sum.vendor.ms"], found[f"{key}.sum.lesson.ms"]
        )
        found[f"{key}.sum.fast.over_vendor"] = over_vendor(
            found[f"{key}.sum.vendor.ms"], found[f"{key}.sum.fast.ms"]
        )
    return found


def _sum(parts: list[Fact]) -> Fact:
    for part in parts:
        if part.value is None:
            return part
    total = sum(part.value for part in parts)
    note = "forward + dX + accumulated dW, a median each"
    return Fact(total, formats.milliseconds(total), note)


def _summary(measured: Measurements, gemms: Facts) -> Facts:
    shapes = [shape_key(shape) for shape in measured.gemm_shapes]
    found, counted = {}, set()
    for call in CALLS:
        ratios = {s: gemms[f"gemm.{s}.{call}.ratio"].value for s in shapes}
        ratios = {s: value for s, value in ratios.items() if value is not None}
        counted |= set(ratios)
        if ratios:
            note = f"vendor time / our time, over {count(len(ratios), 'shape')}"
            mean, least = geometric_mean(list(ratios.values())), min(ratios.values())
            found[f"summary.{call}.geomean"] = Fact(mean, formats.ratio(mean), note)
            found[f"summary.{call}.min"] = Fact(least, formats.ratio(least), note)
        else:
            why = missing(gemms[f"gemm.{shapes[0]}.{call}.ratio"].note)
            found[f"summary.{call}.geomean"] = found[f"summary.{call}.min"] = why
    found["summary.shapes"] = Fact(len(counted), str(len(counted)))
    return found


def _splits(measured: Measurements) -> Facts:
    found = {}
    for shape in measured.split_shapes:
        key = f"split.{shape_key(shape)}"
        found[f"{key}.none.1.ms"] = plain = duration(measured.split(shape, "none", 1))
        for reduction in ("atomic", "workspace"):
            for split_t in measured.split_factors:
                point = measured.split(shape, reduction, split_t)
                found[f"{key}.{reduction}.{split_t}.ms"] = duration(point)
            point = measured.best_split(shape, reduction)
            found[f"{key}.{reduction}.best.ms"] = duration(point)
            found[f"{key}.{reduction}.best.split_t"] = _of(point, "split_t")
        point = measured.best_split(shape)
        found[f"{key}.best.ms"] = best = duration(point)
        found[f"{key}.best.split_t"] = _of(point, "split_t")
        found[f"{key}.best.reduction"] = _of(point, "reduction")
        found |= _planned(measured, shape, key, best)
        found[f"{key}.gain"] = times(plain, best, "one program a tile / best split")
    return found


def _planned(measured: Measurements, shape, key: str, best: Fact) -> Facts:
    chosen = measured.plan(shape)
    point = measured.planned_split(shape)
    note = f"planned split: {chosen.split_t}, {chosen.reduction}"
    time = duration(point)
    if not isinstance(point, Missing):
        if point.split_t != chosen.split_t:
            note += f"; the nearest recorded factor is {point.split_t}"
        time = Fact(time.value, time.text, f"{note}; {time.note}")
    return {
        f"{key}.planned.split_t": Fact(chosen.split_t, str(chosen.split_t), note),
        f"{key}.planned.ms": time,
        f"{key}.planned.over_best": times(time, best, f"{note}; over the best time"),
    }


def _of(point, field: str) -> Fact:
    if isinstance(point, Missing):
        return missing(point.reason)
    return known(getattr(point, field))


# Launches whose compiled kernels a recording describes: shape, kernel, reduction
# and split factor. The reduce kernel stands under the factor that it sums.
LAUNCHES = (
    *((shape, op, "none", 1) for shape in (WORKED, STARVED) for op in OPS),
    *((STARVED, "dw", "atomic", split_t) for split_t in (2, 4, 8)),
    (STARVED, "dw", "workspace", 4),
    (STARVED, "reduce", "none", 4),
)
COMPILED = ("registers", "shared_bytes", "warps", "resident", "theoretical_pct")
COUNTED = {
    "achieved_pct": "achieved_occupancy_pct",
    "sm_active_pct": "sm_active_pct",
    "tensor_pct": "tensor_pipe_pct",
}


def _occupancy(measured: Measurements) -> Facts:
    found = {}
    for launch in dict.fromkeys([*LAUNCHES, *measured.launches]):
        shape, *words = launch
        key = ".".join(["occupancy", shape_key(shape), *map(str, words)])
        for name, fact in _launched(measured, *launch).items():
            found[f"{key}.{name}"] = fact
    return found


def _launched(measured: Measurements, *launch) -> Facts:
    point = measured.occupancy(*launch)
    if isinstance(point, Missing):
        return dict.fromkeys([*COMPILED, *COUNTED], missing(point.reason))
    resident, warps = point.resident_programs, point.num_warps
    share = 100 * occupancy(resident, warps, measured.gpu.device)
    counted = dict.fromkeys(COUNTED, missing(point.counters_reason or ""))
    if point.counters is not None:
        counted = {
            name: known(getattr(point.counters, field), formats.percent)
            for name, field in COUNTED.items()
        }
    return {
        "registers": known(point.registers_per_thread),
        "shared_bytes": known(point.shared_memory_bytes, formats.kibibytes),
        "warps": known(warps),
        "resident": known(resident),
        "theoretical_pct": known(share, formats.percent),
        **counted,
    }


def _verification(measured: Measurements) -> Facts:
    verification = measured.recording.verification
    names = ("passed", "failed", "tests")
    if verification is None:
        absent = missing("this recording has no section verification")
        return {f"verification.{name}": absent for name in names}
    numbers = (
        verification.count("passed"),
        verification.count("failed") + verification.count("error"),
        len(verification.points),
    )
    return {
        f"verification.{name}": known(number)
        for name, number in zip(names, numbers, strict=True)
    }


def _sanitizer(measured: Measurements) -> Facts:
    section, found = measured.recording.sanitizer, {}
    points = {point.tool: point for point in section.points} if section else {}
    for tool in SANITIZER_TOOLS:
        point, names = points.get(tool), ("launches", "errors", "warnings")
        why = "this recording has no section sanitizer" if not point else point.doubt
        for name in names:
            fact = missing(why) if why else None
            if fact is None and name == "launches":
                fact = known(point.launch_count)
            found[f"sanitizer.{tool}.{name}"] = fact or known(getattr(point, name))
    return found
