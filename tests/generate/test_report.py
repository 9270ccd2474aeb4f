"""The report: derived from data/ alone, the same for people and machines."""

import io
import json
import re

import pytest
from rich.console import Console
from typer.testing import CliRunner

from generate.cli import app
from generate.render.facts import facts
from generate.render.formats import shape_key
from generate.render.measured import CALL_LABELS, CALLS, Measurements
from generate.render.targets import Target, targets
from generate.report import print_report, report
from generate.schema import Recording, geometric_mean
from generate.shapes import (
    FURTHER_SHAPES,
    GEMM_SHAPES,
    SPLIT_SHAPES,
    STARVED,
    WORKED,
)
from tests.generate.conftest import skipped


def test_json_has_the_published_fields(recording: Recording):
    """Fields are those that the README promises, and strict JSON."""
    root = recording.folder.parents[2]
    result = CliRunner().invoke(app, ["report", "--json", "--root", str(root)])
    assert result.exit_code == 0
    data = json.loads(result.stdout, parse_constant=pytest.fail)
    assert list(data) == [
        "recording",
        "gpu",
        "gemms",
        "summary",
        "splits",
        "targets",
        "claims",
        "repeat",
        "sanitizer",
    ]
    assert set(data["gemms"][0]) == {
        *("op", "mode", "T", "K", "N", "implementation"),
        *("time_ms", "vendor_ms", "ratio", "error"),
    }
    assert set(data["summary"][0]) == {
        *("op", "mode", "implementation", "shapes", "geomean_ratio", "min_ratio"),
    }
    assert set(data["splits"][0]) == {
        *("T", "K", "N", "reduction"),
        *("planned_split_t", "best_split_t", "planned_over_best"),
    }
    assert set(data["targets"][0]) == {
        *("target", "sense", "limit", "unit", "value"),
        *("where", "outcome", "not_measured_reason"),
    }
    assert set(data["claims"][0]) == {
        *("claim", "statement", "verdict", "evidence", "facts"),
    }


def test_ratio_is_vendor_time_over_ours(recording: Recording):
    """Above 1 means that we are faster."""
    for row in report(recording)["gemms"]:
        assert row["ratio"] == pytest.approx(row["vendor_ms"] / row["time_ms"])


def test_summary_covers_every_shape_once(recording: Recording):
    """Mean and minimum are over the rows above them."""
    data = report(recording)
    for line in data["summary"]:
        ratios = [
            row["ratio"]
            for row in data["gemms"]
            if all(row[k] == line[k] for k in ("op", "mode", "implementation"))
        ]
        assert line["shapes"] == len(ratios) == 14
        assert line["min_ratio"] == min(ratios)
        assert min(ratios) <= line["geomean_ratio"] <= max(ratios)


def test_best_split_is_the_fastest_recorded(recording: Recording):
    """No recorded split of a shape and reduction beats the one called best."""
    for row in report(recording)["splits"]:
        times = {
            point.split_t: point.time_ms
            for point in recording.splits.points
            if point.shape == (row["T"], row["K"], row["N"])
            and (
                point.reduction == "none"
                if point.split_t == 1
                else point.reduction == row["reduction"]
            )
        }
        assert times[row["best_split_t"]] == min(times.values())
        if row["planned_over_best"] is not None:
            assert row["planned_over_best"] >= 1


def test_a_skipped_point_is_null_not_a_number(recording: Recording, maker):
    """What was not measured has no ratio and joins no mean."""
    gemms = recording.gemms
    update = {"error": None, **skipped("out of memory")}
    first = gemms.points[1].model_copy(update=update)
    points = (gemms.points[0], first, *gemms.points[2:])
    changed = maker.write(
        recording.folder, gemms=gemms.model_copy(update={"points": points})
    )
    data = report(changed)
    (row,) = [r for r in data["gemms"] if r["time_ms"] is None]
    assert row["ratio"] is None
    same = ("op", "mode", "implementation")
    line = next(s for s in data["summary"] if all(s[k] == row[k] for k in same))
    assert line["shapes"] == 13


def test_people_see_what_machines_see(recording: Recording):
    """The printed tables hold every row of the JSON."""
    console = Console(width=200, record=True, file=open("/dev/null", "w"))
    print_report(recording, console)
    text = console.export_text()
    data = report(recording)
    for row in data["summary"]:
        assert f"{row['geomean_ratio']:.3f}" in text
    for row in data["targets"]:
        assert row["target"] in text and row["outcome"] in text
    shapes = {f"{r['T']} × {r['K']} × {r['N']}" for r in data["gemms"]}
    assert all(shape in text for shape in shapes)
    for row in data["claims"]:
        assert re.search(rf"{row['claim']}\s*│ {row['verdict']}\s*│", text)


def by_name(recording: Recording) -> dict[str, Target]:
    return {target.what: target for target in targets(Measurements(recording))}


def test_targets_are_what_the_facts_make(recording: Recording):
    """Each row's number follows from facts that pages show beside it."""
    measured = Measurements(recording)
    found = {key: fact.value for key, fact in facts(measured).items()}
    rows = by_name(recording)

    def each(calls, shapes, key: str) -> list[float]:
        return [found[key.format(shape_key(s), call)] for s in shapes for call in calls]

    vendor = "gemm.{}.{}.fast.over_vendor"
    drawn = each(CALLS, FURTHER_SHAPES, "further.{}.{}.over_vendor")
    expected = {
        "8192 × 4096 × 14336, vendor ÷ ours": found[
            f"gemm.{shape_key(WORKED)}.sum.fast.over_vendor"
        ],
        "8192 × 4096 × 14336, ours": found[f"gemm.{shape_key(WORKED)}.sum.fast.ms"],
        "worst of these, vendor ÷ ours": min(each(CALLS, GEMM_SHAPES, vendor)),
        "40 further shapes, mean vendor ÷ ours": geometric_mean(drawn),
        "40 further shapes, worst vendor ÷ ours": min(drawn),
        "host time of a call over a bare launch": max(
            found[f"launch.{call}.overhead_us"] for call in CALLS
        ),
    }
    for call, name in CALL_LABELS.items():
        ratios = each([call], GEMM_SHAPES, vendor)
        expected[f"{name}, 14 shapes, mean vendor ÷ ours"] = geometric_mean(ratios)
    for call, name in (("dw", "dW"), ("dw+", "dW +=")):
        what = f"{name}, starved shapes, mean default ÷ deterministic"
        expected[what] = found[f"ladder.deterministic.{call}.geomean"]
    over = [
        found[f"split.{shape_key(shape)}.planned.over_best"] for shape in SPLIT_SHAPES
    ]
    near = sum(value <= 1.03 for value in over)
    expected["planned splits within 3 % of the best"] = 100 * near / len(over)
    assert {what: row.value for what, row in rows.items()} == pytest.approx(expected)
    for row in rows.values():
        side = row.value - row.limit if row.sense == "≥" else row.limit - row.value
        assert row.outcome == ("met" if side >= 0 else "missed")
    assert {row.outcome for row in rows.values()} == {"met", "missed"}


def test_a_number_at_its_limit_is_met():
    """Both ways, and a hair beyond it is not."""
    for sense, beyond in (("≥", 0.999), ("≤", 1.001)):
        assert Target("t", sense, 1.0, "×", 1.0).outcome == "met"
        assert Target("t", sense, 1.0, "×", beyond).outcome == "missed"


def test_targets_of_an_old_recording_say_why_not(recording, tmp_path, maker):
    """Without the sections that they are about, each row has a reason instead."""
    gone = dict.fromkeys(["gemms", "splits", "further", "launches"])
    old = maker.write(tmp_path / "gpu" / "old", **gone)
    rows = report(old)["targets"]
    assert [row["target"] for row in rows] == list(by_name(recording))
    for row in rows:
        assert (row["value"], row["outcome"]) == (None, "not measured")
        assert row["not_measured_reason"].startswith("this recording has no section ")
    console = Console(width=200, record=True, file=io.StringIO())
    print_report(old, console)
    assert "has no section further" in console.export_text()


def test_a_target_without_some_of_its_points_has_no_verdict(tmp_path, maker):
    """The others' mean is shown, and the point that is missing named."""
    gemms = maker.gemms()
    points = tuple(
        p.model_copy(update={"error": None, **skipped("out of memory")})
        if (p.shape, p.op, p.implementation) == (STARVED, "dx", "fast")
        else p
        for p in gemms.points
    )
    changed = gemms.model_copy(update={"points": points})
    rows = by_name(maker.write(tmp_path / "gpu" / "one", gemms=changed))
    row = rows["dX, 14 shapes, mean vendor ÷ ours"]
    assert row.outcome == "not measured" and row.value is not None
    assert row.where == "13 of 14 shapes"
    assert row.missing == "dX at 32768 × 1024 × 1024: out of memory"
    assert rows["forward, 14 shapes, mean vendor ÷ ours"].missing is None


def test_a_failed_test_leaves_no_target(tmp_path, maker):
    """Times of kernels that compute wrongly meet nothing."""
    failing = maker.verification(("fast",))
    rows = by_name(maker.write(tmp_path / "gpu" / "one", verification=failing))
    outcomes = {what: row.outcome for what, row in rows.items()}
    assert outcomes.pop("planned splits within 3 % of the best") != "not measured"
    assert set(outcomes.values()) == {"not measured"}


def test_a_missing_recording_is_one_sentence(tmp_path):
    """No data: a sentence and a failing exit, no traceback."""
    result = CliRunner().invoke(app, ["report", "--root", str(tmp_path)])
    assert result.exit_code == 1
    assert "there is no recording" in result.output
