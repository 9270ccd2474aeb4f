"""One program a tile, however few tiles there are: most of the chip is idle."""

from kernels import matmul_dw
from kernels.traps.common import on_cpu, operands, zeros

KIND = "lost time"


# [broken]
def broken(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    return matmul_dw(x, dy, out=grad, mode="accumulate", split_t=1)


# [fixed]
def fixed(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    return matmul_dw(x, dy, out=grad, mode="accumulate", implementation="lesson")


# [case]
def case(device):
    """64 tiles of dW, and a long contraction."""
    T, width = (512, 64) if on_cpu(device) else (32768, 1024)
    return *operands(device, T, width, width), None
