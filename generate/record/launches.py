"""Section `launches`: what a call of a small product costs the host.

The host's time from a call to its return, of many calls in a row, without waiting
for the device, which ends each sooner than the host begins the next.
"""

import time
from collections.abc import Callable
from typing import get_args

import torch

from generate.record import sentence
from generate.record.calls import (
    DTYPE,
    DTYPE_NAME,
    GEMM_CALLS,
    Operands,
    standing_in,
)
from generate.record.context import Context
from generate.record.timing import Call, attempt, in_turn
from generate.schema import Launches, LaunchPoint
from generate.shapes import LAUNCH_SHAPE, Shape
from kernels import matmul, matmul_dw, matmul_dx
from kernels.fast import ops as fast
from kernels.plan import FastKernel, output_axes

SAMPLES, CALLS = 25, 200
WAYS = ("bare", "public", "vendor")
KERNELS = ("zero", "shares", "pad", "copy", *get_args(FastKernel))


def steps(context: Context) -> int:
    return len(context.shapes((LAUNCH_SHAPE,))) * len(GEMM_CALLS)


def record(context: Context) -> Launches:
    points = []
    for shape in context.shapes((LAUNCH_SHAPE,)):
        operands = Operands(shape, context.device)
        for op, mode in GEMM_CALLS:
            points += _compare(context, shape, operands, op, mode)
            context.advance()
    return Launches(section="launches", **context.header, points=tuple(points))


def _compare(
    context: Context, shape: Shape, operands: Operands, op: str, mode: str
) -> list[LaunchPoint]:
    try:
        times, reasons = _measured(shape, operands, op, mode)
    except Exception as error:  # As of a single call: a recorded skip.
        torch.cuda.empty_cache()
        times, reasons = {}, dict.fromkeys(WAYS, sentence(error))
    t, k, n = shape
    return [
        LaunchPoint(
            op=op,
            mode=mode,
            way=way,
            T=t,
            K=k,
            N=n,
            dtype=DTYPE_NAME,
            host_us=times.get(way),
            skipped_reason=reasons[way],
        )
        for way in WAYS
    ]


def _measured(
    shape: Shape, operands: Operands, op: str, mode: str
) -> tuple[dict[str, tuple[float, ...]], dict[str, str | None]]:
    """Microseconds of each way that runs, and why the others do not."""
    (a, b), options = operands.arguments(op, mode)
    ours = {"forward": matmul, "dx": matmul_dx, "dw": matmul_dw}[op]
    out = options.get("out")
    if out is None:
        size = [shape[axis] for axis in output_axes(op)]
        dtype = torch.float32 if op == "dw" else DTYPE
        out = torch.empty(size, dtype=dtype, device=a.device)

    def public():
        return ours(a, b, **{"out": out, **options})

    calls = {"public": public, "vendor": _vendor(op, mode, a, b, out)}
    reasons = {way: attempt(call) for way, call in calls.items()}
    if not reasons["public"]:
        calls["bare"] = _bare(public)
    reasons["bare"] = reasons["public"]
    able = {way: call for way, call in calls.items() if not reasons[way]}
    return _compared(able), reasons


def _vendor(op: str, mode: str, a, b, out) -> Call:
    """The library's product into the same output."""
    if op == "forward":
        return lambda: torch.mm(a, b, out=out)
    if op == "dx":
        return lambda: torch.mm(a, b.T, out=out)
    if mode == "overwrite":
        return lambda: torch.mm(a.T, b, out_dtype=torch.float32, out=out)
    return lambda: torch.addmm(out, a.T, b, out_dtype=torch.float32, out=out)


def _bare(call: Call) -> Callable[[], None]:
    """The launches of a call, and its zeroing, with their arguments as they were."""
    launches: list[Callable[[], None]] = []
    kernels = {
        f"{name}_kernel": _Kept(getattr(fast, f"{name}_kernel"), launches)
        for name in KERNELS
    }
    zero = torch.Tensor.zero_

    def zeroed(tensor):
        launches.append(lambda: zero(tensor))
        return zero(tensor)

    try:
        torch.Tensor.zero_ = zeroed
        with standing_in(fast, **kernels):
            call()
    finally:
        torch.Tensor.zero_ = zero

    def bare():
        for launch in launches:
            launch()

    return bare


class _Kept:
    """Stands in for a kernel, launches it and keeps the launch."""

    def __init__(self, kernel, launches: list):
        self._kernel, self._launches = kernel, launches

    def __getitem__(self, grid):
        kernel = self._kernel

        def launch(*arguments, **constants):
            self._launches.append(lambda: kernel[grid](*arguments, **constants))
            kernel[grid](*arguments, **constants)

        return launch


def _compared(calls: dict[str, Callable]) -> dict[str, tuple[float, ...]]:
    """Microseconds of a call, in turns, each sample the mean of many calls."""
    times = {way: [] for way in calls}
    for turn in range(SAMPLES):
        for way in in_turn([*calls], turn):
            call = calls[way]
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            mean = (time.perf_counter() - begin) / CALLS
            times[way].append(float(f"{1e6 * mean:.4g}"))
    torch.cuda.synchronize()
    return {way: tuple(found) for way, found in times.items()}
