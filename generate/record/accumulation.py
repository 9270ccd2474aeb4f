"""Section `accumulation`: what a gradient buffer's dtype costs, micro-batch by
micro-batch, and what rounding the partial sums of a split to 16 bits costs."""

from collections.abc import Iterator

import torch

from generate.record.calls import DTYPE, Operands
from generate.record.context import Context
from generate.schema import Accumulation, AccumulationPoint, PartialsPoint
from generate.shapes import ACCUMULATED, MICRO_BATCHES, PARTIAL_FACTORS, STARVED
from kernels import matmul_dw
from kernels.plan import cdiv, split_range

# Of the loss's gradient at an output; a token's own scale lies e-fold around it.
SCALE = 1e-4
# Share of a token's gradient that follows from its input alike in all micro-batches.
SIGNAL = {"noise": 0.0, "signal": 0.05}
DISTRIBUTION = (
    "X: normal, mean 0, standard deviation 1; dY: normal with a log-normal scale a "
    f"token, median {SCALE:g}, plus, for the gradient called signal, "
    f"{SIGNAL['signal']:g} times X·A/√K of one normal A; both in bfloat16; a new draw "
    "each micro-batch"
)
BLOCK_T = 64


def steps(context: Context) -> int:
    return len(SIGNAL) + 1


def record(context: Context) -> Accumulation:
    points = []
    for gradient in SIGNAL:
        with context.omitting(f"accumulation of the gradient called {gradient}"):
            points += _accumulate(gradient, context.device)
        context.advance()
    partials = []
    with context.omitting("accumulation of partial sums"):
        partials += _partials(context.device)
    context.advance()
    return Accumulation(
        section="accumulation",
        **context.header,
        gradient_distribution=DISTRIBUTION,
        points=tuple(points),
        partials=tuple(partials),
    )


def _micro_batches(
    gradient: str, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """X and dY of one micro-batch after another, the same in every recording."""
    t, k, n = ACCUMULATED
    generator = torch.Generator(device=device).manual_seed(4)

    def normal(*size):
        return torch.randn(size, generator=generator, device=device)

    common = normal(k, n) * k**-0.5
    for _ in range(max(MICRO_BATCHES)):
        x = normal(t, k)
        scale = SCALE * normal(t, 1).exp()
        dy = scale * (normal(t, n) + SIGNAL[gradient] * (x @ common))
        yield x.to(DTYPE), dy.to(DTYPE)


def _accumulate(gradient: str, device: torch.device) -> list[AccumulationPoint]:
    t, k, n = ACCUMULATED
    exact = torch.zeros(k, n, dtype=torch.float64, device=device)
    buffers = {
        "float32": torch.zeros(k, n, dtype=torch.float32, device=device),
        "bfloat16": torch.zeros(k, n, dtype=torch.bfloat16, device=device),
    }
    points = []
    for count, (x, dy) in enumerate(_micro_batches(gradient, device), start=1):
        exact += x.double().T @ dy.double()
        before = {dtype: buffer.clone() for dtype, buffer in buffers.items()}
        addend = matmul_dw(x, dy, implementation="lesson")
        matmul_dw(
            x,
            dy,
            out=buffers["float32"],
            mode="accumulate",
            implementation="lesson",
        )
        # As autograd accumulates where the gradient has the weight's dtype.
        buffers["bfloat16"] += addend.to(torch.bfloat16)
        if count not in MICRO_BATCHES:
            continue
        for dtype, buffer in buffers.items():
            unchanged = (buffer == before[dtype]) & (addend != 0)
            points.append(
                AccumulationPoint(
                    gradient=gradient,
                    buffer=dtype,
                    micro_batches=count,
                    T=t,
                    K=k,
                    N=n,
                    error=_error(buffer, exact),
                    unchanged_share=round(
                        (unchanged.sum() / (addend != 0).sum()).item(), 6
                    ),
                )
            )
    return points


def _partials(device: torch.device) -> list[PartialsPoint]:
    t, k, n = STARVED
    operands = Operands(STARVED, device)
    exact = operands.x.double().T @ operands.dy.double()
    points = []
    for split_t in PARTIAL_FACTORS:
        sums = {
            dtype: torch.zeros(k, n, dtype=dtype, device=device)
            for dtype in (torch.float32, torch.bfloat16, torch.float16)
        }
        for split in range(split_t):
            low, high = split_range(split, split_t, cdiv(t, BLOCK_T))
            tokens = slice(low * BLOCK_T, high * BLOCK_T)
            partial = matmul_dw(operands.x[tokens], operands.dy[tokens], split_t=1)
            for dtype, total in sums.items():
                total += partial.to(dtype)
        points += [
            PartialsPoint(
                partials=str(dtype).removeprefix("torch."),
                split_t=split_t,
                T=t,
                K=k,
                N=n,
                error=_error(total, exact),
            )
            for dtype, total in sums.items()
        ]
    return points


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float(f"{((found.double() - exact).norm() / exact.norm()).item():.4g}")
