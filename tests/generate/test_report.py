"""The report: derived from data/ alone, the same for people and machines."""

import json
import re

import pytest
from rich.console import Console
from typer.testing import CliRunner

from generate.cli import app
from generate.report import print_report, report
from generate.schema import Recording


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
        "claims",
        "repeat",
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
    first = gemms.points[1].model_copy(
        update={"samples_ms": None, "state": None, "skipped_reason": "out of memory"}
    )
    points = (gemms.points[0], first, *gemms.points[2:])
    changed = maker.write(
        recording.folder, gemms=gemms.model_copy(update={"points": points})
    )
    data = report(changed)
    (row,) = [r for r in data["gemms"] if r["time_ms"] is None]
    assert row["ratio"] is None
    line = next(
        s for s in data["summary"] if (s["op"], s["mode"]) == (row["op"], row["mode"])
    )
    assert line["shapes"] == 13


def test_people_see_what_machines_see(recording: Recording):
    """The printed tables hold every row of the JSON."""
    console = Console(width=140, record=True, file=open("/dev/null", "w"))
    print_report(recording, console)
    text = console.export_text()
    data = report(recording)
    for row in data["summary"]:
        assert f"{row['geomean_ratio']:.3f}" in text
    shapes = {f"{r['T']} × {r['K']} × {r['N']}" for r in data["gemms"]}
    assert all(shape in text for shape in shapes)
    for row in data["claims"]:
        assert re.search(rf"{row['claim']}\s*│ {row['verdict']}\s*│", text)


def test_a_missing_recording_is_one_sentence(tmp_path):
    """No data: a sentence and a failing exit, no traceback."""
    result = CliRunner().invoke(app, ["report", "--root", str(tmp_path)])
    assert result.exit_code == 1
    assert "there is no recording" in result.output
