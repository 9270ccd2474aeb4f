"""What no schema can see: physics, identity, sections that do not fit."""

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from generate import check as checking
from generate.check import check
from generate.schema import SECTIONS, Recording


def change(recording: Recording, name: str, edit: Callable[[dict], None]) -> None:
    """Edit the raw JSON of a section on disk."""
    file = recording.folder / f"{name}.json"
    raw = json.loads(file.read_text("utf-8"))
    edit(raw)
    file.write_text(json.dumps(raw), "utf-8")


def faults(recording: Recording) -> list[str]:
    return check(recording.folder.parents[1])


def scale(point: dict, factor: float) -> None:
    point["samples_ms"] = [factor * sample for sample in point["samples_ms"]]


def test_an_honest_recording_has_no_faults(recording: Recording):
    """check refuses nothing that was measured."""
    assert faults(recording) == []


@pytest.mark.parametrize("name", ["gemms", "splits"])
@pytest.mark.parametrize("factor", [1e3, 1e-3], ids=["us-as-ms", "s-as-ms"])
@pytest.mark.parametrize("whole", [True, False], ids=["all-points", "one-point"])
def test_a_wrong_unit_is_seen(recording: Recording, name, factor, whole):
    """Samples in µs or s are named, in one point or all (juri/Parse3339#5)."""

    def edit(raw):
        for point in raw["points"] if whole else raw["points"][3:4]:
            scale(point, factor)

    change(recording, name, edit)
    found = faults(recording)
    assert found
    assert all(f"{name}.json: points[" in fault for fault in found)
    assert any("samples_ms" in fault for fault in found)


@pytest.mark.parametrize("factor", [1e3, 1e-3], ids=["us-as-ms", "s-as-ms"])
def test_a_wrong_unit_of_the_ceilings_is_seen(recording: Recording, factor: float):
    """The bounds themselves are held against the datasheet."""
    change(recording, "ceilings", lambda raw: scale(raw["points"][0], factor))
    assert any("ceilings.json: points" in fault for fault in faults(recording))


def test_one_impossible_sample_is_enough(recording: Recording):
    """A single time under the roofline is refused, whatever the median says
    (gpu-mode/reference-kernels#162)."""

    def edit(raw):
        raw["points"][0]["samples_ms"][2] = 1e-12

    change(recording, "gemms", edit)
    (fault,) = faults(recording)
    assert "gemms.json: points[0].samples_ms" in fault
    assert "below the roofline" in fault


def test_a_wrong_result_is_no_timing(recording: Recording):
    """A fast kernel with a large error against fp64 is refused."""

    def edit(raw):
        raw["points"][0]["error"] = 0.5

    change(recording, "gemms", edit)
    (fault,) = faults(recording)
    assert "gemms.json: points[0].error" in fault


def test_time_grows_with_the_contraction(recording: Recording):
    """A host clock that stops before the device shows as a time that does not
    grow (intel/intel-xpu-backend-for-triton#470)."""
    shallow, deep = (8192, 1024, 1024), (65536, 1024, 1024)

    def edit(raw):
        rows = {
            (p["T"], p["K"], p["N"]): p
            for p in raw["points"]
            if (p["op"], p["mode"]) == ("dw", "overwrite")
            and p["implementation"] == "lesson"
        }
        rows[shallow]["samples_ms"] = [1.01 * s for s in rows[deep]["samples_ms"]]

    change(recording, "gemms", edit)
    assert any("is no longer than" in fault for fault in faults(recording))


def test_a_faster_unknown_device_is_believed(recording: Recording):
    """Bounds come from the recording's own device
    (Crosstalk-Solutions/project-nomad#295)."""

    def faster(raw):
        for point in raw["points"]:
            scale(point, 0.1)

    def unknown(raw):
        faster(raw)
        scale(raw["copy"], 0.1)
        raw["flops_per_clock_per_sm"] = None
        raw["flops_reason"] = "not known yet"

    change(recording, "ceilings", unknown)
    for name in ("gemms", "splits"):
        change(recording, name, faster)
    assert faults(recording) == []


@pytest.mark.parametrize("field", ["harness_version", "kernels_sha256"])
def test_sections_of_one_recording_belong_together(recording: Recording, field: str):
    """Numbers of two methods or two kernels never share a recording
    (facebookexperimental/triton#2258)."""
    other = {"harness_version": 2, "kernels_sha256": "f" * 64}[field]
    change(recording, "splits", lambda raw: raw.update({field: other}))
    (fault,) = faults(recording)
    assert f"splits.json: {field}" in fault


def test_resident_programs_agree_with_the_driver(recording: Recording):
    """The arithmetic of plan.py and the driver's answer are held together
    (xmartlabs/cuda-calculator#1)."""

    def edit(raw):
        raw["points"][0]["resident_programs"] += 1

    change(recording, "occupancy", edit)
    assert any("occupancy.json: points[0].resident" in f for f in faults(recording))


def test_a_copy_under_another_name_is_seen(recording: Recording):
    """The same measurements count once, whatever their folder and the order of
    their keys (EuroEval/EuroEval#1970)."""
    copy = recording.folder.with_name("2026-02-01")
    shutil.copytree(recording.folder, copy)
    file = copy / "gemms.json"
    raw = json.loads(file.read_text("utf-8"))
    raw["points"] = [dict(reversed(point.items())) for point in raw["points"]]
    file.write_text(json.dumps(raw), "utf-8")
    (fault,) = faults(recording)
    assert "same measurements" in fault
    assert str(recording.folder) in fault and str(copy) in fault


def test_an_empty_folder_is_no_success(tmp_path):
    """Nothing to check is said, not passed."""
    assert check(tmp_path) == [f"{tmp_path}: holds no recording"]


def test_a_skipped_product_leaves_ceilings(recording: Recording):
    """A card that cannot run one of the vendor's products still has ceilings; one
    that ran none has none."""

    def skip(raw):
        raw["points"].append(dict(raw["points"][0], K=8191))
        raw["points"][0].update(
            samples_ms=None, state=None, skipped_reason="out of memory"
        )

    change(recording, "ceilings", skip)
    assert faults(recording) == []
    change(recording, "ceilings", lambda raw: raw["points"].pop())
    (fault,) = faults(recording)
    assert "ceilings.json: points" in fault


def replace(*path, by):
    """An edit of one field of the first point: `by` makes its new value."""

    def edit(raw):
        holder = raw["points"][0]
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = by(holder[path[-1]])

    return edit


def many_programs(sms: int) -> dict:
    """A trace of one program on each of so many SMs."""
    return {
        "sm": [*range(sms)],
        "start_ns": [0] * sms,
        "end_ns": [1000] * sms,
    }


@pytest.mark.parametrize(
    ("name", "field", "edit"),
    [
        (
            "timelines",
            "trace.sm: 200 SMs ran",
            replace("trace", by=lambda _: many_programs(200)),
        ),
        ("timelines", "trace", replace("trace", "sm", by=lambda sm: [0] * len(sm))),
        (
            "timelines",
            "trace.sm: 63 programs",
            replace("trace", by=lambda t: {name: t[name][:-1] for name in t}),
        ),
        (
            "timelines",
            "trace.end_ns",
            replace("trace", "end_ns", by=lambda ns: [1000 * end for end in ns]),
        ),
        (
            "determinism",
            "repeats[0].distinct",
            replace("repeats", 0, "distinct", by=lambda distinct: 2),
        ),
        (
            "determinism",
            "repeats[0].distinct",
            replace("repeats", 0, "largest_spread", by=lambda spread: 1e-6),
        ),
        ("determinism", "error", replace("error", by=lambda error: 0.5)),
        (
            "transposes",
            "samples_ms",
            replace("samples_ms", by=lambda ms: [t / 1e3 for t in ms]),
        ),
        ("traps", "fixed.error", replace("fixed", "error", by=lambda error: 0.5)),
    ],
)
def test_evidence_that_cannot_be_is_seen(recording: Recording, name, field, edit):
    """More SMs, programs or bit patterns than there can be, times outside of the
    operation, a fix that is none: each is named by file and field."""
    change(recording, name, edit)
    assert any(
        f"{name}.json: points[0].{field}" in fault for fault in faults(recording)
    )


def test_an_accumulation_in_fp32_is_exact_enough(recording: Recording):
    """The buffer that others are held against drifts by rounding alone."""

    def edit(raw):
        for index, point in enumerate(raw["points"]):
            if point["buffer"] == "float32":
                point["error"] = 0.5
                return index

    change(recording, "accumulation", edit)
    assert any("accumulation.json: points[" in fault for fault in faults(recording))


@pytest.mark.parametrize(
    ("field", "change_run"),
    [
        (
            "losses_nats: 59 steps",
            lambda run: {
                name: run[name][1:] for name in ("losses_nats", "step_ms", "host_ms")
            },
        ),
        (
            "losses_nats: begins at 9",
            lambda run: {"losses_nats": [9.0, *run["losses_nats"][1:]]},
        ),
        ("step_ms: 0.0", lambda run: scaled(run, 1e-3)),
        ("step_ms: 8e+03 ms is more than", lambda run: scaled(run, 1e3)),
        (
            "host_ms: a step was queued",
            lambda run: {"host_ms": [2 * ms for ms in run["host_ms"]]},
        ),
        (
            "parameters_sha256: another run",
            lambda run: {"held_out_nats": run["held_out_nats"] + 1e-6},
        ),
    ],
)
def test_training_that_cannot_be_is_seen(recording: Recording, field, change_run):
    """Another count of steps, another beginning, a wrong unit, time that runs back,
    the same parameters from other losses: each is named."""

    def edit(raw):
        again = ("vendor", 0, 0, 2)
        for point in raw["points"]:
            if tuple(point[n] for n in ("way", "seed", "order", "repeat")) == again:
                point["run"] |= change_run(point["run"])

    change(recording, "training", edit)
    found = faults(recording)
    assert found[0].partition("training.json: ")[2].startswith("points[4].run." + field)


def scaled(run: dict, factor: float) -> dict:
    return {name: [factor * ms for ms in run[name]] for name in ("step_ms", "host_ms")}


def test_a_text_is_not_all_held_out(recording: Recording):
    """Something is trained on."""

    def edit(raw):
        raw["text"]["held_out_bytes"] = raw["text"]["text_bytes"]

    change(recording, "training", edit)
    (fault,) = faults(recording)
    assert "training.json: text.held_out_bytes" in fault


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("errors", {"errors": 2, "reported_errors": 1, "reports": ["Invalid read"]}),
        (
            "warnings",
            {"warnings": 1, "reported_errors": 1, "reports": ["Warning: Race"]},
        ),
        ("reported_warnings", {"reported_warnings": 1, "reports": ["Warning: Race"]}),
        ("reports", {"reported_errors": 1}),
        ("reports", {"reports": ["Invalid read"]}),
        ("launches", {"launches": [], "results": 0}),
    ],
)
def test_counts_of_the_sanitizer_agree(recording: Recording, field, changes):
    """More of ours than of all, reports of nothing, nothing found as nothing ran."""
    change(recording, "sanitizer", lambda raw: raw["points"][0].update(changes))
    found = faults(recording)
    where = "errors" if field == "warnings" else field
    assert any(f"sanitizer.json: points[0].{where}: " in fault for fault in found)


def test_what_launches_cost_need_not_grow(recording: Recording):
    """Tiny shapes take as long as each other, whatever their contraction."""

    def tiny(raw):
        for point in raw["points"]:
            for size, name in zip((64, 64, 64), "TKN", strict=True):
                point[name] = size
            point["samples_ms"] = [5e-3] * 5
        raw["points"] = raw["points"][:4]  # of distinct operations
        raw["points"] += [dict(point, T=256, K=256, N=256) for point in raw["points"]]

    change(recording, "gemms", tiny)
    assert faults(recording) == []


# Fields, of the first point where a section has points, that may be wrong by so much,
# or null, without a fault: `state` and `configuration` are alike in all sections. This
# list may only become shorter.
UNSEEN = {
    "×1000": """
        accumulation.K accumulation.N accumulation.T accumulation.error
        accumulation.micro_batches accumulation.partials.K accumulation.partials.N
        accumulation.partials.T accumulation.partials.error
        accumulation.partials.split_t determinism.repeats.runs environment.error_rows
        environment.gpu.clock_max_memory_mhz environment.gpu.l2_cache_bytes
        environment.gpu.max_programs_per_sm environment.gpu.max_warps_per_sm
        environment.gpu.memory_bytes environment.gpu.power_limit_w
        environment.gpu.registers_per_program environment.gpu.registers_per_sm
        environment.gpu.reserved_shared_memory_per_program_bytes
        environment.gpu.shared_memory_per_program_bytes
        environment.gpu.shared_memory_per_sm_bytes environment.gpu.warp_size
        environment.warmup_ms launches.K launches.N launches.T occupancy.K occupancy.N
        occupancy.T occupancy.counters.dram_read_bytes
        occupancy.counters.dram_write_bytes occupancy.counters.time_ms
        occupancy.programs sanitizer.control_errors sanitizer.duration_s
        sanitizer.launches.times sanitizer.results timelines.resident_programs
        timelines.timer_resolution_ns timelines.trace.sm training.model.heads
        training.model.parameters training.model.vocabulary training.repeat
        training.run.held_out_nats training.run.losses_nats
        training.text.byte_entropy_nats training.text.text_bytes traps.K traps.N traps.T
        traps.broken.elements traps.broken.error traps.broken.picture
        traps.fixed.elements traps.fixed.picture verification.duration_s
    """,
    "÷1000": """
        accumulation.T accumulation.error accumulation.partials.K
        accumulation.partials.N accumulation.partials.T accumulation.partials.error
        determinism.K determinism.N determinism.T determinism.error
        determinism.repeats.runs environment.gpu.l2_cache_bytes
        environment.gpu.registers_per_program environment.gpu.registers_per_sm
        environment.gpu.reserved_shared_memory_per_program_bytes
        environment.gpu.shared_memory_per_program_bytes
        environment.gpu.shared_memory_per_sm_bytes environment.warmup_ms gemms.N gemms.T
        gemms.error launches.T occupancy.K occupancy.N occupancy.T
        occupancy.counters.achieved_occupancy_pct occupancy.counters.dram_read_bytes
        occupancy.counters.dram_write_bytes occupancy.counters.sm_active_pct
        occupancy.counters.tensor_pipe_pct occupancy.counters.time_ms occupancy.programs
        occupancy.registers_per_thread occupancy.shared_memory_bytes
        occupancy.utilization_pct sanitizer.control_errors sanitizer.duration_s splits.K
        splits.N splits.T splits.error state.clock_memory_mhz state.clock_sm_mhz
        state.power_w state.temperature_c timelines.T training.model.parameters
        training.run.held_out_nats training.run.host_ms training.run.losses_nats
        training.run.peak_bytes training.text.byte_entropy_nats
        training.text.held_out_bytes transposes.K transposes.T transposes.error
        traps.broken.error traps.broken.picture traps.broken.wrong_elements
        traps.fixed.elements traps.fixed.error traps.fixed.picture
        verification.duration_s
    """,
    "null": """
        environment.software.cublas
    """,
}


def leaves(raw, path: tuple = ()) -> Iterator[tuple[tuple, object]]:
    """Every field that holds no other, or a list of numbers; of a list of objects the
    first."""
    if isinstance(raw, dict):
        for name, value in raw.items():
            yield from leaves(value, (*path, name))
    elif isinstance(raw, list) and raw and isinstance(raw[0], dict):
        yield from leaves(raw[0], (*path, 0))
    else:
        yield path, raw


def scaled_by(value, factor: float):
    """A number, or a list of them, in another unit."""
    if isinstance(value, list):
        return [scaled_by(one, factor) for one in value]
    if isinstance(value, bool | str | None):
        return value
    return type(value)(value * factor)


def test_what_is_unseen_is_known(maker):
    """A unit mistaken, or an answer missing without a reason, is a fault in every
    field but those that are written down."""
    unseen = defaultdict(set)
    # Further and ladder have the points of gemms; a lesson's follows the vendor's.
    first = {"gemms": 1, "determinism": 1}
    for name in SECTIONS.keys() - {"further", "ladder"}:
        text = maker.made[name].model_dump_json(by_alias=True)
        raw = json.loads(text)
        for part in {"points", "partials"} & raw.keys():
            raw[part] = raw[part][first.get(name, 0) :][:1]

        def faulty(raw=raw, name=name) -> bool:
            sections = {n: maker.made[n] for n in ("environment", "ceilings")}
            try:
                sections[name] = SECTIONS[name].model_validate_json(json.dumps(raw))
            except ValueError:
                return True
            every = dict.fromkeys(SECTIONS) | sections
            return any(checking._faults(SimpleNamespace(sections=sections, **every)))

        assert not faulty()
        for (*parents, field), value in list(leaves(raw)):
            holder = raw
            for parent in parents:
                holder = holder[parent]
            words = [word for word in (name, *parents, field) if isinstance(word, str)]
            for shared in {"state", "configuration"} & set(words):
                words = words[words.index(shared) :]
            for how, other in (
                ("×1000", scaled_by(value, 1000)),
                ("÷1000", scaled_by(value, 1 / 1000)),
                ("null", None),
            ):
                holder[field] = other
                if other != value and not faulty():
                    unseen[how].add(".".join(words).replace("points.", ""))
            holder[field] = value
    assert unseen == {how: set(names.split()) for how, names in UNSEEN.items()}
