"""Host side of the fast kernels: describe the operands, plan, allocate, launch.

`multiply` is what the public functions of `kernels.ops` run by default, under the
contract that they state. A tensor that descriptors cannot take is copied to rows
that they can, or pointers serve, whichever ends first by the plan.

All that a launch needs to know of its tensors but where they lie is worked out once
and kept, with what was compiled: a call of known shapes and strides only describes
them and launches.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import torch
import triton
from torch.autograd.graph import increment_version
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels import device, host
from kernels.fast import tuned
from kernels.fast.descriptor import descriptor_kernel
from kernels.fast.grouped import grouped_kernel
from kernels.fast.pad import copy_kernel, pad_kernel
from kernels.fast.persistent import persistent_kernel
from kernels.fast.pitched import pitched_kernel
from kernels.fast.shares import shares_kernel
from kernels.fast.split import split_kernel
from kernels.fast.stream_k import stream_k_kernel
from kernels.fast.zero import zero_kernel
from kernels.plan import (
    BY_POINTERS,
    COPIED,
    GROUP,
    LINE_BYTES,
    FastKernel,
    FastPlan,
    Layout,
    Mode,
    Op,
    Reduction,
    cdiv,
    counted_parts,
    fast_plan,
    fast_shared_memory_bytes,
    has_descriptors,
    output_tiles,
    product_sizes,
    shared_memory_bytes,
    stored_bytes,
)

OPERANDS = {"forward": ("x", "w"), "dx": ("dy", "w"), "dw": ("x", "dy")}
# Rows of a tile that one program clears, and elements of which one sums the shares;
# words that one program pads with, and elements that one copies.
STRIP, SUMMED = 16, 1024
PADDED, COPY_BLOCK = 1024, (4, 256)
# Of prepared launches that are kept; then they are forgotten all at once.
KEPT = 4096
# Elements of 16 bits that one instruction loads, at most.
WIDEST = 8
# Of a size whose last block, which may reach beyond it, still ends within 32 bits.
LARGEST = 2**31 - 256


@dataclass(frozen=True, slots=True)
class Prepared:
    """A launch but for the places of its tensors.

    run: launches it on a, b and out. shape, dtype: of a new output. zeroed: whether
    an output must be zeros by then. extents: bytes that a, b and out reach over.
    """

    run: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
    plan: FastPlan
    shape: tuple[int, int]
    dtype: torch.dtype
    zeroed: bool
    extents: tuple[int, int, int]


_prepared: dict[tuple, Prepared] = {}


def multiply(
    op: Op,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    mode: Mode = "overwrite",
    reduction: Reduction | None = None,
    plan: FastPlan | None = None,
) -> torch.Tensor:
    """Y = X·W, dX = dY·Wᵀ or dW = Xᵀ·dY, summed in fp32.

    a, b: X and W, dY and W, or X and dY; bf16, fp16 or fp32, alike, of any
    strides. out: where to write, for dW fp32, else any of the three; by default a
    new tensor. mode: "overwrite" it or, dW alone, "accumulate" into it. reduction:
    of dW, as in `kernels.ops.matmul_dw`. plan: by default what
    `kernels.plan.fast_plan` says, or what `kernels.fast.tune.tune` found.
    Raises TypeError for a dtype and ValueError for a shape, device, layout or plan
    that does not fit, before anything is allocated or launched.
    """
    known = prepare(op, a, b, out=out, mode=mode, reduction=reduction, plan=plan)
    if out is None:
        new = a.new_zeros if known.zeroed else a.new_empty
        out = new(known.shape, dtype=known.dtype)
    else:
        if known.zeroed:
            out.zero_()
        increment_version(out)  # or autograd would take a changed out for what it saved
    if known.plan.tiles:
        index = out.device.index
        if index is None or index == torch.cuda.current_device():
            known.run(a, b, out)
        else:
            with host.on_device(out):
                known.run(a, b, out)
    return out


def prepare(
    op: Op,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    mode: Mode = "overwrite",
    reduction: Reduction | None = None,
    plan: FastPlan | None = None,
) -> Prepared:
    """The launch that `multiply` makes of the same arguments; errors as there."""
    if reduction is None and torch.are_deterministic_algorithms_enabled():
        reduction = "workspace"
    key = _key(op, mode, reduction, plan, a, b, out)
    try:
        known = _prepared.get(key)
    except TypeError:
        key = known = None  # what cannot be a key is no such choice, and is refused
    if known is None or not _plain(known, a, b, out):
        _check(op, a, b, out, mode, reduction)
        known = _prepare(op, a, b, out, mode, reduction, plan)
        if key is not None:
            if len(_prepared) >= KEPT:
                _prepared.clear()
            _prepared[key] = known
    return known


def descriptor_fits(tensor: torch.Tensor, written: bool = False) -> bool:
    """Whether the copy engine can take tiles of a matrix as it lies in memory.

    Its elements must be adjacent along one axis, and step by a multiple of 16
    bytes, of less than 2⁴⁰, along the other, without overlap; it must begin at a
    multiple of 16 bytes; and no size may be 0, or too large for blocks to be counted
    in 32 bits. What is written must have adjacent elements of a multiple of 16 bytes
    in all.
    """
    if tensor.dim() != 2 or tensor.layout != torch.strided:
        return False
    (rows, columns), (pitch, step) = tensor.shape, tensor.stride()
    if step != 1:
        rows, columns, pitch, step = columns, rows, step, pitch
    pitch_bytes = pitch * tensor.itemsize
    return (
        step == 1
        and 0 < rows <= LARGEST
        and 0 < columns <= LARGEST
        and pitch >= columns
        and pitch_bytes % 16 == 0
        and pitch_bytes < 2**40
        and tensor.data_ptr() % 16 == 0
        # Loads end at the last element, stores fill its 16 bytes up with zeros.
        and not (written and columns * tensor.itemsize % 16)
    )


def _key(op, mode, reduction, plan, a, b, out) -> tuple | None:
    """All that a prepared launch depends on; None for what lost its memory."""
    # Flat, and without loops for all but empty tensors: it is made at every call.
    try:
        a_low, b_low = a.data_ptr(), b.data_ptr()
        low = 16 if out is None else out.data_ptr()
        if not (a_low and b_low and low) and not all(
            tensor is None or host.has_memory(tensor) for tensor in (a, b, out)
        ):
            return None
        key = (
            op,
            mode,
            reduction,
            plan,
            a.shape,
            a.stride(),
            a.dtype,
            a.device,
            a_low % 16 == 0,
            b.shape,
            b.stride(),
            b.dtype,
            b.device,
            b_low % 16 == 0,
            host.precision() if a.dtype is torch.float32 else None,
        )
        if out is None:
            return key
        return key, out.shape, out.stride(), out.dtype, out.device, low % 16 == 0
    except (AttributeError, RuntimeError):
        return None


def _plain(known: Prepared, a, b, out) -> bool:
    """Whether there is nothing to ask of the tensors but what their key says."""
    if a.is_neg() or b.is_neg():
        return False
    if out is None:
        return True
    a_low, b_low, low = a.data_ptr(), b.data_ptr(), out.data_ptr()
    a_bytes, b_bytes, out_bytes = known.extents
    return not (
        (out.requires_grad and torch.is_grad_enabled())
        or out.is_neg()
        or (low < a_low + a_bytes and a_low < low + out_bytes)
        or (low < b_low + b_bytes and b_low < low + out_bytes)
    )


def _check(op, a, b, out, mode, reduction) -> None:
    host.check_choice("op", op, tuple(OPERANDS))
    host.check_choice("mode", mode, ("overwrite", "accumulate"))
    operands = dict(zip(OPERANDS[op], (a, b), strict=True))
    host.check_operands(**operands)
    if op == "forward":
        (T, K), N = a.shape, b.shape[1]
        host.check_shape("w", b, (K, N), "x is [T, K]")
    elif op == "dx":
        (T, N), K = a.shape, b.shape[0]
        host.check_shape("w", b, (K, N), "dy is [T, N]")
    else:
        (T, K), N = a.shape, b.shape[1]
        host.check_shape("dy", b, (T, N), "x is [T, K]")
    if mode == "accumulate" and op != "dw":
        raise ValueError(f'mode must be "overwrite" for {op}, got {mode!r}')
    if mode == "accumulate" and out is None:
        raise ValueError("out must be given to accumulate into, it is None")
    if reduction is not None:
        host.check_choice("reduction", reduction, ("none", "atomic", "workspace"))
    shape = {"forward": (T, N), "dx": (T, K), "dw": (K, N)}[op]
    allowed = (torch.float32,) if op == "dw" else host.DTYPES
    host.check_output(out, shape, allowed, **operands)


def _prepare(op, a, b, out, mode, reduction, plan) -> Prepared:
    shape = _product_shape(op, a, b)
    dtype = torch.float32 if op == "dw" else a.dtype
    strides = (shape[1], 1)
    if out is not None:
        dtype, strides = out.dtype, out.stride()
    asked = question(op, a, b, out, mode, reduction)
    if plan is None:
        found = tuned.find(asked, a, b, dtype, strides)
        plan = found or fast_plan(**asked)
    else:
        _check_plan(plan, asked)
    accumulate = mode == "accumulate"
    # Exact for 16 bits, whatever the framework is set to.
    precision = host.precision() if a.dtype == torch.float32 else "ieee"
    launch = (plan, a, b, shape, strides, accumulate, precision)
    # A kernel may begin, and multiply, before the gradient has been cleared, and the
    # one that sums its shares be at hand before its end: programmatic dependent
    # launch, which came with the copy engine and which the interpreter does not have.
    early = has_descriptors(asked["device"]) and not triton.knobs.runtime.interpret
    if plan.kernel == "grouped":
        run = _grouped(*launch)
    elif plan.kernel == "pitched":
        run = _pitched(*launch, _begins(out))
    else:
        copied = (*COPIED[plan.copied], False)
        fits = _fits(op, a, b, out)
        taken = [fit and not one for fit, one in zip(fits, copied, strict=True)]
        if all(taken):
            run = _by_descriptors(*launch, early)
        else:
            run = _padded(taken, *launch, early)
    return Prepared(
        run=run,
        plan=plan,
        shape=shape,
        dtype=dtype,
        zeroed=plan.kernel in BY_POINTERS and not accumulate and _shared(plan),
        extents=tuple(
            0 if tensor is None else host.extent(tensor) for tensor in (a, b, out)
        ),
    )


def _fits(op, a, b, out) -> tuple[bool, bool, bool]:
    """Whether descriptors take a, b and out as they are."""
    if out is None:
        # A new tensor begins well; only its pitch is to be looked at.
        columns = _product_shape(op, a, b)[1]
        out_fits = columns * (4 if op == "dw" else a.itemsize) % 16 == 0
    else:
        out_fits = descriptor_fits(out, written=True)
    return descriptor_fits(a), descriptor_fits(b), out_fits


def question(op, a, b, out, mode, reduction) -> dict:
    """What `fast_plan` and `ranked_plans` are asked of a product into out or, if None,
    a new tensor."""
    on_cpu = a.device.type == "cpu"
    columns = _product_shape(op, a, b)[1]
    itemsize = 4 if op == "dw" else a.itemsize
    strides = (columns, 1)
    if out is not None:
        itemsize, strides = out.itemsize, out.stride()
    *operands_fit, out_fits = _fits(op, a, b, out)
    left, right = _factors(op, a, b)
    return {
        "op": op,
        "shape": _sizes(op, a, b),
        "itemsize": a.itemsize,
        "device": device.INTERPRETER if on_cpu else device.facts(a.device.index),
        "mode": mode,
        "out_itemsize": itemsize,
        "reduction": reduction,
        "layout": Layout(
            # Sizes alone cannot be mended by a copy.
            descriptors=max(_sizes(op, a, b)) <= LARGEST,
            steps=tuple(
                math.gcd(max(one.stride()) * one.itemsize, LINE_BYTES) if fit else 0
                for one, fit in zip((a, b), operands_fit, strict=True)
            ),
            out_fits=out_fits,
            widths=_widths(left, right, _units(left, right, strides, _begins(out))),
        ),
    }


def _begins(tensor: torch.Tensor | None) -> bool:
    """Whether it begins where the widest loads may, as a new tensor does."""
    return tensor is None or tensor.data_ptr() % 16 == 0


def _units(left, right, strides, begins) -> tuple[int, int, int] | None:
    """Elements by which all steps that is adjacent along rows, columns and depth.

    Of the operands, and of an out of these strides; None where the elements of one
    of them are adjacent along neither axis.
    """
    (rows, depth), columns = left.shape, right.shape[1]
    steps = ([], [], [])
    for first, second, (down, across), aligned in (
        (0, 2, left.stride(), _begins(left)),
        (2, 1, right.stride(), _begins(right)),
        (0, 1, strides, begins),
    ):
        if 1 not in (down, across):
            return None
        axis, pitch = (second, down) if across == 1 else (first, across)
        steps[axis].extend((pitch, (rows, columns, depth)[axis], WIDEST * aligned or 1))
    return tuple(math.gcd(WIDEST, *found) if found else 1 for found in steps)


def _widths(left, right, units) -> tuple[int, int]:
    """Elements of left and right that one load may take."""
    if units is None:
        return 0, 0
    rows, columns, depth = units
    left_width = depth if left.stride(1) == 1 else rows
    return left_width, columns if right.stride(1) == 1 else depth


def _sizes(op, a, b) -> tuple[int, int, int]:
    """T, K and N."""
    return (a.shape[0], *b.shape) if op == "dx" else (*a.shape, b.shape[1])


def _product_shape(op, a, b) -> tuple[int, int]:
    left, right = _factors(op, a, b)
    return left.shape[0], right.shape[1]


def _factors(op, a, b) -> tuple[torch.Tensor, torch.Tensor]:
    """Left [ROWS, DEPTH] and right [DEPTH, COLUMNS]; transposed, they are views."""
    return a.T if op == "dw" else a, b.T if op == "dx" else b


def _check_plan(plan: FastPlan, asked: dict) -> None:
    if not isinstance(plan, FastPlan):
        raise TypeError(f"plan must be a FastPlan, got {type(plan).__name__}")
    host.check_choice("plan.kernel", plan.kernel, get_args(FastKernel))
    host.check_choice("plan.copied", plan.copied, tuple(COPIED))
    op, shape, device = asked["op"], asked["shape"], asked["device"]
    layout = asked["layout"]
    if plan.op != op or plan.tiles != output_tiles(op, shape, plan.tile):
        raise ValueError(
            f"plan must be one of {op} at {shape}, got one of {plan.op} with "
            f"{plan.tiles} tiles"
        )
    if plan.reduction == "atomic" and op != "dw":
        raise ValueError(f"plan must not add into {op}, got {plan.reduction!r}")
    shares = plan.split_t > 1 or plan.kernel == "stream_k"
    if plan.reduction == "none" and shares:
        raise ValueError(
            f"plan must reduce what its programs share, got {plan.reduction!r}"
        )
    if plan.reduction != "none" and plan.kernel in ("descriptor", "persistent"):
        raise ValueError(
            f'plan must have reduction "none" for {plan.kernel!r}, whose tiles have '
            f"one owner, got {plan.reduction!r}"
        )
    if asked["reduction"] not in (None, plan.reduction) and plan.reduction != "none":
        raise ValueError(
            f"plan must reduce by {asked['reduction']!r} as asked for, "
            f"got {plan.reduction!r}"
        )
    if plan.tiles and min(plan.programs, plan.split_t) < 1:
        raise ValueError(
            f"plan must have programs, got {plan.programs} and split_t {plan.split_t}"
        )
    if plan.kernel == "pitched" and not min(layout.widths):
        raise ValueError(
            "plan must be grouped, as elements of a tensor are adjacent along no axis, "
            f"got {plan.kernel!r}"
        )
    by_descriptors = plan.kernel not in BY_POINTERS
    if by_descriptors and not (layout.descriptors and min(shape)):
        raise ValueError(
            "plan must be grouped, as descriptors cannot take these sizes, "
            f"got {plan.kernel!r}"
        )
    limit = device.shared_memory_per_program_bytes
    if not by_descriptors:
        need = shared_memory_bytes(op, plan.tile, asked["itemsize"])
    else:
        stored = stored_bytes(op, plan.kernel, asked["out_itemsize"])
        parts = counted_parts(plan.parts, device)
        sizes = plan.tile.num_stages, parts, asked["itemsize"], stored
        need = fast_shared_memory_bytes(_blocks(plan), *sizes)
    if need > limit:
        raise ValueError(
            f"plan must fit {limit} bytes of shared memory a program, {plan.tile} "
            f"takes {need}"
        )


def _blocks(plan: FastPlan) -> tuple[int, int, int]:
    """Block sizes along the rows, columns and depth of the product."""
    tile = plan.tile
    return product_sizes(plan.op, (tile.block_t, tile.block_k, tile.block_n))


def _constants(plan, blocks, accumulate, precision) -> dict:
    """What the kernels that multiply are all compiled for."""
    rows, columns, depth = blocks
    return {
        "BLOCK_ROWS": rows,
        "BLOCK_COLUMNS": columns,
        "BLOCK_DEPTH": depth,
        "GROUP": GROUP,
        "PRECISION": precision,
        "ADD": _adds(plan, accumulate),
        "num_warps": plan.tile.num_warps,
        "num_stages": plan.tile.num_stages,
    }


def _grouped(plan, a, b, shape, strides, accumulate, precision):
    """A launch by pointers, of tensors of any strides."""
    left, right = _factors(plan.op, a, b)
    sizes = (*shape, left.shape[1], *left.stride(), *right.stride())
    constants = _constants(plan, _blocks(plan), accumulate, precision)
    steps, launch = (strides, (shape[1], 1)), (plan, shape, accumulate)
    return _by_pointers(grouped_kernel, sizes, steps, constants, *launch)


def _pitched(plan, a, b, shape, strides, accumulate, precision, begins):
    """A launch by pointers, of tensors whose elements are adjacent along an axis."""
    inner = _in_rows(plan, a, b, shape, strides)
    exchanged, left, right, shape, strides, blocks = inner
    units = row_unit, column_unit, depth_unit = _units(left, right, strides, begins)
    left_unit, right_unit = _widths(left, right, units)
    constants = {
        "LEFT_SWAPPED": left.stride(1) != 1,
        "RIGHT_SWAPPED": right.stride(1) != 1,
        "ROW_UNIT": row_unit,
        "COLUMN_UNIT": column_unit,
        "DEPTH_UNIT": depth_unit,
        **_constants(plan, blocks, accumulate, precision),
    }
    sizes = (
        shape[0] // row_unit,
        shape[1] // column_unit,
        left.shape[1] // depth_unit,
        _pitch(left) // left_unit,
        _pitch(right) // right_unit,
    )
    steps = (strides[0] // column_unit,), (shape[1] // column_unit,)
    launch = (plan, shape, accumulate)
    run = _by_pointers(pitched_kernel, sizes, steps, constants, *launch)
    return (lambda a, b, out: run(b, a, out.T)) if exchanged else run


def _pitch(matrix: torch.Tensor) -> int:
    down, across = matrix.stride()
    return down if across == 1 else across


def _by_pointers(kernel, sizes, steps, constants, plan, shape, accumulate):
    """Launches into out, by its own steps, or into a workspace, and sums that up."""
    grid, (own, dense) = (plan.tiles, plan.split_t), steps
    if plan.reduction != "workspace":
        return _launcher(kernel, grid, (*sizes, 0, *own), constants)
    size = shape[0] * shape[1]
    launch = _launcher(kernel, grid, (*sizes, size, *dense), constants)

    def run_in_workspace(a, b, out):
        slices = out.new_empty((plan.split_t, *shape), dtype=torch.float32)
        launch(a, b, slices)
        host.sum_slices(slices, out, accumulate)

    return run_in_workspace


def _in_rows(plan, a, b, shape, strides):
    """(exchanged, left, right, shape, strides, blocks) for an out in rows.

    An out that lies the other way is the product of the transposed operands in the
    opposite order, written in rows.
    """
    left, right = _factors(plan.op, a, b)
    rows, columns, depth = _blocks(plan)
    if strides[1] == 1:
        return False, left, right, shape, strides, (rows, columns, depth)
    shape, strides, blocks = shape[::-1], strides[::-1], (columns, rows, depth)
    return True, right.T, left.T, shape, strides, blocks


def _launcher(kernel, grid, numbers, constants) -> Callable[..., None]:
    """Launches a kernel on tensors or descriptors, then these numbers and constants.

    What it is compiled for follows from all that a prepared launch is known by. So
    its first launch gives the compiled kernel, and the later ones are of that, with no
    look at its arguments, as in Triton's tutorial on fused softmax
    (python/tutorials/02-fused-softmax.py).
    """
    again = None

    def launch(*tensors):
        nonlocal again
        if again:
            return again(*tensors)
        compiled = kernel[grid](*tensors, *numbers, **constants)
        if compiled is not None:  # as it is in the interpreter
            named = [constants[n] for n in kernel.arg_names if n in constants]
            run, rest = compiled[(*grid, 1, 1)[:3]], (*numbers, *named)

            def again(*tensors):
                run(*tensors, *rest)

    return launch


def _padded(taken, plan, a, b, shape, strides, accumulate, precision, early):
    """A launch by descriptors, with copies of what they do not take as it is.

    taken: whether they take a, b and out.
    """
    a_fits, b_fits, out_fits = taken
    if not a_fits:
        a = _roomy(a.shape, a.stride(), a.dtype)
    if not b_fits:
        b = _roomy(b.shape, b.stride(), b.dtype)
    if not out_fits:
        strides = _roomy(shape, strides, torch.float32).stride()
    adds = accumulate and out_fits
    like = plan, a, b, shape, strides, adds, precision, early
    run_fitting = _by_descriptors(*like)
    # What is kept of a call holds none of its tensors.
    a_strides, b_strides = a.stride(), b.stride()

    def run(a, b, out):
        if not a_fits:
            a = _copied(a, a_strides)
        if not b_fits:
            b = _copied(b, b_strides)
        if out_fits:
            return run_fitting(a, b, out)
        room = torch.empty_strided(shape, strides, dtype=out.dtype, device=out.device)
        run_fitting(a, b, room)
        _copy(room, out, accumulate)

    return run


def _roomy(shape, strides, dtype) -> torch.Tensor:
    """A tensor without memory, of rows, or columns, at a pitch of whole lines."""
    line = LINE_BYTES // dtype.itemsize
    swapped = strides[0] == 1 and strides[1] != 1
    pitch = cdiv(shape[0] if swapped else shape[1], line) * line
    strides = (1, pitch) if swapped else (pitch, 1)
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


def _copied(tensor: torch.Tensor, strides: tuple[int, int]) -> torch.Tensor:
    """The tensor in roomy rows, or columns."""
    made = torch.empty_strided(
        tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
    )
    source, target = (tensor, made) if strides[1] == 1 else (tensor.T, made.T)
    rows, columns = source.shape
    adjacent = source.stride(1) == 1 and source.stride(0) >= columns >= 4
    if tensor.itemsize != 2 or not adjacent:
        _copy(source, target)
        return made
    words = cdiv(columns, 4)
    # Rows of few words leave no threads idle.
    block_words = min(max(triton.next_power_of_2(words), 32), 128)
    block_rows = PADDED // block_words
    pad_kernel[(cdiv(rows, block_rows) * cdiv(words, block_words),)](
        source,
        target,
        rows,
        columns,
        source.stride(0),
        target.stride(0),
        BLOCK_ROWS=block_rows,
        BLOCK_WORDS=block_words,
    )
    return made


def _copy(source: torch.Tensor, target: torch.Tensor, add: bool = False) -> None:
    if target.stride(1) != 1:
        source, target = source.T, target.T
    blocks = zip(target.shape, COPY_BLOCK, strict=True)
    copy_kernel[(math.prod(cdiv(size, block) for size, block in blocks),)](
        source,
        target,
        *target.shape,
        *source.stride(),
        *target.stride(),
        BLOCK_ROWS=COPY_BLOCK[0],
        BLOCK_COLUMNS=COPY_BLOCK[1],
        ADD=add,
    )


def _by_descriptors(plan, a, b, shape, strides, accumulate, precision, early):
    """A launch of any other kernel, into an out whose rows lie in a line."""
    inner = _in_rows(plan, a, b, shape, strides)
    exchanged, left, right, shape, strides, blocks = inner
    rows, columns, depth = blocks
    constants = {
        "LEFT_SWAPPED": left.stride(1) != 1,
        "RIGHT_SWAPPED": right.stride(1) != 1,
        "PARTS": plan.parts,
        **_constants(plan, blocks, accumulate, precision),
    }
    sizes = (*shape, left.shape[1])
    described_left = _describer(left.shape, left.stride(), (rows, depth))
    described_right = _describer(right.shape, right.stride(), (depth, columns))
    part = (rows, columns // plan.parts)
    clear = None
    if plan.kernel in ("split", "stream_k"):
        constants |= {"WAIT": False, "EARLY": early and plan.reduction == "workspace"}
        constants["WORKSPACE"] = plan.reduction == "workspace"
    if _shared(plan) and not accumulate:
        clear = _zero(plan, sizes, (rows, columns), strides, early)
        if early:
            constants |= {"WAIT": True, "launch_pdl": True}
    launch = LAUNCHES[plan.kernel](plan, sizes, constants, part, strides, accumulate)

    def run(a, b, out):
        if exchanged:
            a, b, out = b, a, out.T
        if clear:
            clear(out)
        launch(described_left(a), described_right(b), out)

    return run


def _shared(plan: FastPlan) -> bool:
    """Whether programs add into one tile, which must begin as zeros."""
    if plan.kernel == "stream_k" and plan.tiles % plan.programs == 0:
        return False
    return plan.reduction == "atomic" and plan.tiles > 0


def _zero(plan, sizes, block, strides, early):
    """Clears the tiles of an output that its programs share."""
    first = 0
    if plan.kernel == "stream_k":
        first = plan.tiles // plan.programs * plan.programs
    grid = (plan.tiles - first, cdiv(block[0], STRIP))
    constants = {
        "BLOCK_ROWS": block[0],
        "BLOCK_COLUMNS": block[1],
        "STRIP": STRIP,
        "GROUP": GROUP,
        "EARLY": early,
    }

    return _launcher(zero_kernel, grid, (*sizes[:2], first, *strides), constants)


def _describer(shape, strides, block) -> Callable[[torch.Tensor], TensorDescriptor]:
    """Describes blocks of a matrix by its memory; of a swapped one, as it is stored."""
    shape, strides, block = list(shape), list(strides), list(block)
    if strides[1] != 1:
        shape, strides, block = shape[::-1], strides[::-1], block[::-1]

    def describe(tensor):
        # Made without its constructor, which would look once more, at every launch,
        # at all that descriptor_fits has seen.
        made = TensorDescriptor.__new__(TensorDescriptor)
        made.base, made.shape, made.strides = tensor, shape, strides
        made.block_shape = block
        return made

    return describe


def _descriptor(plan, sizes, constants, part, strides, accumulate):
    described = _describer(sizes[:2], strides, part)
    launch = _launcher(descriptor_kernel, (plan.tiles,), sizes, constants)
    return lambda left, right, out: launch(left, right, described(out))


def _persistent(plan, sizes, constants, part, strides, accumulate):
    described = _describer(sizes[:2], strides, part)
    launch = _launcher(persistent_kernel, (plan.programs,), sizes, constants)
    return lambda left, right, out: launch(left, right, described(out))


def _split(plan, sizes, constants, part, strides, accumulate):
    grid = (plan.tiles, plan.split_t)
    launch = _launcher(split_kernel, grid, sizes, constants)
    if plan.reduction != "workspace":
        described = _describer(sizes[:2], strides, part)
        return lambda left, right, out: launch(left, right, described(out))
    described_slots, sum_shares = _shares(
        plan, sizes, constants, part, strides, accumulate
    )

    def launch_in_workspace(left, right, out):
        workspace, slots = described_slots(out)
        launch(left, right, slots)
        sum_shares(workspace, out)

    return launch_in_workspace


def _stream_k(plan, sizes, constants, part, strides, accumulate):
    grid = (plan.programs,)
    described = _describer(sizes[:2], strides, part)
    launch = _launcher(stream_k_kernel, grid, sizes, constants)

    def launch_adding(left, right, out):
        target = described(out)
        launch(left, right, target, target)

    if plan.reduction != "workspace" or not plan.tiles % plan.programs:
        return launch_adding
    described_slots, sum_shares = _shares(
        plan, sizes, constants, part, strides, accumulate
    )

    def launch_in_workspace(left, right, out):
        workspace, slots = described_slots(out)
        launch(left, right, described(out), slots)
        sum_shares(workspace, out)

    return launch_in_workspace


def _shares(plan, sizes, constants, part, strides, accumulate):
    """Makes and describes the slots of a workspace; sums them up."""
    rows, columns = constants["BLOCK_ROWS"], constants["BLOCK_COLUMNS"]
    stream_k = plan.kernel == "stream_k"
    tiles, programs, slots = plan.tiles, plan.split_t, plan.tiles * plan.split_t
    if stream_k:
        tiles, programs = plan.tiles % plan.programs, plan.programs
        slots = programs + tiles
    size = (slots * rows, columns)
    described = _describer(size, (columns, 1), part)
    strip = min(rows, max(1, SUMMED // columns))
    grid = (tiles, rows // strip)
    numbers = (*sizes, programs, *strides)
    options = {
        name: constants[name]
        for name in ("BLOCK_ROWS", "BLOCK_COLUMNS", "BLOCK_DEPTH", "GROUP")
    }
    options |= {"STRIP": strip, "STREAM_K": stream_k, "ACCUMULATE": accumulate}
    options["WAIT"] = constants["EARLY"]
    if constants["EARLY"]:
        options["launch_pdl"] = True

    def described_slots(out):
        workspace = torch.empty(size, dtype=torch.float32, device=out.device)
        return workspace, described(workspace)

    return described_slots, _launcher(shares_kernel, grid, numbers, options)


def _adds(plan: FastPlan, accumulate: bool) -> bool:
    """Whether the kernel adds into out what one program has whole, or shares of it."""
    if plan.kernel == "stream_k":
        return accumulate  # its shares are added in any case
    return plan.reduction == "atomic" or (plan.reduction == "none" and accumulate)


LAUNCHES = {
    "descriptor": _descriptor,
    "persistent": _persistent,
    "split": _split,
    "stream_k": _stream_k,
}
