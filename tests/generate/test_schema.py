"""The data contract: strict both ways, whole or not at all."""

import json
import re
from pathlib import Path

import pytest

from generate import schema
from generate.schema import DataError, Recording, read_section, write_section


@pytest.mark.parametrize("name", schema.SECTIONS)
def test_sections_read_back_as_written(recording: Recording, name: str):
    """Writing and reading a section changes nothing."""
    section = getattr(recording, name)
    file = recording.folder / f"{name}.json"
    before = file.read_bytes()
    write_section(file, section)
    assert read_section(file) == section
    assert file.read_bytes() == before


def test_points_stand_on_lines_of_their_own(recording: Recording):
    """A new recording shows in a diff as the points that changed."""
    lines = (recording.folder / "gemms.json").read_text("utf-8").splitlines()
    points = [line for line in lines if line.startswith("    {")]
    assert len(points) == len(recording.gemms.points)


def test_units_stand_in_field_names():
    """Every float is a sample, a ratio by name or a reading, or carries its unit."""
    unit = re.compile(
        r".*_(ms|us|nats|mhz|w|c|s|pct|tbps|share)$|^(error|largest_spread|picture|value)$"
    )
    seen = set()
    for model in vars(schema).values():
        if isinstance(model, type) and issubclass(model, schema.Model):
            for name, field in model.model_fields.items():
                if re.search(r"\bfloat\b", str(field.annotation)):
                    seen.add(name)
                    assert unit.match(name), f"{model.__name__}.{name} has no unit"
    assert {"samples_ms", "power_w", "error", "duration_s"} <= seen


def test_a_failed_write_leaves_the_old_file(recording: Recording, monkeypatch):
    """A writer that dies half way loses nothing (torchgeo/torchgeo-bench#344)."""
    file = recording.folder / "gemms.json"
    before = file.read_bytes()

    def die(descriptor: int):
        raise OSError("no space left")

    monkeypatch.setattr(schema.os, "fsync", die)
    with pytest.raises(OSError, match="no space"):
        write_section(file, recording.gemms)
    assert file.read_bytes() == before
    assert Recording(recording.folder).gemms == recording.gemms


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")


def first_sample(file: Path) -> str:
    return re.search(r'"samples_ms": \[([0-9.e-]+)', file.read_text("utf-8")).group(1)


@pytest.mark.parametrize(
    "bad", ["NaN", "Infinity", "-Infinity", "1e999", '"1.0"', "true", "null", "0", "-1"]
)
def test_numbers_must_be_finite_positive_numbers(recording: Recording, bad: str):
    """NaN, text and booleans are no times (conbench/conbench#1263,
    plotly/plotly.py#202)."""
    file = recording.folder / "gemms.json"
    edit(file, f"[{first_sample(file)}", f"[{bad}")
    with pytest.raises(DataError, match=r"gemms\.json: ") as caught:
        read_section(file)
    assert "points[0].samples_ms" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", schema.SECTIONS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_no_field_holds_a_constant_that_is_no_json(recording: Recording, name, bad):
    """NaN and infinity are refused in every field of every section, by its name."""
    file = recording.folder / f"{name}.json"
    text = shortened(file)
    for *parents, field in fields(json.loads(text)):
        raw = json.loads(text)
        holder = raw
        for parent in parents:
            holder = holder[parent]
        holder[field] = bad
        file.write_text(json.dumps(raw), "utf-8")
        with pytest.raises(DataError) as caught:
            read_section(file)
        assert str(caught.value).startswith(f"{file}: ")
        assert field in str(caught.value)


@pytest.mark.parametrize("name", schema.SECTIONS)
@pytest.mark.parametrize("version", [None, 0, 1, 99, "2"])
def test_the_schema_version_must_be_known(recording: Recording, name: str, version):
    """Old, new and nameless formats are told apart (SWE-bench/SWE-bench#148)."""
    file = recording.folder / f"{name}.json"
    raw = json.loads(file.read_text("utf-8"))
    if version is None:
        del raw["schema_version"]
    else:
        raw["schema_version"] = version
    file.write_text(json.dumps(raw), "utf-8")
    with pytest.raises(DataError, match=rf"{name}\.json: schema_version: "):
        read_section(file)


def shortened(file: Path) -> str:
    """A section with one point, which has all the fields there are."""
    raw = json.loads(file.read_text("utf-8"))
    for name in {"points", "partials"} & set(raw):
        raw[name] = raw[name][:1]
    return json.dumps(raw)


def fields(raw, path: tuple = ()) -> list[tuple]:
    """Paths of every object's fields; of a list its first element stands for all."""
    found = []
    if isinstance(raw, dict):
        for name, value in raw.items():
            found += [(*path, name), *fields(value, (*path, name))]
    elif isinstance(raw, list) and raw:
        found += fields(raw[0], (*path, 0))
    return found


@pytest.mark.parametrize("name", schema.SECTIONS)
def test_no_field_may_be_missing_or_unknown(recording: Recording, name: str):
    """Leaving out any field, or adding one beside it, is refused by name."""
    file = recording.folder / f"{name}.json"
    text = shortened(file)
    for *parents, field in fields(json.loads(text)):
        if field == "schema_version":
            continue
        for change in ("missing", "unknown"):
            raw = json.loads(text)
            holder = raw
            for parent in parents:
                holder = holder[parent]
            if change == "missing":
                del holder[field]
            else:
                holder[f"{field}_too"] = 1
            file.write_text(json.dumps(raw), "utf-8")
            with pytest.raises(DataError) as caught:
                read_section(file)
            named = field if change == "missing" else f"{field}_too"
            assert str(caught.value).startswith(str(file))
            assert named in str(caught.value)


CONTRADICTIONS = (
    # Section, number of its point, fields that are set, and what is said.
    ("gemms", 0, {"error": None}, "needs error"),
    ("gemms", 0, {"samples_ms": None, "skipped_reason": "so"}, "needs state"),
    ("gemms", 1, {"configuration": None}, "configuration is missing"),
    ("gemms", 0, {"configuration": 1}, "not known of the vendor's"),
    ("gemms", 0, {"state": {"power_w": -5.0}}, "power_w"),
    ("gemms", 0, {"state": {"temperature_c": -300}}, "temperature_c"),
    ("gemms", 0, {"state": {"clock_sm_mhz": None}}, "nvml_reason"),
    ("gemms", 0, {"state": {"nvml_reason": "no answer"}}, "nvml_reason"),
    ("splits", 0, {"split_t": 64}, "another reduction or split_t"),
    ("splits", 1, {"configuration": {"split_t": 64}}, "another reduction or split_t"),
    ("splits", 0, {"configuration": {"split_t": 64}}, "that share a tile"),
    (
        "timelines",
        4,
        {"configuration": {"reduction": "workspace"}},
        "another reduction",
    ),
    ("occupancy", 1, {"configuration": None}, "all kernels but reduce"),
    ("determinism", 1, {"repeats": []}, "of each condition once"),
    ("determinism", 0, {"configuration": 1}, "not known of the vendor's"),
    ("transposes", 0, {"extra_bytes": None}, "needs extra_bytes"),
    ("traps", 0, {"broken": {"wrong_elements": 10**9}}, "are of elements"),
    ("traps", 0, {"T": None}, "needs T, K and N"),
)


def merged(raw: dict, changes: dict) -> None:
    for name, value in changes.items():
        if isinstance(value, dict) and raw[name]:
            merged(raw[name], value)
        else:
            raw[name] = value


@pytest.mark.parametrize(
    "case", CONTRADICTIONS, ids=lambda case: f"{case[0]}-{'-'.join(case[2])}"
)
def test_a_point_does_not_contradict_itself(maker, tmp_path, case):
    """What was measured has all that belongs to it, and what was not has none."""
    name, index, changes, said = case
    raw = maker.made[name].model_dump(mode="json", by_alias=True)
    raw["points"] = raw["points"][index : index + 2]
    if changes.get("configuration") == 1:
        changes = {"configuration": raw["points"][1]["configuration"]}
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps(raw), "utf-8")
    read_section(file)
    merged(raw["points"][0], changes)
    file.write_text(json.dumps(raw), "utf-8")
    with pytest.raises(DataError, match=said):
        read_section(file)


def test_a_section_does_not_contradict_its_points(maker, tmp_path):
    """Answers of the driver, repeats, tests and tools are there or have a reason."""

    def doubled(raw):
        raw["points"][0]["repeats"] *= 2

    def skip(raw):
        for point in raw["points"]:
            point["outcome"] = "skipped"

    for name, edit, said in (
        ("environment", lambda raw: raw["gpu"].update(mig_enabled=None), "nvml_reason"),
        ("environment", lambda raw: raw["software"].update(driver=None), "nvml_reason"),
        ("ceilings", lambda raw: raw.update(flops_per_clock_per_sm=None), "flops_r"),
        ("timelines", lambda raw: raw.update(timer_resolution_ns=None), "resolution"),
        ("timelines", lambda raw: raw.update(timer_resolution_ns=2**31), "resolution"),
        ("occupancy", lambda raw: raw.update(profiler=None), "profiler"),
        ("sanitizer", lambda raw: raw.update(version=None), "version"),
        ("determinism", doubled, "of each condition once"),
        ("verification", skip, "every test was skipped"),
    ):
        raw = maker.made[name].model_dump(mode="json", by_alias=True)
        edit(raw)
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(raw), "utf-8")
        with pytest.raises(DataError, match=said):
            read_section(file)


def test_keys_must_not_repeat(recording: Recording):
    """Python's reader keeps the last of two equal keys; ours refuses them."""
    file = recording.folder / "environment.json"
    edit(file, '"warmup_ms": 200.0', '"warmup_ms": 200.0, "warmup_ms": 1.0')
    with pytest.raises(DataError, match="warmup_ms: stands 2 times"):
        read_section(file)


@pytest.mark.parametrize("name", ["gemms", "splits", "occupancy", "verification"])
def test_points_must_not_repeat(recording: Recording, name: str):
    """One point, one row (EuroEval/EuroEval#1970)."""
    file = recording.folder / f"{name}.json"
    raw = json.loads(file.read_text("utf-8"))
    raw["points"].append(raw["points"][0])
    file.write_text(json.dumps(raw), "utf-8")
    with pytest.raises(DataError, match=rf"{name}\.json: points: .* stands 2 times"):
        read_section(file)


def test_a_recording_holds_nothing_but_sections(recording: Recording):
    """A stray file is named; a half-written section of a killed run is not seen."""
    (recording.folder / ".gemms.json.part").write_text("{", "utf-8")
    assert Recording(recording.folder).gemms == recording.gemms
    (recording.folder / "gems.json").write_text("{}", "utf-8")
    with pytest.raises(DataError, match="gems.json"):
        Recording(recording.folder)


def test_sections_without_an_environment_are_refused(recording: Recording):
    """Numbers without the device they come from are no recording."""
    (recording.folder / "environment.json").unlink()
    with pytest.raises(DataError, match="environment.json is missing"):
        schema.recordings(recording.folder.parents[1])


def test_geometric_mean_refuses_what_is_no_ratio():
    """A time forced to zero must not collapse a mean
    (gpu-mode/reference-kernels#162)."""
    assert schema.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    for bad in ([], [0.0, 1.0], [float("inf")], [float("nan")], [-1.0]):
        with pytest.raises(ValueError, match="positive and finite"):
            schema.geometric_mean(bad)
