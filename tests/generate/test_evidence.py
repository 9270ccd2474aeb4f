"""Determinism, accumulation, transposes: facts, charts and what prose makes of them."""

import json
import math

import pytest

from generate.render.charts import BUILDERS, Chart
from generate.render.charts.base import decades, doublings
from generate.render.claims import Judged
from generate.render.facts import Facts, facts
from generate.render.formats import error
from generate.render.measured import Measurements, Missing
from generate.schema import Determinism, Recording
from tests.generate.conftest import ROOT, Maker, SiteRoot, skipped

SECTIONS = ("determinism", "accumulation", "transposes")
STARVED = "32768x1024x1024"
# One key of each kind, as claims and pages write them.
KEYS = (
    f"determinism.{STARVED}.vendor.distinct",
    f"determinism.{STARVED}.none.1.error",
    f"determinism.{STARVED}.atomic.3.spread",
    f"determinism.{STARVED}.atomic.64.differing",
    "determinism.8192x4096x64.workspace.16.ms",
    "determinism.8192x4096x64.workspace.2.memory-pressure.distinct",
    f"determinism.{STARVED}.atomic.8.two-streams.spread",
    "accumulation.noise.bfloat16.1024.error",
    "accumulation.signal.float32.1.unchanged_pct",
    "partials.float16.32.error",
    "transpose.8192x4096x14336.dx.lesson.copied-before.ms",
    "transpose.65536x1024x1024.dw.vendor.the-copy-alone.extra_mib",
    "transpose.8192x4096x4096.dx.vendor.cost",
)


def numbers(recording: Recording) -> Facts:
    return facts(Measurements(recording))


def drawn(chart: Chart) -> list[dict]:
    return json.loads(chart.spec)["data"]


def without(maker: Maker, tmp_path, *names: str) -> Recording:
    """A recording that lacks some sections."""
    folder = tmp_path / "data" / "gpu" / "one"
    return maker.write(folder, **dict.fromkeys(names))


# Facts


@pytest.mark.parametrize("key", KEYS)
def test_keys_stand_with_and_without_their_section(recording, maker, tmp_path, key):
    """A key is measured where its section is, and says why not where it is not."""
    assert numbers(recording)[key].value is not None
    fact = numbers(without(maker, tmp_path, *SECTIONS))[key]
    assert fact.value is None
    assert fact.note.startswith("this recording has no section ")


def test_facts_follow_their_points(recording: Recording):
    """Counts, shares, sizes and ratios are those of the recorded points."""
    found = numbers(recording)
    key = f"determinism.{STARVED}.atomic.8"
    assert found[f"{key}.distinct"].value == 80
    assert found[f"{key}.differing_pct"].value == 100 * 4096 / 1024**2
    assert found[f"{key}.spread"].text == "2.5·10⁻⁶"
    assert found["accumulation.signal.bfloat16.64.unchanged_pct"].text == "1.6 %"
    key = f"transpose.{STARVED}.dw.lesson"
    assert found[f"{key}.copied-first.extra_mib"].value == 2 * 32768 * 1024 / 2**20
    ways = [found[f"{key}.{way}.ms"].value for way in ("copied-first", "in-place")]
    assert found[f"{key}.cost"].value == pytest.approx(ways[0] / ways[1])


def test_other_shapes_have_facts_too(maker, tmp_path):
    """A recording made at shapes of one's own has its keys."""
    section = maker.transposes()
    points = tuple(p.model_copy(update={"N": 77}) for p in section.points[:8])
    section = section.model_copy(update={"points": points})
    folder = tmp_path / "gpu" / "one"
    found = numbers(maker.write(folder, transposes=section))
    assert found["transpose.8192x4096x77.dx.lesson.cost"].value > 1


def test_a_failed_reduce_withholds_the_workspace_alone(maker, tmp_path):
    """What the reduce kernel had no part in stays."""
    recording = maker.write(
        tmp_path / "gpu" / "one", verification=maker.verification(failing=("reduce",))
    )
    found = numbers(recording)
    assert "reduce" in found[f"determinism.{STARVED}.workspace.4.distinct"].note
    for name in ("vendor", "none.1", "atomic.4"):
        assert found[f"determinism.{STARVED}.{name}.distinct"].value is not None


@pytest.mark.parametrize(
    "value, text",
    [(0.00166, "1.7·10⁻³"), (0.0, "0"), (9.96e-7, "1.0·10⁻⁶"), (2.0, "2.0·10⁰")],
)
def test_errors_have_two_digits(value: float, text: str):
    """A power of ten and two digits of it, whatever the size."""
    assert error(value) == text


# Charts


@pytest.mark.parametrize(
    "name, section",
    [
        ("determinism", "determinism"),
        ("accumulation", "accumulation"),
        ("partials", "accumulation"),
        ("transposes", "transposes"),
    ],
)
def test_a_chart_without_its_section_is_a_reason(maker, tmp_path, name, section):
    """No frame without numbers."""
    recording = without(maker, tmp_path, section)
    assert BUILDERS[name](Measurements(recording)) == Missing(
        f"this recording has no section {section}"
    )


def test_patterns_are_drawn_where_they_were_counted(recording: Recording):
    """Each mark is a row's runs alone; the vendor's stands apart from the factors."""
    chart = BUILDERS["determinism"](Measurements(recording))
    marks = sorted(
        (trace["meta"]["group"], x, y)
        for trace in drawn(chart)
        if "markers" in trace["mode"]
        for x, y in zip(trace["x"], trace["y"], strict=True)
    )
    rows = sorted(
        (
            f"{row['T']} × {row['K']} × {row['N']}",
            row["split_t"] or 0.5,
            row["alone_distinct"],
        )
        for row in chart.rows
    )
    assert marks == rows
    ticks = json.loads(chart.spec)["layout"]["xaxis"]
    assert ticks["ticktext"][ticks["tickvals"].index(0.5)] == "its own"


def test_a_workspace_that_varies_is_named(maker, tmp_path):
    """The caption reports what was counted, in whichever condition, not the claim."""
    section = maker.determinism()
    points = []
    for point in section.points:
        if (point.reduction, point.split_t, point.N) == ("workspace", 16, 64):
            *others, streams = point.repeats
            streams = streams.model_copy(update={"distinct": 2})
            point = point.model_copy(update={"repeats": (*others, streams)})
        points.append(point)
    section = section.model_copy(update={"points": tuple(points)})
    steady = BUILDERS["determinism"](Measurements(maker.write(tmp_path / "gpu" / "a")))
    folder = tmp_path / "gpu" / "b"
    varied = maker.write(folder, determinism=section)
    varied = BUILDERS["determinism"](Measurements(varied))
    assert "the workspace at every split, one program a tile" in steady.caption
    assert "the workspace gave different bits at a split of 16" in varied.caption
    spoken = json.loads(varied.spec)["layout"]["meta"]["describe"]
    assert "workspace gave different" not in spoken["32768 × 1024 × 1024"]
    assert "workspace gave different" in spoken["8192 × 4096 × 64"]


def test_skipped_repeats_are_no_marks(maker, tmp_path):
    """A form that was skipped has a row with its reason and no mark."""
    section = maker.determinism()
    update = {"repeats": (), "error": None, **skipped("out of memory")}
    points = tuple(
        point.model_copy(update=update) if point.split_t == 64 else point
        for point in section.points
    )
    recording = maker.write(
        tmp_path / "gpu" / "one",
        determinism=section.model_copy(update={"points": points}),
    )
    chart = BUILDERS["determinism"](Measurements(recording))
    reasons = [row.get("not_measured_reason") for row in chart.rows]
    assert reasons.count("out of memory") == 4
    assert 64 not in [x for trace in drawn(chart) for x in trace["x"]]
    shown = [cell for cells in chart.table.rows for cell in cells if cell.reason]
    assert {cell.reason for cell in shown} == {"out of memory"}


@pytest.mark.parametrize("name", ["accumulation", "partials"])
def test_errors_are_drawn_as_they_stand(recording: Recording, name: str):
    """Each row is a point of a line, and lies within the axes."""
    chart = BUILDERS[name](Measurements(recording))
    across = "micro_batches" if name == "accumulation" else "split_t"
    points = [
        (x, y)
        for trace in drawn(chart)
        for x, y in zip(trace["x"], trace["y"], strict=True)
    ]
    held = sorted((row[across], row["error"]) for row in chart.written)
    assert sorted(points) == held
    layout = json.loads(chart.spec)["layout"]
    for axis, values in zip(("xaxis", "yaxis"), zip(*points, strict=True), strict=True):
        low, high = layout[axis]["range"]
        assert all(low < math.log10(value) < high for value in values)


@pytest.mark.parametrize("most", [1, 2, 64, 66, 255, 256, 1000, 1024])
def test_doublings_hold_their_values(most: int):
    """The axis reaches beyond its largest value, with few enough ticks for a phone."""
    axis = doublings(most, "")
    low, high = axis["range"]
    assert low < 0 and high > math.log10(most)
    assert axis["tickvals"][0] == 1 and len(axis["tickvals"]) <= 8
    assert all(low < math.log10(tick) < high for tick in axis["tickvals"])


@pytest.mark.parametrize("values", [[1.0], [1e-7, 1.0], [3.2e-4], [9.9e-3, 1.1e-2]])
def test_decades_hold_their_values(values: list[float]):
    """The axis ends on powers of ten outside its values."""
    axis = decades(values, "")
    assert axis["tickvals"][0] <= min(values) and max(values) <= axis["tickvals"][-1]
    assert len(axis["tickvals"]) >= 2


def test_a_copy_lies_in_the_bar_that_holds_it(recording: Recording):
    """Each time is a bar; the copy's own lies where "copied first" lies."""
    chart = BUILDERS["transposes"](Measurements(recording))
    times = sorted(x for trace in drawn(chart) for x in trace["x"])
    assert times == sorted(row["time_ms"] for row in chart.written)
    groups = {trace["meta"]["group"] for trace in drawn(chart)}
    assert len(groups) == 4
    for group in groups:
        bars = {t["name"]: t for t in drawn(chart) if t["meta"]["group"] == group}
        copy, first = bars["the copy alone"], bars["copied first"]
        assert (copy["offset"], copy["y"]) == (first["offset"], first["y"])
        patterns = [t["marker"].get("pattern", {}).get("shape") for t in bars.values()]
        fills = [isinstance(t["marker"]["color"], list) for t in bars.values()]
        looks = list(zip(patterns, fills, strict=True))
        assert len(set(looks)) == len(looks)


# The lesson


def outcome(recording: Recording, claim: str) -> str:
    measured = Measurements(recording)
    return Judged(measured, facts(measured)).verdicts[claim].outcome


def repeated(maker: Maker, distinct: dict[tuple, int]) -> Determinism:
    """The section with other counts for some reductions and split factors."""
    section = maker.determinism()
    points = []
    for point in section.points:
        patterns = distinct.get((point.reduction, point.split_t))
        if patterns is not None:
            repeats = tuple(
                r.model_copy(update={"distinct": patterns}) for r in point.repeats
            )
            point = point.model_copy(update={"repeats": repeats})
        points.append(point)
    return section.model_copy(update={"points": tuple(points)})


@pytest.mark.parametrize(
    "distinct, claim, expected",
    [
        ({}, "two-terms-repeat", "holds"),
        ({("atomic", 3): 1}, "two-terms-repeat", "holds in part"),
        ({("atomic", 2): 5}, "two-terms-repeat", "does not hold"),
        ({}, "workspace-repeats", "holds"),
        ({("workspace", 64): 2}, "workspace-repeats", "holds in part"),
        ({("none", 1): 3}, "one-owner-repeats", "does not hold"),
        ({("atomic", s): 1 for s in (3, 4, 8, 16, 64)}, "atomics-differ", "does not"),
    ],
)
def test_counts_decide_what_repeats(maker, tmp_path, distinct, claim, expected):
    """What the lesson says of bits is what the recorded runs gave."""
    section = repeated(maker, distinct)
    recording = maker.write(tmp_path / "gpu" / "one", determinism=section)
    assert outcome(recording, claim).startswith(expected)


def test_buffers_decide_what_drifts(maker, tmp_path):
    """Should bf16 ever do as well as fp32, the claims fall."""
    section = maker.accumulation()
    same = {
        name: tuple(
            point.model_copy(update={"error": 1e-6}) for point in getattr(section, name)
        )
        for name in ("points", "partials")
    }
    as_told = maker.write(tmp_path / "gpu" / "a")
    level = section.model_copy(update=same)
    level = maker.write(tmp_path / "gpu" / "b", accumulation=level)
    for claim in ("bf16-drifts", "partials-in-16-bits"):
        assert outcome(as_told, claim) == "holds"
        assert outcome(level, claim) == "does not hold"


def test_times_decide_whether_a_swap_is_free(maker, tmp_path):
    """In place against a copy made beforehand, whichever is the faster."""
    section = maker.transposes()
    points = tuple(
        point.model_copy(update={"samples_ms": tuple(2 * s for s in point.samples_ms)})
        if point.way == "in place"
        else point
        for point in section.points
    )
    slow = section.model_copy(update={"points": points})
    slow = maker.write(tmp_path / "gpu" / "slow", transposes=slow)
    assert outcome(slow, "transposes-free") == "does not hold"
    assert outcome(maker.write(tmp_path / "gpu" / "even"), "transposes-free") == "holds"


def test_pages_do_without_the_evidence(site: SiteRoot):
    """Where nothing was measured a page says so and compares nothing."""
    for name in SECTIONS:
        (site.recording.folder / f"{name}.json").unlink()
    names = ("determinism", "accumulate", "stride-swap")
    for name in names:
        template = f"lesson/{name}.md.j2"
        text = (ROOT / "generate" / "templates" / template).read_text("utf-8")
        site.page(template, text)
    site.render()
    for name in names:
        text = (site.root / "docs" / "lesson" / f"{name}.md").read_text("utf-8")
        assert "Chart not measured: this recording has no section" in text
        for words in ("Measured: ", "last of the 1,024", "takes <span", "call on the"):
            assert words not in text
