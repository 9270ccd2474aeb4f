"""Section `ceilings`: what this device reaches at most."""

from collections.abc import Callable

import torch

from generate.record import sentence
from generate.record.calls import DTYPE, DTYPE_NAME
from generate.record.context import Context
from generate.record.timing import Call
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
    # Source and target leave a small device half of its memory.
    free, _ = torch.cuda.mem_get_info(context.device)
    size = min(COPIED_BYTES // 4, free // 16)

    def copying():
        source = torch.empty(size, device=context.device).normal_()
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    return Copy(copied_bytes=4 * size, **_timed(context, copying))


def _gemm(context: Context, t: int, k: int, n: int) -> VendorGemm:
    def multiplying():
        a = torch.empty(t, k, dtype=DTYPE, device=context.device).normal_()
        b = torch.empty(k, n, dtype=DTYPE, device=context.device).normal_()
        return lambda: torch.mm(a, b)

    timed = _timed(context, multiplying)
    return VendorGemm(T=t, K=k, N=n, dtype=DTYPE_NAME, **timed)


def _timed(context: Context, make: Callable[[], Call]) -> dict:
    """The fields of a timed point without an error; make: its operands and call."""
    times, state, reason = {"call": None}, None, None
    try:
        times, state = context.timer.compare({"call": make()})
    except Exception as error:  # What is too large for the device is a skip.
        torch.cuda.empty_cache()
        reason = sentence(error)
    context.advance()
    return {"samples_ms": times["call"], "state": state, "skipped_reason": reason}
