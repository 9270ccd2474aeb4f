"""Section `gemms`: forward, dX and dW of every implementation, in turns."""

from generate.record.calls import (
    GEMM_CALLS,
    Operands,
    Outcomes,
    fast_plan_of,
    gemm_point,
)
from generate.record.context import Context
from generate.schema import GemmPoint, Gemms
from generate.shapes import GEMM_SHAPES, Shape
from kernels.plan import FastPlan

# What the public functions run: dW alone has a deterministic form of its own.
IMPLEMENTATIONS = ("vendor", "lesson", "fast")
DETERMINISTIC = ("deterministic",)


def steps(context: Context) -> int:
    return len(context.shapes(GEMM_SHAPES)) * len(GEMM_CALLS)


def record(context: Context) -> Gemms:
    points = []
    for shape in context.shapes(GEMM_SHAPES):
        operands = Operands(shape, context.device)
        for op, mode in GEMM_CALLS:
            names = IMPLEMENTATIONS + (DETERMINISTIC if op == "dw" else ())
            points += compare(context, shape, operands, op, mode, names)
            context.advance()
    return Gemms(section="gemms", **context.header, points=tuple(points))


def compare(
    context: Context,
    shape: Shape,
    operands: Operands,
    op: str,
    mode: str,
    names: tuple[str, ...],
    plans: dict[str, FastPlan] | None = None,
    **choices,
) -> list[GemmPoint]:
    """Points of the vendor's and the public functions' implementations, in turns.

    plans: of further calls beside them.
    """
    plans = plans or {}
    calls = {name: operands.call(op, mode, name) for name in names}
    calls |= {name: operands.planned_call(op, mode, p) for name, p in plans.items()}
    outcomes = Outcomes(context.timer, operands, op, mode, calls, **choices)
    points = []
    for name in calls:
        plan = plans.get(name)
        if name == "lesson":
            plan = context.plan(op, shape)
        elif name in names and name != "vendor" and outcomes.able(name):
            plan = fast_plan_of(operands, op, mode, name)
        points.append(gemm_point(shape, op, mode, name, plan, outcomes))
    return points
