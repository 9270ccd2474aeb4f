"""The workspace is zeroed, though every slice is stored whole."""

from kernels.dw import dw_kernel
from kernels.plan import Tile
from kernels.traps.common import launch, on_cpu, operands, reduce, zeros

KIND = "lost time"
TILE = Tile(64, 128, 128, num_warps=4, num_stages=3)
SPLIT_T = 16


# [broken]
def broken(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    workspace = grad.new_zeros((SPLIT_T, *grad.shape))
    launch(dw_kernel, x, dy, workspace, split_t=SPLIT_T, tile=TILE, ADD=False)
    return reduce(workspace, grad)


# [fixed]
def fixed(x, dy, grad=None):
    grad = zeros(x, dy) if grad is None else grad
    workspace = grad.new_empty((SPLIT_T, *grad.shape))
    launch(dw_kernel, x, dy, workspace, split_t=SPLIT_T, tile=TILE, ADD=False)
    return reduce(workspace, grad)


# [case]
def case(device):
    """Sixteen slices, each as large as dW."""
    T, width = (512, 64) if on_cpu(device) else (32768, 1024)
    return *operands(device, T, width, width), None
