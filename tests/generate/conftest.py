"""A made-up recording for tests: plausible numbers, written as the recorder does.

It lives under tmp_path only. Nothing made up is ever written to data/ or docs/.
"""

import hashlib
import math
import random
import shutil
from datetime import date
from functools import cached_property
from pathlib import Path

import pytest

from generate.digest import kernels_digest, layers_digest, traps_digest
from generate.render import render
from generate.render.ladder import broken, evened
from generate.render.planning import plain_layout
from generate.schema import (
    SANITIZER_TOOLS,
    Accumulation,
    AccumulationPoint,
    Ceilings,
    CheckOutcome,
    Configuration,
    Copy,
    Counters,
    Determinism,
    DeterminismPoint,
    DeviceState,
    Effect,
    Environment,
    FastConfiguration,
    Further,
    GemmPoint,
    Gemms,
    Gpu,
    Ladder,
    Launched,
    Launches,
    LaunchPoint,
    Occupancy,
    OccupancyPoint,
    PartialsPoint,
    Recording,
    Repeats,
    Sanitizer,
    SanitizerPoint,
    Section,
    Software,
    SplitPoint,
    Splits,
    TestOutcome,
    TimelinePoint,
    Timelines,
    Trace,
    Training,
    TrainingModel,
    TrainingPoint,
    TrainingRun,
    TrainingText,
    TransposePoint,
    Transposes,
    TrapPoint,
    Traps,
    VendorGemm,
    Verification,
    write_section,
)
from generate.shapes import (
    ACCUMULATED,
    DETERMINISM_FACTORS,
    DETERMINISM_SHAPES,
    FURTHER_SHAPES,
    GEMM_SHAPES,
    LADDER_SHAPES,
    LAUNCH_SHAPE,
    MICRO_BATCHES,
    PARTIAL_FACTORS,
    SPLIT_FACTORS,
    SPLIT_SHAPES,
    STARVED,
    TIMELINE_FACTORS,
    TIMELINE_SHAPES,
    TRANSPOSE_SHAPES,
    TRIED_SHAPES,
    WORKED,
    Shape,
)
from kernels.plan import RUNGS, FastPlan, Plan, fast_plan, plan, rung_plan
from kernels.traps import TRAPS

GPU = Gpu(
    name="Test GPU 132",
    unit="5eed",
    capability="9.0",
    sm_count=132,
    warp_size=32,
    max_warps_per_sm=64,
    max_programs_per_sm=32,
    registers_per_sm=65536,
    registers_per_program=65536,
    shared_memory_per_sm_bytes=233472,
    shared_memory_per_program_bytes=232448,
    reserved_shared_memory_per_program_bytes=1024,
    memory_bytes=150_000_000_000,
    l2_cache_bytes=62_914_560,
    clock_max_sm_mhz=1980,
    clock_max_memory_mhz=3201,
    power_limit_w=700.0,
    mig_enabled=False,
    nvml_reason=None,
)
SOFTWARE = Software(
    driver="580.1",
    cuda="13.0",
    torch="2.11.0",
    triton="3.6.0",
    python="3.12.1",
    cublas="13.0.0",
    bf16_reduced_precision_reduction=True,
)
STATE = DeviceState(
    clock_sm_mhz=1980,
    clock_memory_mhz=3201,
    power_w=500.0,
    temperature_c=45,
    throttle=(),
    nvml_reason=None,
)
RATE_TFLOPS, BANDWIDTH_TBPS, LAUNCH_MS = 700.0, 4.0, 0.012


ROOT = Path(__file__).resolve().parents[2]

TRAINED_STEPS = 60
# Way, seed, order and repeat of every run.
TRAINED = (
    ("vendor", 0, 0, 1),
    ("atomic", 0, 0, 1),
    ("deterministic", 0, 0, 1),
    ("main_grad", 0, 0, 1),
    ("vendor", 0, 0, 2),
    ("atomic", 0, 0, 2),
    ("deterministic", 0, 0, 2),
    ("vendor", 0, 1, 1),
    ("vendor", 0, 2, 1),
    ("vendor", 0, 3, 1),
    ("vendor", 1, 0, 1),
    ("vendor", 2, 0, 1),
)


class Maker:
    """Builds the sections of a recording; a test changes what it is about."""

    def __init__(self, gpu: Gpu = GPU, kernels_sha256: str = "0" * 64):
        self.gpu = gpu
        self.header = {
            "schema_version": 3,
            "harness_version": 1,
            "kernels_sha256": kernels_sha256,
            "recorded_on": date(2026, 1, 31),
        }
        # What was written once of its own sections is copied from then on.
        self._texts: dict[str, str] = {}

    def environment(self) -> Environment:
        return Environment(
            section="environment",
            **self.header,
            gpu=self.gpu,
            software=SOFTWARE,
            extent="full",
            input_distribution="normal, mean 0, standard deviation 1, seed 0",
            cache_state="L2 flushed before every sample",
            warmup_ms=200.0,
            error_rows=256,
        )

    def ceilings(self) -> Ceilings:
        return Ceilings(
            section="ceilings",
            **self.header,
            copy=Copy(copied_bytes=2**30, **measured(2 * 2**30 / 4.2e9)),
            points=(
                VendorGemm(T=8192, K=8192, N=8192, dtype="bfloat16", **measured(1.4)),
            ),
            flops_per_clock_per_sm=4096,
            flops_reason=None,
        )

    def gemms(self, shapes: tuple[Shape, ...] = GEMM_SHAPES) -> Gemms:
        points = []
        for shape in shapes:
            for op, mode in CALLS:
                vendor = ideal_ms(shape) * (1.05 if mode == "accumulate" else 1.0)
                fast = fast_plan(op, shape, 2, self.gpu.device, mode=mode)
                rows = [
                    ("vendor", None, 1.0),
                    ("lesson", configuration(self.plan(op, shape)), 1.08),
                    ("fast", fast_configuration(fast), 1.01),
                ]
                if op == "dw":
                    fixed = fast_plan(
                        op, shape, 2, self.gpu.device, mode=mode, reduction="workspace"
                    )
                    rows.append(("deterministic", fast_configuration(fixed), 1.03))
                for name, made, factor in rows:
                    timed = measured(vendor * factor)
                    points.append(self._gemm(shape, op, mode, name, made, timed))
        return Gemms(section="gemms", **self.header, points=tuple(points))

    def ladder(self) -> Ladder:
        """Each rung a little faster than the one below it."""
        points = []
        for shape in LADDER_SHAPES:
            for op, mode in CALLS:
                for place, rung in enumerate(("vendor", "lesson", *RUNGS)):
                    chosen = rung not in ("vendor", "lesson") and rung_plan(
                        rung, op, shape, 2, self.gpu.device, mode
                    )
                    made = None
                    if rung == "lesson":
                        made = configuration(self.plan(op, shape))
                    elif chosen:
                        made = fast_configuration(chosen)
                    timed = measured(ideal_ms(shape) * (1.3 - 0.04 * place))
                    if chosen is None:
                        timed = skipped("the rung has no launch at this shape")
                    points.append(self._gemm(shape, op, mode, rung, made, timed))
                if shape in TRIED_SHAPES:
                    tried = rung_plan("persistent", op, shape, 2, self.gpu.device, mode)
                    made = tried and fast_configuration(tried)
                    timed = measured(ideal_ms(shape) * 1.3)
                    if tried is None:
                        timed = skipped("the rung has no launch at this shape")
                    points.append(
                        self._gemm(shape, op, mode, "specialized", made, timed)
                    )
        return Ladder(section="ladder", **self.header, points=tuple(points))

    def further(self, shapes: tuple[Shape, ...] = FURTHER_SHAPES) -> Further:
        points = []
        for shape in shapes:
            for op, mode in CALLS:
                chosen = fast_plan(
                    op,
                    shape,
                    2,
                    self.gpu.device,
                    mode=mode,
                    layout=plain_layout(op, shape),
                )
                made = fast_configuration(chosen)
                rows = [("vendor", None, 1.0), ("fast", made, 1.02)]
                if evened(shape):
                    loads = made.model_copy(update={"kernel": "pitched"})
                    rows += [("pitched", loads, 1.02), ("copied", made, 1.4)]
                if broken(shape):
                    rows += [("aligned", made, 1.3)]
                for name, made, factor in rows:
                    timed = measured(ideal_ms(shape) * factor)
                    points.append(self._gemm(shape, op, mode, name, made, timed))
        return Further(section="further", **self.header, points=tuple(points))

    def launches(self) -> Launches:
        return Launches(
            section="launches",
            **self.header,
            points=tuple(
                LaunchPoint(
                    **dimensions(LAUNCH_SHAPE),
                    op=op,
                    mode=mode,
                    way=way,
                    dtype="bfloat16",
                    host_us=tuple(us + step for step in (-1, -0.5, 0, 0.5, 1)),
                    skipped_reason=None,
                )
                for op, mode in CALLS
                for way, us in (("bare", 30.0), ("public", 42.0), ("vendor", 9.0))
            ),
        )

    def _gemm(self, shape, op, mode, implementation, made, timed) -> GemmPoint:
        error = 1.2e-5 if op == "dw" else 1.7e-3
        return GemmPoint(
            **dimensions(shape),
            op=op,
            mode=mode,
            implementation=implementation,
            dtype="bfloat16",
            configuration=made,
            error=error if timed["samples_ms"] else None,
            **timed,
        )

    def splits(self, shapes: tuple[Shape, ...] = SPLIT_SHAPES) -> Splits:
        rows = [("none", 1)]
        rows += [(r, s) for s in SPLIT_FACTORS for r in ("atomic", "workspace")]
        points = [
            SplitPoint(
                **dimensions(shape),
                reduction=reduction,
                split_t=split_t,
                dtype="bfloat16",
                configuration=configuration(
                    self.plan("dw", shape, split_t=split_t, reduction=reduction)
                ),
                error=1.2e-5,
                **measured(self._split_ms(shape, reduction, split_t)),
            )
            for shape in shapes
            for reduction, split_t in rows
        ]
        return Splits(section="splits", **self.header, points=tuple(points))

    def occupancy(self) -> Occupancy:
        launches = [(s, op, "none", 1) for s in (WORKED, STARVED) for op in OPS]
        launches += [(STARVED, "dw", "atomic", s) for s in (2, 4, 8)]
        launches += [
            (STARVED, "dw", "workspace", 4),
            (STARVED, "reduce", "workspace", 4),
        ]
        return Occupancy(
            section="occupancy",
            **self.header,
            profiler="Nsight Compute 2026.1",
            points=tuple(self._launch(*launch) for launch in launches),
        )

    def determinism(self) -> Determinism:
        """Atomic adds differ from three splits on, nothing else does."""
        rows = [("vendor", None, None), ("lesson", "none", 1)]
        rows += [
            ("lesson", reduction, split_t)
            for reduction in ("atomic", "workspace")
            for split_t in DETERMINISM_FACTORS
        ]
        points = []
        for shape in DETERMINISM_SHAPES:
            for implementation, reduction, split_t in rows:
                differs = reduction == "atomic" and split_t > 2
                chosen = self.plan(
                    "dw", shape, split_t=split_t or 1, reduction=reduction or "none"
                )
                points.append(
                    DeterminismPoint(
                        **dimensions(shape),
                        implementation=implementation,
                        reduction=reduction,
                        split_t=split_t,
                        dtype="bfloat16",
                        configuration=configuration(chosen) if reduction else None,
                        error=1.2e-5,
                        repeats=tuple(
                            Repeats(
                                condition=condition,
                                runs=1000,
                                distinct=10 * split_t if differs else 1,
                                differing_elements=4096 if differs else 0,
                                largest_spread=2.5e-6 if differs else 0.0,
                            )
                            for condition in ("alone", "memory pressure", "two streams")
                        ),
                        **measured(
                            self._split_ms(shape, reduction or "none", split_t or 1)
                        ),
                    )
                )
        return Determinism(section="determinism", **self.header, points=tuple(points))

    def timelines(self) -> Timelines:
        """Programs go to the SMs in turn, two to each; a wave follows another."""
        points = []
        for shape in TIMELINE_SHAPES:
            for split_t in TIMELINE_FACTORS:
                reduction = "none" if split_t == 1 else "atomic"
                chosen = self.plan("dw", shape, split_t=split_t, reduction=reduction)
                operation_ms = self._split_ms(shape, reduction, split_t)
                programs, sms = chosen.tiles * split_t, self.gpu.sm_count
                waves = -(-programs // (2 * sms))
                each = int(1e6 * operation_ms / waves)
                starts = [i // (2 * sms) * each for i in range(programs)]
                samples = measured(operation_ms)["samples_ms"]
                points.append(
                    TimelinePoint(
                        **dimensions(shape),
                        implementation="lesson",
                        reduction=reduction,
                        split_t=split_t,
                        dtype="bfloat16",
                        configuration=configuration(chosen),
                        resident_programs=2,
                        trace=Trace(
                            sm=tuple(i % sms for i in range(programs)),
                            start_ns=tuple(starts),
                            end_ns=tuple(start + each for start in starts),
                        ),
                        plain_ms=samples,
                        traced_ms=tuple(1.01 * sample for sample in samples),
                        skipped_reason=None,
                    )
                )
            points.append(self._stream_k(shape))
        return Timelines(
            section="timelines",
            **self.header,
            timer_resolution_ns=32,
            points=tuple(points),
        )

    def _stream_k(self, shape: Shape) -> TimelinePoint:
        """A program on every SM, and all done at once."""
        atomic = {"reduction": "atomic", "kernel": "stream_k"}
        chosen = fast_plan("dw", shape, 2, self.gpu.device, **atomic)
        chosen = chosen if chosen.kernel == "stream_k" else None
        each, sms = int(1e6 * ideal_ms(shape)), self.gpu.sm_count
        samples = measured(ideal_ms(shape))["samples_ms"]
        found = {
            "resident_programs": 1,
            "trace": Trace(
                sm=tuple(range(sms)), start_ns=(0,) * sms, end_ns=(each,) * sms
            ),
            "plain_ms": samples,
            "traced_ms": tuple(1.01 * sample for sample in samples),
        }
        return TimelinePoint(
            **dimensions(shape),
            implementation="stream_k",
            reduction="atomic",
            split_t=1,
            dtype="bfloat16",
            configuration=fast_configuration(chosen) if chosen else None,
            skipped_reason=None if chosen else "stream-K has no last wave to share",
            **(found if chosen else dict.fromkeys(found)),
        )

    def traps(self) -> Traps:
        """Every trap wrong in a corner, and seen by one check."""
        right = Effect(
            error=1e-5,
            elements=16384,
            wrong_elements=0,
            non_finite_elements=0,
            picture=((1e-5, 2e-5), (1e-5, 1e-5)),
            samples_ms=None,
            reading=None,
        )
        corner = {"error": 0.5, "wrong_elements": 4096}
        wrong = right.model_copy(
            update={**corner, "picture": ((1e-5, 2e-5), (1e-5, 3.0))}
        )
        return Traps(
            section="traps",
            **self.header,
            traps_sha256=traps_digest(ROOT),
            points=tuple(
                TrapPoint(
                    **dimensions((680, 128, 128)),
                    trap=name,
                    kind="wrong result",
                    dtype="bfloat16",
                    broken=wrong,
                    fixed=right,
                    checks=(
                        CheckOutcome(
                            check="odd sizes", broken_passes=False, fixed_passes=True
                        ),
                    ),
                    skipped_reason=None,
                )
                for name in TRAPS
            ),
        )

    def accumulation(self) -> Accumulation:
        """A bf16 buffer drifts with the micro-batches, an fp32 one does not."""
        errors = {"float32": 1e-6, "float16": 2e-4, "bfloat16": 1.7e-3}
        return Accumulation(
            section="accumulation",
            **self.header,
            gradient_distribution="normal, standard deviation 1",
            points=tuple(
                AccumulationPoint(
                    **dimensions(ACCUMULATED),
                    gradient=gradient,
                    buffer=buffer,
                    micro_batches=batches,
                    error=errors[buffer] * (1 if buffer == "float32" else batches**0.5),
                    unchanged_share=0.0 if buffer == "float32" else batches / 4096,
                )
                for gradient in ("noise", "signal")
                for batches in MICRO_BATCHES
                for buffer in ("float32", "bfloat16")
            ),
            partials=tuple(
                PartialsPoint(
                    **dimensions(STARVED),
                    partials=dtype,
                    split_t=split_t,
                    error=error * split_t**0.25,
                )
                for split_t in PARTIAL_FACTORS
                for dtype, error in errors.items()
            ),
        )

    def training(self) -> Training:
        """Runs wander from a common curve; the vendor's and the fixed ones repeat."""
        points = []
        for way, seed, order, repeat in TRAINED:
            again = way in ("vendor", "deterministic")
            kind = (way, seed, order, None if again else repeat)
            rng = random.Random(str(kind))
            share = 1 + 0.1 * seed
            losses = [
                share * (1.5 + 4 * 0.93**step) + 1e-4 * step * rng.gauss(0, 1)
                for step in range(TRAINED_STEPS)
            ]
            losses[0] = share * 5.5
            time_ms = {"vendor": 8.0, "main_grad": 8.5}.get(way, 9.0)
            run = TrainingRun(
                losses_nats=tuple(losses),
                held_out_nats=1.6 + 0.02 * seed + 1e-3 * rng.gauss(0, 1),
                step_ms=(5 * time_ms, *[time_ms] * (TRAINED_STEPS - 1)),
                host_ms=(time_ms,) * TRAINED_STEPS,
                parameters_sha256=hashlib.sha256(repr(kind).encode()).hexdigest(),
                peak_bytes=2_000_000_000,
            )
            points.append(
                TrainingPoint(
                    way=way,
                    seed=seed,
                    order=order,
                    repeat=repeat,
                    run=run,
                    skipped_reason=None,
                )
            )
        return Training(
            section="training",
            **self.header,
            layers_sha256=layers_digest(ROOT),
            text=TrainingText(
                name="a text",
                text_bytes=500_000,
                text_sha256="a" * 64,
                held_out_bytes=50_000,
                byte_entropy_nats=3.2,
            ),
            model=TrainingModel(
                layers=4,
                width=512,
                heads=8,
                context_tokens=256,
                batch_sequences=32,
                vocabulary=256,
                parameters=13_004_032,
                parameters_dtype="float32",
                autocast_dtype="bfloat16",
            ),
            steps=TRAINED_STEPS,
            optimizer="AdamW, learning rate 0.001",
            noise="torch.nn.Linear with the sequences of each batch in another order",
            points=tuple(points),
        )

    def transposes(self) -> Transposes:
        """A copy at the bandwidth of memory, and a product no slower for its lack."""
        points = []
        for shape in TRANSPOSE_SHAPES:
            t, k, n = shape
            for op, operand in (("dx", k * n), ("dw", t * k)):
                copy = 4 * operand / BANDWIDTH_TBPS / 1e9 + LAUNCH_MS
                for implementation, factor in (("lesson", 1.08), ("vendor", 1.0)):
                    product = ideal_ms(shape) * factor
                    for way, time_ms, copies in (
                        ("in place", product, 0),
                        ("copied first", product + copy, 1),
                        ("copied before", product, 0),
                        ("the copy alone", copy, 0),
                    ):
                        points.append(
                            TransposePoint(
                                **dimensions(shape),
                                op=op,
                                implementation=implementation,
                                way=way,
                                dtype="bfloat16",
                                error=None if way == "the copy alone" else 1.7e-3,
                                extra_bytes=2 * operand * copies,
                                **measured(time_ms),
                            )
                        )
        return Transposes(section="transposes", **self.header, points=tuple(points))

    def verification(self, failing: tuple[str, ...] = ()) -> Verification:
        return Verification(
            section="verification",
            **self.header,
            duration_s=30.0,
            points=tuple(
                TestOutcome(
                    name=f"test_ops.py::test_{kernel}",
                    outcome="failed" if kernel in failing else "passed",
                    kernels=(kernel,),
                    message="too far from fp64" if kernel in failing else None,
                )
                for kernel in (*OPS, "reduce", "fast")
            ),
        )

    def sanitizer(self, **changes) -> Sanitizer:
        """Every tool finds nothing but what it must; `changes` are of memcheck."""
        points = (
            sanitized("memcheck", **changes),
            *map(sanitized, SANITIZER_TOOLS[1:]),
        )
        return Sanitizer(
            section="sanitizer",
            **self.header,
            version="compute-sanitizer 2025.2",
            points=points,
        )

    def sections(self) -> dict[str, Section]:
        return {
            "environment": self.environment(),
            "ceilings": self.ceilings(),
            "gemms": self.gemms(),
            "ladder": self.ladder(),
            "further": self.further(),
            "launches": self.launches(),
            "splits": self.splits(),
            "occupancy": self.occupancy(),
            "timelines": self.timelines(),
            "determinism": self.determinism(),
            "accumulation": self.accumulation(),
            "training": self.training(),
            "transposes": self.transposes(),
            "traps": self.traps(),
            "verification": self.verification(),
            "sanitizer": self.sanitizer(),
        }

    def write(self, folder: Path, **sections: Section | None) -> Recording:
        """Write a recording; `sections` replaces some, None leaves one out."""
        for name, section in {**self.made, **sections}.items():
            file = folder / f"{name}.json"
            if section is None:
                continue
            if section is self.made[name] and name in self._texts:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self._texts[name], "utf-8")
                continue
            write_section(file, section)
            if section is self.made[name]:
                self._texts[name] = file.read_text("utf-8")
        return Recording(folder)

    @cached_property
    def made(self) -> dict[str, Section]:
        return self.sections()

    def plan(self, op: str, shape: Shape, **choices) -> Plan:
        return plan(op, shape, 2, self.gpu.device, **choices)

    def _split_ms(self, shape: Shape, reduction: str, split_t: int) -> float:
        """Faster until the SMs are full, then slower by the adding."""
        tiles = self.plan("dw", shape).tiles
        busy = min(1.0, tiles * split_t / self.gpu.sm_count)
        gradient_mb = 4 * shape[1] * shape[2] / 1e6
        passes = {"none": 1, "atomic": 1 + split_t / 2, "workspace": 1 + split_t}
        return ideal_ms(shape) / busy + passes[reduction] * gradient_mb / 4e3

    def _launch(
        self, shape: Shape, kernel: str, reduction: str, split_t: int
    ) -> OccupancyPoint:
        gemm = kernel != "reduce"
        chosen = self.plan("dw", shape, split_t=split_t, reduction=reduction)
        return OccupancyPoint(
            **dimensions(shape),
            kernel=kernel,
            mode="overwrite",
            reduction=reduction,
            split_t=split_t,
            dtype="bfloat16",
            configuration=configuration(chosen) if gemm else None,
            programs=chosen.programs,
            num_warps=8,
            registers_per_thread=104 if gemm else 40,
            spilled_registers_per_thread=0,
            shared_memory_bytes=98304 if gemm else 0,
            resident_programs=2 if gemm else 6,
            counters=Counters(
                time_ms=ideal_ms(shape),
                achieved_occupancy_pct=12.5 * min(2, split_t),
                sm_active_pct=min(95.0, 47.5 * split_t),
                tensor_pipe_pct=min(80.0, 30.0 * split_t),
                dram_read_bytes=10**8,
                dram_write_bytes=10**7,
                atomic_requests=10**5 if reduction == "atomic" else 0,
            ),
            counters_reason=None,
            utilization_pct=100.0,
            utilization_reason=None,
        )


OPS = ("forward", "dx", "dw")
CALLS = (*((op, "overwrite") for op in OPS), ("dw", "accumulate"))


def dimensions(shape: Shape) -> dict[str, int]:
    return dict(zip("TKN", shape, strict=True))


def measured(time_ms: float) -> dict:
    """Fields of a timed point whose median is `time_ms`."""
    samples = tuple(time_ms * (1 + 0.002 * step) for step in (-2, -1, 0, 1, 2))
    return {"samples_ms": samples, "state": STATE, "skipped_reason": None}


def sanitized(tool: str, **changes) -> SanitizerPoint:
    """A tool that reported nothing but the kernel broken for it."""
    return SanitizerPoint(
        **{
            "tool": tool,
            "command": f"compute-sanitizer --tool {tool} python",
            "launches": (
                Launched(kernel="dw_kernel", times=14),
                Launched(kernel="reduce_kernel", times=7),
            ),
            "results": 21,
            "wrong": (),
            "reported_errors": 0,
            "reported_warnings": 0,
            "errors": 0,
            "warnings": 0,
            "reports": (),
            "duration_s": 20.0,
            "skipped_reason": None,
            "control_kernel": "beyond_kernel",
            "control_errors": 64,
            "control_reason": None,
            **changes,
        }
    )


def skipped(reason: str) -> dict:
    """Fields of a timed point that was skipped."""
    return {"samples_ms": None, "state": None, "skipped_reason": reason}


def ideal_ms(shape: Shape) -> float:
    """No faster than arithmetic, memory or a launch allows."""
    t, k, n = shape
    arithmetic = 2 * t * k * n / RATE_TFLOPS / 1e9
    memory = (2 * t * k + 2 * t * n + 4 * k * n) / BANDWIDTH_TBPS / 1e9
    return math.fsum((max(arithmetic, memory), LAUNCH_MS))


def configuration(chosen: Plan | FastPlan) -> Configuration:
    tile = chosen.tile
    return Configuration(
        block_t=tile.block_t,
        block_k=tile.block_k,
        block_n=tile.block_n,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        split_t=chosen.split_t,
        reduction=chosen.reduction,
    )


def fast_configuration(chosen: FastPlan) -> FastConfiguration:
    return FastConfiguration(
        **configuration(chosen).model_dump(),
        kernel=chosen.kernel,
        programs=chosen.programs,
        parts=chosen.parts,
        copied=chosen.copied,
    )


@pytest.fixture(scope="session")
def maker() -> Maker:
    return Maker()


@pytest.fixture
def recording(tmp_path: Path, maker: Maker) -> Recording:
    """A complete recording under tmp_path/data."""
    return maker.write(tmp_path / "data" / "test-gpu" / "2026-01-31")


class SiteRoot:
    """A checkout in small: kernels, partials, one recording, a test's own pages."""

    def __init__(self, root: Path):
        self.root = root
        self.templates = root / "generate" / "templates"
        shutil.copytree(ROOT / "kernels", root / "kernels")
        (root / "tests").symlink_to(ROOT / "tests")
        for name in ("partials", "notes"):
            shutil.copytree(
                ROOT / "generate" / "templates" / name, self.templates / name
            )
        maker = Maker(kernels_sha256=kernels_digest(root))
        self.recording = maker.write(root / "data" / "test-gpu" / "2026-01-31")

    def kernel(self, name: str) -> Path:
        return self.root / "kernels" / f"{name}.py"

    def page(self, name: str, text: str) -> None:
        file = self.templates / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def render(self, check: bool = False, stills: bool | None = False) -> list[str]:
        return render(self.root, check=check, stills=stills)

    def text(self, template: str) -> str:
        """What a page of this template becomes."""
        self.page("page.md.j2", f"# Page\n\n{template}\n")
        self.render()
        return (self.root / "docs" / "page.md").read_text("utf-8")


@pytest.fixture
def site(tmp_path: Path) -> SiteRoot:
    return SiteRoot(tmp_path)
