"""The recorder of compute-sanitizer's reports, with a sanitizer that is made up.

What the made-up one prints has the form of what the real one does.
"""

import json
import sys
from datetime import date
from types import SimpleNamespace

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from generate.record import programs, sanitized, sanitizer
from generate.render.claims import Judged
from generate.render.facts import facts
from generate.render.hardware import tables
from generate.render.measured import Measurements
from generate.report import report
from generate.schema import SANITIZER_TOOLS, Launched, Recording

CLEAN = """\
========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 0 errors
"""
NO_RACE = """\
========= COMPUTE-SANITIZER
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""
BEYOND = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 16 bytes
=========     at {kernel}+0x90 in /home/someone/sanitized.py:338
=========     by thread (16,0,0) in block (0,0,0)
=========     Address 0x7d750ca00200 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7d750ca00000 of \
size 512 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch \
failure" on CUDA API call to cudaDeviceSynchronize.
=========
========= Error: process didn't terminate successfully
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at {kernel}+0x80 in sanitized.py:350
=========     and Read access at {kernel}+0x90 in sanitized.py:350 [256 hazards]
=========
========= Warning: Race reported between Write access at dx_kernel+0x550 in dx.py:48
=========     and Read access at dx_kernel+0x580 in dx.py:52 [64 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
UNWRITTEN = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at {kernel}+0x40 in sanitized.py:344
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f3c7ec00000
=========
========= ERROR SUMMARY: 1 error
"""
# What the controls make each tool say.
CAUGHT = {"memcheck": BEYOND, "racecheck": RACE, "initcheck": UNWRITTEN}
QUIET = {"memcheck": CLEAN, "racecheck": NO_RACE, "initcheck": CLEAN}
TALLY = {"launches": {"dw_kernel": 14}, "results": 14, "wrong": []}
OPTIONS = ("--print-limit", "--show-backtrace", "--check-device-heap", "--kernel-name ")
PROGRAM = """\
#!{python}
import json, sys, time
if "--version" in sys.argv:
    print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.2.1.0 (build 1)")
elif "--help" in sys.argv:
    print({options!r})
else:
    tool = sys.argv[sys.argv.index("--tool") + 1]
    log, said, seconds = json.loads({behaviour!r})["--control" in sys.argv][tool]
    time.sleep(seconds)
    with open(sys.argv[sys.argv.index("--log-file") + 1], "w") as file:
        file.write(log)
    print(said)
    sys.exit(1)
"""


@pytest.fixture
def machine(monkeypatch):
    """One device, on which every kernel is compiled."""
    monkeypatch.setattr(sanitizer, "_compile", lambda context: None)
    header = {
        "schema_version": 3,
        "harness_version": 3,
        "kernels_sha256": "0" * 64,
        "recorded_on": date(2026, 1, 31),
    }
    steps = []
    return SimpleNamespace(
        header=header,
        device=SimpleNamespace(index=0),
        advance=lambda: steps.append(1),
        steps=steps,
    )


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a sanitizer: what its tools say, of the program and of controls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(found=QUIET, controls=CAUGHT, said=None, seconds=0.0):
        said = json.dumps(TALLY) if said is None else said
        names = {tool: kernel for tool, (kernel, _) in sanitized.CONTROLS.items()}
        behaviour = [
            {tool: (log, said, seconds) for tool, log in found.items()},
            {t: (log.format(kernel=names[t]), "", 0) for t, log in controls.items()},
        ]
        file = folder / "compute-sanitizer"
        text = PROGRAM.format(
            python=sys.executable,
            options="\n".join(OPTIONS),
            behaviour=json.dumps(behaviour),
        )
        file.write_text(text, "utf-8")
        file.chmod(0o755)
        return file

    return install


def judged(recording: Recording):
    measured = Measurements(recording)
    found = Judged(measured, facts(measured))
    return found.verdicts["sanitizer-clean"].outcome, found.text("sanitizer-clean")


def test_reports_and_their_sum_are_read():
    """Lines that are set in belong to the report above them; paths are left out."""
    found = sanitizer.read(BEYOND.format(kernel="dw_kernel"))
    assert (found.errors, found.warnings, len(found.lines)) == (2, 0, 2)
    assert found.lines[0].startswith(
        "Invalid __global__ write of size 16 bytes at dw_kernel+0x90 in sanitized.py"
    )
    assert found.naming("dw_kernel", "dx_kernel") == 1
    assert found.naming("w_kernel", "dw") == 0


def test_races_may_be_warnings():
    """racecheck sums up in words of its own, and what it is unsure of apart."""
    found = sanitizer.read(RACE.format(kernel="dw_kernel"))
    assert (found.errors, found.warnings) == (1, 1)
    kernels = "dw_kernel", "dx_kernel"
    assert found.naming(*kernels) == found.naming(*kernels, warnings=True) == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("", "nothing"),
        ("========= COMPUTE-SANITIZER\n========= Unable to find injection", "Unable"),
        (CLEAN + "========= ERROR SUMMARY: 9 errors were not printed.\n", "no whole"),
        ("Segmentation fault", "nothing"),
    ],
)
def test_no_summary_is_no_success(words, reason):
    """What ended before its summary, or kept reports back, says nothing."""
    with pytest.raises(sanitizer.Unreadable, match=reason):
        sanitizer.read(words)


def test_a_clean_run_is_trusted_where_the_control_is_caught(
    installed, machine, tmp_path, maker
):
    """Nothing found of ours, the broken kernel reported: the claim holds."""
    installed()
    section = sanitizer.record(machine)
    assert section.version == "compute-sanitizer 2025.2.1.0 (build 1)"
    assert [point.tool for point in section.points] == list(SANITIZER_TOOLS)
    for point in section.points:
        assert point.errors == point.warnings == 0
        assert point.control_errors == 1
        assert point.launches == (Launched(kernel="dw_kernel", times=14),)
        assert point.doubt is None
        assert str(tmp_path) not in point.command
        assert ("--kernel-name kne=dw_kernel" in point.command) == (
            point.tool != "initcheck"
        )
        assert ("--cleared" in point.command) == (point.tool == "initcheck")
    assert len(machine.steps) == sanitizer.steps(machine) - sanitizer.PARTS
    recording = maker.write(tmp_path / "gpu" / "one", sanitizer=section)
    assert judged(recording)[0] == "holds"


def test_a_blind_tool_is_not_trusted(installed, machine, tmp_path, maker):
    """A tool that says nothing of its broken kernel was not looking."""
    installed(controls={**CAUGHT, "memcheck": CLEAN})
    section = sanitizer.record(machine)
    blind, *others = section.points
    assert blind.errors == blind.control_errors == 0
    assert "broken on purpose" in blind.doubt
    assert not any(point.doubt for point in others)
    recording = maker.write(tmp_path / "gpu" / "one", sanitizer=section)
    outcome, sentence = judged(recording)
    assert outcome == "holds in part"
    assert "memcheck did not" in sentence


def test_an_error_in_a_kernel_is_told(installed, machine, tmp_path, maker):
    """Errors stand whatever else failed; those that name no kernel, apart."""
    found = {**QUIET, "memcheck": BEYOND.format(kernel="split_kernel")}
    installed(found, {**CAUGHT, "memcheck": CLEAN}, said="CUDA error: launch failure")
    section = sanitizer.record(machine)
    point, *early = section.points
    assert (point.errors, point.elsewhere, point.launches) == (1, 1, ())
    assert "split_kernel" in point.reports[0]
    assert point.doubt is None
    for other in early:
        assert other.errors is None
        assert "ended early, it said: CUDA error" in other.skipped_reason
    section = section.model_copy(update={"points": (point, *section.points[1:])})
    recording = maker.write(tmp_path / "gpu" / "one", sanitizer=section)
    outcome, sentence = judged(recording)
    assert outcome == "does not hold"
    assert "memcheck 1 and 0 in 0 launches" in sentence


def test_a_wrong_result_under_a_tool_is_a_doubt(installed, machine):
    """What a tool changes the results of, it does not vouch for."""
    installed(said=json.dumps({**TALLY, "wrong": ["dw: not the exact result"]}))
    for point in sanitizer.record(machine).points:
        assert point.doubt == f"under {point.tool}, dw: not the exact result"


def test_a_tool_that_takes_too_long_is_recorded_as_such(
    installed, machine, monkeypatch
):
    """The program is given up, and what it started with it."""
    monkeypatch.setattr(sanitizer, "TIMEOUT_S", 3)
    installed(seconds=60)
    for point in sanitizer.record(machine).points:
        assert point.skipped_reason == "it took longer than 3 s"
        assert point.control_errors == 1


def test_without_a_sanitizer_the_reason_is_recorded(machine, monkeypatch, tmp_path):
    """None is installed: every tool is there, with the reason."""
    monkeypatch.setattr(programs, "find_sanitizer", lambda: None)
    section = sanitizer.record(machine)
    assert section.version is None
    for point in section.points:
        assert "is not installed" in point.skipped_reason
        assert point.skipped_reason == point.control_reason


def test_a_program_that_fails_by_itself_is_not_watched(installed, machine, monkeypatch):
    """Without CUDA no product can be computed: the sanitizer is not even asked."""
    monkeypatch.undo()
    monkeypatch.setattr(programs, "find_sanitizer", lambda: str(installed()))
    monkeypatch.setattr(sanitizer, "PARTS", 1)
    monkeypatch.setattr(sanitizer, "PROGRAM", "generate.record.no_such_program")
    for point in sanitizer.record(machine).points:
        assert "no result without the sanitizer: " in point.skipped_reason


def test_the_sanitizer_is_found(tmp_path, monkeypatch):
    """On the PATH first, then in a toolkit, then in a wheel; None where it is not."""
    places = [tmp_path / name / "bin" for name in ("path", "toolkit", "cu13")]
    for place in places:
        place.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(places[0]))
    monkeypatch.setenv("CUDA_HOME", str(places[1].parent))
    wheels = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(programs.importlib.util, "find_spec", lambda name: wheels)
    for place in reversed(places):
        file = place / "compute-sanitizer"
        file.write_text("", "utf-8")
        file.chmod(0o755)
        assert programs.find_sanitizer() == str(file)


def test_libraries_of_a_wheel_are_named(tmp_path):
    """The wheel for CUDA 12 has them beside the folder of the program."""
    program = tmp_path / "bin" / "compute-sanitizer"
    assert sanitizer._libraries(str(program)) == []
    library = tmp_path / "lib" / "libsanitizer-collection.so"
    library.parent.mkdir()
    library.touch()
    expected = ["--injection-path", str(library.parent)]
    assert sanitizer._libraries(str(program)) == expected


def test_recordings_without_it_say_so(tmp_path, maker):
    """An old recording has no such section: not measured, with the reason."""
    recording = maker.write(tmp_path / "gpu" / "one", sanitizer=None)
    why = "this recording has no section sanitizer"
    assert judged(recording) == (
        "not measured",
        f"compute-sanitizer finds no error in any kernel: not measured ({why}).",
    )
    assert tables(Measurements(recording))["sanitizer"].reasons == [why]
    assert report(recording)["sanitizer"] == []


def test_the_table_says_what_each_tool_found(tmp_path, maker):
    """A row a tool; what a tool could not do has its reason."""
    found = "command launches results wrong reported_errors reported_warnings errors"
    found = dict.fromkeys(f"{found} warnings reports duration_s".split())
    section = maker.sanitizer(**found, skipped_reason="it took longer than 60 s")
    recording = maker.write(tmp_path / "gpu" / "one", sanitizer=section)
    table = tables(Measurements(recording))["sanitizer"]
    assert [row[0].text for row in table.rows] == list(SANITIZER_TOOLS)
    assert [cell.text for cell in table.rows[1]] == [
        *("racecheck", "21", "21", "0", "0", "0", "0", "64", "20 s"),
    ]
    assert table.reasons == ["it took longer than 60 s"]
    assert report(recording)["sanitizer"][0]["not_measured_reason"] == table.reasons[0]


def test_every_kernel_is_in_the_program():
    """What is launched is found by name, of the lesson and of kernels/fast."""
    assert {"forward_kernel", "reduce_kernel", "split_kernel", "zero_kernel"} <= set(
        sanitizer.kernel_names()
    )
    assert not set(sanitizer.kernel_names()) & {
        k for k, _ in sanitized.CONTROLS.values()
    }


def test_the_racing_kernel_has_no_barrier():
    """Numbers go from warp to warp through shared memory, with nothing in between."""
    signature = {"out_ptr": "*i32", "SIZE": "constexpr"}
    source = ASTSource(sanitized.racing_kernel, signature, constexprs={"SIZE": 128})
    target = GPUTarget("cuda", 90, 32)
    ptx = triton.compile(source, target=target, options={"num_warps": 4}).asm["ptx"]
    stored, loaded = ptx.index("st.shared"), ptx.index("ld.shared")
    assert stored < loaded
    assert "bar" not in ptx[stored:loaded]
