"""Measure the plans of one product and keep the fastest, where asked to.

Nothing calls `tune` by itself: the fast kernels are planned by a model. For a
product that is computed a million times a measurement may be worth its seconds:
    tune("dw", x, dy, out=grad, mode="accumulate")  # grad is not touched
    matmul_dw(x, dy, out=grad, mode="accumulate")  # by the plan found
"""

import functools
import statistics
from collections.abc import Callable

import torch

from kernels import host
from kernels.fast import ops, tuned
from kernels.plan import FastPlan, Mode, Op, Reduction, ranked_plans

# Plans that take longer than this by the model, the shortest being 1, are left
# out: it would have to err by half for one of them to win. On an H200 about
# four of 5 plans of forward and dX are left, and ten of the 7 to 25 of dW.
WITHIN = 1.5
# Turns of all candidates: the first ones let clocks and caches settle.
SETTLING, TURNS = 5, 15
# Of the L2 cache that is read between two runs.
FLUSH_FACTOR = 4
# A quarter of a millisecond at 2 GHz: for so long, by each call, the device is
# kept busy while the host queues a turn, so that no gap of the host is timed.
HEAD_CYCLES = 500_000


def tune(
    op: Op,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    mode: Mode = "overwrite",
    reduction: Reduction | None = None,
) -> FastPlan:
    """The fastest plan of a product, which calls like this take from now on.

    op: "forward", "dx" or "dw"; a, b: X and W, dY and W, or X and dY. Shapes,
    dtypes, mode, reduction and errors are those of `kernels.fast.ops.multiply`.
    A plan is kept in matmul-backward/plans.json under $XDG_CACHE_HOME, or else
    ~/.cache, for the same operation, sizes, strides, dtypes, mode, reduction,
    device, versions and code; delete the file to forget it, and a process that
    has read it forgets when it ends. a and b are only read. out is only described:
    the candidates write to memory of their own, as large as out, and to workspaces.
    Takes the compiler's seconds, or no time if the plan is known from before.
    Where there is nothing to choose, as pointers alone serve (fp32, a device
    without descriptors, the interpreter, an empty product), and while a CUDA
    graph is captured, which a measurement would break: the plan that
    `multiply` takes anyway, not measured and not kept.
    """
    chosen = ops.prepare(op, a, b, out=out, mode=mode, reduction=reduction)
    if reduction is None and torch.are_deterministic_algorithms_enabled():
        reduction = "workspace"
    shape, dtype = chosen.shape, chosen.dtype
    strides = (shape[1], 1) if out is None else out.stride()
    question = ops.question(op, a, b, out, mode, reduction)
    ranked = ranked_plans(**question)
    if not ranked:
        return chosen.plan
    with host.on_device(a):
        known = tuned.find(question, a, b, dtype, strides)
        if known or torch.cuda.is_current_stream_capturing():
            return chosen.plan
        scratch = a.new_empty_strided(shape, strides, dtype=dtype)
        scratch.zero_()  # numbers, as a GPU's power and clock depend on them
        calls = {}
        for time, plan in ranked:
            call = functools.partial(
                ops.multiply, op, a, b, out=scratch, mode=mode, plan=plan
            )
            if time <= WITHIN * ranked[0][0] and _runs(call):
                calls[plan] = call
        if not calls:
            return chosen.plan
        times = medians(list(calls.values()))
    _, fastest = min(zip(times, calls, strict=True), key=lambda timed: timed[0])
    tuned.keep(fastest, question, a, b, dtype, strides)
    ops._prepared.clear()  # they launch what was planned before
    return fastest


def medians(calls: list[Callable[[], object]]) -> list[float]:
    """Milliseconds of each call on the current device, L2 flushed before it."""
    device = torch.cuda.current_device()
    size = FLUSH_FACTOR * torch.cuda.get_device_properties(device).L2_cache_size
    lines = torch.ones(size // 4, device=device)
    total = torch.empty((), device=device)
    times = [[] for _ in calls]
    for turn in range(SETTLING + TURNS):
        torch.cuda._sleep(HEAD_CYCLES * len(calls))
        events = []
        for call in calls:
            torch.sum(lines, dim=0, out=total)
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize()
        if turn >= SETTLING:
            for found, (start, end) in zip(times, events, strict=True):
                found.append(start.elapsed_time(end))
    return [statistics.median(found) for found in times]


def _runs(call: Callable[[], object]) -> bool:
    """Run a call once, which compiles it; whether it could be launched."""
    try:
        call()
    except Exception:  # as the device or the compiler refuses the plan
        return False
    return True
