"""Micro-batches are summed in a bf16 gradient: 256 + 1 is 256."""

import torch

from kernels import matmul_dw
from kernels.traps.common import TILE, dtype_of, on_cpu, zeros

KIND = "wrong result"
# Tokens of a micro-batch.
TOKENS = 64


# [broken]
def broken(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    total = grad.to(torch.bfloat16)
    for x_part, dy_part in zip(x.split(TOKENS), dy.split(TOKENS), strict=True):
        total += matmul_dw(x_part, dy_part, split_t=1, tile=TILE)
    return grad.copy_(total)


# [fixed]
def fixed(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    total = grad
    for x_part, dy_part in zip(x.split(TOKENS), dy.split(TOKENS), strict=True):
        total += matmul_dw(x_part, dy_part, split_t=1, tile=TILE)
    return grad


# [case]
def case(device):
    """512 micro-batches, each of which adds 1 to every element."""
    # The interpreter takes its time: there, 252 of 260 are behind.
    parts, grad = 512, None
    if on_cpu(device):
        parts, grad = 8, torch.full((64, 64), 252.0)
    operand = torch.full((parts * TOKENS, 64), 1 / 8, device=device)
    return operand.to(dtype_of(device)), operand.to(dtype_of(device)), grad
