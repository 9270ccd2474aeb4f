"""Candidates share one output: one that writes half of it passes behind another."""

import torch

from kernels.dw import dw_kernel
from kernels.traps.common import launch, operands, product, zeros

KIND = "blind check"


def whole(x, dy, out):
    return launch(dw_kernel, x, dy, out, ADD=False)


def half(x, dy, out):
    """Computes the upper half of dW, and leaves the lower one alone."""
    rows = x.shape[1] // 2
    launch(dw_kernel, x[:, :rows], dy, out[:rows], ADD=False)
    return out


def missing(results, exact):
    """How much of dW a candidate that agrees with fp64 has left to others."""
    _, half_written = results
    passes = torch.allclose(half_written.double(), exact, rtol=1e-3, atol=1e-3)
    return 50 * passes, "%", "of dW may be left unwritten, and it passes"


# [broken]
def broken(x, dy, grad=None):
    out = zeros(x, dy)
    results = []
    for candidate in (whole, half):
        results.append(candidate(x, dy, out).clone())
    return missing(results, product(x, dy))


# [fixed]
def fixed(x, dy, grad=None):
    results = []
    for candidate in (whole, half):
        out = zeros(x, dy).fill_(torch.nan)
        results.append(candidate(x, dy, out))
    return missing(results, product(x, dy))


# [case]
def case(device):
    """One product for both candidates."""
    return *operands(device, 11 * 64, 128, 128), None
