"""Tables of the hardware page: what a recording says besides its timings."""

from generate.render.formats import (
    count,
    gibibytes,
    kibibytes,
    mebibytes,
    megahertz,
    percent,
    shape_label,
    significant,
    terabytes,
    tflops,
)
from generate.render.measured import Measurements, Missing
from generate.render.tables import Cell, Head, Table
from generate.schema import OccupancyPoint, Recording, SanitizerPoint
from kernels.plan import occupancy

NOT_MEASURED = "not measured"


def tables(measured: Measurements) -> dict[str, Table]:
    return {
        "environment": _environment(measured.recording),
        "ceilings": _ceilings(measured),
        "occupancy": _occupancy(measured),
        "verification": _verification(measured.recording),
        "sanitizer": _sanitizer(measured.recording),
    }


def _cell(value, write=str, reason: str | None = None, numeric: bool = True) -> Cell:
    if value is None:
        why = reason or "the driver does not say"
        return Cell(NOT_MEASURED, numeric, reason=why)
    return Cell(write(value), numeric)


def _absent(caption: str, section: str) -> Table:
    reason = f"this recording has no section {section}"
    return Table(caption, [Head(section)], [[Cell(NOT_MEASURED, reason=reason)]])


def _environment(recording: Recording) -> Table:
    environment = recording.environment
    gpu, software = environment.gpu, environment.software
    why = gpu.nvml_reason
    cells = {
        "GPU": _cell(gpu.name),
        "Compute capability": _cell(gpu.capability),
        "SMs": _cell(gpu.sm_count),
        "Highest SM clock": _cell(gpu.clock_max_sm_mhz, megahertz, why),
        "Highest memory clock": _cell(gpu.clock_max_memory_mhz, megahertz, why),
        "Power limit": _cell(gpu.power_limit_w, lambda watts: f"{watts:.0f} W", why),
        "MIG": _cell(gpu.mig_enabled, lambda on: "on" if on else "off", why),
        "Memory": _cell(gpu.memory_bytes, gibibytes),
        "L2 cache": _cell(gpu.l2_cache_bytes, mebibytes),
        "Registers of an SM, 32-bit": _cell(gpu.registers_per_sm),
        "Shared memory of an SM": _cell(gpu.shared_memory_per_sm_bytes, kibibytes),
        "Shared memory of a program, at most": _cell(
            gpu.shared_memory_per_program_bytes, kibibytes
        ),
        "Warps on an SM, at most": _cell(gpu.max_warps_per_sm),
        "Programs on an SM, at most": _cell(gpu.max_programs_per_sm),
        "Driver": _cell(software.driver, reason=why),
        "CUDA": _cell(software.cuda),
        "torch": _cell(software.torch),
        "Triton": _cell(software.triton),
        "cuBLAS": _cell(software.cublas, reason="torch does not say"),
        "Python": _cell(software.python),
        "Vendor library may sum bf16 splits in bf16": _cell(
            software.bf16_reduced_precision_reduction, lambda on: "yes" if on else "no"
        ),
        "Inputs": _cell(environment.input_distribution),
        "Cache": _cell(environment.cache_state),
        "Warm-up of the device": _cell(
            environment.warmup_ms, lambda ms: f"{significant(ms)} ms"
        ),
        "Rows compared with fp64, at most": _cell(environment.error_rows),
        "Recording": _cell(recording.name),
        "Recorded on": _cell(environment.recorded_on),
        "Harness version": _cell(environment.harness_version),
    }
    rows = []
    for name, cell in cells.items():
        plain = Cell(cell.text, reason=cell.reason)
        rows.append([Cell(name, header=True), plain])
    return Table("What was recorded, and how", [Head("Fact"), Head("Value")], rows)


def _ceilings(measured: Measurements) -> Table:
    gpu, ceilings = measured.gpu, measured.recording.ceilings
    caption = f"Ceilings of the {gpu.name}"
    if ceilings is None:
        return _absent(caption, "ceilings")
    copy = ceilings.copy_
    bandwidth = None if copy.time_ms is None else copy.bandwidth_tbps
    rows = [
        [
            Cell("Device-to-device copy", header=True),
            _cell(bandwidth, terabytes, copy.skipped_reason),
            Cell(f"measured: {gibibytes(copy.copied_bytes)} read and written"),
        ]
    ]
    for point in ceilings.points:
        rate = None if point.time_ms is None else point.tflops
        rows.append(
            [
                Cell(f"Vendor GEMM {shape_label(point.shape)}", header=True),
                _cell(rate, tflops, point.skipped_reason),
                Cell(f"measured: T × K × N, {point.dtype}"),
            ]
        )
    why = ceilings.flops_reason or gpu.nvml_reason
    rows.append(
        [
            Cell("Tensor-core peak, dense 16-bit", header=True),
            _cell(ceilings.peak_tflops(gpu), tflops, why),
            Cell("computed: SMs × highest clock × FLOPs a clock and SM"),
        ]
    )
    heads = [Head("Ceiling"), Head("Value", numeric=True), Head("Where from")]
    return Table(caption, heads, rows)


def _occupancy(measured: Measurements) -> Table:
    section = measured.recording.occupancy
    caption = "What the compiled kernels take of an SM, and how they use the GPU"
    if section is None:
        return _absent(caption, "occupancy")
    if section.profiler:
        caption += f" (counters: {section.profiler})"
    if any(kernel == "fast" for _, kernel, *_ in measured.launches):
        caption += (
            ". Stream-K adds through the copy engine, which the counter of atomic "
            "requests does not see"
        )
    heads = [Head("Kernel"), Head("T × K × N"), Head("Reduction")]
    heads += [
        Head(text, numeric=True)
        for text in (
            "Split factor",
            "Programs",
            "Warps a program",
            "Registers a thread",
            "Spilled registers",
            "Shared memory a program",
            "Programs resident on an SM",
            "Occupancy, theoretical",
            "Occupancy, achieved",
            "SM-time with a program",
            "Tensor pipe busy",
            "DRAM read",
            "DRAM written",
            "Atomic requests",
        )
    ]
    rows = []
    for launch in measured.launches:
        point = measured.occupancy(*launch)
        shape, kernel, reduction, split_t = launch
        # Of the fast kernels stream-K alone is looked at, which splits no tile evenly.
        stream_k = kernel == "fast"
        row = [Cell("dw, stream-K" if stream_k else kernel, header=True)]
        row += [Cell(shape_label(shape)), Cell(reduction)]
        row.append(Cell("–" if stream_k else str(split_t), numeric=True))
        if isinstance(point, Missing):
            row += [_cell(None, reason=point.reason)] * (len(heads) - len(row))
        else:
            row += _launched(point, measured)
        rows.append(row)
    return Table(caption, heads, rows)


def _launched(point: OccupancyPoint, measured: Measurements) -> list[Cell]:
    resident, warps = point.resident_programs, point.num_warps
    share = 100 * occupancy(resident, warps, measured.gpu.device)
    counters, why = point.counters, point.counters_reason

    def counted(field: str, write) -> Cell:
        return _cell(counters and getattr(counters, field), write, why)

    return [
        _cell(point.programs),
        _cell(warps),
        _cell(point.registers_per_thread),
        _cell(point.spilled_registers_per_thread),
        _cell(point.shared_memory_bytes, kibibytes),
        _cell(resident),
        _cell(share, percent),
        counted("achieved_occupancy_pct", percent),
        counted("sm_active_pct", percent),
        counted("tensor_pipe_pct", percent),
        counted("dram_read_bytes", mebibytes),
        counted("dram_write_bytes", mebibytes),
        counted("atomic_requests", str),
    ]


def _verification(recording: Recording) -> Table:
    section = recording.verification
    caption = "Tests run on this GPU with the recording"
    if section is None:
        return _absent(caption, "verification")
    outcomes = ("passed", "failed", "error", "skipped")
    caption += (
        f": {count(len(section.points), 'test')} in {section.duration_s:.0f} s. A test "
        "that runs several kernels counts for each"
    )
    groups = {kernel: [] for kernel in ("forward", "dx", "dw", "reduce")}
    for point in section.points:
        for kernel in point.kernels:
            groups.setdefault(kernel, []).append(point.outcome)
    groups["all tests"] = [point.outcome for point in section.points]
    rows = [
        [
            Cell(name, header=True),
            *(Cell(str(found.count(word)), numeric=True) for word in outcomes),
        ]
        for name, found in groups.items()
    ]
    heads = [Head("Kernel"), *(Head(word.capitalize(), True) for word in outcomes)]
    return Table(caption, heads, rows)


def _sanitizer(recording: Recording) -> Table:
    section = recording.sanitizer
    caption = "compute-sanitizer on this GPU, over a program that launches every kernel"
    if section is None:
        return _absent(caption, "sanitizer")
    if section.version:
        caption += f": {section.version}"
    heads = ["Launches", "Outputs", "Wrong", "Errors", "Warnings"]
    heads += ["Elsewhere", "Control", "Time"]
    rows = [_watched(point) for point in section.points]
    return Table(caption, [Head("Tool"), *(Head(name, True) for name in heads)], rows)


def _watched(point: SanitizerPoint) -> list[Cell]:
    why = point.skipped_reason
    return [
        Cell(point.tool, header=True),
        _cell(point.launch_count, str, why),
        _cell(point.results, str, why),
        _cell(None if why else len(point.wrong), str, why),
        _cell(point.errors, str, why),
        _cell(point.warnings, str, why),
        _cell(point.elsewhere, str, why),
        _cell(point.control_errors, str, point.control_reason),
        _cell(point.duration_s, lambda s: f"{s:.0f} s", why),
    ]
