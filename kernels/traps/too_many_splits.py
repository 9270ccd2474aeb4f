"""One program a block of T: each adds a whole partial sum of dW."""

from kernels import matmul_dw
from kernels.plan import cdiv
from kernels.traps.common import on_cpu, operands, zeros

KIND = "lost time"


# [broken]
def broken(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    blocks = cdiv(x.shape[0], 64)
    return matmul_dw(x, dy, out=grad, mode="accumulate", split_t=blocks)


# [fixed]
def fixed(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    return matmul_dw(x, dy, out=grad, mode="accumulate", implementation="lesson")


# [case]
def case(device):
    """512 blocks of T: as many partial sums of dW."""
    T, width = (512, 64) if on_cpu(device) else (32768, 1024)
    return *operands(device, T, width, width), None
