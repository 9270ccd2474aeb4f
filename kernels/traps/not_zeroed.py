"""What is added into was never zeroed: the sum begins with what was in memory."""

import torch

from kernels import matmul_dw
from kernels.traps.common import TILE, operands

KIND = "wrong result"


# [broken]
def broken(x, dy, grad=None):
    if grad is None:
        grad = x.new_empty((x.shape[1], dy.shape[1]), dtype=torch.float32)
    return matmul_dw(x, dy, out=grad, mode="accumulate", split_t=1, tile=TILE)


# [fixed]
def fixed(x, dy, grad=None):
    if grad is None:
        grad = x.new_zeros((x.shape[1], dy.shape[1]), dtype=torch.float32)
    return matmul_dw(x, dy, out=grad, mode="accumulate", split_t=1, tile=TILE)


# [case]
def case(device):
    """A gradient in memory that was used before."""
    return *operands(device, 11 * 64, 128, 128), None
