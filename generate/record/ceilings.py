"""Section `ceilings`: what this device reaches at most."""

import torch

from generate.record import sentence
from generate.record.calls import DTYPE, DTYPE_NAME
from generate.record.context import Context
from generate.schema import Ceilings, Copy, VendorGemm
from generate.shapes import WORKED

COPIED_BYTES = 1 << 30
# Square ones, and the two of the lesson's layers that fill the device best: which
# is fastest depends on how soon the power limit lowers the clock.
GEMMS = (
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16384, 8192, 8192),
    (8192, 4096, 4096),
    WORKED,
)

# Dense 16-bit tensor-core FLOPs with fp32 sums, a clock and SM, by compute
# capability: NVIDIA's architecture white papers. GeForce boards run those of the
# capabilities in HALVED at half the rate of professional boards of the same chips.
FLOPS_PER_CLOCK_PER_SM = {
    (7, 5): 1024,
    (8, 0): 2048,
    (8, 6): 1024,
    (8, 9): 1024,
    (9, 0): 4096,
    (10, 0): 8192,
    (12, 0): 1024,
}
HALVED = ((7, 5), (8, 6), (8, 9), (12, 0))


def steps(context: Context) -> int:
    return 1 + len(GEMMS)


def record(context: Context) -> Ceilings:
    copy = _copy(context)
    points = tuple(_gemm(context, *shape) for shape in GEMMS)
    properties = torch.cuda.get_device_properties(context.device)
    capability = properties.major, properties.minor
    flops = flops_per_clock(capability, properties.name)
    return Ceilings(
        section="ceilings",
        **context.header,
        copy=copy,
        points=points,
        flops_per_clock_per_sm=flops,
        flops_reason=None
        if flops
        else f"no white paper figure for capability {capability} is known here",
    )


def flops_per_clock(capability: tuple[int, int], name: str) -> int | None:
    """Dense 16-bit FLOPs of a clock and SM; None where they are not known here."""
    flops = FLOPS_PER_CLOCK_PER_SM.get(capability)
    halved = capability in HALVED and "GeForce" in name
    return flops // 2 if halved else flops


def _copy(context: Context) -> Copy:
    source = torch.empty(COPIED_BYTES // 4, device=context.device).normal_()
    target = torch.empty_like(source)
    times, state = context.timer.compare({"copy": lambda: target.copy_(source)})
    context.advance()
    return Copy(
        samples_ms=times["copy"],
        state=state,
        skipped_reason=None,
        copied_bytes=COPIED_BYTES,
    )


def _gemm(context: Context, t: int, k: int, n: int) -> VendorGemm:
    times, state, reason = {"gemm": None}, None, None
    try:
        a = torch.empty(t, k, dtype=DTYPE, device=context.device).normal_()
        b = torch.empty(k, n, dtype=DTYPE, device=context.device).normal_()
        times, state = context.timer.compare({"gemm": lambda: torch.mm(a, b)})
    except Exception as error:  # A product too large for the device is a skip.
        torch.cuda.empty_cache()
        reason = sentence(error)
    context.advance()
    return VendorGemm(
        T=t,
        K=k,
        N=n,
        dtype=DTYPE_NAME,
        samples_ms=times["gemm"],
        state=state,
        skipped_reason=reason,
    )
