"""Host side of the fast kernels: describe the operands, plan, allocate, launch.

`multiply` takes what `kernels.ops` takes, under the same rules, and gives the
same results. Where descriptors cannot take a tensor, pointers do.
"""

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels import device, ops
from kernels.fast.descriptor import descriptor_kernel
from kernels.fast.grouped import grouped_kernel
from kernels.fast.persistent import persistent_kernel
from kernels.fast.split import split_kernel
from kernels.fast.stream_k import stream_k_kernel, stream_k_reduce_kernel
from kernels.plan import (
    GROUP,
    FastPlan,
    Mode,
    Op,
    cdiv,
    fast_plan,
    has_descriptors,
    output_tiles,
    product_sizes,
)

OPERANDS = {"forward": ("x", "w"), "dx": ("dy", "w"), "dw": ("x", "dy")}
# Rows of a shared tile that one program of the stream-K reduction sums.
STRIP = 16


def multiply(
    op: Op,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    mode: Mode = "overwrite",
    plan: FastPlan | None = None,
) -> torch.Tensor:
    """Y = X·W, dX = dY·Wᵀ or dW = Xᵀ·dY, summed in fp32.

    a, b: X and W, dY and W, or X and dY; bf16, fp16 or fp32, alike, of any
    strides. out: where to write, for dW fp32, else any of the three; by default a
    new tensor. mode: "overwrite" it or, dW alone, "accumulate" into it. plan: by
    default what `kernels.plan.fast_plan` says, which is deterministic but for dW
    outside of torch.use_deterministic_algorithms.
    Raises TypeError for a dtype and ValueError for a shape, device, layout or plan
    that does not fit, before anything is allocated or launched.
    """
    if op not in OPERANDS:
        raise ValueError(f"op must be one of {tuple(OPERANDS)}, got {op!r}")
    operands = dict(zip(OPERANDS[op], (a, b), strict=True))
    if not _plainly_readable(a, b):
        ops._check_operands(**operands)
    if op == "forward":
        (T, K), N, left, right = a.shape, b.shape[1], a, b
        ops._check_shape("w", b, (K, N), "x is [T, K]")
    elif op == "dx":
        (T, N), K, left, right = a.shape, b.shape[0], a, b.T
        ops._check_shape("w", b, (K, N), "dy is [T, N]")
    else:
        (T, K), N, left, right = a.shape, b.shape[1], a.T, b
        ops._check_shape("dy", b, (T, N), "x is [T, K]")
    ops._check_choice("mode", mode, ("overwrite", "accumulate"))
    accumulate = mode == "accumulate"
    if accumulate and (op != "dw" or out is None):
        raise ValueError(
            'mode "accumulate" is for dW, with a gradient given as out, '
            f"got {op} and out {'given' if out is not None else 'None'}"
        )
    if op == "dw":
        dtype, allowed = torch.float32, (torch.float32,)
    else:
        dtype, allowed = a.dtype, ops.DTYPES
    shape = (left.shape[0], right.shape[1])
    fit = descriptor_fits(a) and descriptor_fits(b)
    if out is None:
        # A new tensor begins well; only its pitch is to be looked at.
        fit = fit and shape[1] * dtype.itemsize % 16 == 0
    else:
        fit = fit and isinstance(out, torch.Tensor) and descriptor_fits(out, True)
        if not (fit and _plainly_writable(out, shape, allowed, a, b)):
            ops._output(out, shape, dtype, allowed, **operands)
        dtype = out.dtype
    if plan is None:
        plan = _plan(op, (T, K, N), a, mode, dtype.itemsize, fit)
    else:
        _check_plan(plan, op, (T, K, N), fit)
    if out is None:
        out = a.new_empty(shape, dtype=dtype)
    if not out.numel():
        return out
    if not accumulate and plan.reduction == "atomic":
        out.zero_()
    with ops._on_device(out):
        LAUNCHES[plan.implementation](plan, left, right, out, accumulate)
    return out


def descriptor_fits(tensor: torch.Tensor, written: bool = False) -> bool:
    """Whether the copy engine can take tiles of a matrix as it lies in memory.

    Its elements must be adjacent along one axis, and step by a multiple of 16
    bytes, of less than 2⁴⁰, along the other, without overlap; it must begin at a
    multiple of 16 bytes; and no size may be 0, or 2³¹ or more. What is written must
    have adjacent elements of a multiple of 16 bytes in all.
    """
    if tensor.dim() != 2 or tensor.layout != torch.strided:
        return False
    (rows, columns), (pitch, step) = tensor.shape, tensor.stride()
    if step != 1:
        rows, columns, pitch, step = columns, rows, step, pitch
    pitch_bytes = pitch * tensor.itemsize
    return (
        step == 1
        and 0 < rows < 2**31
        and 0 < columns < 2**31
        and pitch >= columns
        and pitch_bytes % 16 == 0
        and pitch_bytes < 2**40
        and tensor.data_ptr() % 16 == 0
        # Loads end at the last element, stores fill its 16 bytes up with zeros.
        and not (written and columns * tensor.itemsize % 16)
    )


def _plainly_readable(a, b) -> bool:
    """Whether operands pass without the longer questions of `kernels.ops`."""
    return (
        isinstance(a, torch.Tensor)
        and isinstance(b, torch.Tensor)
        and a.is_cuda
        and a.device == b.device
        and a.dtype == b.dtype
        and (a.dtype == torch.float16 or a.dtype == torch.bfloat16)
        and a.dim() == b.dim() == 2
        and a.layout == b.layout == torch.strided
        and not a.is_neg()
        and not b.is_neg()
        and has_descriptors(device.facts(a.device.index))
    )


def _plainly_writable(out, shape, allowed, a, b) -> bool:
    """Whether descriptors' out passes without the longer questions of `kernels.ops`."""
    low, high = _reach(out)
    a_low, a_high = _reach(a)
    b_low, b_high = _reach(b)
    return (
        out.shape == shape
        and out.dtype in allowed
        and out.device == a.device
        and not out.requires_grad
        and not out.is_neg()
        and (high <= a_low or a_high <= low)
        and (high <= b_low or b_high <= low)
    )


def _reach(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes from the first element of a matrix to behind its last."""
    (rows, columns), (down, across) = tensor.shape, tensor.stride()
    low, last = tensor.data_ptr(), (rows - 1) * down + (columns - 1) * across
    return low, low + (last + 1) * tensor.itemsize


def _plan(op, shape, a, mode, out_itemsize, fit) -> FastPlan:
    on_cpu = a.device.type == "cpu"
    where = device.INTERPRETER if on_cpu else device.facts(a.device.index)
    return fast_plan(
        op,
        shape,
        a.itemsize,
        where,
        mode=mode,
        out_itemsize=out_itemsize,
        descriptors=fit,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )


def _check_plan(plan: FastPlan, op: Op, shape: tuple[int, int, int], fit: bool) -> None:
    if plan.op != op or plan.tiles != output_tiles(op, shape, plan.tile):
        raise ValueError(
            f"plan must be one of {op} at {shape}, got one of {plan.op} with "
            f"{plan.tiles} tiles"
        )
    if plan.reduction != "none" and op != "dw":
        raise ValueError(f"plan must not reduce {op}, got {plan.reduction!r}")
    shares = plan.split_t > 1 or plan.implementation == "stream_k"
    if plan.reduction == "none" and shares:
        raise ValueError(
            f"plan must reduce what its programs share, got {plan.reduction!r}"
        )
    if plan.implementation != "grouped" and not fit:
        raise ValueError(
            "plan must be grouped, as descriptors cannot take these tensors, "
            f"got {plan.implementation!r}"
        )


def _blocks(plan: FastPlan) -> tuple[int, int, int]:
    """Block sizes along the rows, columns and depth of the product."""
    tile = plan.tile
    return product_sizes(plan.op, (tile.block_t, tile.block_k, tile.block_n))


def _described(plan, left, right, out):
    """Descriptors and constants of a launch, of an out whose rows lie in a line.

    An out that lies the other way is the product of the transposed operands in
    the opposite order, written in rows.
    """
    block_rows, block_columns, block_depth = _blocks(plan)
    if out.stride(1) != 1:
        left, right, out = right.T, left.T, out.T
        block_rows, block_columns = block_columns, block_rows
    left_swapped, right_swapped = left.stride(1) != 1, right.stride(1) != 1
    constants = {
        "LEFT_SWAPPED": left_swapped,
        "RIGHT_SWAPPED": right_swapped,
        "BLOCK_ROWS": block_rows,
        "BLOCK_COLUMNS": block_columns,
        "BLOCK_DEPTH": block_depth,
        "PARTS": plan.parts,
        "GROUP": GROUP,
        "PRECISION": ops._precision(),
        "num_warps": plan.tile.num_warps,
        "num_stages": plan.tile.num_stages,
    }
    sizes = (*out.shape, left.shape[1])
    left = _descriptor(left, block_rows, block_depth, left_swapped)
    right = _descriptor(right, block_depth, block_columns, right_swapped)
    return left, right, out, sizes, constants


def _descriptor(matrix, block_rows, block_columns, swapped=False) -> TensorDescriptor:
    """Of blocks of a matrix; of a swapped one, as it is stored."""
    # Made without its constructor, which would look once more, at every launch, at
    # all that descriptor_fits has seen.
    made = TensorDescriptor.__new__(TensorDescriptor)
    made.base, made.shape, made.strides = matrix, matrix.shape, matrix.stride()
    made.block_shape = [block_rows, block_columns]
    if swapped:
        made.shape, made.strides = made.shape[::-1], made.strides[::-1]
        made.block_shape = [block_columns, block_rows]
    return made


def _out_descriptor(out, constants) -> TensorDescriptor:
    columns = constants["BLOCK_COLUMNS"] // constants["PARTS"]
    return _descriptor(out, constants["BLOCK_ROWS"], columns)


def _launch_grouped(plan, left, right, out, accumulate) -> None:
    block_rows, block_columns, block_depth = _blocks(plan)
    target, strides = out, (0, *out.stride())
    if plan.reduction == "workspace":
        target = out.new_empty((plan.split_t, *out.shape))
        strides = target.stride()
    grouped_kernel[(plan.tiles, plan.split_t)](
        left,
        right,
        target,
        *out.shape,
        left.shape[1],
        *left.stride(),
        *right.stride(),
        *strides,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        BLOCK_DEPTH=block_depth,
        GROUP=GROUP,
        PRECISION=ops._precision(),
        ADD=_adds(plan, accumulate),
        num_warps=plan.tile.num_warps,
        num_stages=plan.tile.num_stages,
    )
    if plan.reduction == "workspace":
        ops._reduce(target, out, accumulate)


def _launch_descriptor(plan, left, right, out, accumulate) -> None:
    left, right, out, sizes, constants = _described(plan, left, right, out)
    descriptor_kernel[(plan.tiles,)](
        left,
        right,
        _out_descriptor(out, constants),
        *sizes,
        **constants,
        ADD=accumulate,
    )


def _launch_persistent(plan, left, right, out, accumulate) -> None:
    left, right, out, sizes, constants = _described(plan, left, right, out)
    persistent_kernel[(plan.programs,)](
        left,
        right,
        _out_descriptor(out, constants),
        *sizes,
        **constants,
        ADD=accumulate,
    )


def _launch_split(plan, left, right, out, accumulate) -> None:
    left, right, out, sizes, constants = _described(plan, left, right, out)
    target = out
    if plan.reduction == "workspace":
        # Slices of whole tiles, or the last tiles of one would reach into the next.
        rows, columns = constants["BLOCK_ROWS"], constants["BLOCK_COLUMNS"]
        rows *= cdiv(sizes[0], rows)
        columns *= cdiv(sizes[1], columns)
        target = out.new_empty((plan.split_t * rows, columns))
    split_kernel[(plan.tiles, plan.split_t)](
        left,
        right,
        _out_descriptor(target, constants),
        *sizes,
        **constants,
        ADD=_adds(plan, accumulate),
    )
    if plan.reduction == "workspace":
        slices = target.as_strided(
            (plan.split_t, *out.shape), (rows * columns, columns, 1)
        )
        ops._reduce(slices, out, accumulate)


def _launch_stream_k(plan, left, right, out, accumulate) -> None:
    left, right, out, sizes, constants = _described(plan, left, right, out)
    rest = plan.tiles % plan.programs
    target = _out_descriptor(out, constants)
    in_workspace = plan.reduction == "workspace" and rest > 0
    shares = target
    if in_workspace:
        rows, columns = constants["BLOCK_ROWS"], constants["BLOCK_COLUMNS"]
        workspace = out.new_empty(((plan.programs + rest) * rows, columns))
        shares = _out_descriptor(workspace, constants)
    stream_k_kernel[(plan.programs,)](
        left,
        right,
        target,
        shares,
        *sizes,
        **constants,
        ADD=_adds(plan, accumulate),
        WORKSPACE=plan.reduction == "workspace",
    )
    if in_workspace:
        stream_k_reduce_kernel[(rest, cdiv(rows, STRIP))](
            workspace,
            out,
            *sizes,
            plan.programs,
            *out.stride(),
            BLOCK_ROWS=rows,
            BLOCK_COLUMNS=columns,
            BLOCK_DEPTH=constants["BLOCK_DEPTH"],
            STRIP=STRIP,
            GROUP=GROUP,
            ACCUMULATE=accumulate,
        )


def _adds(plan: FastPlan, accumulate: bool) -> bool:
    """Whether the kernel adds into what it writes to, and does not store."""
    if plan.implementation == "stream_k" and plan.reduction == "workspace":
        return accumulate  # whole tiles go to the gradient itself
    return plan.reduction == "atomic" or (plan.reduction == "none" and accumulate)


LAUNCHES = {
    "grouped": _launch_grouped,
    "descriptor": _launch_descriptor,
    "persistent": _launch_persistent,
    "split": _launch_split,
    "stream_k": _launch_stream_k,
}
