"""Section `ladder`: the vendor's, the lesson's and every rung above, in turns."""

from generate.record.calls import GEMM_CALLS, Operands, Outcomes, gemm_point
from generate.record.context import Context
from generate.schema import GemmPoint, Ladder
from generate.shapes import LADDER_SHAPES, Shape
from kernels.plan import RUNGS, rung_plan

NO_LAUNCH = "the rung has no launch at this shape"


def steps(context: Context) -> int:
    return len(context.shapes(LADDER_SHAPES)) * len(GEMM_CALLS)


def record(context: Context) -> Ladder:
    points = []
    for shape in context.shapes(LADDER_SHAPES):
        operands = Operands(shape, context.device)
        for op, mode in GEMM_CALLS:
            points += _compare(context, shape, operands, op, mode)
            context.advance()
    return Ladder(section="ladder", **context.header, points=tuple(points))


def _compare(
    context: Context, shape: Shape, operands: Operands, op: str, mode: str
) -> list[GemmPoint]:
    calls = {name: operands.call(op, mode, name) for name in ("vendor", "lesson")}
    plans = {"vendor": None, "lesson": context.plan(op, shape)}
    refused = {}
    for rung in RUNGS:
        plans[rung] = plan = rung_plan(rung, op, shape, 2, context.facts, mode)
        calls[rung] = operands.planned_call(op, mode, plan)
        if plan is None:
            refused[rung] = NO_LAUNCH
    outcomes = Outcomes(context.timer, operands, op, mode, calls, refused=refused)
    return [gemm_point(shape, op, mode, name, plans[name], outcomes) for name in calls]
