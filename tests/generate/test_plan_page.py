"""The plan's page: two rules, the model's times and residuals, what claims count."""

import json
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from generate.render import RenderError, planning
from generate.render.charts import BUILDERS, Chart, charts
from generate.render.claims import Judged
from generate.render.facts import facts
from generate.render.formats import shape_key, shape_label
from generate.render.measured import CALLS, Measurements, Missing
from generate.render.planning import (
    block_ms,
    lesson_split,
    model_blocks,
    modelled,
    predictions,
    residual,
)
from generate.schema import Recording, geometric_mean
from generate.shapes import (
    FURTHER_SHAPES,
    GEMM_SHAPES,
    LADDER_SHAPES,
    SPLIT_FACTORS,
    SPLIT_SHAPES,
)
from kernels.fast.ops import question
from kernels.plan import RUNGS, fast_plan, ranked_plans, split_time
from tests.generate.conftest import ROOT, Maker, SiteRoot, measured, skipped

PAGE = "fast/plan.md.j2"
SECTIONS = ("gemms", "ladder", "further", "splits")


@pytest.fixture
def found(recording: Recording) -> Measurements:
    return Measurements(recording)


def changed(maker: Maker, folder, name: str, change) -> Measurements:
    """A recording with the points of one section put through `change`."""
    section = maker.sections()[name]
    points = tuple(map(change, section.points))
    section = section.model_copy(update={"points": points})
    return Measurements(maker.write(folder / "gpu" / "one", **{name: section}))


def bare(maker: Maker, folder) -> Measurements:
    return Measurements(maker.write(folder / "gpu" / "bare", **dict.fromkeys(SECTIONS)))


def judged(measurements: Measurements) -> Judged:
    return Judged(measurements, facts(measurements))


def nearest_to(split_t: int, factors) -> int:
    """As a ratio, in either direction."""
    return min(factors, key=lambda factor: max(factor / split_t, split_t / factor))


def times_longer(point, factor: float):
    samples = tuple(factor * sample for sample in point.samples_ms)
    return point.model_copy(update={"samples_ms": samples})


# The rules and the model


def test_the_lessons_rule_counts_tiles_and_sms(found: Measurements):
    """The fewest programs that give every SM one; none to spare where tiles do."""
    sms = found.gpu.sm_count
    for shape in SPLIT_SHAPES:
        tiles, split_t = found.plan(shape).tiles, lesson_split(found, shape)
        assert split_t == 1 if tiles >= sms else tiles < sms
        assert tiles * split_t >= sms
        assert split_t == 1 or tiles * (split_t - 1) < sms


def test_the_model_is_the_plans(found: Measurements):
    """Its least time over the factors it may choose is at the planned one."""
    for shape in SPLIT_SHAPES:
        chosen = found.plan(shape).split_t
        times = [model_blocks(found, shape, s) for s in range(1, 2 * chosen + 1)]
        assert min(times) == times[chosen - 1] == model_blocks(found, shape, chosen)


def test_one_number_is_fitted_to_a_shape(found: Measurements):
    """Residuals are what is left of it: their geometric mean is none."""
    for shape in SPLIT_SHAPES:
        points = modelled(found, shape)
        assert {point.reduction for point in points} == {"none", "atomic"}
        left = [1 + residual(found, shape, point) for point in points]
        assert geometric_mean(left) == pytest.approx(1)
        assert max(left) > 1 > min(left)


def test_a_perfect_model_leaves_nothing(tmp_path, maker):
    """Where measured times are the model's, the fit finds its unit again."""

    def as_modelled(point):
        chosen = maker.plan("dw", point.shape)
        blocks = -(-point.T // chosen.tile.block_t)
        time = split_time(point.split_t, chosen.tiles, blocks, maker.gpu.sm_count, 2)
        return point.model_copy(update=measured(0.5 * time))

    exact = changed(maker, tmp_path, "splits", as_modelled)
    for shape in SPLIT_SHAPES:
        assert block_ms(exact, shape) == pytest.approx(0.5)
        for point in modelled(exact, shape):
            assert residual(exact, shape, point) == pytest.approx(0)
        if exact.plan(shape).split_t in SPLIT_FACTORS:
            quickest = min(modelled(exact, shape), key=lambda point: point.time_ms)
            assert exact.planned_split(shape).time_ms == quickest.time_ms
    assert judged(exact).verdicts["model-near"].outcome == "holds"


def test_rule_facts_are_the_recorded_times(found: Measurements):
    """Each rule's time is that of the recorded factor next to its own."""
    known = facts(found)
    for shape in SPLIT_SHAPES:
        key, split_t = f"plan.{shape_key(shape)}.lesson", lesson_split(found, shape)
        points = found.splits(shape, "none" if split_t == 1 else "atomic")
        nearest = nearest_to(split_t, [point.split_t for point in points])
        best = min(point.time_ms for point in found.splits(shape))
        time = next(p.time_ms for p in points if p.split_t == nearest)
        assert known[f"{key}.split_t"].value == split_t
        assert known[f"{key}.over_best"].value == pytest.approx(time / best)
        said = f"nearest recorded factor is {nearest}" in known[f"{key}.ms"].note
        assert said == (nearest != split_t)


def test_the_table_of_rules_has_every_shape(found: Measurements):
    """Choices and their cost, as the facts have them."""
    known, table = facts(found), planning.tables(found)["plan-rules"]
    assert [row[0].text for row in table.rows] == [shape_label(s) for s in SPLIT_SHAPES]
    for shape, row in zip(SPLIT_SHAPES, table.rows, strict=True):
        _, tiles, _, lesson, lesson_over, full, full_over, best, _ = (
            cell.text for cell in row
        )
        key = shape_key(shape)
        assert tiles == str(found.plan(shape).tiles)
        assert lesson.split()[0] == known[f"plan.{key}.lesson.split_t"].text
        assert lesson_over == known[f"plan.{key}.lesson.over_best"].text
        assert full.split()[0] == known[f"split.{key}.planned.split_t"].text
        assert full_over == known[f"split.{key}.planned.over_best"].text
        assert best.split(",")[0] == known[f"split.{key}.best.split_t"].text


# The fast kernels


def test_a_prediction_is_what_the_plan_chose_by(found: Measurements):
    """Of each product the time by which its launch came first."""
    for section, shapes in (("gemms", GEMM_SHAPES), ("further", FURTHER_SHAPES)):
        products = predictions(found, section)
        assert [(p.shape, p.call) for p in products] == [
            (shape, call) for shape in shapes for call in CALLS
        ]
        for p in products:
            op, mode = CALLS[p.call]
            layout = planning.plain_layout(op, p.shape)
            ranked = ranked_plans(
                op, p.shape, 2, found.gpu.device, mode=mode, layout=layout
            )
            assert p.predicted_us == ranked[0][0]
            assert p.over == pytest.approx(1000 * p.point.time_ms / ranked[0][0])


@given(
    op=st.sampled_from(("forward", "dx", "dw")),
    shape=st.tuples(*[st.integers(1, 300)] * 3),
)
def test_layouts_of_recorded_products(op, shape):
    """The site works out of the shape alone what the host side finds of tensors."""
    t, k, n = shape
    x, w, dy = (
        torch.empty(size, dtype=torch.bfloat16) for size in ((t, k), (k, n), (t, n))
    )
    a, b = {"forward": (x, w), "dx": (dy, w), "dw": (x, dy)}[op]
    asked = question(op, a, b, None, "overwrite", None)
    assert planning.plain_layout(op, shape) == asked["layout"]


@pytest.mark.parametrize(
    "update, reason",
    [
        ({"kernel": "grouped"}, "the lesson's kernel"),
        ({"block_t": 8}, "not among the launches that are planned today"),
        ({"programs": 7}, "not among the launches that are planned today"),
    ],
)
def test_a_launch_that_is_not_planned_has_no_prediction(
    tmp_path, maker, update, reason
):
    """It says so, and stands in no count."""

    def other(point):
        if point.implementation != "fast" or point.op != "dx":
            return point
        made = point.configuration.model_copy(update=update)
        return point.model_copy(update={"configuration": made})

    shown = changed(maker, tmp_path, "gemms", other)
    for p in predictions(shown, "gemms"):
        assert isinstance(p.over, Missing) == (p.call == "dx")
        if p.call == "dx":
            assert reason in p.over.reason
    assert facts(shown)["predicted.gemms.count"].value == 3 * len(GEMM_SHAPES)
    table = BUILDERS["predicted"](shown).table
    assert reason in " ".join(table.reasons)


def test_spread_of_predictions(found: Measurements):
    """Half and 95 of 100 are no further off than is said, and some are further."""
    known = facts(found)
    for section in planning.PREDICTED:
        over = [p.over for p in predictions(found, section)]
        key = f"predicted.{section}"
        for name, share in (("half_pct", 0.5), ("most_pct", 0.95)):
            most = known[f"{key}.{name}"].value
            within = sum(100 * abs(value - 1) <= most for value in over)
            closer = sum(100 * abs(value - 1) < most for value in over)
            assert within >= share * len(over) > closer
        assert known[f"{key}.bias"].value == pytest.approx(geometric_mean(over))


def test_the_planned_rung_is_held_against_every_rung(found: Measurements):
    """Its time over the least of all our rungs, the vendor's aside."""
    known = facts(found)
    for shape in LADDER_SHAPES:
        for call, (op, mode) in CALLS.items():
            times = {
                rung: point.time_ms
                for rung in ("lesson", *RUNGS)
                if not isinstance(point := found.rung(shape, call, rung), Missing)
            }
            chosen = fast_plan(op, shape, 2, found.gpu.device, mode=mode).kernel
            fact = known[f"plan.{shape_key(shape)}.{call}.rung.over_best"]
            assert fact.value == pytest.approx(times[chosen] / min(times.values()))
            assert f"planned: {chosen}" in fact.note


# Charts


def test_measured_is_solid_and_modelled_dashed(found: Measurements):
    """Of each shape: its measured points, the model's line and its residuals."""
    chart = BUILDERS["plan"](found)
    drawn = json.loads(chart.spec)["data"]
    for shape in SPLIT_SHAPES:
        label = shape_label(shape)
        traces = [t for t in drawn if t["meta"]["group"] == label]
        rows = [r for r in chart.written if (r["T"], r["K"], r["N"]) == shape]
        ours = [r for r in rows if r["residual_pct"] is not None]
        assert len(ours) == len(modelled(found, shape)) > 5
        (model,) = [t for t in traces if t["name"] == "the model"]
        assert model["line"]["dash"] == "dash"
        assert model["y"] == [r["predicted_ms"] for r in ours]
        (marks,) = [
            t for t in traces if t.get("yaxis") == "y2" and t["mode"] == "markers"
        ]
        assert marks["x"] == [r["split_t"] for r in ours]
        assert marks["y"] == [r["residual_pct"] for r in ours]
        for row in ours:
            off = 100 * (row["time_ms"] / row["predicted_ms"] - 1)
            assert row["residual_pct"] == pytest.approx(off, abs=0.1)
        for name in ("atomic adds", "workspace, then reduce"):
            (line,) = [t for t in traces if t["name"] == name]
            assert "dash" not in line["line"]


def test_both_rules_stand_in_the_chart(found: Measurements):
    """The plan's choice dashed, the lesson's dotted, each at a recorded factor."""
    drawn = json.loads(BUILDERS["plan"](found).spec)["data"]
    for shape in SPLIT_SHAPES:
        lines = {
            t["name"]: t
            for t in drawn
            if t["meta"]["group"] == shape_label(shape) and t["mode"] == "lines"
        }
        planned, lesson = lines["planned"], lines["lesson's rule"]
        assert (planned["line"]["dash"], lesson["line"]["dash"]) == ("dashdot", "dot")
        assert planned["x"] == [found.planned_split(shape).split_t] * 2
        assert f"{lesson_split(found, shape)}" in lesson["hovertext"][0]


def test_every_prediction_is_drawn(found: Measurements):
    """One marker a product, open where the shape was fitted to nothing."""
    chart = BUILDERS["predicted"](found)
    points = [t for t in json.loads(chart.spec)["data"] if t["mode"] == "markers"]
    for section, shapes in (("gemms", GEMM_SHAPES), ("further", FURTHER_SHAPES)):
        mine = [
            t
            for t in points
            if t["marker"]["symbol"].endswith("-open") == (section == "further")
        ]
        rows = [r for r in chart.written if r["section"] == section]
        assert sum(len(t["x"]) for t in mine) == len(rows) == 4 * len(shapes)
        pairs = {(x, y) for t in mine for x, y in zip(t["x"], t["y"], strict=True)}
        assert pairs == {(r["predicted_ms"], r["over"]) for r in rows}


def test_charts_need_their_sections(tmp_path, maker):
    """Without them there is a reason, and no chart."""
    drawn = charts(bare(maker, tmp_path))
    for name, section in (("plan", "splits"), ("predicted", "gemms")):
        assert drawn[name] == Missing(f"this recording has no section {section}")


def test_a_skipped_split_has_no_residual(tmp_path, maker):
    """Its cell says why, and the fit goes by the other factors."""

    def skip(point):
        if point.split_t == 8 and point.reduction == "atomic":
            return point.model_copy(update={**skipped("out of memory"), "error": None})
        return point

    chart = BUILDERS["plan"](changed(maker, tmp_path, "splits", skip))
    assert isinstance(chart, Chart)
    rows = [r for r in chart.rows if (r["split_t"], r["reduction"]) == (8, "atomic")]
    assert all("residual_pct" not in row for row in rows)
    assert chart.table.reasons == ["out of memory"]


# Claims and the page


def test_a_worse_choice_turns_the_verdict(tmp_path, maker):
    """Times that go against the plan are counted against it."""

    def against(point):
        planned = maker.plan("dw", point.shape)
        mine = (planned.split_t, planned.reduction)
        chosen = (point.split_t, point.reduction) == mine
        return times_longer(point, 3) if chosen else point

    slow = judged(changed(maker, tmp_path, "splits", against))
    of = len(SPLIT_SHAPES)
    assert f"at {of} of" not in slow.text("planned-split")
    assert slow.verdicts["planned-split"].outcome != "holds"
    assert slow.verdicts["lesson-rule"].outcome == "does not hold"
    assert "The lesson's rule wins at" in slow.text("rules-differ")
    assert slow.verdicts["rules-differ"].outcome == "does not hold"


def test_a_better_choice_wins_by_name(tmp_path, maker):
    """Where only the planned launch is quick, the full rule wins where they differ."""

    def quick(point):
        planned = maker.plan("dw", point.shape)
        recorded = nearest_to(planned.split_t, SPLIT_FACTORS)
        chosen = (point.split_t, point.reduction) == (recorded, planned.reduction)
        return times_longer(point, 0.2) if chosen else point

    shown = changed(maker, tmp_path, "splits", quick)
    known, won = facts(shown), []
    for shape in SPLIT_SHAPES:
        key = shape_key(shape)
        lesson, full = (
            known[f"{name}.{key}.{rule}.ms"].value
            for name, rule in (("plan", "lesson"), ("split", "planned"))
        )
        if lesson > 1.03 * full:
            won.append(shape_label(shape))
    text = Judged(shown, known).text("rules-differ")
    listed, even = text.split("; at ")
    assert won and listed.count("×)") == len(won)
    assert all(f"{shape} (" in listed for shape in won)
    assert even.startswith(f"{len(SPLIT_SHAPES) - len(won)} shape")


def test_counts_of_claims_are_the_datas(found: Measurements):
    """How often each rule is near the best, counted anew."""
    counts = {}
    for name, choose in (
        ("full", found.planned_split),
        (
            "lesson",
            lambda s: found.nearest_split(
                s, planning.reduction_of(lesson_split(found, s)), lesson_split(found, s)
            ),
        ),
    ):
        near = [
            choose(s).time_ms <= 1.03 * found.best_split(s).time_ms
            for s in SPLIT_SHAPES
        ]
        counts[name] = sum(near)
    of = len(SPLIT_SHAPES)
    text = judged(found)
    assert f"at {counts['full']} of {of} shapes" in text.text("planned-split")
    assert text.text("lesson-rule") == (
        f"The lesson's rule is within 3 % of the best split at {counts['lesson']} of "
        f"{of} shapes, the full rule at {counts['full']}."
    )


def page(site: SiteRoot) -> str:
    for name in (PAGE, "notes/glossary.md", "notes/traps.md"):
        target = site.templates / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "generate" / "templates" / name, target)
    site.render()
    return (site.root / "docs" / "fast" / "plan.md").read_text("utf-8")


def test_the_page_shows_both_charts_tables_and_the_source(site: SiteRoot):
    text = page(site)
    for name in ("plan", "predicted"):
        assert f'id="chart-{name}"' in text
    for name in ("plan-rules", "plan-waves"):
        assert f'data-table="{name}"' in text
    source = (site.root / "kernels" / "plan.py").read_text("utf-8")
    for name in ("split_time", "fast_time", "_loading"):
        listing = text.split(f"def {name}(")[1].split("\n````")[0]
        assert f"def {name}({listing}\n" in source
    assert "not measured" not in text


def test_the_page_renders_without_what_it_is_about(site: SiteRoot, maker: Maker):
    """An old recording leaves reasons, and the arithmetic."""
    shutil.rmtree(site.recording.folder)
    maker.write(site.recording.folder, **dict.fromkeys(SECTIONS))
    text = page(site)
    assert text.count("Chart not measured: this recording has no section") == 2
    assert "⌈132 / 64⌉ = 3" in text
    assert 'data-claim="planned-split">The split planned' in text


def test_targets_are_a_table_of_any_page(site: SiteRoot):
    """With a verdict in each row."""
    text = site.text("{{ targets() }}")
    assert 'data-table="targets"' in text
    assert text.count("<td>met</td>") + text.count("<td>missed</td>") == 13


def test_an_unknown_function_stops_the_render(site: SiteRoot):
    with pytest.raises(RenderError, match="plan.py has no split_times"):
        site.text('{{ function("plan", "split_times") }}')
