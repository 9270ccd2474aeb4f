"""A host clock stops when the launch returns, long before the kernel ends."""

import statistics
import time

import torch

from kernels import matmul_dw
from kernels.traps.common import operands

KIND = "blind check"
RUNS = 20


# [broken]
def broken(x, dy, grad=None):
    times = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        matmul_dw(x, dy)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times), "ms", "by a host clock"


# [fixed]
def fixed(x, dy, grad=None):
    times = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        matmul_dw(x, dy)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times), "ms", "by a host clock"


# [case]
def case(device):
    """A product that takes the device far longer than the host a launch."""
    x, dy = operands(device, 8192, 4096, 4096)
    matmul_dw(x, dy)
    return x, dy, None
