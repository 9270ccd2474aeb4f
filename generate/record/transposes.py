"""Section `transposes`: an operand read by swapped strides, or copied first."""

import functools

import torch

from generate.record.calls import DTYPE_NAME, Operands, Outcomes, skipped
from generate.record.context import Context
from generate.record.timing import Call
from generate.schema import TransposePoint, Transposes
from generate.shapes import TRANSPOSE_SHAPES, Shape
from kernels import matmul_dw, matmul_dx

OPS = ("dx", "dw")
IMPLEMENTATIONS = ("lesson", "vendor")
SAMPLES = 20


def steps(context: Context) -> int:
    return len(context.shapes(TRANSPOSE_SHAPES)) * len(OPS)


def record(context: Context) -> Transposes:
    points = []
    for shape in context.shapes(TRANSPOSE_SHAPES):
        operands = Operands(shape, context.device)
        for op in OPS:
            points += _compare(context, shape, operands, op)
            context.advance()
    return Transposes(section="transposes", **context.header, points=tuple(points))


def calls(operands: Operands, op: str) -> dict[tuple[str, str], Call]:
    """Every way to the product, by implementation: Wᵀ of dX, Xᵀ of dW."""

    def source() -> torch.Tensor:
        return operands.w if op == "dx" else operands.x

    @functools.cache
    def copied() -> torch.Tensor:
        return source().T.contiguous()

    def multiply(implementation: str, transposed: torch.Tensor) -> torch.Tensor:
        """The product with Wᵀ[N, K] or Xᵀ[K, T], however it lies in memory."""
        if op == "dx":
            if implementation == "vendor":
                return torch.mm(operands.dy, transposed)
            return matmul_dx(operands.dy, transposed.T, implementation="lesson")
        if implementation == "vendor":
            return torch.mm(transposed, operands.dy, out_dtype=torch.float32)
        return matmul_dw(transposed.T, operands.dy, implementation="lesson")

    found = {}
    for implementation in IMPLEMENTATIONS:

        def by(make, implementation=implementation):
            return lambda: multiply(implementation, make())

        found |= {
            (implementation, "in place"): by(lambda: source().T),
            (implementation, "copied first"): by(lambda: source().T.contiguous()),
            (implementation, "copied before"): by(copied),
            (implementation, "the copy alone"): lambda: source().T.contiguous(),
        }
    return found


def _compare(
    context: Context, shape: Shape, operands: Operands, op: str
) -> list[TransposePoint]:
    torch.cuda.empty_cache()
    ways = calls(operands, op)
    copies = {key for key in ways if key[1] == "the copy alone"}
    outcomes = Outcomes(
        context.timer,
        operands,
        op,
        "overwrite",
        ways,
        samples=SAMPLES,
        unjudged=copies,
    )
    t, k, n = shape
    points = []
    for key, call in ways.items():
        fields, extra_bytes = outcomes.fields(key), None
        if outcomes.able(key):
            try:
                extra_bytes = _extra_bytes(call)
            except Exception as error:  # As of any other call: a recorded skip.
                fields = skipped(error)
        points.append(
            TransposePoint(
                op=op,
                implementation=key[0],
                way=key[1],
                T=t,
                K=k,
                N=n,
                dtype=DTYPE_NAME,
                extra_bytes=extra_bytes,
                **fields,
            )
        )
    return points


def _extra_bytes(call: Call) -> int:
    """The allocator's peak during a call, over what stood before and its output."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    output = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    return max(0, peak - before - output.nbytes)
