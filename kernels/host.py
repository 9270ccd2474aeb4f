"""What every launch has in common: the contracts of its tensors, precision, device.

Contracts are one sentence each, which names the argument and what was expected.
"""

import contextlib

import torch
import triton
from torch.autograd.graph import increment_version

from kernels.plan import cdiv
from kernels.reduce import reduce_kernel

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
REDUCE_BLOCK_K, REDUCE_BLOCK_N = 16, 128


def sum_slices(workspace: torch.Tensor, out: torch.Tensor, accumulate: bool) -> None:
    """out[K, N] = Σ workspace[split_t, K, N] in order, plus out itself if asked."""
    split_t, K, N = workspace.shape
    tiles = cdiv(K, REDUCE_BLOCK_K) * cdiv(N, REDUCE_BLOCK_N)
    if not tiles:
        return
    with on_device(out):
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


def precision() -> str:
    """How fp32 products are rounded: what the framework is set to."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def on_device(tensor: torch.Tensor):
    # Triton launches on the current device, wherever its tensors are.
    if tensor.device.type == "cpu":
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def check_choice(name: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {given!r}")


def check_shape(name: str, tensor: torch.Tensor, shape: tuple, because: str) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"{name} must be {list(shape)} as {because}, got {list(tensor.shape)}"
        )


def check_tensor(name: str, tensor, allowed: tuple[torch.dtype, ...]) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a strided tensor, got {tensor.layout}")
    if tensor.dtype not in allowed:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        raise TypeError(f"{name} must be of {names}, got {tensor.dtype}")


def check_operands(**tensors: torch.Tensor) -> None:
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        check_tensor(name, tensor, DTYPES)
        if tensor.dim() != 2:
            raise ValueError(f"{name} must have 2 dimensions, got {list(tensor.shape)}")
        if tensor.dtype != first.dtype:
            raise TypeError(
                f"{name} must be {first.dtype} like {first_name}, got {tensor.dtype}"
            )
        check_place(name, tensor, first_name, first)
    if first.device.type == "cuda" and first.dtype == torch.bfloat16:
        capability = torch.cuda.get_device_capability(first.device)
        if capability < (8, 0):
            raise TypeError(
                f"{first_name} is bfloat16, which needs compute capability 8.0, "
                f"this device has {capability[0]}.{capability[1]}"
            )


def check_place(name, tensor, first_name, first) -> None:
    if tensor.device != first.device:
        raise ValueError(
            f"{name} must be on {first.device} like {first_name}, got {tensor.device}"
        )
    # The kernel would read the bits as stored, without the pending sign.
    if tensor.is_neg():
        raise ValueError(f"{name} must not be a lazily negated view: call resolve_neg")
    place = tensor.device.type
    if place != "cuda" and not (place == "cpu" and triton.knobs.runtime.interpret):
        raise ValueError(
            f"{name} must be on a CUDA device, or on the CPU with "
            f"TRITON_INTERPRET=1, got {tensor.device}"
        )


def check_memory(**tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        if not has_memory(tensor):
            raise ValueError(f"{name} must have memory, its storage was freed")


def has_memory(tensor: torch.Tensor) -> bool:
    # Sharded training frees it for a while; a kernel would read at address 0.
    return tensor.data_ptr() != 0 or not tensor.numel()


def output(out, shape: tuple[int, int], dtype, allowed=DTYPES, **operands):
    """The tensor to write: out as checked, or a new one."""
    check_output(out, shape, allowed, **operands)
    if out is None:
        return next(iter(operands.values())).new_empty(shape, dtype=dtype)
    increment_version(out)
    return out


def check_output(out, shape: tuple[int, int], allowed=DTYPES, **operands) -> None:
    if out is None:
        return check_memory(**operands)
    first_name, first = next(iter(operands.items()))
    check_tensor("out", out, allowed)
    check_shape("out", out, shape, "the operands say")
    check_place("out", out, first_name, first)
    if out.requires_grad and torch.is_grad_enabled():
        raise ValueError("out must not require grad: this call is not recorded")
    check_written("out", out, **operands)


def check_written(name: str, out: torch.Tensor, **operands: torch.Tensor) -> None:
    check_memory(**operands, **{name: out})
    if _overlaps_itself(out):
        raise ValueError(f"{name} must not overlap itself, got strides {out.stride()}")
    for other, operand in operands.items():
        if _share_memory(out, operand):
            raise ValueError(f"{name} must not reach into the memory of {other}")


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may be one: the longer step does not clear a whole row."""
    if not tensor.numel() or tensor.is_contiguous():
        return False
    steps = zip(tensor.stride(), tensor.shape, strict=True)
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
    low = tensor.data_ptr()
    return low, low + extent(tensor)


def extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element to behind the last; strides are not negative."""
    if not tensor.numel() or tensor.is_contiguous():
        return tensor.nbytes
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (sum((size - 1) * stride for size, stride in steps) + 1) * tensor.itemsize
