"""The host API: validate, plan, allocate, launch.

`matmul`, `matmul_dx` and `matmul_dw` take 2-D tensors of any strides and any
size, 0 and 1 included, on any CUDA device (or on the CPU under Triton's
interpreter, TRITON_INTERPRET=1). They read operands where they lie, never
copy or tune, and own the initialisation of everything they return. They are
no autograd functions: they are what one calls.
"""

import contextlib

import torch
import triton

from kernels import device
from kernels.dw import dw_kernel
from kernels.dx import dx_kernel
from kernels.forward import forward_kernel
from kernels.plan import Mode, Plan, Reduction, Tile, cdiv, plan
from kernels.reduce import reduce_kernel

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# cuLaunchKernel takes up to 65535 programs along the grid's second axis.
MAX_GRID_Y = 65535
REDUCE_BLOCK_K, REDUCE_BLOCK_N = 16, 128


def matmul(
    x: torch.Tensor,
    w: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:
    """Y[T, N] = X[T, K] · W[K, N], summed in fp32.

    x, w: bf16, fp16 or fp32, alike. out: where to write, [T, N] of one of the
    three; by default a new tensor of x's dtype. tile: block sizes; planned by
    default. fp32 products follow torch.backends.cuda.matmul.fp32_precision.
    Raises TypeError for a dtype and ValueError for a shape, device or layout
    that does not fit, before anything is allocated or launched.
    """
    _check_operands(x=x, w=w)
    (T, K), N = x.shape, w.shape[1]
    _check_shape("w", w, (K, N), "x is [T, K]")
    _check_tile(tile)
    out = _output(out, (T, N), x.dtype, x=x, w=w)
    p = _plan("forward", (T, K, N), x, tile=tile)
    _launch(
        forward_kernel,
        p,
        (x, w, out),
        (T, K, N, *x.stride(), *w.stride(), *out.stride()),
    )
    return out


def matmul_dx(
    dy: torch.Tensor,
    w: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:
    """dX[T, K] = dY[T, N] · W[K, N]ᵀ, summed in fp32; W is read in place.

    dy, w: bf16, fp16 or fp32, alike. out: where to write, [T, K] of one of the
    three; by default a new tensor of dy's dtype. tile, precision and errors as
    in `matmul`.
    """
    _check_operands(dy=dy, w=w)
    (T, N), K = dy.shape, w.shape[0]
    _check_shape("w", w, (K, N), "dy is [T, N]")
    _check_tile(tile)
    out = _output(out, (T, K), dy.dtype, dy=dy, w=w)
    p = _plan("dx", (T, K, N), dy, tile=tile)
    _launch(
        dx_kernel,
        p,
        (dy, w, out),
        (T, K, N, *dy.stride(), *w.stride(), *out.stride()),
    )
    return out


def matmul_dw(
    x: torch.Tensor,
    dy: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    mode: Mode = "overwrite",
    reduction: Reduction | None = None,
    split_t: int | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:
    """dW[K, N] = X[T, K]ᵀ · dY[T, N] in fp32; X is read in place.

    x, dy: bf16, fp16 or fp32, alike. out: the fp32 gradient [K, N]; by default
    a new tensor. mode: "overwrite" it, or "accumulate" into it (out needed).
    split_t: programs a tile; planned by default. reduction: "none" (split_t 1),
    "atomic" (order of arrival, bits may differ between runs) or "workspace"
    (fixed order, bit-identical); by default "atomic", or "workspace" under
    torch.use_deterministic_algorithms. tile, precision and errors as in
    `matmul`.
    """
    _check_operands(x=x, dy=dy)
    (T, K), N = x.shape, dy.shape[1]
    _check_shape("dy", dy, (T, N), "x is [T, K]")
    _check_tile(tile)
    _check_choice("mode", mode, ("overwrite", "accumulate"))
    if mode == "accumulate" and out is None:
        raise ValueError("out must be given to accumulate into, it is None")
    if reduction is not None:
        _check_choice("reduction", reduction, ("none", "atomic", "workspace"))
    if split_t is not None and not (
        isinstance(split_t, int) and 1 <= split_t <= MAX_GRID_Y
    ):
        raise ValueError(f"split_t must be 1 to {MAX_GRID_Y}, got {split_t!r}")
    if reduction == "none" and split_t not in (None, 1):
        raise ValueError(f'split_t must be 1 for reduction "none", got {split_t}')
    out = _output(out, (K, N), torch.float32, (torch.float32,), x=x, dy=dy)
    p = _plan("dw", (T, K, N), x, tile=tile, split_t=split_t, reduction=reduction)
    accumulate = mode == "accumulate"
    if p.reduction == "workspace":
        target = x.new_empty((p.split_t, K, N), dtype=torch.float32)
        strides, add = target.stride(), False
    else:
        target, strides = out, (0, *out.stride())
        add = accumulate or p.reduction == "atomic"
    if add and not accumulate:
        out.zero_()
    _launch(
        dw_kernel,
        p,
        (x, dy, target),
        (T, K, N, *x.stride(), *dy.stride(), *strides),
        ADD=add,
    )
    if p.reduction == "workspace":
        _reduce(target, out, accumulate)
    return out


def _plan(op: str, shape: tuple[int, int, int], x: torch.Tensor, **choices) -> Plan:
    where = (
        device.INTERPRETER if x.device.type == "cpu" else device.facts(x.device.index)
    )
    deterministic = torch.are_deterministic_algorithms_enabled()
    return plan(op, shape, x.itemsize, where, deterministic=deterministic, **choices)


def _launch(kernel, p: Plan, tensors: tuple, numbers: tuple, **constants) -> None:
    if not p.tiles:
        return
    tile = p.tile
    with _on_device(tensors[0]):
        kernel[(p.tiles, p.split_t)](
            *tensors,
            *numbers,
            BLOCK_T=tile.block_t,
            BLOCK_K=tile.block_k,
            BLOCK_N=tile.block_n,
            PRECISION=_precision(),
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
            **constants,
        )


def _reduce(workspace: torch.Tensor, out: torch.Tensor, accumulate: bool) -> None:
    split_t, K, N = workspace.shape
    tiles = cdiv(K, REDUCE_BLOCK_K) * cdiv(N, REDUCE_BLOCK_N)
    if not tiles:
        return
    with _on_device(out):
        reduce_kernel[(tiles,)](
            workspace,
            out,
            K,
            N,
            *workspace.stride(),
            *out.stride(),
            split_t,
            BLOCK_K=REDUCE_BLOCK_K,
            BLOCK_N=REDUCE_BLOCK_N,
            ACCUMULATE=accumulate,
        )


def _precision() -> str:
    """How fp32 products are rounded: what the framework is set to."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def _on_device(tensor: torch.Tensor):
    # Triton launches on the current device, wherever its tensors are.
    if tensor.device.type == "cpu":
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def _check_choice(name: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {given!r}")


def _check_shape(name: str, tensor: torch.Tensor, shape: tuple, because: str) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"{name} must be {list(shape)} as {because}, got {list(tensor.shape)}"
        )


def _check_tensor(name: str, tensor, allowed: tuple[torch.dtype, ...]) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a strided tensor, got {tensor.layout}")
    if tensor.dtype not in allowed:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        raise TypeError(f"{name} must be of {names}, got {tensor.dtype}")


def _check_tile(tile: Tile | None) -> None:
    """Triton's own limits: tl.dot takes blocks from 16, all of powers of two."""
    if tile is None:
        return
    blocks = (tile.block_t, tile.block_k, tile.block_n)
    for least, sizes in ((16, blocks), (1, (tile.num_warps,))):
        if any(size < least or size & (size - 1) for size in sizes):
            raise ValueError(
                f"tile must have blocks of powers of two from 16 and warps of powers "
                f"of two, got {tile}"
            )
    if tile.num_stages < 1:
        raise ValueError(f"tile must have at least one stage, got {tile}")


def _check_operands(**tensors: torch.Tensor) -> None:
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        _check_tensor(name, tensor, DTYPES)
        if tensor.dim() != 2:
            raise ValueError(f"{name} must have 2 dimensions, got {list(tensor.shape)}")
        if tensor.dtype != first.dtype:
            raise TypeError(
                f"{name} must be {first.dtype} like {first_name}, got {tensor.dtype}"
            )
        _check_place(name, tensor, first_name, first)
    if first.device.type == "cuda" and first.dtype == torch.bfloat16:
        capability = torch.cuda.get_device_capability(first.device)
        if capability < (8, 0):
            raise TypeError(
                f"{first_name} is bfloat16, which needs compute capability 8.0, "
                f"this device has {capability[0]}.{capability[1]}"
            )


def _check_place(name, tensor, first_name, first) -> None:
    if tensor.device != first.device:
        raise ValueError(
            f"{name} must be on {first.device} like {first_name}, got {tensor.device}"
        )
    # The kernel would read the bits as stored, without the pending sign.
    if tensor.is_neg():
        raise ValueError(f"{name} must not be a lazily negated view: call resolve_neg")
    interpreted = triton.knobs.runtime.interpret
    if tensor.device.type != "cuda" and not (
        interpreted and tensor.device.type == "cpu"
    ):
        raise ValueError(
            f"{name} must be on a CUDA device, or on the CPU with "
            f"TRITON_INTERPRET=1, got {tensor.device}"
        )


def _output(out, shape: tuple[int, int], dtype, allowed=DTYPES, **operands):
    first_name, first = next(iter(operands.items()))
    if out is None:
        return first.new_empty(shape, dtype=dtype)
    _check_tensor("out", out, allowed)
    _check_shape("out", out, shape, "the operands say")
    _check_place("out", out, first_name, first)
    if out.requires_grad and torch.is_grad_enabled():
        raise ValueError("out must not require grad: this call is not recorded")
    if _overlaps_itself(out):
        raise ValueError(f"out must not overlap itself, got strides {out.stride()}")
    for name, operand in operands.items():
        if _share_memory(out, operand):
            raise ValueError(f"out must not reach into the memory of {name}")
    return out


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may be one: the longer step does not clear a whole row."""
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    if not tensor.numel():
        return False
    clear = 1
    for stride, size in sorted((stride, size) for stride, size in steps if size > 1):
        if stride < clear:
            return True
        clear = stride * (size - 1) + 1
    return False


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the byte ranges that a and b reach into overlap."""
    if not a.numel() or not b.numel():
        return False
    (a_low, a_high), (b_low, b_high) = _reach(a), _reach(b)
    return a_low < b_high and b_low < a_high


def _reach(tensor: torch.Tensor) -> tuple[int, int]:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    low = tensor.data_ptr()
    return low, low + (last + 1) * tensor.itemsize
