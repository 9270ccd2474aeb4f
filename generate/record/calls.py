"""What is timed: operands, the calls of each implementation, their error."""

import torch

from generate.record.timing import Call
from generate.schema import Configuration
from generate.shapes import Shape
from kernels import matmul, matmul_dw, matmul_dx
from kernels.plan import Plan

DTYPE = torch.bfloat16
DTYPE_NAME = "bfloat16"
INPUT_DISTRIBUTION = "normal, mean 0, standard deviation 1, seed 0"
ERROR_ROWS = 256

GEMM_CALLS = (
    ("forward", "overwrite"),
    ("dx", "overwrite"),
    ("dw", "overwrite"),
    ("dw", "accumulate"),
)


class Operands:
    """Random X, W, dY of one shape, and a gradient to accumulate into."""

    def __init__(self, shape: Shape, device: torch.device):
        t, k, n = shape
        generator = torch.Generator(device=device).manual_seed(0)

        def normal(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(rows, columns, dtype=dtype, device=device).normal_(
                generator=generator
            )

        self.x = normal(t, k, DTYPE)
        self.w = normal(k, n, DTYPE)
        self.dy = normal(t, n, DTYPE)
        self.grad = normal(k, n, torch.float32)
        for name, tensor in vars(self).items():
            if not tensor[:, :64].float().std() > 0.5:
                raise RuntimeError(f"{name} is not random: its values do not spread")

    def call(self, op: str, mode: str, implementation: str) -> Call:
        """A function of no argument that runs one whole operation."""
        x, w, dy, grad = self.x, self.w, self.dy, self.grad
        return {
            ("forward", "overwrite", "vendor"): lambda: torch.mm(x, w),
            ("forward", "overwrite", "lesson"): lambda: matmul(x, w),
            ("dx", "overwrite", "vendor"): lambda: torch.mm(dy, w.T),
            ("dx", "overwrite", "lesson"): lambda: matmul_dx(dy, w),
            ("dw", "overwrite", "vendor"): lambda: torch.mm(
                x.T, dy, out_dtype=torch.float32
            ),
            ("dw", "overwrite", "lesson"): lambda: matmul_dw(x, dy),
            ("dw", "accumulate", "vendor"): lambda: torch.addmm(
                grad, x.T, dy, out_dtype=torch.float32, out=grad
            ),
            ("dw", "accumulate", "lesson"): lambda: matmul_dw(
                x, dy, out=grad, mode="accumulate"
            ),
        }[op, mode, implementation]

    def split_call(self, reduction: str, split_t: int) -> Call:
        """dW, overwriting, at a split factor and reduction."""
        return lambda: matmul_dw(self.x, self.dy, reduction=reduction, split_t=split_t)

    def reference(self, op: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Checked rows of the output of `op`, and their values in fp64."""
        a, b = {
            "forward": (self.x, self.w),
            "dx": (self.dy, self.w.T),
            "dw": (self.x.T, self.dy),
        }[op]
        rows = torch.linspace(
            0, a.shape[0] - 1, min(ERROR_ROWS, a.shape[0]), device=a.device
        ).long()
        return rows, a[rows].double() @ b.double()

    def error(
        self, call: Call, rows: torch.Tensor, exact: torch.Tensor, mode: str
    ) -> float:
        """‖out − fp64‖ / ‖fp64‖ over `rows` of one fresh call's output."""
        if mode == "accumulate":
            self.grad.normal_()
            exact = exact + self.grad[rows].double()
        difference = call()[rows].double() - exact
        return float(f"{(difference.norm() / exact.norm()).item():.4g}")


def configuration(plan: Plan) -> Configuration:
    """The record's form of a plan."""
    tile = plan.tile
    return Configuration(
        block_t=tile.block_t,
        block_k=tile.block_k,
        block_n=tile.block_n,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        split_t=plan.split_t,
        reduction=plan.reduction,
    )
