"""The recorder, as far as it runs without a GPU."""

import importlib
import os
import subprocess
import sys
from collections import Counter
from datetime import date
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from generate import record as recorder
from generate import shapes
from generate.record import (
    CannotRecord,
    Interrupted,
    accumulation,
    ceilings,
    context,
    environment,
    launches,
    occupancy,
    slug,
    timing,
    verification,
)
from generate.record.calls import Outcomes
from generate.record.nvml import Nvml
from generate.record.splits import MAX_WORKSPACE_BYTES, _too_large, sweep
from generate.schema import SECTIONS, Recording, Trace, recordings
from kernels.fast import tuned
from tests.generate.conftest import Maker
from tests.kernels.test_plan import H200

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA A100 80GB PCIe", "nvidia-a100-80gb-pcie"),
    ],
)
def test_ordinary_names_make_readable_folders(name: str, folder: str):
    """A GPU's folder is its name in lower case."""
    assert slug(name) == folder


def test_distinct_names_never_share_a_folder():
    """Names with parentheses, slashes, no letters or nothing at all are kept
    apart and stay safe as folder names (rossumai/nvgpu#12)."""
    names = [
        *("TITAN X (Pascal)", "TITAN X Pascal", "TITAN X/Pascal", "TITAN X Pascal "),
        *("", "图形设备", "Graphics Device", "../../etc", "GPU", "NVIDIA-H200"),
        "NVIDIA H200",
    ]
    folders = [slug(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(set(f) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for f in folders)
    assert all(folders)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_written(tmp_path: Path):
    """No GPU: one sentence, a failing exit, no file."""
    ran = subprocess.run(
        [sys.executable, "-m", "generate", "record", "--root", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr.strip().splitlines() == [
        "recording needs a CUDA GPU, and torch sees none here"
    ]
    assert list(tmp_path.iterdir()) == []


def test_shapes_are_read_or_refused():
    """T,K,N or TxKxN of three sizes; anything else is one sentence."""
    assert shapes.parse("8192,4096,14336") == (8192, 4096, 14336)
    assert shapes.parse("8192x4096x64") == (8192, 4096, 64)
    for bad in ("", "1,2", "1,2,3,4", "0,1,1", "-1,1,1", "a,b,c", "1.5,1,1"):
        with pytest.raises(ValueError, match='"T,K,N"'):
            shapes.parse(bad)


def test_every_recorded_shape_is_distinct():
    """Fourteen GEMM shapes and at least ten splits, none of them twice."""
    assert len(set(shapes.GEMM_SHAPES)) == len(shapes.GEMM_SHAPES) == 14
    assert len(set(shapes.SPLIT_SHAPES)) == len(shapes.SPLIT_SHAPES) >= 10
    assert set(shapes.SPLIT_SHAPES) <= set(shapes.GEMM_SHAPES)


def test_the_planned_split_is_always_swept():
    """planned over best can be told from every recording."""
    for planned in (1, 5, 7, 64):
        rows = sweep(planned)
        assert len(set(rows)) == len(rows)
        assert {("atomic", planned), ("workspace", planned), ("none", 1)} <= set(rows)


def test_workspaces_keep_within_a_consumer_card():
    """All workspaces of a shape, kept by the allocator, fit 16 GiB together; the
    larger ones are skips with a reason."""
    for shape in shapes.SPLIT_SHAPES:
        _, k, n = shape
        sizes = {4 * split_t * k * n for _, split_t in sweep(1)}
        for _, split_t in sweep(1):
            reason = _too_large(shape, "workspace", split_t)
            over = 4 * split_t * k * n > MAX_WORKSPACE_BYTES
            assert (reason is not None) == over
            assert _too_large(shape, "atomic", split_t) is None
        assert sum(s for s in sizes if s <= MAX_WORKSPACE_BYTES) < 12 << 30


class Dying:
    """Sections that are made by `maker`; one of them kills the run."""

    def __init__(self, maker, monkeypatch):
        self.maker, self.dies, self.made = maker, None, []
        self.death = KeyboardInterrupt()
        self.context = SimpleNamespace(device=None)
        monkeypatch.setattr(recorder, "_context", lambda *_: self.context)
        monkeypatch.setattr(recorder, "import_module", self.module)
        for name in ("synchronize", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, lambda *_: None)

    def module(self, path: str):
        name = path.rpartition(".")[2]

        def make(context):
            if name == self.dies:
                raise self.death
            self.made.append(name)
            return self.maker.made[name]

        return SimpleNamespace(steps=lambda context: 1, record=make)


def test_a_kill_loses_only_the_section_under_way(tmp_path, maker, monkeypatch):
    """What was recorded before a kill is there, whole; resume does the rest."""
    runs = Dying(maker, monkeypatch)
    runs.dies = "ladder"
    with pytest.raises(KeyboardInterrupt):
        recorder.record(tmp_path)
    (folder,) = (tmp_path / "data").glob("*/*")
    assert set(Recording(folder).sections) == {"environment", "ceilings", "gemms"}

    runs.dies, runs.made = None, []
    assert recorder.record(tmp_path, resume=True) == folder
    assert runs.made == ["environment", *[*SECTIONS][3:]]
    assert set(Recording(folder).sections) == set(SECTIONS)


def test_a_failing_section_leaves_the_others(tmp_path, maker, monkeypatch):
    """It is named with the reason, all others are recorded, and resume has but it to
    do; where the device itself fails, nothing behind it is tried."""
    runs = Dying(maker, monkeypatch)
    runs.dies, runs.death = "ladder", RuntimeError("the device\nfell off the bus")
    with pytest.raises(Interrupted, match="^not recorded: section ladder.*the device;"):
        recorder.record(tmp_path)
    (folder,) = (tmp_path / "data").glob("*/*")
    assert set(SECTIONS) - set(Recording(folder).sections) == {"ladder"}

    def fails(*_):
        raise RuntimeError("CUDA error: an illegal memory access")

    monkeypatch.setattr(torch.cuda, "synchronize", fails)
    with pytest.raises(Interrupted, match="none behind it.* illegal memory access"):
        recorder.record(tmp_path)
    second = next(r for r in (tmp_path / "data").glob("*/*") if r != folder)
    assert set(Recording(second).sections) == {"environment", "ceilings", "gemms"}

    runs.dies, runs.made = None, []
    assert recorder.record(tmp_path, resume=True) == second
    assert runs.made == ["environment", *[*SECTIONS][3:]]


class CompilationError(Exception):
    """Triton's: its message ends with what is wrong, or its cause says it."""


class PTXASError(Exception):
    """Triton's: its message begins alike, whatever is wrong."""


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def invalid() -> Exception:
    try:
        Trace(sm=(0,), start_ns=(1,), end_ns=(2,))
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (invalid(), "start_ns must count from the first start"),
        (CompilationError("at 1:0:\ndef f():\n^\nno such thing\n"), "no such thing"),
        (
            caused(CompilationError("at 1:0:\nf()\n^"), TypeError("no operand")),
            "no operand",
        ),
        (
            PTXASError(
                "PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
                "ptxas /tmp/a.ptx, line 5; error   : Feature 'x' requires sm_90\n"
                "Repro command: /home/alice/bin/ptxas a.ptx\n"
            ),
            "Feature 'x' requires sm_90",
        ),
        (PTXASError("PTXAS error: `ptxas` raised SIGSEGV"), "raised SIGSEGV"),
        (PermissionError(13, "Permission denied", "/home/alice/.triton/x"), "denied"),
        (
            subprocess.CalledProcessError(1, ["/usr/bin/gcc", "-I/home/alice/include"]),
            "gcc",
        ),
        (RuntimeError(), "no reason given"),
    ],
)
def test_a_reason_names_the_cause_and_no_folder(error, cause):
    """One line that says what was wrong, and nothing of whose machine it was."""
    said = recorder.sentence(error)
    assert cause in said and said.startswith(type(error).__name__)
    assert "\n" not in said
    assert "/home/" not in said and "alice" not in said


class StandIn:
    """A timer and operands without a GPU: three samples of what was called."""

    def __init__(self, fails: str = ""):
        self.fails = fails

    def reference(self, op):
        return None, None

    def error(self, call, rows, exact, mode):
        if self.fails == "error":
            raise torch.OutOfMemoryError("no memory for fp64")
        return 1e-3

    def compare(self, calls, samples):
        if self.fails == "compare":
            raise RuntimeError("calls cannot be queued in time")
        return {key: (call(), 2.0, 3.0) for key, call in calls.items()}, None


def broken():
    raise torch.OutOfMemoryError("CUDA out of memory\nand more")


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


def outcomes_of(calls, stand_in, **more):
    made = Outcomes(stand_in, stand_in, "dw", "overwrite", calls, **more)
    return {key: made.fields(key) for key in calls}


def test_a_failing_call_is_skipped_alone(no_gpu):
    """One kernel that does not fit the device leaves the others measured
    (FlashML-org/FreeToken#246)."""
    found = outcomes_of({"good": lambda: 1.0, "bad": broken}, StandIn())
    assert found["good"]["samples_ms"] == (1.0, 2.0, 3.0)
    assert found["good"]["skipped_reason"] is None
    assert found["bad"]["samples_ms"] is found["bad"]["error"] is None
    assert found["bad"]["skipped_reason"] == "OutOfMemoryError: CUDA out of memory"


@pytest.mark.parametrize("fails", ["error", "compare"])
def test_what_cannot_be_measured_is_skipped(no_gpu, fails):
    """No memory for the reference, calls that cannot be queued: a reason, no crash."""
    found = outcomes_of({"a": lambda: 1.0, "b": lambda: 2.0}, StandIn(fails))
    for fields in found.values():
        assert fields["samples_ms"] is fields["error"] is fields["state"] is None
        assert "no memory" in fields["skipped_reason"] or "queued" in str(fields)


def unable() -> context.Context:
    """A context whose timer has only failed so far, of sizes for a CPU."""

    def compare(*_):
        raise RuntimeError("calls cannot be queued in time")

    made = object.__new__(context.Context)
    vars(made).update(
        device=CPU,
        kernels_sha256="0" * 64,
        only=((64, 64, 64),),
        extent="quick",
        recorded_on=date(2026, 1, 31),
        advance=lambda: None,
        say=lambda _: None,
        facts=H200,
        timer=SimpleNamespace(compare=compare, flush=lambda: None),
    )
    return made


@pytest.mark.parametrize("memory", [True, False], ids=["no-kernel", "no-operand"])
@pytest.mark.parametrize(
    "name",
    [
        *("ceilings", "gemms", "ladder", "further", "launches", "splits"),
        *("timelines", "determinism", "transposes"),
    ],
)
def test_a_section_of_failures_is_a_section_of_reasons(
    no_gpu, monkeypatch, name, memory
):
    """Where no kernel runs, or nothing fits, each point says so and none is lost."""
    module = importlib.import_module(f"generate.record.{name}")
    monkeypatch.setattr(ceilings, "GEMMS", ((64, 64, 64),))
    monkeypatch.setattr(launches, "CALLS", 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 20, 1 << 20))
    properties = SimpleNamespace(name="A GPU", major=7, minor=5)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    if not memory:

        def full(*_, **__):
            raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(torch, "empty", full)
    section = module.record(unable())
    assert section.points
    for point in section.points:
        # The vendor's library may launch without a GPU.
        vendor = name == "launches" and memory and point.way == "vendor"
        assert point.skipped_reason or vendor


def test_what_has_no_place_for_a_skip_is_left_out(no_gpu, monkeypatch):
    """Launches that fail are missing and said, the others are there; where all fail,
    the section does."""
    said = []
    made = unable()
    made.say = said.append

    def launch(case, operands):
        if case.kernel == "dx":
            raise TypeError("x needs compute capability 8.0")
        metadata = SimpleNamespace(num_warps=4, num_stages=3, shared=0)
        compiled = SimpleNamespace(metadata=metadata, n_regs=32, n_spills=0)
        blocks = dict.fromkeys(("BLOCK_T", "BLOCK_K", "BLOCK_N"), 64)
        return (1, 1), compiled, blocks

    monkeypatch.setattr(occupancy, "launch", launch)
    monkeypatch.setattr(occupancy, "resident_programs", lambda *_: 1)
    monkeypatch.setattr(occupancy, "_counters", lambda *_: (None, "no ncu", None))
    points = occupancy.record(made).points
    whole = len(occupancy.cases(H200, made.only))
    assert len(points) == whole - len(said) == whole - 1
    assert "needs compute capability 8.0" in said[0]
    assert "dx" not in {point.kernel for point in points}

    def fails(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(occupancy, "launch", fails)
    monkeypatch.setattr(accumulation, "_accumulate", fails)
    monkeypatch.setattr(accumulation, "_partials", fails)
    for module in (occupancy, accumulation):
        with pytest.raises((RuntimeError, ValueError)):
            module.record(made)
    assert len(said) == 1 + whole + 3


def test_what_is_refused_is_never_called(no_gpu):
    """A workspace over the bound is not even allocated."""
    found = outcomes_of({"a": broken}, StandIn(), refused={"a": "too large"})
    assert found["a"]["skipped_reason"] == "too large"


def test_a_second_recording_of_a_day_has_its_own_folder(tmp_path, maker, monkeypatch):
    """Nothing recorded is ever overwritten by a new recording."""
    Dying(maker, monkeypatch)
    first, second = (recorder.record(tmp_path) for _ in range(2))
    assert first != second
    assert Recording(first).gemms == Recording(second).gemms


def test_the_last_recording_of_a_day_is_the_newest(tmp_path, maker, monkeypatch):
    """However many there are, the one written last is shown and resumed."""
    Dying(maker, monkeypatch)
    for _ in range(12):
        last = recorder.record(tmp_path, only_sections=("environment",))
        assert recordings(tmp_path / "data")[-1].folder == last
    assert recorder.record(tmp_path, only_sections=("ceilings",), resume=True) == last


def test_sections_can_be_recorded_again(tmp_path, maker, monkeypatch):
    """--section with --resume replaces that section and no other."""
    runs = Dying(maker, monkeypatch)
    folder = recorder.record(tmp_path)
    runs.made = []
    recorder.record(tmp_path, only_sections=("splits",), resume=True)
    assert runs.made == ["environment", "splits"]
    assert set(Recording(folder).sections) == set(SECTIONS)


def test_resume_refuses_what_does_not_fit(tmp_path, maker, monkeypatch):
    """Nothing to resume, a complete recording, other kernels, another extent: one
    sentence each."""
    Dying(maker, monkeypatch)
    with pytest.raises(CannotRecord, match="no recording to resume"):
        recorder.record(tmp_path, resume=True)
    recorder.record(tmp_path)
    with pytest.raises(CannotRecord, match="is complete"):
        recorder.record(tmp_path, resume=True)
    made = dict(maker.made)
    monkeypatch.setattr(maker, "made", made)
    now = made["environment"]
    made["environment"] = now.model_copy(update={"kernels_sha256": "1" * 64})
    with pytest.raises(CannotRecord, match="other kernels"):
        recorder.record(tmp_path, resume=True)
    made["environment"] = now.model_copy(update={"extent": "quick"})
    with pytest.raises(CannotRecord, match="is full: resume it with --full"):
        recorder.record(tmp_path, resume=True)


def test_resume_refuses_another_device_or_software(tmp_path, maker, monkeypatch):
    """Whatever differs of the device, the software or the harness is named, and
    nothing is changed."""
    runs = Dying(maker, monkeypatch)
    folder = recorder.record(tmp_path, only_sections=("ceilings",))
    before = {file: file.read_bytes() for file in folder.iterdir()}
    now = maker.made["environment"]
    changed = [("harness_version", now.model_copy(update={"harness_version": 9}))]
    for part in ("gpu", "software"):
        one = getattr(now, part)
        changed += [
            (name, now.model_copy(update={part: one.model_copy(update={name: "-"})}))
            for name in type(one).model_fields
            if name not in ("name", "torch", "triton")  # of another folder
        ]
    made = {**maker.made}
    monkeypatch.setattr(maker, "made", made)
    for name, made["environment"] in changed:
        with pytest.raises(CannotRecord, match=f"was made with {name} "):
            recorder.record(tmp_path, resume=True)
    assert runs.made == ["environment", "ceilings"] + ["environment"] * len(changed)
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_recordings_find_no_tuned_plans(tmp_path, monkeypatch):
    """What is recorded is planned, whatever was tuned on this machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tuned._file()
    file.parent.mkdir()
    file.write_text('{"a product": "its plan"}')
    assert tuned._read()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    mode = {"mode": 0}
    nvml = SimpleNamespace(answers=lambda **_: (mode, None))
    monkeypatch.setattr(
        context, "Context", lambda **fields: SimpleNamespace(nvml=nvml, **fields)
    )
    recorder._context(ROOT, (), "quick", 0)
    assert tuned._read() == {}
    # Nor is anything recorded where tests and tools could not run beside it.
    mode["mode"] = recorder.EXCLUSIVE_PROCESS
    with pytest.raises(CannotRecord, match="compute mode is exclusive"):
        recorder._context(ROOT, (), "quick", 0)


def test_an_unknown_section_is_named(tmp_path):
    """A typo in --section is one sentence that lists the sections."""
    with pytest.raises(CannotRecord, match="environment, .* got 'gems'"):
        recorder.record(tmp_path, only_sections=("gems",))
    assert list(tmp_path.iterdir()) == []


def test_nvml_may_be_missing(monkeypatch):
    """Without NVML a recording holds nulls and the reason
    (NVIDIA/k8s-device-plugin#207)."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    state = Nvml("00000000:01:00.0").state()
    assert state.clock_sm_mhz is state.power_w is state.throttle is None
    assert "NVML is not available" in state.nvml_reason


class NVMLError_NotSupported(Exception):
    """Named as NVML's own."""


class Answering(ModuleType):
    """NVML, which refuses one of its functions."""

    def __init__(self, refused: str = "", error: Exception | None = None):
        super().__init__("pynvml")
        self.refused, self.error = refused, error or RuntimeError("Not Supported")

    def __getattr__(self, name):
        def answer(*arguments):
            if name == self.refused:
                raise self.error
            return {
                "nvmlDeviceGetUUID": "GPU-x",
                "nvmlDeviceGetMigMode": (1, 1),
                "nvmlSystemGetDriverVersion": "580.95",
            }.get(name, 64)

        return answer


def told(monkeypatch, nvml: ModuleType) -> tuple[dict, dict]:
    """What a state and an environment hold of NVML's answers."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    properties = SimpleNamespace(name="A GPU", total_memory=1 << 34, L2_cache_size=1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    asked = SimpleNamespace(
        device=None,
        nvml=Nvml("00000000:01:00.0"),
        facts=H200,
        extent="quick",
        advance=lambda: None,
        header=Maker().header,
    )
    found = environment.record(asked)
    gpu = found.gpu.model_dump()
    names = ("unit", "clock_max_sm_mhz", "clock_max_memory_mhz", "power_limit_w")
    names += ("mig_enabled", "nvml_reason")
    described = {name: gpu[name] for name in names}
    return (
        asked.nvml.state().model_dump(),
        {**described, "driver": found.software.driver},
    )


@pytest.mark.parametrize(
    ("refused", "missing"),
    [
        ("", ()),
        ("nvmlDeviceGetClockInfo", ("clock_sm_mhz", "clock_memory_mhz")),
        ("nvmlDeviceGetPowerUsage", ("power_w",)),
        ("nvmlDeviceGetTemperature", ("temperature_c",)),
        ("nvmlDeviceGetCurrentClocksEventReasons", ("throttle",)),
        ("nvmlDeviceGetUUID", ("unit",)),
        ("nvmlDeviceGetMaxClockInfo", ("clock_max_sm_mhz", "clock_max_memory_mhz")),
        ("nvmlDeviceGetEnforcedPowerLimit", ("power_limit_w",)),
        ("nvmlDeviceGetMigMode", ("mig_enabled",)),
        ("nvmlSystemGetDriverVersion", ("driver",)),
    ],
)
def test_nvml_may_refuse_any_question(monkeypatch, refused, missing):
    """A slice or a driver that refuses one loses that answer alone, and its reason
    stands there and nowhere else (oumi-ai/oumi#1877)."""
    for found in told(monkeypatch, Answering(refused)):
        reason = found.pop("nvml_reason")
        nulls = {name for name, value in found.items() if value is None}
        assert nulls == set(missing) & set(found)
        assert bool(reason) == bool(nulls)
        assert not nulls or refused.removeprefix("nvml") in reason


def test_a_board_without_slices_has_none(monkeypatch):
    """A GeForce does not support the question whether it is sliced: it is not."""
    nvml = Answering("nvmlDeviceGetMigMode", NVMLError_NotSupported("Not Supported"))
    state, described = told(monkeypatch, nvml)
    assert described["mig_enabled"] is False and described["driver"] == "580.95"
    assert described["nvml_reason"] is state["nvml_reason"] is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "not installed"),
        ("==ERROR== ERR_NVGPUCTRPERM - no permission", "administrators"),
        ("==ERROR== something else", "something else"),
        ("", "said: nothing"),
    ],
)
def test_counters_may_be_forbidden(monkeypatch, answer, reason):
    """No profiler, no permission, any failure: null with the reason
    (HazyResearch/ThunderKittens#73)."""

    def run(command, *_, **variables):
        assert variables["LC_ALL"] == "C"  # no commas for points
        if "--version" in command:
            return "Version 1"
        if "--query-metrics" in command:
            return "\n".join(m.split(".")[0] for m in occupancy.METRICS.values())
        return answer

    monkeypatch.setattr(
        occupancy.shutil, "which", lambda _: None if answer is None else "ncu"
    )
    monkeypatch.setattr(occupancy.programs, "run", run)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    counters, why, _ = occupancy._counters(SimpleNamespace(only=()), 1)
    assert counters is None
    assert reason in why


def test_test_outcomes_name_their_kernels(tmp_path: Path):
    """A failing GPU test says which kernels must not be charted."""
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.kernels.test_ops" name="test_a[dw]">
          <properties><property name="kernels" value="dw,reduce"/></properties>
          <failure message="too far&#10;more">trace</failure></testcase>
        <testcase classname="tests.kernels.test_ops" name="test_b"/>
        <testcase classname="tests.kernels.test_ops" name="test_c">
          <skipped message="one GPU"/></testcase>
        </testsuite></testsuites>"""
    )
    failed, passed, skipped = verification.outcomes(report)
    assert failed.outcome == "failed"
    assert failed.kernels == ("dw", "reduce")
    assert failed.message == "too far"
    assert (passed.outcome, passed.message) == ("passed", None)
    assert (skipped.outcome, skipped.message) == ("skipped", "one GPU")


@pytest.mark.parametrize(
    ("name", "capability", "sms", "clock_mhz", "tflops"),
    [
        # NVIDIA's datasheets: dense bf16 (T4: fp16) TFLOP/s at the boost clock.
        ("Tesla T4", (7, 5), 40, 1590, 65),
        ("NVIDIA GeForce RTX 2080 Ti", (7, 5), 68, 1545, 53.8),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1410, 312),
        ("NVIDIA A10", (8, 6), 72, 1695, 125),
        ("NVIDIA A40", (8, 6), 84, 1740, 149.7),
        ("NVIDIA RTX A6000", (8, 6), 84, 1800, 154.8),
        ("NVIDIA GeForce RTX 3090", (8, 6), 82, 1695, 71),
        ("NVIDIA L4", (8, 9), 58, 2040, 121),
        ("NVIDIA L40S", (8, 9), 142, 2520, 362.05),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9), 142, 2505, 364.2),
        ("NVIDIA GeForce RTX 4090", (8, 9), 128, 2520, 165.2),
        ("NVIDIA H100 80GB HBM3", (9, 0), 132, 1830, 989.4),
        ("NVIDIA RTX PRO 6000 Blackwell", (12, 0), 188, 2617, 503.8),
        ("NVIDIA GeForce RTX 5090", (12, 0), 170, 2407, 209.5),
    ],
)
def test_no_datasheet_is_above_the_bound(name, capability, sms, clock_mhz, tflops):
    """What a board honestly reaches is never refused, nor is the bound a loose one."""
    flops = ceilings.flops_per_clock(capability, name)
    assert 0.99 * tflops <= sms * clock_mhz * flops / 1e6 <= 1.05 * tflops


@pytest.mark.parametrize(("calls", "samples"), [(2, 20), (3, 40), (4, 40), (8, 40)])
def test_no_call_has_a_neighbor_of_its_own(calls, samples):
    """Each stands as often at each place, and behind each other, as any may."""
    rounds = [timing.in_turn(range(calls), turn) for turn in range(samples)]
    assert all(sorted(order) == [*range(calls)] for order in rounds)
    places = Counter(place for order in rounds for place in enumerate(order))
    pairs = Counter(pair for order in rounds for pair in pairwise(order))
    assert len(places) == calls**2 and len(pairs) == calls * (calls - 1)
    for times in (places, pairs):
        assert max(times.values()) - min(times.values()) <= 2
    # As many rounds as two squares have leave no difference at all.
    whole = Counter(pair for order in rounds[: 2 * calls] for pair in pairwise(order))
    assert set(whole.values()) == {2}


# Stands in for Python and for the environments that it makes: has a GPU, and a torch
# that sees it unless it is asked in an environment of its own.
PYTHON = """\
#!/bin/sh
case "$*" in
*"-m venv"*) for made; do :; done; mkdir -p "$made/bin"; cp "$0" "$made/bin/python" ;;
*purelib*) echo {root} ;;
*is_available*) exit {blind} ;;
esac
"""


@pytest.mark.parametrize("blind", [0, 1])
def test_an_environment_that_sees_no_gpu_is_not_finished(tmp_path, blind):
    """A torch too new for the driver is said, and made anew the next time."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "kernels").mkdir()
    for name in (".ci/setup.sh", "pyproject.toml", "kernels/__init__.py"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    (tmp_path / "requirements.txt").touch()
    python = tmp_path / "python"
    python.write_text(PYTHON.format(root=tmp_path, blind=blind), "utf-8")
    python.chmod(0o755)
    ran = subprocess.run(
        ["sh", ".ci/setup.sh", "record"],
        cwd=tmp_path,
        env={**os.environ, "PYTHON": str(python), "CC": "cc"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == blind
    assert ("sees no GPU" in ran.stderr) == bool(blind)
    assert (tmp_path / ".venv-record" / "complete").is_file() != bool(blind)
