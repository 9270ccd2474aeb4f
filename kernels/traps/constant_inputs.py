"""Zeros are timed: they draw less power than data, and the chip clocks higher."""

import torch

from kernels import matmul_dw
from kernels.traps.common import operands

KIND = "blind check"
RUNS = 200


def time_of(x, dy):
    """Time of a call, of many in a row: a chip does not get hot at once."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    matmul_dw(x, dy)
    torch.cuda.synchronize()
    start.record()
    for _ in range(RUNS):
        matmul_dw(x, dy)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / RUNS, "ms", "a call"


# [broken]
def broken(x, dy, grad=None):
    return time_of(torch.zeros_like(x), torch.zeros_like(dy))


# [fixed]
def fixed(x, dy, grad=None):
    return time_of(x, dy)


# [case]
def case(device):
    """A product that keeps the whole chip busy."""
    return *operands(device, 8192, 4096, 14336), None
