"""Do the tests see anything? Each kernel, broken in one place, must fail them.

`check`, which the tests of the host API use, judges the broken kernels, on a few
small products. On the same products the kernels as they are pass.
"""

import importlib.util
from pathlib import Path

import pytest
import torch

import kernels
from tests.kernels import contract
from tests.kernels.contract import (
    DTYPES,
    INTERPRETED,
    LAUNCHING,
    OPS,
    check,
    shape_of,
    tile_of,
)

SOURCES = Path(kernels.__file__).parent

# By file: what is broken, the source as it is and as it is broken.
DROPPED_BLOCK = {
    "forward": ("range(0, K, BLOCK_K)", "range(BLOCK_K, K, BLOCK_K)"),
    "dx": ("range(0, N, BLOCK_N)", "range(BLOCK_N, N, BLOCK_N)"),
    "dw": ("range(low, high, BLOCK_T)", "range(low + BLOCK_T, high, BLOCK_T)"),
}
SUM_IN_16_BITS = ("PRECISION)\n", "PRECISION).to(tl.float16).to(tl.float32)\n")
MUTATIONS = {
    "forward": {
        "drops a block": DROPPED_BLOCK["forward"],
        "drops the tail": ("range(0, K,", "range(0, K // BLOCK_K * BLOCK_K,"),
        "fills nothing in": ("other=0.0", "other=float('nan')"),
        "sums in 16 bits": SUM_IN_16_BITS,
        "reads x beyond K": ("(t[:, None] < T) & (k[None, :] < K)", "t[:, None] < T"),
        "reads w beyond K": ("(k[:, None] < K) & (n[None, :] < N)", "n[None, :] < N"),
        "writes beyond N": ("(t[:, None] < T) & (n[None, :] < N)", "t[:, None] < T"),
        "writes beyond T": ("(t[:, None] < T) & (n[None, :] < N)", "n[None, :] < N"),
        "takes x for contiguous": ("k[None, :] * stride_xk", "k[None, :]"),
        "takes y for contiguous": ("t[:, None] * stride_yt", "t[:, None] * N"),
    },
    "dx": {
        "drops a block": DROPPED_BLOCK["dx"],
        "drops the tail": ("range(0, N,", "range(0, N // BLOCK_N * BLOCK_N,"),
        "fills nothing in": ("other=0.0", "other=float('nan')"),
        "sums in 16 bits": SUM_IN_16_BITS,
        "reads dy beyond N": ("(t[:, None] < T) & (n[None, :] < N)", "t[:, None] < T"),
        "reads w beyond N": ("(n[:, None] < N) & (k[None, :] < K)", "k[None, :] < K"),
        "writes beyond K": ("(t[:, None] < T) & (k[None, :] < K)", "t[:, None] < T"),
        "writes beyond T": ("(t[:, None] < T) & (k[None, :] < K)", "k[None, :] < K"),
        "does not transpose w": (
            "n[:, None] * stride_wn + k[None, :] * stride_wk",
            "n[:, None] * stride_wk + k[None, :] * stride_wn",
        ),
    },
    "dw": {
        "drops a block": DROPPED_BLOCK["dw"],
        "drops the tail": ("tl.cdiv(T, BLOCK_T)", "T // BLOCK_T"),
        "fills nothing in": ("other=0.0", "other=float('nan')"),
        "sums in 16 bits": SUM_IN_16_BITS,
        "reads x beyond T": ("(k[:, None] < K) & (t[None, :] < T)", "k[:, None] < K"),
        "reads dy beyond T": ("(t[:, None] < T) & (n[None, :] < N)", "n[None, :] < N"),
        "writes beyond K": ("(k[:, None] < K) & (n[None, :] < N)", "n[None, :] < N"),
        "writes beyond N": ("(k[:, None] < K) & (n[None, :] < N)", "k[:, None] < K"),
        "rounds the share of a split down": (
            "high = (split + 1) * blocks // SPLIT_T * BLOCK_T",
            "high = low + blocks // SPLIT_T * BLOCK_T",
        ),
        "rounds the end of a split up": (
            "high = (split + 1) * blocks // SPLIT_T * BLOCK_T",
            "high = tl.cdiv((split + 1) * blocks, SPLIT_T) * BLOCK_T",
        ),
        "stores instead of adding": ("if ADD:", "if False:"),
        "adds twice": (
            "tl.atomic_add(dw_ptrs, acc,",
            "tl.atomic_add(dw_ptrs, 2 * acc,",
        ),
        "adds in 16 bits": (
            "add(dw_ptrs, acc,",
            "add(dw_ptrs, acc.to(tl.float16).to(tl.float32),",
        ),
        "stores every slice in one place": ("split * stride_dws", "0 * stride_dws"),
        "stores nothing for an idle split": (
            "tl.store(dw_ptrs, acc, mask=inside)",
            "tl.store(dw_ptrs, acc, mask=inside & (low < high))",
        ),
    },
    "reduce": {
        "forgets the first slice": ("range(SPLIT_T)", "range(1, SPLIT_T)"),
        "forgets the last slice": ("range(SPLIT_T)", "range(SPLIT_T - 1)"),
        "forgets the gradient": ("if ACCUMULATE:", "if False:"),
        "adds the gradient twice": ("acc += tl.load(dw", "acc += 2 * tl.load(dw"),
        "writes beyond N": ("acc, mask=inside", "acc, mask=k[:, None] < K"),
        "writes beyond K": ("acc, mask=inside", "acc, mask=n[None, :] < N"),
    },
    "ops": {
        "zeroes nothing": ("out.zero_()", "pass"),
        "never accumulates": ('mode == "accumulate"\n', "False\n"),
        "always accumulates": ('mode == "accumulate"\n', "True\n"),
        "never reduces": (
            "host.sum_slices(target, out, accumulate)",
            "pass",
        ),
    },
}


def broken_module(name, as_is, as_broken, folder):
    """The module of kernels/`name`.py with its text changed, loaded from a file."""
    text = (SOURCES / f"{name}.py").read_text()
    assert as_is in text, f"{name}.py has changed: what is broken in it is gone"
    path = folder / f"broken_{name}.py"
    path.write_text(text.replace(as_is, as_broken))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def use(module, name, monkeypatch):
    """From now on, the host API launches the broken kernel, or is the broken one."""
    if name == "ops":
        monkeypatch.setattr(contract, "ops", module)
    else:
        kernel = f"{name}_kernel"
        monkeypatch.setattr(LAUNCHING[name], kernel, getattr(module, kernel))


def judge(name):
    """Small products that leave a tail on every axis, strided, in NaN."""
    op = name if name in ("forward", "dx") else "dw"
    where = {
        "layouts": ("gapped", "pitched", "pitched"),
        "tile": tile_of(op, 16, 16, 16),
    }
    shape = shape_of(op, 19, 5 * 16 + 3, 21)
    if op != "dw":
        for dtype in (torch.float16, torch.float32):
            check(op, shape, dtype, **where)
        return
    for reduction, splits in (("none", (1,)), ("atomic", (4,)), ("workspace", (4, 9))):
        for split_t in splits:
            for mode in ("overwrite", "accumulate"):
                choices = {"mode": mode, "reduction": reduction, "split_t": split_t}
                check(op, shape, torch.float16, **choices, **where)


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTATIONS)
def test_kernels_as_they_are(name):
    """The unbroken kernels pass what the broken ones must fail."""
    judge(name)


@pytest.mark.interpreter
@pytest.mark.parametrize(
    "name, broken",
    [(name, broken) for name, mutations in MUTATIONS.items() for broken in mutations],
)
def test_broken_in_one_place(name, broken, monkeypatch, tmp_path):
    """A kernel with one fault fails."""
    module = broken_module(name, *MUTATIONS[name][broken], tmp_path)
    use(module, name, monkeypatch)
    with pytest.raises(AssertionError):
        judge(name)


@pytest.mark.interpreter
@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_one_block_of_64_dropped(op, monkeypatch, tmp_path):
    """One block of 64 missing is seen: on a GPU, in bf16, one of 128 blocks."""
    shape = shape_of(op, 128, 1024 if INTERPRETED else 8192, 128)
    choices = {"split_t": 1} if op == "dw" else {}
    check(op, shape, DTYPES[0], **choices)
    use(broken_module(op, *DROPPED_BLOCK[op], tmp_path), op, monkeypatch)
    with pytest.raises(AssertionError, match="error"):
        check(op, shape, DTYPES[0], **choices)
