"""Section `gemms`: forward, dX and dW of every implementation, in turns."""

from generate.record.calls import (
    DTYPE_NAME,
    GEMM_CALLS,
    Operands,
    Outcomes,
    configuration,
)
from generate.record.context import Context
from generate.schema import GemmPoint, Gemms
from generate.shapes import GEMM_SHAPES, Shape

IMPLEMENTATIONS = ("vendor", "lesson")


def steps(context: Context) -> int:
    return len(context.shapes(GEMM_SHAPES)) * len(GEMM_CALLS)


def record(context: Context) -> Gemms:
    points = []
    for shape in context.shapes(GEMM_SHAPES):
        operands = Operands(shape, context.device)
        for op, mode in GEMM_CALLS:
            points += _compare(context, shape, operands, op, mode)
            context.advance()
    return Gemms(section="gemms", **context.header, points=tuple(points))


def _compare(
    context: Context, shape: Shape, operands: Operands, op: str, mode: str
) -> list[GemmPoint]:
    calls = {name: operands.call(op, mode, name) for name in IMPLEMENTATIONS}
    outcomes = Outcomes(context.timer, operands, op, mode, calls)
    t, k, n = shape
    return [
        GemmPoint(
            op=op,
            mode=mode,
            implementation=name,
            T=t,
            K=k,
            N=n,
            dtype=DTYPE_NAME,
            configuration=configuration(context.plan(op, shape))
            if name == "lesson"
            else None,
            **outcomes.fields(name),
        )
        for name in IMPLEMENTATIONS
    ]
