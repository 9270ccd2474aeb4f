"""Section `determinism`: one call on the same operands, again and again.

Every run's output is reduced to a 64-bit sum of its bits under random weights,
modulo 2⁶⁴, which no order of addition changes: equal outputs have equal sums, and
two that differ share one once in about 2⁶⁴. Runs are made alone; under memory
pressure, while another stream copies 256 MiB after 256 MiB; and on two streams at
once.
"""

import itertools

import torch

from generate.record.calls import (
    DTYPE_NAME,
    Operands,
    Outcomes,
    configuration,
    skipped,
)
from generate.record.context import Context
from generate.record.timing import Call
from generate.schema import Determinism, DeterminismPoint, Repeats
from generate.shapes import DETERMINISM_FACTORS, DETERMINISM_SHAPES, Shape

RUNS = {"quick": 1_000, "full": 5_000}
CONDITIONS = ("alone", "memory pressure", "two streams")
PRESSURE_BYTES = 256 << 20
SAMPLES = 20

# Implementation, reduction and split factor; the vendor chooses for itself.
Row = tuple[str, str | None, int | None]
ROWS: tuple[Row, ...] = (
    ("vendor", None, None),
    ("lesson", "none", 1),
    *(("lesson", r, s) for s in DETERMINISM_FACTORS for r in ("atomic", "workspace")),
)


def steps(context: Context) -> int:
    return len(context.shapes(DETERMINISM_SHAPES)) * len(ROWS)


def record(context: Context) -> Determinism:
    points = []
    for shape in context.shapes(DETERMINISM_SHAPES):
        torch.cuda.empty_cache()
        operands = Operands(shape, context.device)
        calls = {row: _call(operands, row) for row in ROWS}
        outcomes = Outcomes(
            context.timer, operands, "dw", "overwrite", calls, samples=SAMPLES
        )
        for row, call in calls.items():
            points.append(_point(context, shape, row, call, outcomes.fields(row)))
            context.advance()
    return Determinism(section="determinism", **context.header, points=tuple(points))


def _call(operands: Operands, row: Row) -> Call:
    implementation, reduction, split_t = row
    if implementation == "vendor":
        return operands.call("dw", "overwrite", "vendor")
    return operands.split_call(reduction, split_t)


def _point(
    context: Context, shape: Shape, row: Row, call: Call, timed: dict
) -> DeterminismPoint:
    implementation, reduction, split_t = row
    repeats = ()
    if timed["samples_ms"]:
        runs = RUNS[context.extent]
        try:
            repeats = tuple(repeat(call, condition, runs) for condition in CONDITIONS)
        except Exception as error:  # As of any other call: a recorded skip.
            timed = skipped(error)
    chosen = None
    if implementation == "lesson":
        plan = context.plan("dw", shape, reduction=reduction, split_t=split_t)
        chosen = configuration(plan)
    t, k, n = shape
    return DeterminismPoint(
        implementation=implementation,
        reduction=reduction,
        split_t=split_t,
        T=t,
        K=k,
        N=n,
        dtype=DTYPE_NAME,
        configuration=chosen,
        repeats=repeats,
        **timed,
    )


def repeat(call: Call, condition: str, runs: int) -> Repeats:
    """Run a call so many times under a condition, and compare what it gave."""
    first = call()
    size, device = first.shape, first.device
    seen = [Seen(size, device), Seen(size, device)]
    streams = [torch.cuda.Stream(device), torch.cuda.Stream(device)]
    torch.cuda.synchronize()
    if condition == "memory pressure":
        there = torch.empty(PRESSURE_BYTES, dtype=torch.uint8, device=device)
        here = torch.empty_like(there)
    turns = itertools.cycle((0, 1) if condition == "two streams" else (0,))
    for _, turn in zip(range(runs), turns, strict=False):
        if condition == "memory pressure":
            with torch.cuda.stream(streams[1]):
                here.copy_(there)
        with torch.cuda.stream(streams[turn]):
            seen[turn].add(call())
    torch.cuda.synchronize()
    sums = [total for one in seen for total in one.sums]
    lowest = torch.minimum(seen[0].lowest, seen[1].lowest)
    spread = torch.maximum(seen[0].highest, seen[1].highest) - lowest
    rms = first.double().square().mean().sqrt()
    return Repeats(
        condition=condition,
        runs=runs,
        distinct=len(torch.stack(sums).unique()),
        differing_elements=int((spread > 0).sum()),
        largest_spread=float(f"{(spread.max() / rms).item():.4g}"),
    )


class Seen:
    """The bits and the extremes of the outputs that one stream made."""

    def __init__(self, size: torch.Size, device: torch.device):
        generator = torch.Generator(device=device).manual_seed(0)
        odd = torch.randint(2**62, size, generator=generator, device=device) * 2 + 1
        self._weights = odd
        self.lowest = torch.full(size, torch.inf, device=device)
        self.highest = torch.full(size, -torch.inf, device=device)
        self.sums: list[torch.Tensor] = []

    def add(self, output: torch.Tensor) -> None:
        self.sums.append((output.view(torch.int32) * self._weights).sum())
        torch.minimum(self.lowest, output, out=self.lowest)
        torch.maximum(self.highest, output, out=self.highest)
