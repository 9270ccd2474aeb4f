"""Section `further`: the fast kernels at shapes that no plan was fitted to.

Where rows begin at places that pointers can load several elements from, but no
descriptor, the best plan of either way is run beside what the plan chose of them.
Where descriptors serve, but rows begin inside of lines of L2, so is the launch that is
planned without regard to that.
"""

import torch

from generate.record.calls import GEMM_CALLS, Operands
from generate.record.context import Context
from generate.record.gemms import compare
from generate.schema import Further
from generate.shapes import FURTHER_SHAPES
from kernels.fast.ops import question
from kernels.plan import DENSE, FastPlan, fast_plan, ranked_plans

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
                context,
                shape,
                operands,
                op,
                mode,
                IMPLEMENTATIONS,
                other_ways(operands, op, mode),
                samples=SAMPLES,
            )
            context.advance()
    return Further(section="further", **context.header, points=tuple(points))


def other_ways(operands: Operands, op: str, mode: str) -> dict[str, FastPlan]:
    """The plans beside the chosen one that a recording has, by implementation."""
    try:
        tensors, options = operands.arguments(op, mode)
    except Exception:  # What cannot be made is found out, and said, by each call.
        return {}
    asked = question(op, *tensors, options.get("out"), mode, None)
    plans = [plan for _, plan in ranked_plans(**asked)]
    if asked["layout"].fits:
        aligned = fast_plan(**asked | {"layout": DENSE})
        return {} if aligned in plans[:1] else {"aligned": aligned}
    pitched = [plan for plan in plans if plan.kernel == "pitched"]
    copied = [plan for plan in plans if plan.kernel != "pitched"]
    return {"pitched": pitched[0], "copied": copied[0]} if pitched and copied else {}
