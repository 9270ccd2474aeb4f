"""Section `timelines`: on which SM, and when, each program of dW ran.

The traced kernels are the texts of kernels/dw.py and kernels/fast/stream_k.py with
statements added and none changed: each program reads its SM's number and the device's
clock when it begins, and the clock again behind a barrier when it has stored its
last tile. An atomic add is sent and not waited for, so such a program ends when its
adds are on their way.
"""

import importlib.util
import math
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import torch

from generate.record import sentence
from generate.record.calls import (
    DTYPE_NAME,
    Operands,
    configuration,
    standing_in,
)
from generate.record.context import Context
from generate.record.ladder import no_launch
from generate.record.occupancy import (
    Case,
    launch,
    resident_programs,
    stream_k_plan,
)
from generate.record.timing import attempt
from generate.schema import TimelinePoint, Timelines, Trace
from generate.shapes import TIMELINE_FACTORS, TIMELINE_SHAPES, Shape
from kernels import ops
from kernels.fast import ops as fast
from kernels.fast import stream_k

# Of so many traced launches, the one of the median makespan is kept.
LAUNCHES = 5
SAMPLES = 20


@dataclass(frozen=True)
class Traced:
    """A kernel to trace: its file, where it begins and ends, and what launches it.

    begins: the first line of its work. ends: what follows it in the file.
    """

    file: Path
    kernel: str
    begins: str
    ends: str
    launching: ModuleType


TRACED = {
    "lesson": Traced(
        Path(ops.__file__).with_name("dw.py"), "dw_kernel", "    # [tile]\n", "", ops
    ),
    "stream_k": Traced(
        Path(stream_k.__file__),
        "stream_k_kernel",
        "    # [share]\n",
        "\n\n# [shared-blocks]\n",
        fast,
    ),
}
IMPORT = "import triton.language as tl\n"
IMPORTS = IMPORT + "from triton.language.extra.cuda import globaltimer, smid\n"
LAST = """
    tl.debug_barrier()
    trace_ptr += 3 * (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0))
    tl.store(trace_ptr, smid().to(tl.int64))
    tl.store(trace_ptr + 1, began)
    tl.store(trace_ptr + 2, globaltimer())
"""


def traced_source(traced: Traced, source: str) -> str:
    """The text of the file with the trace added. ValueError if it does not fit."""
    head = f"def {traced.kernel}(\n"
    for line, instead in (
        (IMPORT, IMPORTS),
        (head, head + "    trace_ptr,\n"),
        (traced.begins, traced.begins + "    began = globaltimer()\n"),
        (traced.ends, LAST + traced.ends),
    ):
        if not line:
            source += instead
            continue
        if source.count(line) != 1:
            name = traced.file.name
            raise ValueError(f"kernels' {name} must hold {line.strip()!r} once")
        source = source.replace(line, instead)
    return source


def steps(context: Context) -> int:
    return len(context.shapes(TIMELINE_SHAPES)) * (len(TIMELINE_FACTORS) + 1)


def record(context: Context) -> Timelines:
    kernels = {
        name: TracedKernel(traced, context.device) for name, traced in TRACED.items()
    }
    points = []
    for shape in context.shapes(TIMELINE_SHAPES):
        operands = Operands(shape, context.device)
        for split_t in TIMELINE_FACTORS:
            points.append(_split(context, kernels["lesson"], operands, shape, split_t))
            context.advance()
        points.append(_stream_k(context, kernels["stream_k"], operands, shape))
        context.advance()
    return Timelines(
        section="timelines",
        **context.header,
        timer_resolution_ns=_resolution_ns(points),
        points=tuple(points),
    )


def _resolution_ns(points: list[TimelinePoint]) -> int | None:
    """The smallest step between two readings of the clock; None without any."""
    steps = [
        later - earlier
        for trace in (point.trace for point in points if point.trace)
        for earlier, later in pairwise(sorted({*trace.start_ns, *trace.end_ns}))
    ]
    return min(steps, default=None)


class TracedKernel:
    """Stands in for a kernel, and keeps what its last launch wrote down."""

    def __init__(self, traced: Traced, device: torch.device):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"traced_{traced.file.name}"
            text = traced_source(traced, traced.file.read_text("utf-8"))
            file.write_text(text, "utf-8")
            spec = importlib.util.spec_from_file_location(file.stem, file)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        self._kernel = getattr(module, traced.kernel)
        self._traced = traced
        self._device = device
        self._trace: torch.Tensor | None = None

    def __getitem__(self, grid: tuple[int, ...]):
        size = (math.prod(grid), 3)
        self._trace = torch.empty(size, dtype=torch.int64, device=self._device)

        def launch(*arguments, **constants):
            self._kernel[grid](self._trace, *arguments, **constants)

        return launch

    def instead(self):
        """While it lasts, the host API launches the traced kernel."""
        return standing_in(self._traced.launching, **{self._traced.kernel: self})

    def trace(self) -> Trace:
        """The last launch, its times from the first start on."""
        torch.cuda.synchronize()
        sm, start, end = self._trace.T
        first = start.min()
        return Trace(
            sm=tuple(sm.tolist()),
            start_ns=tuple((start - first).tolist()),
            end_ns=tuple((end - first).tolist()),
        )


def _split(context, kernel, operands, shape, split_t) -> TimelinePoint:
    reduction = "none" if split_t == 1 else "atomic"
    plan = context.plan("dw", shape, reduction=reduction, split_t=split_t)
    found = _traced(
        context,
        kernel,
        operands,
        operands.split_call(reduction, split_t),
        Case("dw", shape, reduction, split_t),
    )
    return _point("lesson", shape, reduction, split_t, configuration(plan), found)


def _stream_k(context, kernel, operands, shape) -> TimelinePoint:
    plan = stream_k_plan(shape, context.facts)
    if plan is None:
        found = _skipped(no_launch("stream_k", "dw", shape, context.facts))
        return _point("stream_k", shape, "atomic", 1, None, found)
    found = _traced(
        context,
        kernel,
        operands,
        operands.planned_call("dw", "overwrite", plan),
        Case("stream_k", shape, "atomic"),
    )
    return _point("stream_k", shape, "atomic", 1, configuration(plan), found)


def _traced(context, kernel, operands, plain, case) -> dict:
    """The fields of a point that are measured."""

    def traced():
        with kernel.instead():
            return plain()

    if reason := attempt(plain) or attempt(traced):
        return _skipped(reason)
    try:
        times, _ = context.timer.compare({"plain": plain, "traced": traced}, SAMPLES)
        traces = []
        for _ in range(LAUNCHES):
            context.timer.flush()
            traced()
            traces.append(kernel.trace())
        traces.sort(key=lambda trace: trace.makespan_ns)
        _, compiled, _ = launch(case, operands)
        resident = resident_programs(compiled, context.facts.warp_size)
    except Exception as error:  # As of a single call: a recorded skip.
        torch.cuda.empty_cache()
        return _skipped(sentence(error))
    return {
        "resident_programs": resident,
        "trace": traces[LAUNCHES // 2],
        "plain_ms": times["plain"],
        "traced_ms": times["traced"],
        "skipped_reason": None,
    }


def _skipped(reason: str) -> dict:
    """The fields of a point that was not traced."""
    found = dict.fromkeys(("resident_programs", "trace", "plain_ms", "traced_ms"))
    return {**found, "skipped_reason": reason}


def _point(
    implementation: str, shape: Shape, reduction: str, split_t: int, made, found: dict
) -> TimelinePoint:
    t, k, n = shape
    return TimelinePoint(
        implementation=implementation,
        reduction=reduction,
        split_t=split_t,
        T=t,
        K=k,
        N=n,
        dtype=DTYPE_NAME,
        configuration=made,
        **found,
    )
