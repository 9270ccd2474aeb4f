"""Each trap is still wrong in the way it states, and its fix is right.

New memory holds NaN in these tests, but where a trap is about what memory holds:
there it is 7.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import triton

from kernels.plan import split_range
from kernels.traps import TRAPS
from kernels.traps.checks import CHECKS
from kernels.traps.common import (
    FAR,
    FIRST_FAR_ROW,
    SPLIT_T,
    memory_holding,
    product,
)
from tests.kernels.contract import DEVICE, assert_as_exact_as_vendor, need_memory

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "kernels" / "traps"
HELPERS = {"common", "checks"}
BLOCK_T = 64
LEFT_BEHIND = 7.0
MEMORY_BEYOND_32_BITS = 10 * 2**30

of_dw = pytest.mark.kernels("dw")
of_both = pytest.mark.kernels("dw", "reduce")


def traps(*names):
    """Names as parameters, with the kernels that their fixes are made of."""
    reduced = {"idle_split", "reduce_in_a_hook", "zeroed_workspace"}
    return pytest.mark.parametrize(
        "name",
        [pytest.param(n, marks=of_both if n in reduced else of_dw) for n in names],
    )


class Ran(NamedTuple):
    """base: what the gradient held before the call."""

    x: torch.Tensor
    dy: torch.Tensor
    base: torch.Tensor | None
    result: torch.Tensor


def run(name: str, form: str) -> Ran:
    trap = import_module(f"kernels.traps.{name}")
    if name == "offsets":
        need_memory(MEMORY_BEYOND_32_BITS)
    x, dy, grad = trap.case(DEVICE)
    base = None if grad is None else grad.clone()
    return Ran(x, dy, base, getattr(trap, form)(x, dy, grad))


def distance(result: torch.Tensor, exact: torch.Tensor) -> float:
    return ((result - exact).norm() / exact.norm()).item()


def blocks(tensor: torch.Tensor, low: int, high: int) -> torch.Tensor:
    return tensor[low * BLOCK_T : high * BLOCK_T]


# What each mistake gives instead of the product, in fp64.


def with_what_lies_behind(x, dy, base):
    """The 24 tokens behind the 680 fill the last block."""
    longer = [t.as_strided((704, t.shape[1]), t.stride()) for t in (x, dy)]
    return product(*longer)


def without_the_last_blocks(x, dy, base):
    """Of eleven blocks, four splits own two each."""
    return product(blocks(x, 0, 8), blocks(dy, 0, 8))


def with_blocks_twice(x, dy, base):
    """Blocks 2, 5 and 8 belong to two splits each."""
    twice = [product(blocks(x, b, b + 1), blocks(dy, b, b + 1)) for b in (2, 5, 8)]
    return product(x, dy) + sum(twice)


def with_what_memory_held(x, dy, base):
    return product(x, dy) + LEFT_BEHIND


def what_memory_held(x, dy, base):
    return torch.full_like(product(x, dy), LEFT_BEHIND)


def without_the_gradient(x, dy, base):
    return product(x, dy)


def no_more_than_256(x, dy, base):
    """256 + 1 is 256, however often 1 is added."""
    return torch.full_like(product(x, dy), 256)


def parts(x, dy):
    """The product of each split's tokens."""
    for split in range(SPLIT_T):
        low, high = split_range(split, SPLIT_T, x.shape[0] // BLOCK_T)
        yield product(blocks(x, low, high), blocks(dy, low, high))


def of_rounded_parts(x, dy, base):
    return sum(part.to(x.dtype).double() for part in parts(x, dy))


def of_clipped_parts(x, dy, base):
    return sum(part.clamp(-16, 16) for part in parts(x, dy))


def of_contiguous_memory(x, dy, base):
    """Every row of dY is taken to begin where the one before ended."""
    return product(x, dy.as_strided(dy.shape, (dy.shape[1], 1)))


def of_what_lies_in_front(x, dy, base):
    """From 2³¹ elements on, X is read 2³² elements in front of where it is."""
    rows = x.shape[0] - FIRST_FAR_ROW
    first = FIRST_FAR_ROW * FAR - 2**31
    front = x.as_strided((rows, x.shape[1]), (FAR, 1), first)
    return product(torch.cat((x[:FIRST_FAR_ROW], front)), dy)


STATED = {
    "no_fill": with_what_lies_behind,
    "uneven_split": without_the_last_blocks,
    "overlapping_split": with_blocks_twice,
    "idle_split": with_what_memory_held,
    "overwrite": without_the_gradient,
    "bf16_gradient": no_more_than_256,
    "partial_sums": of_rounded_parts,
    "borrowed_strides": of_contiguous_memory,
    "offsets": of_what_lies_in_front,
    "not_zeroed": with_what_memory_held,
    "fused_activation": of_clipped_parts,
}
# A tuner measures, which only a GPU can.
STATED_ON_A_GPU = {
    "autotune_reset": without_the_gradient,
    "reduce_in_a_hook": what_memory_held,
}
ABOUT_MEMORY = ("idle_split", "not_zeroed", "reduce_in_a_hook")
LOST_TIME = ("transpose_first", "small_grid", "too_many_splits", "zeroed_workspace")


def assert_wrong_as_stated(name: str, stated):
    """The result is the stated one, and not the right one."""
    ran = run(name, "broken")
    as_stated = distance(ran.result, stated(ran.x, ran.dy, ran.base))
    right = getattr(import_module(f"kernels.traps.{name}"), "expected", product)
    off = distance(ran.result, right(ran.x, ran.dy, ran.base))
    # Few elements of a sum that is rounded round differently in fp64.
    assert as_stated < 3e-4
    assert off > 5 * as_stated


@pytest.mark.interpreter
@pytest.mark.gpu
@traps(*STATED)
def test_is_wrong_as_stated(name):
    """What a mistake gives is what it says it gives."""
    if name not in ABOUT_MEMORY:
        return assert_wrong_as_stated(name, STATED[name])
    with memory_holding(LEFT_BEHIND):
        assert_wrong_as_stated(name, STATED[name])


@pytest.mark.gpu
@traps(*STATED_ON_A_GPU)
def test_is_wrong_as_stated_where_tuned(name):
    """Likewise, where a tuner has a hand in it."""
    with memory_holding(LEFT_BEHIND):
        assert_wrong_as_stated(name, STATED_ON_A_GPU[name])


@pytest.mark.gpu
@of_dw
def test_tuning_adds():
    """Every run of the tuner adds the product once more; later calls add it once.

    triton-lang/triton#4217
    """
    x, dy, base, result = run("autotune", "broken")
    once, more = product(x, dy), result.double() - base
    times = (more * once).sum() / once.square().sum()
    assert times > 2
    assert distance(more, times.round() * once) < 1e-3
    again = import_module("kernels.traps.autotune").broken(x, dy, base.clone())
    assert_as_exact_as_vendor(again, "dw", x, dy, base)


@pytest.mark.gpu
@of_dw
def test_the_reset_is_gone_after_tuning():
    """reset_to_zero wipes the gradient in the first call alone.

    triton-lang/triton#6547
    """
    x, dy, base, _ = run("autotune_reset", "broken")
    again = import_module("kernels.traps.autotune_reset").broken(x, dy, base.clone())
    assert_as_exact_as_vendor(again, "dw", x, dy, base)


@pytest.mark.gpu
@of_both
def test_the_hook_runs_while_tuning():
    """The first call is right, and so a test of one call passes.

    facebookexperimental/triton#1117
    """
    trap = import_module("kernels.traps.reduce_in_a_hook")
    x, dy, _ = trap.case(DEVICE)
    trap.forget()
    assert_as_exact_as_vendor(trap.broken(x, dy), "dw", x, dy)


@pytest.mark.interpreter
@pytest.mark.gpu
@traps(*STATED, "autotune", "autotune_reset")
def test_fix_is_right(name):
    """The fix is as exact as the vendor library, in memory that holds NaN."""
    ran = run(name, "fixed")
    if name == "fused_activation":
        exact = import_module("kernels.traps.fused_activation").expected
        assert distance(ran.result, exact(ran.x, ran.dy, ran.base)) < 1e-5
    else:
        assert_as_exact_as_vendor(ran.result, "dw", ran.x, ran.dy, ran.base)


@pytest.mark.gpu
@of_both
def test_fix_of_the_hook_is_right():
    """A reduction that is launched with its kernel is never missing."""
    x, dy, _, result = run("reduce_in_a_hook", "fixed")
    assert_as_exact_as_vendor(result, "dw", x, dy)


@pytest.mark.interpreter
@pytest.mark.gpu
@traps(*LOST_TIME)
def test_lost_time_loses_nothing_else(name):
    """Both forms give the product, so no comparison tells them apart."""
    for form in ("broken", "fixed"):
        ran = run(name, form)
        assert distance(ran.result, product(ran.x, ran.dy)) < 1e-4


@pytest.mark.gpu
@traps(*LOST_TIME)
def test_lost_time_is_lost(name, monkeypatch):
    """The mistake takes longer than its fix."""
    monkeypatch.undo()  # filling new memory with NaN takes time as well
    trap = import_module(f"kernels.traps.{name}")
    x, dy, _ = trap.case(DEVICE)
    broken, fixed = (
        triton.testing.do_bench(
            lambda form=form: form(x, dy), warmup=5, rep=30, return_mode="median"
        )
        for form in (trap.broken, trap.fixed)
    )
    assert broken > 1.02 * fixed


# Blind checks


def readings(name: str) -> list[float]:
    trap = import_module(f"kernels.traps.{name}")
    return [form(*trap.case(DEVICE))[0] for form in (trap.broken, trap.fixed)]


@pytest.mark.interpreter
@pytest.mark.gpu
@of_dw
def test_a_tolerance_of_hope_lets_tokens_go():
    """One percent of an element is several tokens; a bound from fp64 is none."""
    by_hope, by_fp64 = readings("tolerance")
    assert by_hope > 1
    assert by_fp64 == 0


@pytest.mark.interpreter
@pytest.mark.gpu
@of_dw
def test_half_of_a_shared_output_is_unwritten():
    """Who writes half passes behind who writes all, and not in memory of its own.

    triton-lang/triton#9230
    """
    assert readings("shared_output") == [50, 0]


@pytest.mark.gpu
@of_dw
def test_equal_bits_refuse_right_sums():
    """Sixteen splits land in another order now and then; none is less exact.

    microsoft/onnxruntime#27003
    """
    by_bits, by_error = readings("atomic_bits")
    assert by_bits > 0
    assert by_error == 0


@pytest.mark.gpu
@of_dw
def test_a_clock_that_does_not_wait():
    """Without waiting, less than half of the time is seen.

    triton-lang/triton#2720
    """
    launched, ended = readings("no_sync")
    assert launched < ended / 2


@pytest.mark.gpu
@of_dw
def test_the_host_is_slower_than_a_small_kernel():
    """Queued beforehand, a small product takes less time than its launch.

    pytorch/pytorch#196413
    """
    launched, queued = readings("launch_cost")
    assert launched > 1.5 * queued


@pytest.mark.gpu
@of_dw
def test_zeros_are_faster_than_data():
    """A product of zeros takes less time than one of the same size."""
    zeros, data = readings("constant_inputs")
    assert zeros < data


# Checks


def need_memory_for(check: str):
    if check == "beyond 2³¹ elements":
        need_memory(MEMORY_BEYOND_32_BITS)


@pytest.mark.gpu
@pytest.mark.parametrize("check", CHECKS)
@of_dw
def test_a_right_kernel_passes(check):
    """No check refuses the lesson's dW."""
    need_memory_for(check)
    trap = import_module("kernels.traps.uneven_split")
    assert CHECKS[check](trap, trap.fixed, DEVICE)


@pytest.mark.interpreter
@pytest.mark.gpu
@pytest.mark.parametrize(
    "name, missed, caught",
    (
        ("no_fill", "odd sizes", "NaN in memory"),
        ("overwrite", "round sizes, fresh memory", "a buffer that holds something"),
        ("borrowed_strides", "odd sizes", "strides of its own"),
        ("offsets", "more splits than blocks", "beyond 2³¹ elements"),
        ("not_zeroed", "round sizes, fresh memory", "NaN in memory"),
    ),
)
@of_dw
def test_who_notices(name, missed, caught):
    """One check sees the mistake, and one does not."""
    need_memory_for(caught)
    trap = import_module(f"kernels.traps.{name}")
    assert CHECKS[missed](trap, trap.broken, DEVICE)
    assert not CHECKS[caught](trap, trap.broken, DEVICE)


# The files


def test_every_trap_is_listed():
    """Each file of the folder is a trap with a test, or a helper of theirs."""
    names = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert names == {*TRAPS, *HELPERS}
    assert len(TRAPS) == len(set(TRAPS))
    tested = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    words = {n.value for n in ast.walk(tested) if isinstance(n, ast.Constant)}
    assert words.issuperset(TRAPS)


def test_traps_are_imported_for_nothing_else():
    """Their code is for the recorder and for tests; what renders reads their names."""
    allowed = {ROOT / "generate" / "record" / "traps.py", *FOLDER.glob("*.py")}
    files = {p for part in ("kernels", "generate") for p in (ROOT / part).rglob("*.py")}
    for path in sorted(files - allowed):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            for name in names:
                if name != "kernels.traps.TRAPS":
                    assert not name.startswith("kernels.traps."), path
