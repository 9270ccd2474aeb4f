"""Section `splits`: dW over split factors, by atomics and by workspace."""

import torch

from generate.record.calls import DTYPE_NAME, Operands, Outcomes, configuration
from generate.record.context import Context
from generate.schema import SplitPoint, Splits
from generate.shapes import GEMM_SHAPES, SPLIT_FACTORS, SPLIT_SHAPES, Shape

SAMPLES = 20
SHAPES = {"quick": SPLIT_SHAPES, "full": GEMM_SHAPES}
# A recording stays within 16 GiB; the allocator keeps a workspace of each factor.
MAX_WORKSPACE_BYTES = 2 << 30


def sweep(planned: int) -> list[tuple[str, int]]:
    """The plain kernel, then every factor and the planned one, reduced both ways."""
    factors = sorted({*SPLIT_FACTORS, planned})
    split = [(r, s) for s in factors for r in ("atomic", "workspace")]
    return [("none", 1), *split]


def steps(context: Context) -> int:
    return len(context.shapes(SHAPES[context.extent]))


def record(context: Context) -> Splits:
    points = []
    for shape in context.shapes(SHAPES[context.extent]):
        points += _compare(context, shape)
        context.advance()
    return Splits(section="splits", **context.header, points=tuple(points))


def _too_large(shape: Shape, reduction: str, split_t: int) -> str | None:
    """Why a workspace is not recorded, or None."""
    _, k, n = shape
    size = 4 * split_t * k * n
    if reduction != "workspace" or size <= MAX_WORKSPACE_BYTES:
        return None
    return (
        f"its workspace of {size / 2**30:.1f} GiB is over the "
        f"{MAX_WORKSPACE_BYTES >> 30} GiB that a recording allows itself"
    )


def _compare(context: Context, shape: Shape) -> list[SplitPoint]:
    torch.cuda.empty_cache()
    operands = Operands(shape, context.device)
    planned = context.plan("dw", shape).split_t
    calls = {row: operands.split_call(*row) for row in sweep(planned)}
    too_large = {row: _too_large(shape, *row) for row in calls}
    outcomes = Outcomes(
        context.timer,
        operands,
        "dw",
        "overwrite",
        calls,
        samples=SAMPLES,
        refused=too_large,
    )
    t, k, n = shape
    return [
        SplitPoint(
            reduction=reduction,
            split_t=split_t,
            T=t,
            K=k,
            N=n,
            dtype=DTYPE_NAME,
            configuration=configuration(
                context.plan("dw", shape, reduction=reduction, split_t=split_t)
            ),
            **outcomes.fields((reduction, split_t)),
        )
        for reduction, split_t in calls
    ]
