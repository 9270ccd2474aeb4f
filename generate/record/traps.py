"""Section `traps`: every mistake of kernels/traps beside its fix, run for real.

Both forms of a trap get the same operands, in memory that holds 7 where nobody has
written, as if it had been used before; then every check is made of both. A form
that costs time is timed, a blind check gives its reading.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch

from generate.digest import traps_digest
from generate.record import sentence
from generate.record.calls import DTYPE_NAME
from generate.record.context import Context
from generate.record.timing import Timer
from generate.schema import CheckOutcome, Effect, Reading, TrapPoint, Traps
from kernels.traps import TRAPS
from kernels.traps.checks import CHECKS
from kernels.traps.common import memory_holding, product

ROOT = Path(__file__).parents[2]
FORMS = ("broken", "fixed")
LEFT_BEHIND = 7.0
# An element so far from fp64, over the RMS of the output, is wrong: more than fp32
# sums of these lengths are off by, and less than rounding to 16 bits costs.
WRONG = 5e-4
CELLS = 24
SAMPLES = 20
# The check that looks at the clock alone, and what it lets pass.
TIMER, SLOWER = "a timer", 1.05


def steps(context: Context) -> int:
    return len(TRAPS)


def record(context: Context) -> Traps:
    points = []
    for name in TRAPS:
        trap = import_module(f"kernels.traps.{name}")
        points.append(point(name, trap, context.device, context.timer))
        torch.cuda.empty_cache()
        context.advance()
    return Traps(
        section="traps",
        **context.header,
        traps_sha256=traps_digest(ROOT),
        points=tuple(points),
    )


def point(name: str, trap: ModuleType, device: torch.device, timer: Timer) -> TrapPoint:
    """What a trap did, or why it could not be run."""
    found = {"T": None, "K": None, "N": None, "broken": None, "fixed": None}
    checks, reason = (), None
    try:
        x, dy, _ = trap.case(device)
        found |= {"T": x.shape[0], "K": x.shape[1], "N": dy.shape[1]}
        del x, dy, _
        if trap.KIND == "blind check":
            found |= {form: _reading(trap, form, device) for form in FORMS}
        else:
            times = _times(trap, device, timer) if trap.KIND == "lost time" else {}
            found |= {form: _effect(trap, form, device, times) for form in FORMS}
            checks = (*_timed(found), *_checked(trap, device))
    except Exception as error:  # As of any other call: a recorded skip.
        found |= {"broken": None, "fixed": None}
        checks, reason = (), sentence(error)
    return TrapPoint(
        trap=name,
        kind=trap.KIND,
        dtype=DTYPE_NAME,
        checks=checks,
        skipped_reason=reason,
        **found,
    )


def _reading(trap: ModuleType, form: str, device: torch.device) -> Effect:
    value, unit, meaning = getattr(trap, form)(*trap.case(device))
    return Effect(
        error=None,
        elements=0,
        wrong_elements=0,
        non_finite_elements=0,
        picture=None,
        samples_ms=None,
        reading=Reading(value=float(f"{value:.4g}"), unit=unit, meaning=meaning),
    )


def _times(
    trap: ModuleType, device: torch.device, timer: Timer
) -> dict[str, tuple[float, ...]]:
    """Samples in ms of both forms, taken in turns."""
    x, dy, _ = trap.case(device)
    samples, _ = timer.compare(
        {
            "broken": lambda: trap.broken(x, dy),
            "fixed": lambda: trap.fixed(x, dy),
        },
        SAMPLES,
    )
    return samples


def _effect(
    trap: ModuleType,
    form: str,
    device: torch.device,
    times: dict[str, tuple[float, ...]],
) -> Effect:
    """One call on operands of its own, held against fp64."""
    x, dy, grad = trap.case(device)
    exact = getattr(trap, "expected", product)(x, dy, grad)
    with memory_holding(LEFT_BEHIND):
        result = getattr(trap, form)(x, dy, grad)
    exact, off = exact.cpu(), (result.double() - exact).cpu()
    finite, error = off.isfinite(), None
    if finite.any():
        ratio = off[finite].norm() / exact[finite].norm()
        error = float(f"{ratio.item():.4g}")
    off /= exact.square().mean().sqrt()
    return Effect(
        error=error,
        elements=off.numel(),
        wrong_elements=int((~(off.abs() <= WRONG)).sum()),
        non_finite_elements=int((~finite).sum()),
        picture=picture(off),
        samples_ms=times.get(form),
        reading=None,
    )


def picture(off: torch.Tensor) -> tuple[tuple[float | None, ...], ...]:
    """The worst of each cell of a grid over the output, to two digits."""
    rows, columns = (min(CELLS, size) for size in off.shape)
    return tuple(
        tuple(_worst(cell) for cell in band.tensor_split(columns, dim=1))
        for band in off.tensor_split(rows)
    )


def _worst(cell: torch.Tensor) -> float | None:
    worst = cell.abs().max().item()  # NaN, if any of them is
    return float(f"{worst:.2g}") if cell.isfinite().all() else None


def _timed(found: dict) -> tuple[CheckOutcome, ...]:
    """Whether a look at the clock tells the forms apart, where they were timed."""
    broken, fixed = found["broken"].time_ms, found["fixed"].time_ms
    if broken is None:
        return ()
    passes = broken <= SLOWER * fixed
    return (CheckOutcome(check=TIMER, broken_passes=passes, fixed_passes=True),)


def _checked(trap: ModuleType, device: torch.device) -> tuple[CheckOutcome, ...]:
    """What each check that fits the device's memory says of both forms."""
    found = []
    for name, check in CHECKS.items():
        try:
            said = [check(trap, form, device) for form in (trap.broken, trap.fixed)]
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
        found.append(
            CheckOutcome(check=name, broken_passes=said[0], fixed_passes=said[1])
        )
    return tuple(found)
