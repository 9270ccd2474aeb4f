"""Section `occupancy`: what compiled kernels take of an SM, and do with it.

Registers, spills and shared memory come from the compiled kernel, resident
programs from the driver. Hardware counters come from Nsight Compute, which runs
this module again (`python -m generate.record.occupancy`) and looks at the same
launches; where it is missing or may not read them, the reason is recorded.
"""

import contextlib
import csv
import ctypes
import io
import shutil
import sys
import time
from dataclasses import dataclass

import torch

from generate.record import calls, programs, sentence
from generate.record.calls import DTYPE_NAME, Operands, standing_in
from generate.record.context import Context
from generate.schema import Configuration, Counters, Occupancy, OccupancyPoint
from generate.shapes import (
    STARVED,
    TIMELINE_FACTORS,
    TIMELINE_SHAPES,
    WORKED,
    Shape,
    parse,
)
from kernels import device, host, ops
from kernels.fast import ops as fast
from kernels.plan import Device, FastPlan, fast_plan

PROFILER_TIMEOUT_S = 240
# Of so many profiled launches of a case, the one of the median time counts.
PROFILED = 3
# Where NVML's utilization is read too, and for how long the kernel then runs, again
# and again: NVML looks back over up to a second.
UTILIZED: Shape = (32768, 640, 640)
UTILIZED_S = 1.5
PIPE = "sm__pipe_tensor_cycles_active"
# What is read for the fields of Counters, in Nsight Compute's names.
METRICS = {
    "time_ns": "gpu__time_duration.sum",
    "achieved_occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm_active_pct": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "tensor_pipe_pct": PIPE + ".avg.pct_of_peak_sustained_elapsed",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "red_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "atom_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
}


@dataclass(frozen=True)
class Case:
    """One launch to look at.

    kernel: forward, dx, dw, reduce, which is the second of a workspace dW, or
    stream_k, which is dW by that fast kernel.
    """

    kernel: str
    shape: Shape
    reduction: str = "none"
    split_t: int = 1


def cases(facts: Device, only: tuple[Shape, ...] = ()) -> list[Case]:
    """The launches of this section: the lesson's two shapes and what is traced."""
    found = []
    for shape in only or (WORKED, STARVED):
        found += [Case(op, shape) for op in ("forward", "dx", "dw")]
    for shape in only or TIMELINE_SHAPES:
        found += [
            Case("dw", shape, "none" if split_t == 1 else "atomic", split_t)
            for split_t in TIMELINE_FACTORS
        ]
        if stream_k_plan(shape, facts):
            found.append(Case("stream_k", shape, "atomic"))
    for shape in only or (STARVED,):
        found += [
            Case("dw", shape, "workspace", 4),
            Case("reduce", shape, "workspace", 4),
        ]
    return list(dict.fromkeys(found))


class Spy:
    """Stands in for a kernel; keeps its last launch and may watch it run."""

    def __init__(self, kernel, watch: contextlib.AbstractContextManager):
        self._kernel = kernel
        self._watch = watch

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            with self._watch:
                compiled = self._kernel[grid](*arguments, **constants)
            self.launched = grid, compiled, constants

        return launch


def launch(
    case: Case,
    operands: Operands,
    watch: contextlib.AbstractContextManager = contextlib.nullcontext(),
) -> tuple[tuple, object, dict]:
    """Run a case; the grid, compiled kernel and constants of its kernel."""
    name = f"{case.kernel}_kernel"
    module = {"reduce": host, "stream_k": fast}.get(case.kernel, ops)
    spy = Spy(getattr(module, name), watch)
    with standing_in(module, **{name: spy}):
        if case.kernel in ("forward", "dx"):
            operands.call(case.kernel, "overwrite", "lesson")()
        elif case.kernel == "stream_k":
            facts = device.facts(torch.cuda.current_device())
            plan = stream_k_plan(case.shape, facts)
            operands.planned_call("dw", "overwrite", plan)()
        else:
            operands.split_call(case.reduction, case.split_t)()
    return spy.launched


def stream_k_plan(shape: Shape, facts: Device) -> FastPlan | None:
    """Stream-K's best launch of dW by atomic adds, which splits are held against."""
    p = fast_plan("dw", shape, 2, facts, reduction="atomic", kernel="stream_k")
    return p if p.kernel == "stream_k" else None


def steps(context: Context) -> int:
    return len(cases(context.facts, context.only)) + 1


def record(context: Context) -> Occupancy:
    found = {}
    for case in cases(context.facts, context.only):
        with context.omitting(f"occupancy of {case}"):
            operands = Operands(case.shape, context.device)
            launched = launch(case, operands)
            resident = resident_programs(launched[1], context.facts.warp_size)
            found[case] = launched, resident, _utilization(context, case, operands)
        context.advance()
    if not found:
        raise RuntimeError("no kernel could be launched")
    del operands, launched
    counters, reason, profiler = _counters(context, len(found))
    context.advance()
    points = []
    for index, (case, (launched, resident, utilization)) in enumerate(found.items()):
        read = counters[index] if counters else None
        points.append(
            _point(context, case, launched, resident, read, reason, utilization)
        )
    return Occupancy(
        section="occupancy",
        **context.header,
        profiler=profiler,
        points=tuple(points),
    )


def _point(
    context: Context,
    case: Case,
    launched: tuple,
    resident: int,
    counters: Counters | None,
    reason: str | None,
    utilization: tuple[float | None, str | None],
) -> OccupancyPoint:
    grid, compiled, constants = launched
    t, k, n = case.shape
    configuration = None
    if case.kernel == "stream_k":
        plan = stream_k_plan(case.shape, context.facts)
        configuration = calls.configuration(plan)
    elif case.kernel != "reduce":
        configuration = Configuration(
            block_t=constants["BLOCK_T"],
            block_k=constants["BLOCK_K"],
            block_n=constants["BLOCK_N"],
            num_warps=compiled.metadata.num_warps,
            num_stages=compiled.metadata.num_stages,
            split_t=case.split_t,
            reduction=case.reduction,
        )
    programs = 1
    for size in grid:
        programs *= size
    return OccupancyPoint(
        kernel="fast" if case.kernel == "stream_k" else case.kernel,
        mode="overwrite",
        reduction=case.reduction,
        split_t=case.split_t,
        T=t,
        K=k,
        N=n,
        dtype=DTYPE_NAME,
        configuration=configuration,
        programs=programs,
        num_warps=compiled.metadata.num_warps,
        registers_per_thread=compiled.n_regs,
        # Triton's loader counts spilled bytes in 32-bit registers a thread.
        spilled_registers_per_thread=compiled.n_spills,
        shared_memory_bytes=compiled.metadata.shared,
        resident_programs=resident,
        counters=counters,
        counters_reason=None if counters else reason,
        utilization_pct=utilization[0],
        utilization_reason=utilization[1],
    )


def resident_programs(compiled, warp_size: int) -> int:
    driver = ctypes.CDLL("libcuda.so.1")
    found = ctypes.c_int()
    threads = compiled.metadata.num_warps * warp_size
    status = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(found),
        ctypes.c_void_p(compiled.function),
        ctypes.c_int(threads),
        ctypes.c_size_t(compiled.metadata.shared),
    )
    if status:
        raise RuntimeError(f"the CUDA driver gave error {status} for occupancy")
    return found.value


def _utilization(
    context: Context, case: Case, operands: Operands
) -> tuple[float | None, str | None]:
    """NVML's utilization while dW runs without a pause, or why it was not read."""
    if case.kernel != "dw" or case.shape != UTILIZED:
        shape = "×".join(map(str, UTILIZED))
        return None, f"it is read for dW at {shape} only"
    # A graph, as Python launches more slowly than the kernel runs.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(200):
            operands.split_call(case.reduction, case.split_t)()
    begin = time.perf_counter()
    ahead = torch.cuda.Event()
    while time.perf_counter() - begin < UTILIZED_S:
        ahead.record()
        graph.replay()
        ahead.synchronize()
    found, reason = context.nvml.answers(rates=("DeviceGetUtilizationRates",))
    torch.cuda.synchronize()
    return None if reason else float(found["rates"].gpu), reason


def _counters(
    context: Context, count: int
) -> tuple[list[Counters] | None, str | None, str | None]:
    """Counters of the cases that run, or the reason for none; the profiler.

    count: how many cases those are.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        return None, "Nsight Compute (ncu) is not installed", None
    # The profiled program needs memory, too.
    torch.cuda.empty_cache()
    try:
        version = programs.last_line(_profiler(context, ncu, "--version"))
    except programs.Unreadable as error:
        return None, f"Nsight Compute does not run: {error}", None
    try:
        known = _profiler(context, ncu, "--query-metrics")
        bases = {line.split()[0] for line in known.splitlines() if line.strip()}
        for metric in METRICS.values():
            if metric.split(".")[0] not in bases:
                return None, f"{version} does not know {metric} here", version
        shapes = [",".join(map(str, shape)) for shape in context.only]
        said = _profiler(
            context,
            ncu,
            *("--csv", "--page", "raw", "--print-units", "base"),
            # Clocks are left as they are found.
            *("--clock-control", "none", "--profile-from-start", "off"),
            *("--kernel-name", "regex:^(forward|dx|dw|reduce|stream_k)_kernel"),
            *("--metrics", ",".join(METRICS.values())),
            *(sys.executable, "-m", __spec__.name, *shapes),
        )
    except programs.Unreadable as error:
        return None, f"{version}: {error}", version
    if "ERR_NVGPUCTRPERM" in said:
        return None, "the driver lets only administrators read counters", version
    lines = [line for line in said.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]
    if len(rows) != PROFILED * count:
        return None, f"{version} failed, it said: {programs.last_line(said)}", version
    try:
        read = [_read(row) for row in rows]
    except Exception as error:  # Whatever an optional program may print.
        return None, f"{version} answered unreadably: {error!r}", version
    found = []
    for first in range(0, len(read), PROFILED):
        launches = read[first : first + PROFILED]
        launches.sort(key=lambda counters: counters.time_ms)
        found.append(launches[PROFILED // 2])
    return found, None, version


def _profiler(context: Context, *command: str) -> str:
    """What Nsight Compute says; in its plainest words, which `_read` reads."""
    return programs.run(
        [*command], context, PROFILER_TIMEOUT_S, may_fail=True, LC_ALL="C"
    )


def _read(row: dict) -> Counters:
    read = {}
    for field, metric in METRICS.items():
        name = next(column for column in row if column.endswith(metric))
        read[field] = float(row[name].replace(",", ""))
    percents = {
        field: round(min(value, 100.0), 2)
        for field, value in read.items()
        if field.endswith("_pct")
    }
    return Counters(
        time_ms=round(read["time_ns"] / 1e6, 6),
        **percents,
        dram_read_bytes=int(read["dram_read_bytes"]),
        dram_write_bytes=int(read["dram_write_bytes"]),
        atomic_requests=int(read["red_requests"] + read["atom_requests"]),
    )


@contextlib.contextmanager
def _profiling():
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    yield
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def _profiled(arguments: list[str]) -> None:
    """Launch every case once to compile it, then for the profiler."""
    current = torch.device("cuda", torch.cuda.current_device())
    only = tuple(parse(text) for text in arguments)
    for case in cases(device.facts(current.index), only):
        operands = Operands(case.shape, current)
        try:
            launch(case, operands)
        except Exception as error:  # It fails in the recorder, too, and is left out.
            print(sentence(error))
            continue
        for _ in range(PROFILED):
            launch(case, operands, watch=_profiling())


if __name__ == "__main__":
    _profiled(sys.argv[1:])
