"""A tolerance chosen by hope: the kernel may lose tokens, and the test passes."""

import torch

from kernels import matmul_dw
from kernels.traps.common import TILE, dtype_of, on_cpu, product

KIND = "blind check"


def unnoticed(accepts, x, dy):
    """The most tokens that a kernel may lose so that the test still passes."""
    exact, lost = product(x, dy), -1
    for tokens in range(x.shape[0] // 64):
        dw = matmul_dw(x[tokens:], dy[tokens:], split_t=1, tile=TILE)
        if not accepts(dw, exact):
            break
        lost = tokens
    return lost, "tokens", f"of {x.shape[0]} may be missing, and it passes"


# [broken]
def broken(x, dy, grad=None):
    def accepts(dw, exact):
        return torch.allclose(dw.double(), exact, rtol=1e-2, atol=1e-2)

    return unnoticed(accepts, x, dy)


# [fixed]
def fixed(x, dy, grad=None):
    def accepts(dw, exact):
        return bool((dw - exact).norm() < 1e-4 * exact.norm())

    return unnoticed(accepts, x, dy)


# [case]
def case(device):
    """Numbers from 0 to 1, as torch.rand gives them: no term cancels another."""
    T = 1024 if on_cpu(device) else 4096
    generator = torch.Generator(device=device).manual_seed(0)
    x, dy = torch.rand((2, T, 64), generator=generator, device=device)
    return x.to(dtype_of(device)), dy.to(dtype_of(device)), None
