"""The recorder of traps, on small traps of the tests' own that need no GPU."""

import difflib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from generate.digest import traps_digest
from generate.record import traps
from generate.record.traps import CELLS, LEFT_BEHIND, picture, point
from generate.render.source import definitions
from kernels.traps import TRAPS

KERNELS = Path(__file__).parents[2] / "kernels"
CPU = torch.device("cpu")


def case(device):
    x, dy = torch.arange(12.0).view(4, 3) + 1, torch.ones(4, 50)
    return x, dy, torch.full((3, 50), 2.0)


def right(x, dy, grad=None):
    sums = x.T @ dy
    return sums if grad is None else grad.add_(sums)


def wrong(x, dy, grad=None):
    """Loses what the gradient held, and more of the last column."""
    sums = x.T @ dy
    sums[:, -1] = torch.nan
    return sums


def used(x, dy, grad=None):
    return torch.empty(x.shape[1], dy.shape[1])


def trap(broken, **more):
    fields = {"KIND": "wrong result", "case": case, "broken": broken, "fixed": right}
    return SimpleNamespace(**(fields | more))


@pytest.fixture(autouse=True)
def one_check(monkeypatch):
    def finite(trap, form, device):
        return bool(form(*trap.case(device)).isfinite().all())

    monkeypatch.setattr(traps, "CHECKS", {"all of it is finite": finite})


def test_both_forms_are_held_against_fp64():
    """The gradient's content counts, as do elements that are not finite."""
    found = point("made_up", trap(wrong), CPU, None)
    assert (found.T, found.K, found.N) == (4, 3, 50)
    assert found.skipped_reason is None
    assert found.fixed.error == found.fixed.wrong_elements == 0
    assert found.broken.elements == found.broken.wrong_elements == 150
    assert found.broken.non_finite_elements == 3
    exact = torch.tensor([24.0, 28.0, 32.0])
    assert found.broken.error == pytest.approx(
        2 * 3**0.5 / exact.norm().item(), rel=1e-3
    )
    off = float(f"{2 / exact.square().mean().sqrt().item():.2g}")
    assert {value for row in found.broken.picture for value in row[:-1]} == {off}
    assert [row[-1] for row in found.broken.picture] == [None] * 3


def test_new_memory_was_used_before():
    """What nobody wrote is 7, not by luck zero."""
    found = point("made_up", trap(used), CPU, None)
    x, dy, grad = case(CPU)
    exact = right(x, dy, grad)
    expected = (exact - LEFT_BEHIND).norm() / exact.norm()
    assert found.broken.error == pytest.approx(expected.item(), rel=1e-3)


def test_a_check_is_made_of_both_forms():
    """What a check says of the mistake and of the fix, not what it should say."""
    (said,) = point("made_up", trap(wrong), CPU, None).checks
    assert said.check == "all of it is finite"
    assert (said.broken_passes, said.fixed_passes) == (False, True)


def test_lost_time_is_timed_in_turns():
    """A timer is one more check, which notices five percent."""
    for ratio, passes in ((1.04, True), (1.06, False)):
        samples = {"broken": (ratio,) * 5, "fixed": (1.0,) * 5}
        timer = SimpleNamespace(compare=lambda calls, n, s=samples: (s, None))
        found = point("made_up", trap(right, KIND="lost time"), CPU, timer)
        assert found.broken.time_ms == ratio
        assert found.broken.wrong_elements == 0
        first = found.checks[0]
        assert (first.check, first.broken_passes) == ("a timer", passes)


def test_a_blind_check_gives_a_reading():
    """It has no result to compare, and no check is made of it."""

    def read(x, dy, grad=None):
        return 12.34567, "ms", "by the clock on the wall"

    made = trap(read, fixed=read, KIND="blind check")
    found = point("made_up", made, CPU, None)
    assert found.checks == ()
    assert found.broken.reading.value == 12.35
    assert found.broken.elements == 0
    assert found.broken.error is found.broken.picture is None


@pytest.mark.parametrize("failing", ["case", "broken", "fixed"])
def test_a_trap_that_fails_is_skipped_alone(failing):
    """The reason stands in its place, whatever failed."""

    def fails(*args):
        raise torch.OutOfMemoryError("CUDA out of memory\nand more")

    made = trap(wrong)
    setattr(made, failing, fails)
    found = point("made_up", made, CPU, None)
    assert found.skipped_reason == "OutOfMemoryError: CUDA out of memory"
    assert found.broken is found.fixed is None
    assert (found.T is None) == (failing == "case")


def test_a_check_that_does_not_fit_is_not_made(monkeypatch):
    """A card with little memory loses one check, and no trap."""

    def too_large(trap, form, device):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setitem(traps.CHECKS, "a large one", too_large)
    found = point("made_up", trap(wrong), CPU, None)
    assert found.skipped_reason is None
    assert [said.check for said in found.checks] == ["all of it is finite"]


def test_a_picture_has_few_cells():
    """Each shows the worst of its elements, to two digits."""
    off = torch.zeros(100, 60)
    off[99, 0] = -1.2345
    cells = picture(off)
    assert (len(cells), {len(row) for row in cells}) == (CELLS, {CELLS})
    assert cells[-1][0] == 1.2
    assert sum(value for row in cells for value in row) == 1.2


def test_the_digest_is_of_the_code(tmp_path):
    """A comment leaves it; a line of code, in any file of the traps, does not."""
    folder = tmp_path / "kernels" / "traps"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text("x = 1\n")
    before = traps_digest(tmp_path)
    (folder / "one.py").write_text("# so be it\nx = 1  # one\n")
    assert traps_digest(tmp_path) == before
    (folder / "two.py").write_text("x = 1\n")
    assert traps_digest(tmp_path) != before


@pytest.mark.parametrize("name", TRAPS)
def test_a_broken_kernel_has_one_mistake(name):
    """A kernel of a trap is the lesson's but for a few lines."""
    own = definitions(KERNELS / "traps" / f"{name}.py").get("dw_kernel")
    if own is None:
        return
    lesson = definitions(KERNELS / "dw.py")["dw_kernel"]
    lines = difflib.ndiff(own.splitlines(), lesson.splitlines())
    changed = [line for line in lines if line[0] in "+-"]
    assert 0 < len(changed) <= 8, "\n".join(changed)
