"""The host API: validate, plan, allocate, launch.

`matmul`, `matmul_dx` and `matmul_dw` take 2-D tensors of any strides and any
size, 0 and 1 included, on any CUDA device (or on the CPU under Triton's
interpreter, TRITON_INTERPRET=1). They read operands where they lie, but for
copies that the fast kernels make for the copy engine; never tune; and own the
initialisation of everything they return. They are no autograd functions: they
are what one calls.

Each launches one of two implementations, with the same contract: "fast", the
kernels under kernels/fast as planned for the shape, or "lesson", the kernels
beside this file, which alone take a tile and a split.
"""

from typing import Literal

import torch

from kernels import device, host
from kernels.dw import dw_kernel
from kernels.dx import dx_kernel
from kernels.fast.ops import multiply
from kernels.forward import forward_kernel
from kernels.plan import Mode, Plan, Reduction, Tile, plan, shared_memory_bytes

Implementation = Literal["fast", "lesson"]
# cuLaunchKernel takes up to 65535 programs along the grid's second axis.
MAX_GRID_Y = 65535
# Of a program: 1024 threads.
MAX_WARPS = 32


def matmul(
    x: torch.Tensor,
    w: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    implementation: Implementation | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:
    """Y[T, N] = X[T, K] · W[K, N], summed in fp32.

    x, w: bf16, fp16 or fp32, alike. out: where to write, [T, N] of one of the
    three; by default a new tensor of x's dtype. implementation: "fast" by default,
    or "lesson", which takes block sizes as tile; a tile given asks for it. fp32
    products follow torch.backends.cuda.matmul.fp32_precision.
    Raises TypeError for a dtype and ValueError for a shape, device or layout
    that does not fit, before anything is allocated or launched.
    """
    if _is_fast(implementation, tile):
        return multiply("forward", x, w, out=out)
    host.check_operands(x=x, w=w)
    (T, K), N = x.shape, w.shape[1]
    host.check_shape("w", w, (K, N), "x is [T, K]")
    _check_tile(tile)
    p = _plan("forward", (T, K, N), x, tile=tile)
    out = host.output(out, (T, N), x.dtype, x=x, w=w)
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
    implementation: Implementation | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:
    """dX[T, K] = dY[T, N] · W[K, N]ᵀ, summed in fp32; W is not transposed.

    dy, w: bf16, fp16 or fp32, alike. out: where to write, [T, K] of one of the
    three; by default a new tensor of dy's dtype. implementation, tile, precision
    and errors as in `matmul`.
    """
    if _is_fast(implementation, tile):
        return multiply("dx", dy, w, out=out)
    host.check_operands(dy=dy, w=w)
    (T, N), K = dy.shape, w.shape[0]
    host.check_shape("w", w, (K, N), "dy is [T, N]")
    _check_tile(tile)
    p = _plan("dx", (T, K, N), dy, tile=tile)
    out = host.output(out, (T, K), dy.dtype, dy=dy, w=w)
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
    implementation: Implementation | None = None,
    split_t: int | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:
    """dW[K, N] = X[T, K]ᵀ · dY[T, N] in fp32; X is not transposed.

    x, dy: bf16, fp16 or fp32, alike. out: the fp32 gradient [K, N]; by default
    a new tensor. mode: "overwrite" it, or "accumulate" into it (out needed).
    reduction: how programs that share a tile bring their sums together: "none"
    (none does), "atomic" (order of arrival, bits may differ between runs) or
    "workspace" (fixed order, bit-identical); by default "atomic", or "workspace"
    under torch.use_deterministic_algorithms. The fast kernels share tiles where
    that is expected to end sooner, the lesson's take split_t programs a tile.
    implementation, tile, precision and errors as in `matmul`; a split_t given asks
    for the lesson's kernels, too.
    """
    if _is_fast(implementation, tile, split_t):
        return multiply("dw", x, dy, out=out, mode=mode, reduction=reduction)
    host.check_operands(x=x, dy=dy)
    (T, K), N = x.shape, dy.shape[1]
    host.check_shape("dy", dy, (T, N), "x is [T, K]")
    _check_tile(tile)
    host.check_choice("mode", mode, ("overwrite", "accumulate"))
    if mode == "accumulate" and out is None:
        raise ValueError("out must be given to accumulate into, it is None")
    if reduction is not None:
        host.check_choice("reduction", reduction, ("none", "atomic", "workspace"))
    if split_t is not None and not (
        isinstance(split_t, int) and 1 <= split_t <= MAX_GRID_Y
    ):
        raise ValueError(f"split_t must be 1 to {MAX_GRID_Y}, got {split_t!r}")
    if reduction == "none" and split_t not in (None, 1):
        raise ValueError(f'split_t must be 1 for reduction "none", got {split_t}')
    p = _plan("dw", (T, K, N), x, tile=tile, split_t=split_t, reduction=reduction)
    out = host.output(out, (K, N), torch.float32, (torch.float32,), x=x, dy=dy)
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
        host.sum_slices(target, out, accumulate)
    return out


def _is_fast(implementation: Implementation | None, tile, split_t=None) -> bool:
    """Whether the fast kernels are asked for; a tile or split asks for the lesson's."""
    if implementation is None:
        return tile is None and split_t is None
    host.check_choice("implementation", implementation, ("fast", "lesson"))
    for name, given in (("tile", tile), ("split_t", split_t)):
        if given is not None and implementation == "fast":
            raise ValueError(f'{name} must not be given for implementation "fast"')
    return implementation == "fast"


def _plan(op: str, shape: tuple[int, int, int], x: torch.Tensor, **choices) -> Plan:
    where = (
        device.INTERPRETER if x.device.type == "cpu" else device.facts(x.device.index)
    )
    deterministic = torch.are_deterministic_algorithms_enabled()
    p = plan(op, shape, x.itemsize, where, deterministic=deterministic, **choices)
    if any(2**31 - max(_blocks(p.tile)) < size < 2**31 for size in shape):
        raise ValueError(
            f'implementation must be "fast" for a size less than a block below 2³¹, '
            f"where blocks cannot be counted in 32 bits, got T, K, N = {shape}"
        )
    need = shared_memory_bytes(op, p.tile, x.itemsize)
    if need > where.shared_memory_per_program_bytes:
        raise ValueError(
            f"tile must fit {where.shared_memory_per_program_bytes} bytes of shared "
            f"memory a program, {p.tile} takes {need}"
        )
    return p


def _launch(kernel, p: Plan, tensors: tuple, numbers: tuple, **constants) -> None:
    if not p.tiles:
        return
    tile = p.tile
    with host.on_device(tensors[0]):
        kernel[(p.tiles, p.split_t)](
            *tensors,
            *numbers,
            BLOCK_T=tile.block_t,
            BLOCK_K=tile.block_k,
            BLOCK_N=tile.block_n,
            PRECISION=host.precision(),
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
            **constants,
        )


def _check_tile(tile: Tile | None) -> None:
    """Limits of Triton, whose blocks are powers of two, in tl.dot from 16, and CUDA."""
    if tile is None:
        return
    if not isinstance(tile, Tile):
        raise TypeError(f"tile must be a Tile, got {type(tile).__name__}")
    numbers = (*_blocks(tile), tile.num_warps, tile.num_stages)
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError(f"tile must be of integers, got {tile}")
    for least, sizes in ((16, _blocks(tile)), (1, (tile.num_warps,))):
        if any(size < least or size & (size - 1) for size in sizes):
            raise ValueError(
                f"tile must have blocks of powers of two from 16 and warps of powers "
                f"of two, got {tile}"
            )
    if tile.num_warps > MAX_WARPS:
        raise ValueError(f"tile must have at most {MAX_WARPS} warps, got {tile}")
    if tile.num_stages < 1:
        raise ValueError(f"tile must have at least one stage, got {tile}")


def _blocks(tile: Tile) -> tuple[int, int, int]:
    return tile.block_t, tile.block_k, tile.block_n
