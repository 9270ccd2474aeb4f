"""What may be shown of a recording: a measured point, or why there is none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from generate.schema import (
    AccumulationPoint,
    Configuration,
    DeterminismPoint,
    GemmPoint,
    LaunchPoint,
    OccupancyPoint,
    PartialsPoint,
    Recording,
    SplitPoint,
    TimelinePoint,
    TrainingPoint,
    TransposePoint,
    TrapPoint,
)
from generate.shapes import GEMM_SHAPES, SPLIT_FACTORS, SPLIT_SHAPES, Shape
from kernels.plan import Plan, choose_tile, expected_resident, output_tiles, plan

# The recorder's dtype. Points of another are no part of charts and facts.
DTYPE, ITEMSIZE = "bfloat16", 2

# Names of what is timed at a shape, as in the keys of facts: op and mode.
CALLS = {
    "forward": ("forward", "overwrite"),
    "dx": ("dx", "overwrite"),
    "dw": ("dw", "overwrite"),
    "dw+": ("dw", "accumulate"),
}
CALL_LABELS = {"forward": "forward", "dx": "dX", "dw": "dW", "dw+": "dW +="}
OPS = ("forward", "dx", "dw")
IMPLEMENTATIONS = ("vendor", "lesson")
# A layer's step: each of its three GEMMs once, dW added to the gradient.
STEP = ("forward", "dx", "dw+")
REDUCTIONS = ("none", "atomic", "workspace")


@dataclass(frozen=True)
class Missing:
    """Stands where a measured point would; `reason` is for readers."""

    reason: str


class Measurements:
    """A recording without the points that may not be shown.

    A point is withheld if it was skipped, or if a test of its kernel failed.
    found: every recording, oldest first, to compare this one with.
    """

    def __init__(self, recording: Recording, found: Sequence[Recording] = ()):
        self.recording = recording
        self.found = found
        self.gpu = recording.environment.gpu
        verification = recording.verification
        self._failed = verification.failed_kernels if verification else set()
        self._gemms = {
            (p.shape, p.op, p.mode, p.implementation): p
            for p in _points(recording.gemms)
        }
        self._products = {
            name: {p.key: p for p in _points(getattr(recording, name))}
            for name in ("ladder", "further")
        }
        self._splits = {
            (p.shape, p.reduction, p.split_t): p for p in _points(recording.splits)
        }
        self._occupancy = {
            _launch(p): p for p in _points(recording.occupancy) if p.mode == "overwrite"
        }

    @property
    def record(self) -> str:
        """Where numbers are from, as they say it on hover."""

        def words(recording: Recording) -> str:
            environment = recording.environment
            return f"{environment.gpu.name}, recorded {environment.recorded_on}"

        mine = words(self.recording)
        if sum(words(recording) == mine for recording in self.found) > 1:
            mine += f" ({self.recording.folder.name})"
        return mine

    @property
    def gemm_shapes(self) -> list[Shape]:
        """The site's shapes, then whatever else was recorded."""
        return _union(GEMM_SHAPES, (key[0] for key in self._gemms))

    @property
    def split_shapes(self) -> list[Shape]:
        return _union(SPLIT_SHAPES, (key[0] for key in self._splits))

    @property
    def split_factors(self) -> list[int]:
        return sorted(_union(SPLIT_FACTORS, (key[2] for key in self._splits)))

    def split_launches(self, shape: Shape) -> list[tuple[str, int]]:
        """Reduction and split factor of each recorded point of a shape."""
        found = [key[1:] for key in self._splits if key[0] == shape]
        return sorted(found, key=lambda key: (REDUCTIONS.index(key[0]), key[1]))

    @property
    def launches(self) -> list[tuple[Shape, str, str, int]]:
        """Recorded arguments of `occupancy`."""
        return list(self._occupancy)

    def gemm(self, shape: Shape, call: str, implementation: str) -> GemmPoint | Missing:
        point = self._gemms.get((shape, *CALLS[call], implementation))
        if point is None:
            return _absent(self.recording.gemms, "gemms")
        return self._shown(point, _kernels_of(point))

    def rung(self, shape: Shape, call: str, implementation: str) -> GemmPoint | Missing:
        """A rung of the ladder, or the vendor's, in turns with all others."""
        return self._product("ladder", shape, call, implementation)

    def further(
        self, shape: Shape, call: str, implementation: str
    ) -> GemmPoint | Missing:
        """The vendor's or the fast kernels at a shape that no plan was fitted to."""
        return self._product("further", shape, call, implementation)

    def launch(self, shape: Shape, call: str, way: str) -> LaunchPoint | Missing:
        """What a call costs the host."""
        kernels = set() if way == "vendor" else {"fast"}
        return self._evidence("launches", (*CALLS[call], way, *shape), kernels)

    def _product(self, name: str, shape: Shape, call: str, implementation: str):
        point = self._products[name].get((*CALLS[call], implementation, DTYPE, *shape))
        if point is None:
            return _absent(getattr(self.recording, name), name)
        return self._shown(point, _kernels_of(point))

    def split(self, shape: Shape, reduction: str, split_t: int) -> SplitPoint | Missing:
        point = self._splits.get((shape, reduction, split_t))
        if point is None:
            return _absent(self.recording.splits, "splits")
        return self._shown(point, _kernels("dw", point.configuration))

    def splits(self, shape: Shape, *reductions: str) -> list[SplitPoint]:
        """Measured points of a shape, by reduction, then by split factor."""
        found = [
            self.split(shape, reduction, split_t)
            for reduction, split_t in self.split_launches(shape)
            if reduction in (reductions or REDUCTIONS)
        ]
        return [point for point in found if not isinstance(point, Missing)]

    def best_split(self, shape: Shape, *reductions: str) -> SplitPoint | Missing:
        """The fastest point of a shape, of all reductions by default."""
        found = self.splits(shape, *reductions)
        if found:
            return min(found, key=lambda point: point.time_ms)
        return self.split(shape, (reductions or REDUCTIONS)[0], self.split_factors[0])

    def plan(self, shape: Shape) -> Plan:
        """What `kernels.plan` chooses today for dW on the recorded GPU."""
        return plan("dw", shape, ITEMSIZE, self.gpu.device)

    def planned_split(self, shape: Shape) -> SplitPoint | Missing:
        """The recorded point nearest to the planned split factor."""
        chosen = self.plan(shape)
        return self.nearest_split(shape, chosen.reduction, chosen.split_t)

    def nearest_split(
        self, shape: Shape, reduction: str, split_t: int
    ) -> SplitPoint | Missing:
        """The measured point of a reduction that is nearest to a split factor."""
        found = self.splits(shape, reduction)
        if not found:
            return self.split(shape, reduction, split_t)
        return min(found, key=lambda point: abs(math.log(point.split_t / split_t)))

    def occupancy(
        self, shape: Shape, kernel: str, reduction: str, split_t: int
    ) -> OccupancyPoint | Missing:
        """Keyed as facts are: forward, dx and reduce have the reduction none."""
        point = self._occupancy.get((shape, kernel, reduction, split_t))
        if point is None:
            return _absent(self.recording.occupancy, "occupancy")
        if kernel in self._failed:
            return Missing(_failure(kernel))
        return point

    def timeline(self, shape: Shape, split_t: int) -> TimelinePoint | Missing:
        """The trace of dW at a split factor, added up atomically."""
        reduction = "none" if split_t == 1 else "atomic"
        key = ("lesson", reduction, split_t, *shape)
        return self._evidence("timelines", key, {"dw"})

    def stream_k_timeline(self, shape: Shape) -> TimelinePoint | Missing:
        """The trace of dW in stream-K form, its shared tiles added up atomically."""
        key = ("stream_k", "atomic", 1, *shape)
        return self._evidence("timelines", key, {"fast"})

    def determinism(
        self, shape: Shape, implementation: str, reduction: str | None, split_t
    ) -> DeterminismPoint | Missing:
        """Repeated runs; the vendor's have neither a reduction nor a factor."""
        kernels = {"workspace": {"dw", "reduce"}, None: set()}.get(reduction, {"dw"})
        key = (implementation, reduction, split_t, *shape)
        return self._evidence("determinism", key, kernels)

    def accumulation(
        self, gradient: str, buffer: str, micro_batches: int
    ) -> AccumulationPoint | Missing:
        """The one shape that was accumulated."""
        return self._evidence("accumulation", (gradient, buffer, micro_batches), {"dw"})

    def partials(self, dtype: str, split_t: int) -> PartialsPoint | Missing:
        """dW from partial sums of a dtype, at the one shape recorded."""
        key = (dtype, split_t)
        return self._evidence("accumulation", key, {"dw"}, "partials")

    def transpose(
        self, shape: Shape, op: str, implementation: str, way: str
    ) -> TransposePoint | Missing:
        kernels = {op} if implementation == "lesson" else set()
        key = (op, implementation, way, *shape)
        return self._evidence("transposes", key, kernels)

    def training(
        self, way: str, seed: int, order: int, repeat: int
    ) -> TrainingPoint | Missing:
        """A run of the small model; see the schema for what names it."""
        kernels = set() if way == "vendor" else {"fast"}
        return self._evidence("training", (way, seed, order, repeat), kernels)

    def trap(self, name: str) -> TrapPoint | Missing:
        return self._evidence("traps", (name,), set())

    def keys(self, name: str, points: str = "points") -> list[tuple]:
        """Keys of every point of an evidence section, shown or not."""
        section = getattr(self.recording, name)
        return [point.key for point in getattr(section, points)] if section else []

    def _evidence(
        self, name: str, key: tuple, kernels: set[str], points: str = "points"
    ):
        """The point of a section whose key begins so, or why it is not shown."""
        section = getattr(self.recording, name)
        for point in getattr(section, points) if section else ():
            if point.key[: len(key)] == key:
                return self._shown(point, kernels)
        return _absent(section, name)

    def tiles(self, k: int, n: int) -> int:
        """Output tiles of dW[K, N]; T does not matter."""
        tile = choose_tile("dw", ITEMSIZE, self.gpu.device)
        return output_tiles("dw", (1, k, n), tile)

    def resident(self) -> tuple[int, bool]:
        """Programs of dW an SM holds at once, and whether that was recorded."""
        for launch in self.launches:
            point = self.occupancy(*launch)
            if launch[1] == "dw" and not isinstance(point, Missing):
                return point.resident_programs, True
        tile = choose_tile("dw", ITEMSIZE, self.gpu.device)
        return expected_resident("dw", tile, ITEMSIZE, self.gpu.device), False

    def _shown(self, point, kernels: set[str]):
        for kernel in sorted(kernels & self._failed):
            return Missing(_failure(kernel))
        if getattr(point, "skipped_reason", None) is not None:
            return Missing(point.skipped_reason)
        return point


def _points(section) -> list:
    points = section.points if section else ()
    return [point for point in points if point.dtype == DTYPE]


def _launch(point: OccupancyPoint) -> tuple:
    reduction = point.reduction if point.kernel in ("dw", "fast") else "none"
    return point.shape, point.kernel, reduction, point.split_t


def _kernels(op: str, configuration: Configuration | None) -> set[str]:
    """The kernels that a point of ours ran."""
    if configuration is not None and configuration.reduction == "workspace":
        return {op, "reduce"}
    return {op}


def _kernels_of(point: GemmPoint) -> set[str]:
    """The kernels that a GEMM's implementation ran."""
    if point.implementation == "vendor":
        return set()
    if point.implementation == "lesson":
        return _kernels(point.op, point.configuration)
    return {"fast"}


def _failure(kernel: str) -> str:
    return f"a test of the {kernel} kernel failed on this GPU"


def _union(first, second) -> list:
    return list(dict.fromkeys([*first, *second]))


def _absent(section, name: str) -> Missing:
    if section is None:
        return Missing(f"this recording has no section {name}")
    return Missing("this recording does not hold that point")
