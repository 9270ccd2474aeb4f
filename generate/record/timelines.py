"""Section `timelines`: on which SM, and when, each program of dW ran.

The traced kernel is the text of kernels/dw.py with statements added and none
changed: each program reads its SM's number and the device's clock when it begins,
and the clock again behind a barrier when it has stored its tile. An atomic add is
sent and not waited for, so such a program ends when its adds are on their way.
"""

import importlib.util
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch

from generate.record.calls import DTYPE_NAME, Operands, configuration
from generate.record.context import Context
from generate.record.occupancy import Case, launch, resident_programs
from generate.record.timing import attempt
from generate.schema import TimelinePoint, Timelines, Trace
from generate.shapes import TIMELINE_FACTORS, TIMELINE_SHAPES, Shape
from kernels import ops

SOURCE = Path(ops.__file__).with_name("dw.py")
# Of so many traced launches, the one of the median makespan is kept.
LAUNCHES = 5
SAMPLES = 20
# A line of the kernel, and what the traced one has in its place.
ADDED = (
    (
        "import triton.language as tl\n",
        "import triton.language as tl\n"
        "from triton.language.extra.cuda import globaltimer, smid\n",
    ),
    ("def dw_kernel(\n", "def dw_kernel(\n    trace_ptr,\n"),
    ("    # [tile]\n", "    # [tile]\n    began = globaltimer()\n"),
)
LAST = """
    tl.debug_barrier()
    trace_ptr += 3 * (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0))
    tl.store(trace_ptr, smid().to(tl.int64))
    tl.store(trace_ptr + 1, began)
    tl.store(trace_ptr + 2, globaltimer())
"""


def traced_source(source: str) -> str:
    """The text of dw.py with the trace added. ValueError if it does not fit."""
    for line, instead in ADDED:
        if source.count(line) != 1:
            raise ValueError(f"kernels/dw.py must hold {line.strip()!r} once")
        source = source.replace(line, instead)
    return source + LAST


def steps(context: Context) -> int:
    return len(context.shapes(TIMELINE_SHAPES)) * len(TIMELINE_FACTORS)


def record(context: Context) -> Timelines:
    kernel = TracedKernel(context.device)
    points = []
    for shape in context.shapes(TIMELINE_SHAPES):
        operands = Operands(shape, context.device)
        for split_t in TIMELINE_FACTORS:
            points.append(_point(context, kernel, operands, shape, split_t))
            context.advance()
    return Timelines(
        section="timelines",
        **context.header,
        timer_resolution_ns=kernel.resolution_ns,
        points=tuple(points),
    )


class TracedKernel:
    """Stands in for dw_kernel, and keeps what its last launch wrote down."""

    def __init__(self, device: torch.device):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "traced_dw.py"
            file.write_text(traced_source(SOURCE.read_text("utf-8")), "utf-8")
            spec = importlib.util.spec_from_file_location(file.stem, file)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        self._kernel = module.dw_kernel
        self._device = device
        self._trace: torch.Tensor | None = None
        self.resolution_ns = 2**31

    def __getitem__(self, grid: tuple[int, int]):
        size = (grid[0] * grid[1], 3)
        self._trace = torch.empty(size, dtype=torch.int64, device=self._device)

        def launch(*arguments, **constants):
            return self._kernel[grid](self._trace, *arguments, **constants)

        return launch

    @contextmanager
    def instead(self):
        """While it lasts, the host API launches the traced kernel."""
        original, ops.dw_kernel = ops.dw_kernel, self
        try:
            yield
        finally:
            ops.dw_kernel = original

    def trace(self) -> Trace:
        """The last launch, its times from the first start on."""
        torch.cuda.synchronize()
        sm, start, end = self._trace.T
        steps = torch.cat([start, end]).unique().diff()
        self.resolution_ns = min([self.resolution_ns, *steps.tolist()])
        first = start.min()
        return Trace(
            sm=tuple(sm.tolist()),
            start_ns=tuple((start - first).tolist()),
            end_ns=tuple((end - first).tolist()),
        )


def _point(
    context: Context, kernel: TracedKernel, operands: Operands, shape: Shape, split_t
) -> TimelinePoint:
    reduction = "none" if split_t == 1 else "atomic"
    plain = operands.split_call(reduction, split_t)

    def traced():
        with kernel.instead():
            return plain()

    found = {"resident_programs": None, "trace": None}
    times = {"plain": None, "traced": None}
    reason = attempt(plain) or attempt(traced)
    if not reason:
        times, _ = context.timer.compare({"plain": plain, "traced": traced}, SAMPLES)
        traces = []
        for _ in range(LAUNCHES):
            context.timer.flush()
            traced()
            traces.append(kernel.trace())
        traces.sort(key=lambda trace: trace.makespan_ns)
        _, compiled, _ = launch(Case("dw", shape, reduction, split_t), operands)
        found = {
            "resident_programs": resident_programs(compiled, context.facts.warp_size),
            "trace": traces[LAUNCHES // 2],
        }
    t, k, n = shape
    return TimelinePoint(
        reduction=reduction,
        split_t=split_t,
        T=t,
        K=k,
        N=n,
        dtype=DTYPE_NAME,
        configuration=configuration(
            context.plan("dw", shape, reduction=reduction, split_t=split_t)
        ),
        plain_ms=times["plain"],
        traced_ms=times["traced"],
        skipped_reason=reason,
        **found,
    )
