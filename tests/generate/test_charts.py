"""Charts: figure, table and downloads say the same, and only what was measured."""

import csv
import io
import json
import math
import re
from dataclasses import replace

import pytest

from generate.render import palette
from generate.render.charts import BUILDERS, Chart, charts
from generate.render.facts import facts
from generate.render.formats import rounded, shape_key, significant
from generate.render.measured import Measurements, Missing
from generate.shapes import STARVED

NAMES = (
    "tiles",
    "splits",
    "breakdown",
    "transposes",
    "determinism",
    "accumulation",
    "partials",
    "plan",
    "predicted",
    "ladder",
    "further",
    "training",
    "apart",
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory, maker) -> Measurements:
    return Measurements(maker.write(tmp_path_factory.mktemp("data") / "gpu" / "one"))


@pytest.fixture(scope="module")
def made(measured: Measurements) -> dict[str, Chart | Missing]:
    return charts(measured)


@pytest.fixture(params=NAMES)
def chart(request, made) -> Chart:
    return made[request.param]


def values(spec) -> list:
    """Every leaf of a JSON document."""
    if isinstance(spec, dict):
        return [leaf for value in spec.values() for leaf in values(value)]
    if isinstance(spec, list):
        return [leaf for value in spec for leaf in values(value)]
    return [spec]


def numbers(data: list) -> list[float]:
    return [v for v in values(data) if isinstance(v, float)]


def test_figures_hold_plain_rounded_numbers(chart: Chart):
    """Finite numbers of four digits in plain lists: no packed arrays, no template."""
    spec = json.loads(chart.spec, parse_constant=pytest.fail)
    assert list(spec) == ["data", "layout"]
    assert "template" not in spec["layout"] and "bdata" not in chart.spec
    for number in numbers(spec["data"]):
        assert math.isfinite(number)
        assert number == float(f"{number:.4g}")


def test_colours_are_variables(chart: Chart):
    """Pages choose colours: a figure names CSS variables and no colour of its own."""
    used = set(re.findall(r"var\((--[\w-]+)\)", chart.spec))
    assert used and used <= set(palette.VARIABLES)
    assert not re.search(r"rgb\(|#[0-9a-f]{3,6}\b", chart.spec)


def test_sentinels_come_back_as_they_went(chart: Chart):
    """A still is drawn from the very figure that the browser draws."""
    spec = json.loads(chart.spec)
    assert palette.with_sentinels(spec) == json.loads(json.dumps(chart.plain))


def test_table_csv_and_json_agree(chart: Chart, measured: Measurements):
    """The three forms hold the same rows, in the same order."""
    from_csv = list(csv.DictReader(io.StringIO(chart.csv)))
    from_json = json.loads(chart.data(measured), parse_constant=pytest.fail)["rows"]
    table = replace(chart, grid=None).table.rows
    assert len(from_csv) == len(from_json) == len(table) == len(chart.rows)
    for row, plain, cells in zip(from_csv, from_json, table, strict=True):
        labels = [str(plain[column.key]) for column in chart.columns[: chart.labels]]
        assert cells[0].text == " × ".join(labels)
        rest = chart.shown_columns[chart.labels :]
        for column, cell in zip(rest, cells[1:], strict=True):
            value = plain[column.key]
            if value is None:
                assert row[column.key] == cell.text == ""
            elif column.numeric:
                assert float(row[column.key]) == float(cell.text) == value
            else:
                assert row[column.key] == cell.text == value


@pytest.mark.parametrize("name", ["splits", "breakdown", "transposes", "determinism"])
def test_no_number_is_rounded_twice(tmp_path, maker, name: str):
    """A time reads in the table, on the picture and in the caption as its fact reads,
    even if four of its digits would round to another third."""
    changed = {}
    for part in ("gemms", "splits", "transposes", "determinism"):
        section = getattr(maker, part)()
        points = tuple(
            point.model_copy(update={"samples_ms": (0.112496,) * len(samples)})
            if (samples := point.samples_ms)
            else point
            for point in section.points
        )
        changed[part] = section.model_copy(update={"points": points})
    measured = Measurements(maker.write(tmp_path / "gpu" / "one", **changed))
    chart = BUILDERS[name](measured)
    fact = facts(measured)[f"split.{shape_key(STARVED)}.none.1.ms"]
    shown = values(json.loads(chart.spec))
    shown += [cell.text for cells in chart.table.rows for cell in cells]
    said = re.findall(r"\b0\.11\d\b", " ".join(map(str, [*shown, chart.caption])))
    assert {f"{time} ms" for time in said} == {fact.text}


def test_the_grid_of_splits_holds_every_time(measured: Measurements, made):
    """Each row stands in the page's table, under its factor, the best of a shape
    marked."""
    chart = made["splits"]
    heads = [head.text for head in chart.table.heads]
    cells = {}
    for shape, reduction, *times in chart.table.rows:
        for head, cell in zip(heads[2:], times, strict=True):
            if cell.text:
                cells[shape.text, reduction.text, head] = cell.text
    expected = {}
    for row in chart.rows:
        shape = " × ".join(str(row[axis]) for axis in "TKN")
        best = " *" if "best" in row["mark"] else ""
        text = significant(row["time_ms"]) + best
        if row["reduction"] == "none":
            for reduction in ("atomic", "workspace"):
                expected[shape, reduction, "no split"] = text
        else:
            expected[shape, row["reduction"], str(row["split_t"])] = text
    assert cells == expected
    stars = [text for text in cells.values() if text.endswith("*")]
    assert len(stars) >= len(measured.split_shapes)


def test_splits_draws_its_rows(made):
    """Each measured row is one point of a line, and no point is anything else."""
    chart = made["splits"]
    names = {
        "no split: one program a tile": "none",
        "atomic adds": "atomic",
        "workspace, then reduce": "workspace",
    }
    drawn = {
        (trace["meta"]["group"], names[trace["name"]], x, y)
        for trace in json.loads(chart.spec)["data"]
        if trace["name"] in names
        for x, y in zip(trace["x"], trace["y"], strict=True)
    }
    rows = {
        (
            f"{r['T']} × {r['K']} × {r['N']}",
            r["reduction"],
            r["split_t"],
            r["time_ms"],
        )
        for r in chart.written
    }
    assert drawn == rows


def test_best_split_is_starred(measured: Measurements, made):
    """The star of each shape stands on its fastest point."""
    chart = made["splits"]
    stars = [t for t in json.loads(chart.spec)["data"] if t["name"] == "best"]
    assert len(stars) == len(measured.split_shapes)
    for shape, star in zip(measured.split_shapes, stars, strict=True):
        rows = [r for r in chart.rows if (r["T"], r["K"], r["N"]) == shape]
        fastest = min(rows, key=lambda row: row["time_ms"])
        assert star["y"] == [rounded(fastest["time_ms"])]
        assert "best" in fastest["mark"]


def test_breakdown_draws_its_rows(made):
    """Each row of an implementation is one bar."""
    chart = made["breakdown"]
    bars = [t for t in json.loads(chart.spec)["data"] if t["type"] == "bar"]
    drawn = sorted(x for trace in bars for x in trace["x"])
    rows = [r for r in chart.rows if r["implementation"] in ("vendor", "lesson")]
    assert drawn == sorted(rounded(row["time_ms"]) for row in rows)


def test_lesson_figures_stand_apart(made):
    """They are dotted, called so, at the worked shape alone, and no measured row."""
    chart = made["breakdown"]
    dotted = [
        trace
        for trace in json.loads(chart.spec)["data"]
        if trace.get("line", {}).get("dash") == "dot"
    ]
    assert [t["meta"]["group"] for t in dotted] == ["8192 × 4096 × 14336"]
    assert "lesson figure" in dotted[0]["name"]
    rows = [row for row in chart.rows if row["implementation"] == "lesson figure"]
    assert {(r["T"], r["K"], r["N"]) for r in rows} == {(8192, 4096, 14336)}
    assert all(row.get("samples") is None for row in rows)


def test_tiles_marks_starved_layers_without_colour(measured: Measurements, made):
    """Layers with fewer tiles than SMs differ by pattern too."""
    chart = made["tiles"]
    traces = {t["name"]: t for t in json.loads(chart.spec)["data"]}
    starved = traces["fewer tiles than SMs"]
    patterns = [t["marker"].get("pattern", {}).get("shape") for t in traces.values()]
    assert len(set(patterns)) == len(patterns)
    assert max(starved["x"]) < measured.gpu.sm_count
    assert sum(len(t["x"]) for t in traces.values()) == len(chart.rows)


@pytest.mark.parametrize(
    "name",
    ["splits", "breakdown", "transposes", "determinism", "accumulation", "ladder"],
)
def test_each_group_can_be_chosen(made, name: str):
    """Every trace belongs to a group on offer, or to the frame; every group has a
    sentence."""
    spec = json.loads(made[name].spec)
    meta = spec["layout"]["meta"]
    groups = meta["select"]["groups"]
    traces = [trace for trace in spec["data"] if "meta" in trace]
    assert {trace["meta"]["group"] for trace in traces} == set(groups)
    assert meta["select"]["selected"] in groups
    assert list(meta["describe"]) == groups


def test_points_of_a_failed_kernel_vanish(tmp_path, maker):
    """Where a test of a kernel failed, no number of it is drawn, and why is said."""
    recording = maker.write(
        tmp_path / "gpu" / "one", verification=maker.verification(failing=("reduce",))
    )
    chart = BUILDERS["splits"](Measurements(recording))
    assert not any("workspace" in trace["name"] for trace in values_of(chart))
    withheld = [row for row in chart.rows if row["reduction"] == "workspace"]
    assert withheld
    for row in withheld:
        assert row.get("time_ms") is None
        assert "reduce kernel failed" in row["not_measured_reason"]
    assert "reduce kernel failed" in chart.csv


def values_of(chart: Chart) -> list[dict]:
    return json.loads(chart.spec)["data"]


def test_vendor_stays_when_ours_failed(tmp_path, maker):
    """Our failure says nothing about the vendor's numbers."""
    recording = maker.write(
        tmp_path / "gpu" / "one", verification=maker.verification(failing=("dx",))
    )
    rows = BUILDERS["breakdown"](Measurements(recording)).rows
    dx = [row for row in rows if row["gemm"] == "dX"]
    assert all(
        (row.get("time_ms") is None) == (row["implementation"] == "lesson")
        for row in dx
    )


def test_a_skipped_point_is_not_drawn(tmp_path, maker):
    """A skip is a row with its reason and no point on a line."""
    splits = maker.splits()
    point = splits.points[5]
    gone = point.model_copy(
        update={
            "error": None,
            "samples_ms": None,
            "state": None,
            "skipped_reason": "out of memory",
        }
    )
    others = tuple(p for p in splits.points if p is not point)
    splits = splits.model_copy(update={"points": (*others, gone)})
    recording = maker.write(tmp_path / "gpu" / "one", splits=splits)
    chart = BUILDERS["splits"](Measurements(recording))
    rows = [row for row in chart.rows if row.get("not_measured_reason")]
    assert [row["not_measured_reason"] for row in rows] == ["out of memory"]
    label = f"{point.T} × {point.K} × {point.N}"
    (line,) = (
        trace
        for trace in values_of(chart)
        if trace["name"] == "atomic adds" and trace["meta"]["group"] == label
    )
    assert point.split_t not in line["x"]


def test_a_missing_section_is_said(tmp_path, maker):
    """Without its section a chart is a sentence, not an empty frame."""
    recording = maker.write(tmp_path / "gpu" / "one", splits=None)
    found = BUILDERS["splits"](Measurements(recording))
    assert found == Missing("this recording has no section splits")


def test_captions_follow_the_numbers(tmp_path, maker):
    """Where no split helps, no caption says that one does."""
    splits = maker.splits()
    slow = tuple(
        p.model_copy(update={"samples_ms": tuple(10 * s for s in p.samples_ms)})
        if p.split_t > 1
        else p
        for p in splits.points
    )
    recording = maker.write(
        tmp_path / "gpu" / "one", splits=splits.model_copy(update={"points": slow})
    )
    chart = BUILDERS["splits"](Measurements(recording))
    assert "at 0 of 12 shapes." in chart.caption
    describe = json.loads(chart.spec)["layout"]["meta"]["describe"]
    assert all("no split is faster" in sentence for sentence in describe.values())


def test_planned_split_is_todays_plan(measured: Measurements, made):
    """The dashed line stands where kernels.plan would split now."""
    chart = made["splits"]
    planned = {
        trace["meta"]["group"]: trace["x"][0]
        for trace in values_of(chart)
        if trace["name"] == "planned"
    }
    factor = measured.plan(STARVED).split_t
    nearest = measured.planned_split(STARVED).split_t
    assert planned["32768 × 1024 × 1024"] == nearest
    assert abs(math.log(nearest / factor)) <= math.log(1.5)
