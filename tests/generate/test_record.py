"""The recorder, as far as it runs without a GPU."""

import subprocess
import sys
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from generate import record as recorder
from generate import shapes
from generate.record import (
    CannotRecord,
    Interrupted,
    ceilings,
    context,
    occupancy,
    slug,
    verification,
)
from generate.record.calls import Outcomes
from generate.record.nvml import Nvml
from generate.record.splits import MAX_WORKSPACE_BYTES, _too_large, sweep
from generate.schema import SECTIONS, Recording
from kernels.fast import tuned
from tests.kernels.test_plan import H200

ROOT = Path(__file__).parents[2]


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
        context = SimpleNamespace(
            device=None,
            kernels_sha256="0" * 64,
            extent="full",
            recorded_on=date(2026, 1, 31),
        )
        gpu = SimpleNamespace(name=maker.gpu.name)
        monkeypatch.setattr(recorder, "_context", lambda *_: context)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
        monkeypatch.setattr(recorder, "import_module", self.module)

    def module(self, path: str):
        name = path.rpartition(".")[2]

        def make(context):
            if name == self.dies:
                raise self.death
            self.made.append(name)
            return self.maker.sections()[name]

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
    assert runs.made == [*SECTIONS][3:]
    assert set(Recording(folder).sections) == set(SECTIONS)


def test_a_failing_section_is_one_sentence(tmp_path, maker, monkeypatch):
    """A section that cannot be recorded is named with the reason; the others stay."""
    runs = Dying(maker, monkeypatch)
    runs.dies = "ladder"
    monkeypatch.setattr(runs, "death", RuntimeError("the device\nfell off the bus"))
    with pytest.raises(Interrupted, match="^section ladder .*the device; what came"):
        recorder.record(tmp_path)
    (folder,) = (tmp_path / "data").glob("*/*")
    assert set(Recording(folder).sections) == {"environment", "ceilings", "gemms"}


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


def test_sections_can_be_recorded_again(tmp_path, maker, monkeypatch):
    """--section with --resume replaces that section and no other."""
    runs = Dying(maker, monkeypatch)
    folder = recorder.record(tmp_path)
    runs.made = []
    recorder.record(tmp_path, only_sections=("splits",), resume=True)
    assert runs.made == ["splits"]
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
    other = recorder._context()
    other.kernels_sha256 = "1" * 64
    with pytest.raises(CannotRecord, match="other kernels"):
        recorder.record(tmp_path, resume=True)
    other.kernels_sha256, other.extent = "0" * 64, "quick"
    with pytest.raises(CannotRecord, match="is full: resume it with --full"):
        recorder.record(tmp_path, resume=True)


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
    monkeypatch.setattr(context, "Context", SimpleNamespace)
    recorder._context(ROOT, (), "quick", 0)
    assert tuned._read() == {}


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


def test_nvml_may_refuse_any_question(monkeypatch):
    """A MIG slice that answers "not supported" loses facts, not the run
    (oumi-ai/oumi#1877)."""

    class Refusing:
        NVML_CLOCK_SM = NVML_CLOCK_MEM = 0

        def nvmlInit(self):
            pass

        def nvmlDeviceGetHandleByPciBusId(self, bus):
            return object()

        def __getattr__(self, name):
            raise RuntimeError("Not Supported")

    monkeypatch.setitem(sys.modules, "pynvml", Refusing())
    state = Nvml("00000000:01:00.0").state()
    assert state.clock_sm_mhz is state.throttle is None
    assert "Not Supported" in state.nvml_reason


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
    counters, why, _ = occupancy._counters(SimpleNamespace(facts=H200, only=()))
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
