"""Section `further`: the fast kernels at shapes that no plan was fitted to."""

import torch

from generate.record.calls import GEMM_CALLS, Operands
from generate.record.context import Context
from generate.record.gemms import compare
from generate.schema import Further
from generate.shapes import FURTHER_SHAPES

SAMPLES = 20
IMPLEMENTATIONS = ("vendor", "fast")


def steps(context: Context) -> int:
    return len(context.shapes(FURTHER_SHAPES)) * len(GEMM_CALLS)


def record(context: Context) -> Further:
    points = []
    for shape in context.shapes(FURTHER_SHAPES):
        torch.cuda.empty_cache()
        operands = Operands(shape, context.device)
        for op, mode in GEMM_CALLS:
            points += compare(
                context, shape, operands, op, mode, IMPLEMENTATIONS, samples=SAMPLES
            )
            context.advance()
    return Further(section="further", **context.header, points=tuple(points))
