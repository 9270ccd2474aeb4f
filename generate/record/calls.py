"""What is timed: operands, the calls of each implementation, their error."""

import contextlib
import functools
from collections.abc import Collection, Hashable, Iterator
from types import ModuleType

import torch

from generate.record import sentence
from generate.record.timing import SAMPLES, Call, Timer, attempt
from generate.schema import (
    Configuration,
    DeviceState,
    FastConfiguration,
    GemmPoint,
)
from generate.shapes import Shape
from kernels import matmul, matmul_dw, matmul_dx
from kernels.fast import ops as fast
from kernels.fast.ops import multiply, prepare
from kernels.plan import FastPlan, Plan

DTYPE = torch.bfloat16
DTYPE_NAME = "bfloat16"
INPUT_DISTRIBUTION = "normal, mean 0, standard deviation 1, seeds 0 to 3"
ERROR_ROWS = 256

GEMM_CALLS = (
    ("forward", "overwrite"),
    ("dx", "overwrite"),
    ("dw", "overwrite"),
    ("dw", "accumulate"),
)


class Operands:
    """Random X, W, dY of one shape, and a gradient to accumulate into.

    Each is made when it is first used, so that one that does not fit the device
    fails the calls that need it and no others.
    """

    def __init__(self, shape: Shape, device: torch.device):
        self._shape = dict(zip("TKN", shape, strict=True))
        self._device = device

    @functools.cached_property
    def x(self) -> torch.Tensor:
        return self._normal("TK", DTYPE, seed=0)

    @functools.cached_property
    def w(self) -> torch.Tensor:
        return self._normal("KN", DTYPE, seed=1)

    @functools.cached_property
    def dy(self) -> torch.Tensor:
        return self._normal("TN", DTYPE, seed=2)

    @functools.cached_property
    def grad(self) -> torch.Tensor:
        return self._normal("KN", torch.float32, seed=3)

    def _normal(self, axes: str, dtype: torch.dtype, seed: int) -> torch.Tensor:
        generator = torch.Generator(device=self._device).manual_seed(seed)
        size = [self._shape[axis] for axis in axes]
        made = torch.empty(size, dtype=dtype, device=self._device)
        made.normal_(generator=generator)
        few = made.numel() < 1024
        if not few and not made[:, :64].float().std() > 0.5:
            raise RuntimeError(f"[{', '.join(axes)}] is not random, it does not spread")
        return made

    def arguments(self, op: str, mode: str) -> tuple[tuple, dict]:
        """What a function of ours is called with."""
        if op == "forward":
            return (self.x, self.w), {}
        if op == "dx":
            return (self.dy, self.w), {}
        if mode == "overwrite":
            return (self.x, self.dy), {}
        return (self.x, self.dy), {"out": self.grad, "mode": mode}

    def call(self, op: str, mode: str, implementation: str) -> Call:
        """A function of no argument that runs one whole operation.

        By the vendor's library, or the public functions: "lesson", "fast" as they
        are by default, or "deterministic", dW as where that is asked for.
        """
        if implementation == "vendor":
            return self._vendor_call(op, mode)
        function = {"forward": matmul, "dx": matmul_dx, "dw": matmul_dw}[op]
        choices = {
            "lesson": {"implementation": "lesson"},
            "fast": {},
            "deterministic": {"reduction": "workspace"},
        }[implementation]

        def call():
            tensors, options = self.arguments(op, mode)
            return function(*tensors, **options, **choices)

        return call

    def planned_call(self, op: str, mode: str, plan: FastPlan) -> Call:
        """The fast kernels as a plan says."""

        def call():
            tensors, options = self.arguments(op, mode)
            return multiply(op, *tensors, **options, plan=plan)

        return call

    def _vendor_call(self, op: str, mode: str) -> Call:
        if op == "forward":
            return lambda: torch.mm(self.x, self.w)
        if op == "dx":
            return lambda: torch.mm(self.dy, self.w.T)
        if mode == "overwrite":
            return lambda: torch.mm(self.x.T, self.dy, out_dtype=torch.float32)
        return lambda: torch.addmm(
            self.grad, self.x.T, self.dy, out_dtype=torch.float32, out=self.grad
        )

    def split_call(self, reduction: str, split_t: int) -> Call:
        """The lesson's dW, overwriting, at a split factor and reduction."""
        return lambda: matmul_dw(self.x, self.dy, reduction=reduction, split_t=split_t)

    def reference(self, op: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Checked rows of the output of `op`, and their values in fp64."""
        if op == "forward":
            a, b = self.x, self.w
        elif op == "dx":
            a, b = self.dy, self.w.T
        else:
            a, b = self.x.T, self.dy
        rows = torch.linspace(
            0, a.shape[0] - 1, min(ERROR_ROWS, a.shape[0]), device=a.device
        ).long()
        return rows, a[rows].double() @ b.double()

    def error(
        self, call: Call, rows: torch.Tensor, exact: torch.Tensor, mode: str
    ) -> float:
        """‖out − fp64‖ / ‖fp64‖ over `rows` of one fresh call's output."""
        if mode == "accumulate":
            self.grad.normal_()
            exact = exact + self.grad[rows].double()
        difference = call()[rows].double() - exact
        return float(f"{(difference.norm() / exact.norm()).item():.4g}")


class Outcomes:
    """What comparing some calls gave: samples, error or reason of each.

    refused: reasons why some are not to be tried at all. unjudged: those whose
    output is no product, so that it has no error.
    """

    def __init__(
        self,
        timer: Timer,
        operands: Operands,
        op: str,
        mode: str,
        calls: dict[Hashable, Call],
        *,
        samples: int = SAMPLES,
        refused: dict[Hashable, str] | None = None,
        unjudged: Collection[Hashable] = (),
    ):
        refused = refused or {}
        self._reasons = {
            key: refused.get(key) or attempt(call) for key, call in calls.items()
        }
        able = {key: call for key, call in calls.items() if not self._reasons[key]}
        self._errors: dict[Hashable, float] = {}
        self._times: dict[Hashable, tuple[float, ...]] = {}
        self._state: DeviceState | None = None
        if not able:
            return
        try:
            rows, exact = operands.reference(op)
            for key, call in able.items():
                if key not in unjudged:
                    self._errors[key] = operands.error(call, rows, exact, mode)
            del rows, exact
            self._times, self._state = timer.compare(able, samples)
        except Exception as error:  # As of a single call: a recorded skip.
            torch.cuda.empty_cache()
            self._errors, self._times = {}, {}
            self._reasons |= dict.fromkeys(able, sentence(error))

    def able(self, key: Hashable) -> bool:
        """Whether the call ran."""
        return not self._reasons[key]

    def fields(self, key: Hashable) -> dict:
        """The fields of a timed point."""
        return {
            "error": self._errors.get(key),
            "samples_ms": self._times.get(key),
            "state": self._state if key in self._times else None,
            "skipped_reason": self._reasons[key],
        }


@contextlib.contextmanager
def standing_in(module: ModuleType, **kernels) -> Iterator[None]:
    """While it lasts, the host API in a module launches these in its kernels' places.

    Nothing is known there of earlier calls, nor later of these. A kernel that is to
    see every launch returns nothing from one: what it returned would be launched again
    without it.
    """
    originals = {name: getattr(module, name) for name in kernels}
    prepared, fast._prepared = fast._prepared, {}
    try:
        for name, kernel in kernels.items():
            setattr(module, name, kernel)
        yield
    finally:
        fast._prepared = prepared
        for name, kernel in originals.items():
            setattr(module, name, kernel)


def skipped(error: Exception) -> dict:
    """The fields of a point that failed after all."""
    torch.cuda.empty_cache()
    empty = dict.fromkeys(("error", "samples_ms", "state"))
    return {**empty, "skipped_reason": sentence(error)}


def fast_plan_of(operands: Operands, op: str, mode: str, implementation: str):
    """What the public functions launch: by default, or deterministically."""
    tensors, options = operands.arguments(op, mode)
    reduction = "workspace" if implementation == "deterministic" else None
    return prepare(op, *tensors, **options, reduction=reduction).plan


def gemm_point(
    shape: Shape,
    op: str,
    mode: str,
    implementation: str,
    plan: Plan | FastPlan | None,
    outcomes: Outcomes,
) -> GemmPoint:
    """The point of one of the compared calls; plan: what it launched, if ours."""
    t, k, n = shape
    return GemmPoint(
        op=op,
        mode=mode,
        implementation=implementation,
        T=t,
        K=k,
        N=n,
        dtype=DTYPE_NAME,
        configuration=plan and configuration(plan),
        **outcomes.fields(implementation),
    )


def configuration(plan: Plan | FastPlan) -> Configuration:
    """The record's form of a plan."""
    tile = plan.tile
    fields = {
        "block_t": tile.block_t,
        "block_k": tile.block_k,
        "block_n": tile.block_n,
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
        "split_t": plan.split_t,
        "reduction": plan.reduction,
    }
    if isinstance(plan, Plan):
        return Configuration(**fields)
    return FastConfiguration(
        **fields,
        kernel=plan.kernel,
        programs=plan.programs,
        parts=plan.parts,
        copied=plan.copied,
    )
