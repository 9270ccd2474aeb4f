"""A test asserts equal bits of sums that land in order of arrival."""

import torch

from kernels import matmul_dw
from kernels.traps.common import TILE, operands, product

KIND = "blind check"
RUNS = 50


def sums(x, dy):
    """The same sum, of sixteen splits, again and again: each is right."""
    choices = {"split_t": 16, "reduction": "atomic", "tile": TILE}
    return [matmul_dw(x, dy, **choices) for _ in range(RUNS)]


# [broken]
def broken(x, dy, grad=None):
    first, *others = sums(x, dy)
    refused = sum(not torch.equal(first, other) for other in others)
    return refused, "runs", f"refused of {RUNS} that are right"


# [fixed]
def fixed(x, dy, grad=None):
    exact = product(x, dy)
    errors = [(one - exact).norm() / exact.norm() for one in sums(x, dy)]
    refused = sum(bool(error > 1e-4) for error in errors)
    return refused, "runs", f"refused of {RUNS} that are right"


# [case]
def case(device):
    """Sixteen terms an element: the order of arrival shows in the last bits."""
    return *operands(device, 16384, 256, 256), None
