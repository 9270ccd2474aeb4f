"""The data contract: what a recording holds, how it is read and written.

A recording is a folder `data/<gpu-slug>/<recording>/` with `environment.json`
and one JSON file a section. JSON is strict both ways: no NaN, no unknown,
missing, repeated or mistyped field. Units stand in field names; what is not
known is null beside a `…_reason`. Only raw samples are stored: medians, rates
and ratios are computed on reading.
"""

import functools
import json
import math
import os
import re
import statistics
from collections import Counter
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from kernels.plan import Copied, Device, FastKernel, Mode, Op, Reduction

SCHEMA_VERSION = 3

Implementation = Literal[
    "vendor",
    "lesson",
    "grouped",
    "tiles",
    "descriptor",
    "persistent",
    "split",
    "stream_k",
    "specialized",
    "pitched",
    "copied",
    "aligned",
    "fast",
    "deterministic",
]
"""The vendor library's, the lesson's, the rungs of the ladder from there on, the
persistent one as it was tried with specialised warps, the best through pointers and
the best of copies where both serve, the one planned as if all rows began at whole
lines of L2 where that is another, and what the public functions run: "fast" by
default, "deterministic" where asked for."""
Kernel = Literal["forward", "dx", "dw", "reduce", "fast"]
TrainingWay = Literal["vendor", "atomic", "deterministic", "main_grad"]
Dtype = Literal["bfloat16", "float16", "float32"]
Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Percent = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Error = Annotated[float, Field(ge=0)]
"""‖out − fp64‖ / ‖fp64‖."""
Samples = Annotated[tuple[Positive, ...], Field(min_length=5)]
Block = Annotated[int, Field(ge=1, le=1024)]
Warps = Annotated[int, Field(ge=1, le=32)]
Stages = Annotated[int, Field(ge=1, le=16)]
Power = Annotated[float, Field(ge=0)]
Celsius = Annotated[int, Field(ge=-50, le=200)]
Text = Annotated[str, Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class DataError(Exception):
    """A file of a recording breaks the contract; says which file and field."""


class Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False
    )


class Shape(Model):
    """T tokens, K input features, N output features."""

    T: Size
    K: Size
    N: Size

    @property
    def flops(self) -> int:
        """Multiplications and additions of any of the three GEMMs: 2·T·K·N."""
        return 2 * self.T * self.K * self.N

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.T, self.K, self.N


class Configuration(Model):
    """Blocks, warps, stages and split that a kernel of ours was launched with."""

    block_t: Block
    block_k: Block
    block_n: Block
    num_warps: Warps
    num_stages: Stages
    split_t: Size
    reduction: Reduction

    @model_validator(mode="after")
    def _several_share_a_tile(self):
        if self.reduction == "none" and self.split_t > 1:
            raise ValueError("reduction: programs that share a tile need one")
        return self


class FastConfiguration(Configuration):
    """What a fast kernel was launched with.

    programs: of the whole launch. parts: in how many a tile is stored. copied: the
    operands that were copied first; None where that was not written down yet.
    """

    kernel: FastKernel
    programs: Size
    parts: Size
    copied: Copied | None = None


def _launched(configuration) -> str:
    if isinstance(configuration, dict):
        return "fast" if "kernel" in configuration else "plain"
    return "fast" if hasattr(configuration, "kernel") else "plain"


AnyConfiguration = Annotated[
    Annotated[FastConfiguration, Tag("fast")] | Annotated[Configuration, Tag("plain")],
    Discriminator(_launched),
]


def _as_said(point) -> None:
    """ValueError where a point's launch is not of the reduction and split it names."""
    made = point.configuration
    if made and (made.reduction, made.split_t) != (point.reduction, point.split_t):
        raise ValueError(
            "configuration has another reduction or split_t than the point"
        )


def _by_whom(point) -> None:
    """ValueError where the vendor's has a configuration, or what ran of ours none."""
    vendor = point.implementation == "vendor"
    if vendor and point.configuration:
        raise ValueError("configuration is not known of the vendor's")
    if not vendor and point.samples_ms and not point.configuration:
        raise ValueError("configuration is missing")


class DeviceState(Model):
    """The GPU while a point's samples were taken, as NVML told it."""

    clock_sm_mhz: Count | None
    clock_memory_mhz: Count | None
    power_w: Power | None
    temperature_c: Celsius | None
    throttle: tuple[Text, ...] | None
    nvml_reason: Text | None

    @model_validator(mode="after")
    def _told_or_reason(self):
        told = self.model_dump(exclude={"nvml_reason"}).values()
        if (None in told) != (self.nvml_reason is not None):
            raise ValueError("needs either all of NVML's answers or nvml_reason")
        return self


class Timed(Model):
    """Samples of a whole operation, or the reason why there are none."""

    samples_ms: Samples | None
    state: DeviceState | None
    skipped_reason: Text | None

    @model_validator(mode="after")
    def _measured_or_skipped(self):
        if (self.samples_ms is None) == (self.skipped_reason is None):
            raise ValueError("needs either samples_ms or skipped_reason")
        if (self.samples_ms is None) != (self.state is None):
            raise ValueError("needs state where it has samples_ms, and there alone")
        if self.judged and (self.samples_ms is None) != (self.error is None):
            raise ValueError("needs error where it has samples_ms, and there alone")
        return self

    @property
    def judged(self) -> bool:
        """Whether its result was compared with fp64."""
        return "error" in type(self).model_fields

    @property
    def time_ms(self) -> float | None:
        """Median of the samples."""
        return None if self.samples_ms is None else statistics.median(self.samples_ms)

    @property
    def spread(self) -> float | None:
        """Distance from the 20th to the 80th percentile, over the median."""
        if self.samples_ms is None:
            return None
        low, *_, high = statistics.quantiles(self.samples_ms, n=5)
        return (high - low) / self.time_ms


class GemmPoint(Timed, Shape):
    """One GEMM by one implementation: zeroing, GEMM and reduction together."""

    op: Op
    mode: Mode
    implementation: Implementation
    dtype: Dtype
    configuration: AnyConfiguration | None
    error: Error | None
    """Over the checked rows of the output."""

    @model_validator(mode="after")
    def _launched_by_whom(self):
        _by_whom(self)
        return self

    @property
    def key(self) -> tuple:
        return self.op, self.mode, self.implementation, self.dtype, *self.shape

    @property
    def tflops(self) -> float | None:
        return None if self.time_ms is None else self.flops / self.time_ms / 1e9


class SplitPoint(Timed, Shape):
    """dW, overwriting, at one split factor and reduction."""

    reduction: Reduction
    split_t: Size
    dtype: Dtype
    configuration: Configuration | None
    error: Error | None

    @model_validator(mode="after")
    def _launched_as_said(self):
        if self.samples_ms and not self.configuration:
            raise ValueError("configuration is missing")
        _as_said(self)
        return self

    @property
    def key(self) -> tuple:
        return self.reduction, self.split_t, self.dtype, *self.shape


class Counters(Model):
    """Hardware counters of one launch, read by Nsight Compute."""

    time_ms: Positive
    achieved_occupancy_pct: Percent
    """Warps on an SM over the most it can hold, while it had any."""
    sm_active_pct: Percent
    """Share of SM-time with a program on the SM."""
    tensor_pipe_pct: Percent
    """Share of SM-time in which the tensor cores worked."""
    dram_read_bytes: Count
    dram_write_bytes: Count
    atomic_requests: Count
    """Requests of global atomics, one a warp and instruction."""


class OccupancyPoint(Shape):
    """One compiled kernel: what it takes of an SM and how it used the GPU."""

    kernel: Kernel
    mode: Mode
    reduction: Reduction
    split_t: Size
    dtype: Dtype
    configuration: AnyConfiguration | None
    programs: Size
    num_warps: Size
    registers_per_thread: Count
    spilled_registers_per_thread: Count
    shared_memory_bytes: Count
    resident_programs: Size
    """Programs an SM holds at once, by the driver's own occupancy call."""
    counters: Counters | None
    counters_reason: Text | None
    utilization_pct: Percent | None
    """GPU-Util, as nvidia-smi shows it, while the kernel ran again and again."""
    utilization_reason: Text | None

    @model_validator(mode="after")
    def _counted_or_reason(self):
        if (self.counters is None) == (self.counters_reason is None):
            raise ValueError("needs either counters or counters_reason")
        if (self.utilization_pct is None) == (self.utilization_reason is None):
            raise ValueError("needs either utilization_pct or utilization_reason")
        if (self.configuration is None) != (self.kernel == "reduce"):
            raise ValueError("configuration is of all kernels but reduce")
        _as_said(self)
        return self

    @property
    def key(self) -> tuple:
        return self.kernel, self.mode, self.reduction, self.split_t, *self.shape


class Trace(Model):
    """Where and when the programs of one launch ran, in the order of their ids."""

    sm: tuple[Count, ...]
    start_ns: tuple[Count, ...]
    end_ns: tuple[Count, ...]
    """Since the first start of any."""

    @model_validator(mode="after")
    def _one_of_each_a_program(self):
        if not len(self.sm) == len(self.start_ns) == len(self.end_ns) > 0:
            raise ValueError("needs sm, start_ns and end_ns of each program")
        if min(self.start_ns):
            raise ValueError("start_ns must count from the first start")
        # A program may be shorter than a step of the clock, all of them cannot.
        spans = zip(self.start_ns, self.end_ns, strict=True)
        if any(end < start for start, end in spans) or not max(self.end_ns):
            raise ValueError("end_ns must come after start_ns")
        return self

    @cached_property
    def makespan_ns(self) -> int:
        """From the first start to the last end."""
        return max(self.end_ns)

    @cached_property
    def lanes(self) -> tuple[int, ...]:
        """Which of its SM's slots each program ran in: the first that was free."""
        lanes = [0] * len(self.sm)
        free: dict[int, list[int]] = {}

        def order(program: int) -> tuple[int, bool]:
            """Of those that start at once, what takes no time is the first to go."""
            start = self.start_ns[program]
            return start, self.end_ns[program] > start

        for program in sorted(range(len(self.sm)), key=order):
            ends = free.setdefault(self.sm[program], [])
            start = self.start_ns[program]
            lane = next((i for i, end in enumerate(ends) if end <= start), len(ends))
            ends[lane : lane + 1] = [self.end_ns[program]]
            lanes[program] = lane
        return tuple(lanes)

    @property
    def resident(self) -> int:
        """The most programs that any SM held at once."""
        return max(self.lanes) + 1

    @property
    def waves(self) -> int:
        """The most programs that one slot ran, one after another."""
        return max(Counter(zip(self.sm, self.lanes, strict=True)).values())

    @property
    def sms(self) -> int:
        """SMs that ran a program."""
        return len(set(self.sm))

    def fill(self, sm_count: int) -> float:
        """Share of SM-time, over the makespan, with a program on the SM."""
        return self.filled_ns / (sm_count * self.makespan_ns)

    @cached_property
    def filled_ns(self) -> int:
        """Time with a program on an SM, of all SMs together."""
        spans = sorted(zip(self.sm, self.start_ns, self.end_ns, strict=True))
        filled, before, until = 0, None, 0
        for sm, start, end in spans:
            until = until if sm == before else 0
            filled += max(0, end - max(start, until))
            before, until = sm, max(until, end)
        return filled


class TimelinePoint(Shape):
    """dW, overwriting, traced: a launch whose makespan is the median of several.

    A stream-K launch has no split factor of its own: its split_t is 1.
    """

    implementation: Literal["lesson", "stream_k"]
    reduction: Reduction
    split_t: Size
    dtype: Dtype
    configuration: AnyConfiguration | None
    resident_programs: Size | None
    """Programs an SM holds at once, by the driver's own occupancy call."""
    trace: Trace | None
    plain_ms: Samples | None
    traced_ms: Samples | None
    """The whole operation by the kernel as it is and by the traced one, in turns."""
    skipped_reason: Text | None

    @model_validator(mode="after")
    def _traced_or_skipped(self):
        found = [self.trace, self.plain_ms, self.traced_ms, self.resident_programs]
        missing = [value is None for value in found]
        if any(missing) != all(missing) or all(missing) == (not self.skipped_reason):
            raise ValueError("needs either a trace with its samples or skipped_reason")
        if self.trace and not self.configuration:
            raise ValueError("configuration is missing")
        _as_said(self)
        return self

    @property
    def key(self) -> tuple:
        return self.implementation, self.reduction, self.split_t, *self.shape

    @property
    def overhead(self) -> float | None:
        """Time of the traced operation over that of the plain one, less one."""
        if self.trace is None:
            return None
        return statistics.median(self.traced_ms) / statistics.median(self.plain_ms) - 1


Condition = Literal["alone", "memory pressure", "two streams"]


class Repeats(Model):
    """Many runs of one call on the same operands, and how far they disagree."""

    condition: Condition
    runs: Size
    distinct: Size
    """Bit patterns of the whole output."""
    differing_elements: Count
    """Elements that any two runs disagree on."""
    largest_spread: Annotated[float, Field(ge=0)]
    """Largest less smallest value of the worst element, over the output's RMS."""


class DeterminismPoint(Timed, Shape):
    """dW, overwriting, run again and again; the vendor's split is its own choice."""

    implementation: Literal["vendor", "lesson"]
    reduction: Reduction | None
    split_t: Size | None
    dtype: Dtype
    configuration: Configuration | None
    error: Error | None
    repeats: tuple[Repeats, ...]

    @model_validator(mode="after")
    def _repeated_if_measured(self):
        _by_whom(self)
        _as_said(self)
        expected = get_args(Condition) if self.samples_ms else ()
        if sorted(r.condition for r in self.repeats) != sorted(expected):
            raise ValueError("needs repeats of each condition once where it was timed")
        return self

    @property
    def key(self) -> tuple:
        return self.implementation, self.reduction, self.split_t, *self.shape

    def under(self, condition: str) -> Repeats | None:
        return next((r for r in self.repeats if r.condition == condition), None)


class AccumulationPoint(Shape):
    """A gradient buffer after so many micro-batches of T tokens each."""

    gradient: Literal["noise", "signal"]
    """Micro-batches that agree on nothing, or on a small common part."""
    buffer: Dtype
    micro_batches: Size
    error: Error
    unchanged_share: Share
    """Elements that the last micro-batch left as they were, of those it added to."""

    @property
    def key(self) -> tuple:
        return self.gradient, self.buffer, self.micro_batches, *self.shape


class PartialsPoint(Shape):
    """dW from partial sums of a dtype, rounded once each and added in order."""

    partials: Dtype
    split_t: Size
    error: Error

    @property
    def key(self) -> tuple:
        return self.partials, self.split_t, *self.shape


class TrainingText(Model):
    """What a model was trained on; its end, held out, is what it is judged by."""

    name: Text
    text_bytes: Size
    text_sha256: Sha256
    held_out_bytes: Size
    byte_entropy_nats: Positive
    """The least loss of a prediction that knows how often each byte occurs, no more."""


class TrainingModel(Model):
    """A transformer that predicts the next byte, and what a step gives it."""

    layers: Size
    width: Size
    heads: Size
    context_tokens: Size
    batch_sequences: Size
    vocabulary: Size
    parameters: Size
    """Numbers that are learned, of all layers."""
    parameters_dtype: Dtype
    autocast_dtype: Dtype

    @property
    def batch_tokens(self) -> int:
        """T of every linear layer."""
        return self.batch_sequences * self.context_tokens


class TrainingRun(Model):
    """What one run of all steps gave."""

    losses_nats: Annotated[tuple[Positive, ...], Field(min_length=1)]
    """Mean over a step's bytes, before the parameters change: fp32, all its digits."""
    held_out_nats: Positive
    """Mean over the held-out bytes, after the last step."""
    step_ms: Annotated[tuple[Positive, ...], Field(min_length=1)]
    """From an idle device until all of a step has run."""
    host_ms: Annotated[tuple[Positive, ...], Field(min_length=1)]
    """As much of it as passed until the host had queued the step."""
    parameters_sha256: Sha256
    """Digest of the bits of all parameters after the last step."""
    peak_bytes: Size
    """The allocator's over what was there before, parameters and optimizer in it."""

    @model_validator(mode="after")
    def _one_of_each_a_step(self):
        if not len(self.losses_nats) == len(self.step_ms) == len(self.host_ms):
            raise ValueError("needs losses_nats, step_ms and host_ms of each step")
        return self

    @property
    def time_ms(self) -> float:
        """Median of the steps."""
        return statistics.median(self.step_ms)


class TrainingPoint(Model):
    """One run: who computed the linear layers, and from which beginning.

    way: "vendor", torch.nn.Linear; "atomic", ours as it is by default;
    "deterministic", ours where that is asked for; "main_grad", ours, adding dW to an
    fp32 buffer that the optimizer reads. seed: of the initial parameters and of the
    batches. order: 0 leaves the sequences of each batch as they were drawn, another
    shuffles them, so that the same numbers are added in another order. repeat: counts
    runs of which nothing differs.
    """

    way: TrainingWay
    seed: Count
    order: Count
    repeat: Size
    run: TrainingRun | None
    skipped_reason: Text | None

    @model_validator(mode="after")
    def _run_or_skipped(self):
        if (self.run is None) == (self.skipped_reason is None):
            raise ValueError("needs either run or skipped_reason")
        return self

    @property
    def key(self) -> tuple:
        return self.way, self.seed, self.order, self.repeat


class TransposePoint(Timed, Shape):
    """One way to come by the product of an operand's transpose."""

    op: Op
    implementation: Literal["vendor", "lesson"]
    way: Literal["in place", "copied first", "copied before", "the copy alone"]
    dtype: Dtype
    error: Error | None
    extra_bytes: Count | None
    """The allocator's peak over the operands and the output."""

    @model_validator(mode="after")
    def _counted_if_measured(self):
        if (self.extra_bytes is None) != (self.samples_ms is None):
            raise ValueError(
                "needs extra_bytes where it has samples_ms, and there alone"
            )
        return self

    @property
    def judged(self) -> bool:
        return self.way != "the copy alone"

    @property
    def key(self) -> tuple:
        return self.op, self.implementation, self.way, *self.shape


class Reading(Model):
    """A number that a measurement or a test of a trap gave."""

    value: float
    unit: Text
    meaning: Text


class Effect(Model):
    """What one form of a trap did: its result, its time, or its reading."""

    error: Error | None
    """Over the finite elements; null without a result or where none is finite."""
    elements: Count
    wrong_elements: Count
    """Further from fp64 than 5e-4 of the output's RMS; not finite ones among them."""
    non_finite_elements: Count
    picture: tuple[tuple[float | None, ...], ...] | None
    """A grid over the output: the worst |out − fp64| of a cell over the RMS of the
    whole, null where one is not finite."""
    samples_ms: Samples | None
    reading: Reading | None

    @model_validator(mode="after")
    def _some_of_all(self):
        if not self.non_finite_elements <= self.wrong_elements <= self.elements:
            raise ValueError("wrong_elements are of elements, some of them not finite")
        if bool(self.elements) != (self.picture is not None):
            raise ValueError("needs picture where it has elements, and there alone")
        if bool(self.elements) == (self.reading is not None):
            raise ValueError("needs either elements or reading")
        if (self.error is None) != (self.non_finite_elements == self.elements):
            raise ValueError("needs error where an element is finite, and there alone")
        return self

    @property
    def time_ms(self) -> float | None:
        return None if self.samples_ms is None else statistics.median(self.samples_ms)


class CheckOutcome(Model):
    """What a check says of both forms of a trap: a good one passes only the fix."""

    check: Text
    broken_passes: bool
    fixed_passes: bool


class TrapPoint(Model):
    """A mistake made on purpose beside its fix, on the same operands.

    T, K, N are null where not even the operands could be made.
    """

    T: Size | None
    K: Size | None
    N: Size | None
    trap: Text
    kind: Literal["wrong result", "lost time", "blind check"]
    dtype: Dtype
    broken: Effect | None
    fixed: Effect | None
    checks: tuple[CheckOutcome, ...]
    skipped_reason: Text | None

    @model_validator(mode="after")
    def _run_or_skipped(self):
        ran = self.broken is not None and self.fixed is not None
        if ran == (self.skipped_reason is not None):
            raise ValueError("needs either both effects or skipped_reason")
        if ran and None in (self.T, self.K, self.N):
            raise ValueError("needs T, K and N of what was run")
        return self

    @property
    def key(self) -> tuple:
        return (self.trap,)


class LaunchPoint(Shape):
    """What a call of a small product costs the host until it has returned.

    way: "bare", the same kernel launched with arguments made beforehand; "public",
    the public function into an output given to it; "vendor", the library's.
    """

    op: Op
    mode: Mode
    way: Literal["bare", "public", "vendor"]
    dtype: Dtype
    host_us: Samples | None
    """Microseconds of a call, each the mean of many in a row."""
    skipped_reason: Text | None

    @model_validator(mode="after")
    def _measured_or_skipped(self):
        if (self.host_us is None) == (self.skipped_reason is None):
            raise ValueError("needs either host_us or skipped_reason")
        return self

    @property
    def key(self) -> tuple:
        return self.op, self.mode, self.way, *self.shape

    @property
    def time_us(self) -> float | None:
        """Median of the samples."""
        return None if self.host_us is None else statistics.median(self.host_us)


class TestOutcome(Model):
    """One GPU test and the kernels it ran."""

    __test__: ClassVar[bool] = False

    name: Text
    outcome: Literal["passed", "failed", "error", "skipped"]
    kernels: tuple[Kernel, ...]
    message: Text | None

    @property
    def key(self) -> tuple:
        return (self.name,)


SanitizerTool = Literal["memcheck", "racecheck", "initcheck"]
SANITIZER_TOOLS: tuple[SanitizerTool, ...] = get_args(SanitizerTool)


class Launched(Model):
    """How often a kernel was launched, by the name of its function."""

    kernel: Text
    times: Size


class SanitizerPoint(Model):
    """What one tool of compute-sanitizer found in a run of every kernel.

    `skipped_reason` stands for everything but the control, which has its own.
    """

    tool: SanitizerTool
    command: Text | None
    launches: tuple[Launched, ...] | None
    """Of each kernel; none where the program ended before it said so."""
    results: Count | None
    """Outputs that the program compared with fp64 meanwhile."""
    wrong: tuple[Text, ...] | None
    reported_errors: Count | None
    reported_warnings: Count | None
    """As the tool itself sums them up; races alone can be warnings."""
    errors: Count | None
    warnings: Count | None
    """Those of them that name one of our kernels."""
    reports: tuple[Text, ...] | None
    """The first of what was reported."""
    duration_s: Positive | None
    skipped_reason: Text | None
    control_kernel: Text
    """A kernel broken so that the tool must report it, run beside the others."""
    control_errors: Count | None
    control_reason: Text | None

    @model_validator(mode="after")
    def _run_or_skipped(self):
        found = [self.command, self.launches, self.results, self.wrong, self.reports]
        found += [self.reported_errors, self.reported_warnings]
        found += [self.errors, self.warnings, self.duration_s]
        missing = [value is None for value in found]
        if any(missing) != all(missing) or all(missing) == (not self.skipped_reason):
            raise ValueError("needs either what the tool found or skipped_reason")
        if (self.control_errors is None) == (self.control_reason is None):
            raise ValueError("needs either control_errors or control_reason")
        return self

    @property
    def key(self) -> tuple:
        return (self.tool,)

    @property
    def launch_count(self) -> int | None:
        """Launches of all kernels together."""
        if self.launches is None:
            return None
        return sum(launched.times for launched in self.launches)

    @property
    def doubt(self) -> str | None:
        """Why it says nothing of the kernels, if it does not: errors always do."""
        if self.skipped_reason or self.errors or self.warnings:
            return self.skipped_reason
        if self.wrong:
            return f"under {self.tool}, {self.wrong[0]}"
        if not self.control_errors:
            why = self.control_reason or "it reported nothing"
            return f"{self.tool} on {self.control_kernel}, broken on purpose: {why}"
        return None

    @property
    def elsewhere(self) -> int | None:
        """Reports that name none of our kernels: of the framework's, or of the host."""
        if self.skipped_reason:
            return None
        reported = self.reported_errors + self.reported_warnings
        return reported - self.errors - self.warnings


class Section(Model):
    """What every file of a recording says of itself."""

    schema_version: Literal[3]
    harness_version: Size
    kernels_sha256: Sha256
    """Digest of the sources under kernels/ that the numbers come from."""
    recorded_on: date

    @model_validator(mode="after")
    def _no_duplicates(self):
        for name in ("points", "partials"):
            keys = Counter(point.key for point in getattr(self, name, ()))
            for key, times in keys.items():
                if times > 1:
                    words = " ".join(map(str, key))
                    raise ValueError(f"{name}: the point {words} stands {times} times")
        return self


class Gpu(Model):
    """Facts of the device, from the driver and, where it answers, NVML."""

    name: str
    unit: Text | None
    """Digest of the board's identity: which of several alike it was."""
    capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")]
    sm_count: Size
    warp_size: Size
    max_warps_per_sm: Size
    max_programs_per_sm: Size
    registers_per_sm: Size
    registers_per_program: Size
    shared_memory_per_sm_bytes: Size
    shared_memory_per_program_bytes: Size
    reserved_shared_memory_per_program_bytes: Count
    memory_bytes: Size
    l2_cache_bytes: Size
    clock_max_sm_mhz: Size | None
    clock_max_memory_mhz: Size | None
    power_limit_w: Positive | None
    mig_enabled: bool | None
    nvml_reason: Text | None

    @property
    def device(self) -> Device:
        """The facts that `kernels.plan` plans with."""
        names = Device.__dataclass_fields__
        return Device(**{name: getattr(self, name) for name in names})


class Software(Model):
    driver: Text | None
    cuda: Text
    torch: Text
    triton: Text
    python: Text
    cublas: Text | None
    bf16_reduced_precision_reduction: bool
    """PyTorch's setting for the vendor library's split sums of bf16 GEMMs."""


class Environment(Section):
    """Where and how a recording was made."""

    section: Literal["environment"]
    gpu: Gpu
    software: Software
    extent: Literal["quick", "full"]
    """Whether each section was recorded at its fewest or at its widest."""
    input_distribution: Text
    cache_state: Text
    warmup_ms: Positive
    error_rows: Size

    @model_validator(mode="after")
    def _told_or_reason(self):
        told = [*self.gpu.model_dump(exclude={"nvml_reason"}).values()]
        if (None in [*told, self.software.driver]) != (
            self.gpu.nvml_reason is not None
        ):
            raise ValueError("gpu: needs either all of NVML's answers or nvml_reason")
        return self


class Copy(Timed):
    """A device-to-device copy; bandwidth counts bytes read and written."""

    copied_bytes: Size

    @property
    def bandwidth_tbps(self) -> float:
        """Terabytes (10¹² bytes) a second, read plus written."""
        return 2 * self.copied_bytes / self.time_ms / 1e9


class VendorGemm(Timed, Shape):
    """The vendor library's product, to see what the chip can do."""

    dtype: Dtype

    @property
    def key(self) -> tuple:
        return self.dtype, *self.shape

    @property
    def tflops(self) -> float:
        return self.flops / self.time_ms / 1e9


class Ceilings(Section):
    """What the device reached, and what its datasheet allows."""

    section: Literal["ceilings"]
    copy_: Annotated[Copy, Field(alias="copy")]
    points: Annotated[tuple[VendorGemm, ...], Field(min_length=1)]
    flops_per_clock_per_sm: Size | None
    """Dense 16-bit tensor-core FLOPs; null where the architecture is unknown."""
    flops_reason: Text | None

    @model_validator(mode="after")
    def _known_or_reason(self):
        if (self.flops_per_clock_per_sm is None) == (self.flops_reason is None):
            raise ValueError("needs either flops_per_clock_per_sm or flops_reason")
        return self

    @property
    def measured(self) -> bool:
        """Whether both a copy and a product ran, so that there are ceilings."""
        products = any(point.samples_ms for point in self.points)
        return products and self.copy_.samples_ms is not None

    @property
    def gemm_tflops(self) -> float:
        """The fastest of the vendor's products, by its median."""
        return max(p.tflops for p in self.points if p.samples_ms)

    @property
    def gemm_peak_tflops(self) -> float:
        """The fastest single run of any of them."""
        ran = [p for p in self.points if p.samples_ms]
        return max(p.flops / min(p.samples_ms) / 1e9 for p in ran)

    def peak_tflops(self, gpu: Gpu) -> float | None:
        """SMs × highest clock × FLOPs a clock and SM."""
        if self.flops_per_clock_per_sm is None or gpu.clock_max_sm_mhz is None:
            return None
        per_clock = gpu.sm_count * self.flops_per_clock_per_sm
        return per_clock * gpu.clock_max_sm_mhz / 1e6


class Gemms(Section):
    section: Literal["gemms"]
    points: Annotated[tuple[GemmPoint, ...], Field(min_length=1)]


class Ladder(Section):
    """Every rung beside the vendor's, in turns, at a few shapes."""

    section: Literal["ladder"]
    points: Annotated[tuple[GemmPoint, ...], Field(min_length=1)]


class Further(Section):
    """The vendor's and the fast kernels at shapes that no plan was fitted to."""

    section: Literal["further"]
    points: Annotated[tuple[GemmPoint, ...], Field(min_length=1)]


class Launches(Section):
    section: Literal["launches"]
    points: Annotated[tuple[LaunchPoint, ...], Field(min_length=1)]


class Splits(Section):
    section: Literal["splits"]
    points: Annotated[tuple[SplitPoint, ...], Field(min_length=1)]


class Occupancy(Section):
    section: Literal["occupancy"]
    profiler: Text | None
    points: Annotated[tuple[OccupancyPoint, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _counted_by_whom(self):
        if self.profiler is None and any(point.counters for point in self.points):
            raise ValueError("profiler: counters are of one")
        return self


class Timelines(Section):
    section: Literal["timelines"]
    timer_resolution_ns: Size | None
    """The smallest step between two readings of the device's clock; null where no
    point has a trace, each by its own reason."""
    points: Annotated[tuple[TimelinePoint, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _resolution_of_a_trace(self):
        spans = [point.trace.makespan_ns for point in self.points if point.trace]
        if (self.timer_resolution_ns is None) != (not spans):
            raise ValueError("needs timer_resolution_ns where a point has a trace")
        if spans and self.timer_resolution_ns > max(spans):
            raise ValueError("timer_resolution_ns is longer than any launch")
        return self


class Determinism(Section):
    section: Literal["determinism"]
    points: Annotated[tuple[DeterminismPoint, ...], Field(min_length=1)]


class Accumulation(Section):
    section: Literal["accumulation"]
    gradient_distribution: Text
    points: Annotated[tuple[AccumulationPoint, ...], Field(min_length=1)]
    partials: Annotated[tuple[PartialsPoint, ...], Field(min_length=1)]


class Training(Section):
    """A small language model, trained again and again with other linear layers."""

    section: Literal["training"]
    layers_sha256: Sha256
    """Digest of kernels/layers.py."""
    text: TrainingText
    model: TrainingModel
    steps: Size
    optimizer: Text
    noise: Text
    """Which runs of torch.nn.Linear show by how much it disagrees with itself."""
    points: Annotated[tuple[TrainingPoint, ...], Field(min_length=1)]


class Transposes(Section):
    section: Literal["transposes"]
    points: Annotated[tuple[TransposePoint, ...], Field(min_length=1)]


class Traps(Section):
    section: Literal["traps"]
    traps_sha256: Sha256
    """Digest of the sources under kernels/traps/."""
    points: Annotated[tuple[TrapPoint, ...], Field(min_length=1)]


class Verification(Section):
    """The outcome of `pytest -m gpu` on the recorded device."""

    section: Literal["verification"]
    points: Annotated[tuple[TestOutcome, ...], Field(min_length=1)]
    duration_s: Positive

    @model_validator(mode="after")
    def _something_was_tested(self):
        if self.count("skipped") == len(self.points):
            raise ValueError("points: every test was skipped")
        return self

    @property
    def failed_kernels(self) -> set[Kernel]:
        """Kernels with a failing test: no point of theirs is charted."""
        bad = [p for p in self.points if p.outcome in ("failed", "error")]
        return {kernel for point in bad for kernel in point.kernels}

    def count(self, outcome: str) -> int:
        return sum(point.outcome == outcome for point in self.points)


class Sanitizer(Section):
    """compute-sanitizer over a program that launches every kernel."""

    section: Literal["sanitizer"]
    version: Text | None
    points: Annotated[tuple[SanitizerPoint, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _found_by_whom(self):
        if self.version is None and any(p.skipped_reason is None for p in self.points):
            raise ValueError("version: what was found is of one")
        return self


SECTIONS: dict[str, type[Section]] = {
    "environment": Environment,
    "ceilings": Ceilings,
    "gemms": Gemms,
    "ladder": Ladder,
    "further": Further,
    "launches": Launches,
    "splits": Splits,
    "occupancy": Occupancy,
    "timelines": Timelines,
    "determinism": Determinism,
    "accumulation": Accumulation,
    "training": Training,
    "transposes": Transposes,
    "traps": Traps,
    "verification": Verification,
    "sanitizer": Sanitizer,
}


class Recording:
    """One GPU × software stack × day, read from its folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.name = f"{folder.parent.name}/{folder.name}"
        if not (folder / "environment.json").is_file():
            raise DataError(f"{folder}: environment.json is missing")
        known = {f"{name}.json" for name in SECTIONS}
        for file in sorted(folder.iterdir()):
            if file.name not in known and not file.name.startswith("."):
                raise DataError(f"{file}: is not a section of a recording")
        self.environment: Environment = self._read("environment")
        self.ceilings: Ceilings | None = self._read("ceilings")
        self.gemms: Gemms | None = self._read("gemms")
        self.ladder: Ladder | None = self._read("ladder")
        self.further: Further | None = self._read("further")
        self.launches: Launches | None = self._read("launches")
        self.splits: Splits | None = self._read("splits")
        self.occupancy: Occupancy | None = self._read("occupancy")
        self.timelines: Timelines | None = self._read("timelines")
        self.determinism: Determinism | None = self._read("determinism")
        self.accumulation: Accumulation | None = self._read("accumulation")
        self.training: Training | None = self._read("training")
        self.transposes: Transposes | None = self._read("transposes")
        self.traps: Traps | None = self._read("traps")
        self.verification: Verification | None = self._read("verification")
        self.sanitizer: Sanitizer | None = self._read("sanitizer")

    def _read(self, name: str):
        file = self.folder / f"{name}.json"
        return read_section(file) if file.is_file() else None

    def __eq__(self, other):
        """Whether they are called alike and hold the same."""
        if not isinstance(other, Recording):
            return NotImplemented
        return self.name == other.name and self.sections == other.sections

    def __hash__(self):
        return hash(self.name)

    @property
    def sections(self) -> dict[str, Section]:
        found = {name: getattr(self, name) for name in SECTIONS}
        return {name: section for name, section in found.items() if section}


def recordings(data: Path) -> list[Recording]:
    """Every recording under `data`, oldest first. DataError if one is broken."""
    folders = sorted(path.parent for path in data.glob("*/*/environment.json"))
    orphans = {path.parent for path in data.glob("*/*/*.json")} - set(folders)
    for folder in sorted(orphans):
        raise DataError(f"{folder}: environment.json is missing")
    found = [Recording(folder) for folder in folders]
    return sorted(found, key=lambda r: (r.environment.recorded_on, _numbered(r.name)))


def _numbered(name: str) -> list[str | int]:
    """A name to sort by: -10 comes after -9."""
    return [
        int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)
    ]


def read_section(file: Path) -> Section:
    """Read one file of a recording. DataError names the file and the field."""
    text = file.read_text(encoding="utf-8")
    try:
        return _section(file.stem, text)
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


# Sections cannot be changed: what was read once is not read again.
@functools.lru_cache(maxsize=256)
def _section(name: str, text: str) -> Section:
    try:
        # NaN and infinities pass here: validation refuses them, by field.
        raw = json.loads(text, object_pairs_hook=_no_repeated_key)
    except ValueError as error:
        raise DataError(str(error)) from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA_VERSION:
        raise DataError(
            f"schema_version: {version!r} is not known here, "
            f"this code reads {SCHEMA_VERSION}"
        )
    try:
        return SECTIONS[name].model_validate_json(text)
    except ValidationError as error:
        raise DataError(first_fault(error)) from None


def first_fault(error: ValidationError) -> str:
    """The first field that breaks the contract, and how."""
    first = error.errors()[0]
    return f"{_where(first)}{_what(first)}"


def write_section(file: Path, section: Section) -> None:
    """Write a section whole or not at all: a temporary file, then a rename."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.part")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(_dumps(section.model_dump(mode="json", by_alias=True)))
        stream.flush()
        os.fsync(stream.fileno())
    if _section(file.stem, temporary.read_text("utf-8")) != section:
        temporary.unlink()
        raise DataError(f"{file}: reads back differently from what was recorded")
    temporary.replace(file)


def json_schema() -> dict:
    """JSON Schema of every section, for readers in other languages."""
    sections = {
        name: model.model_json_schema(by_alias=True) for name, model in SECTIONS.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recording of matmul backward kernels, one schema a section",
        "schema_version": SCHEMA_VERSION,
        "sections": sections,
    }


def rounded(milliseconds: float) -> float:
    """To six significant digits, as samples are stored."""
    return float(f"{milliseconds:.6g}")


def geometric_mean(ratios: list[float]) -> float:
    """Geometric mean of finite positive ratios; ValueError for any other."""
    if not ratios or not all(r > 0 and math.isfinite(r) for r in ratios):
        raise ValueError(f"ratios must be positive and finite, got {ratios}")
    return statistics.geometric_mean(ratios)


def _no_repeated_key(pairs: list[tuple]) -> dict:
    keys = Counter(key for key, _ in pairs)
    for key, times in keys.items():
        if times > 1:
            raise ValueError(f"{key}: stands {times} times in one object")
    return dict(pairs)


def _where(error: dict) -> str:
    path = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]
    )
    return f"{path.lstrip('.')}: " if path else ""


def _what(error: dict) -> str:
    return error["msg"].removeprefix("Value error, ")


def _dumps(raw: dict) -> str:
    """JSON with one field a line and one point a line: a diff names the point."""
    fields = []
    for name, value in raw.items():
        text = json.dumps(value, allow_nan=False)
        if name in ("points", "partials"):
            points = [json.dumps(point, allow_nan=False) for point in value]
            text = "[\n" + ",\n".join(f"    {point}" for point in points) + "\n  ]"
        fields.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}\n"
