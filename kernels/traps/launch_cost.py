"""Launches of a kernel shorter than its launch are timed: the host is what is seen."""

import torch

from kernels import matmul_dw
from kernels.traps.common import TILE, operands

KIND = "blind check"
RUNS = 200


# [broken]
def broken(x, dy, grad=None):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(RUNS):
        matmul_dw(x, dy, split_t=1, tile=TILE)
    end.record()
    torch.cuda.synchronize()
    return 1e3 * start.elapsed_time(end) / RUNS, "µs", "a call"


# [fixed]
def fixed(x, dy, grad=None):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)  # the device waits until all are queued
    start.record()
    for _ in range(RUNS):
        matmul_dw(x, dy, split_t=1, tile=TILE)
    end.record()
    torch.cuda.synchronize()
    return 1e3 * start.elapsed_time(end) / RUNS, "µs", "a call"


# [case]
def case(device):
    """A product so small that the device is done before the host can ask again."""
    x, dy = operands(device, 64, 128, 128)
    matmul_dw(x, dy, split_t=1, tile=TILE)
    return x, dy, None
