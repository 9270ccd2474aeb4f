"""Linear layers to train with: `linear` and `Linear`, on the three products.

Y = X·Wᵀ + b, with the conventions of torch.nn.Linear: the weight is [N, K], as
`torch.nn.Linear` stores it. Neither X nor W is transposed for the backward pass. dW
is summed in fp32, over all leading dimensions at once.
"""

import torch

from kernels import host, promises
from kernels.ops import matmul, matmul_dw, matmul_dx

SUMS = getattr(torch, promises.SUMS)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    deterministic: bool = False,
) -> torch.Tensor:
    """Y[..., N] = X[..., K] · W[N, K]ᵀ + b[N], differentiable once.

    x, weight, bias: bf16, fp16 or fp32, alike, on one CUDA device (or on the CPU
    under Triton's interpreter); under torch.autocast each is cast to its dtype, and
    the backward pass computes in that of the forward. Leading dimensions of x are
    any, or none. The products are summed in fp32 and rounded to Y's dtype, then the
    bias is added.
    deterministic: the same bits for dW in every run, as where
    torch.use_deterministic_algorithms asks for them.

    Gradients have their input's dtype, and only those asked for are computed, and
    only what they need is saved. Where weight.main_grad is a tensor, fp32 and of
    weight's shape, dW is added to that instead, without rounding, in every backward
    pass through y, and weight.grad stays as it is: whoever sets main_grad zeroes it,
    hands it to the optimizer and reduces it between processes.

    Raises TypeError for a dtype and ValueError for a shape, device or layout that
    does not fit, before anything is allocated or launched. A second derivative is
    refused with a RuntimeError, torch.func's transforms by torch's own.
    """
    main_grad = getattr(weight, "main_grad", None)
    _check(x, weight, bias, main_grad)
    rows = x.reshape(x.shape[:-1].numel(), x.shape[-1])  # of no columns, too
    y = _Linear.apply(rows, weight, bias, main_grad, deterministic)
    return y.view(*x.shape[:-1], weight.shape[0])


class Linear(torch.nn.Linear):
    """torch.nn.Linear, computed by `linear`.

    Parameters, their names, their initial values and what a state dict holds are
    those of torch.nn.Linear. deterministic: as in `linear`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        deterministic: bool = False,
    ):
        super().__init__(in_features, out_features, bias, device, dtype)
        self.deterministic = deterministic

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Y[..., out_features] of X[..., in_features]."""
        return linear(x, self.weight, self.bias, deterministic=self.deterministic)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, main_grad, deterministic):
        ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.main_grad, ctx.deterministic = main_grad, deterministic
        x, weight, bias = _autocast(x), _autocast(weight), _autocast(bias)
        needs_x, needs_weight, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
        compiling = torch.compiler.is_compiling()
        y = (y_op if compiling else _y)(x, weight)
        if bias is None:
            return y
        # In place, compilers lose the gradient (torch 2.11).
        return y + bias if compiling else y.add_(bias)

    @staticmethod
    def backward(ctx, dy):
        compiling = torch.compiler.is_compiling()
        if torch.is_grad_enabled() and not compiling:
            raise RuntimeError(
                "linear has no second derivative: call backward without create_graph"
            )
        dy = dy.resolve_neg()  # as behind a conjugate, which a caller cannot resolve
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        x_dtype, weight_dtype, bias_dtype = ctx.dtypes
        dx = dw = db = None
        if needs_x:
            dx = (dx_op if compiling else _dx)(dy, weight).to(x_dtype)
        if needs_weight and ctx.main_grad is not None:
            add = dw_add_op if compiling else _dw_add
            add(dy, x, ctx.main_grad, ctx.deterministic)
        elif needs_weight:
            dw = (dw_op if compiling else _dw)(dy, x, ctx.deterministic)
            dw = dw.to(weight_dtype)
        if needs_bias:
            db = dy.sum(0, dtype=SUMS).to(bias_dtype)
        return dx, dw, db, None, None


# The three products, and as operators that a compiler takes for granted: what it
# sees of them is the shape of their output, and what they change.


def _y(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return matmul(x, weight.T)


def _dx(dy: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return matmul_dx(dy, weight.T)


# Of Wᵀ it would be Xᵀ·dY: in the weight's own layout it is dYᵀ·X.
def _dw(dy: torch.Tensor, x: torch.Tensor, deterministic: bool) -> torch.Tensor:
    return matmul_dw(dy, x, reduction="workspace" if deterministic else None)


def _dw_add(
    dy: torch.Tensor, x: torch.Tensor, grad: torch.Tensor, deterministic: bool
) -> None:
    reduction = "workspace" if deterministic else None
    matmul_dw(dy, x, out=grad, mode="accumulate", reduction=reduction)


y_op = torch.library.custom_op("matmul_backward::y", _y, mutates_args=())
dx_op = torch.library.custom_op("matmul_backward::dx", _dx, mutates_args=())
dw_op = torch.library.custom_op("matmul_backward::dw", _dw, mutates_args=())
dw_add_op = torch.library.custom_op(
    "matmul_backward::dw_add", _dw_add, mutates_args=("grad",)
)
y_op.register_fake(lambda x, w: x.new_empty(x.shape[0], w.shape[0]))
dx_op.register_fake(lambda dy, w: dy.new_empty(dy.shape[0], w.shape[1]))
dw_op.register_fake(lambda dy, x, _: x.new_empty(dy.shape[1], x.shape[1], dtype=SUMS))
dw_add_op.register_fake(lambda *_: None)


def _autocast(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor in the dtype that torch.autocast asks for where it is, if it does."""
    if tensor is None or not torch.is_autocast_enabled(tensor.device.type):
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))


def _check(x, weight, bias, main_grad) -> None:
    """What the products would refuse in other words, or too late.

    A compiler sees no addresses: there, the products look at them as they run.
    """
    compiling = torch.compiler.is_compiling()
    named = {"x": x, "weight": weight}
    if bias is not None:
        named["bias"] = bias
    for name, tensor in named.items():
        host.check_tensor(name, tensor, host.DTYPES)
    if weight.dim() != 2:
        raise ValueError(f"weight must have 2 dimensions, got {list(weight.shape)}")
    N, K = weight.shape
    if not x.dim() or x.shape[-1] != K:
        raise ValueError(
            f"x must be [..., {K}] as weight is [{N}, {K}], got {list(x.shape)}"
        )
    if bias is not None:
        host.check_shape("bias", bias, (N,), f"weight is [{N}, {K}]")
    for name, tensor in named.items():
        if not compiling:
            host.check_place(name, tensor, "x", x)
        cast = torch.is_autocast_enabled(x.device.type)
        if not cast and tensor.dtype != x.dtype:
            raise TypeError(f"{name} must be {x.dtype} like x, got {tensor.dtype}")
    if main_grad is None or not (weight.requires_grad and torch.is_grad_enabled()):
        return
    name = "weight.main_grad"
    host.check_tensor(name, main_grad, (SUMS,))
    host.check_shape(name, main_grad, (N, K), "weight is")
    if not compiling:
        host.check_place(name, main_grad, "weight", weight)
        host.check_written(name, main_grad, weight=weight)
