"""A transposed copy of X is made first, because the formula says Xᵀ."""

from kernels import matmul_dw
from kernels.traps.common import on_cpu, operands, zeros

KIND = "lost time"


# [broken]
def broken(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    x_t = x.T.contiguous()
    return matmul_dw(x_t.T, dy, out=grad, mode="accumulate")


# [fixed]
def fixed(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    return matmul_dw(x, dy, out=grad, mode="accumulate")


# [case]
def case(device):
    """Many tokens: X is many times as large as dW."""
    T, width = (512, 64) if on_cpu(device) else (32768, 1024)
    return *operands(device, T, width, width), None
