"""The ladder: rungs, aims and further shapes, shown as data has them."""

import copy
import json
import re
from pathlib import Path

import pytest

from generate.render.charts import BUILDERS, Chart, charts
from generate.render.claims import Judged
from generate.render.claims.ladder import ladder
from generate.render.facts import facts
from generate.render.formats import rounded, shape_key, shape_label
from generate.render.ladder import (
    BELOW,
    KERNEL_NAMES,
    RUNG_NAMES,
    broken,
    described,
    further_shapes,
    ladder_shapes,
    slowest,
    starved_shapes,
)
from generate.render.measured import CALL_LABELS, CALLS, STEP, Measurements, Missing
from generate.schema import Recording, geometric_mean
from generate.shapes import (
    FURTHER_SHAPES,
    LADDER_SHAPES,
    STARVED,
    TRIED_SHAPES,
    WORKED,
)
from kernels.plan import RUNGS

ROOT = Path(__file__).resolve().parents[2]
PAGE = "fast/ladder.md.j2"
NEW = ("ladder", "further", "launches")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, maker) -> Recording:
    """Complete, and written once: tests change copies of it."""
    return maker.write(tmp_path_factory.mktemp("data") / "test-gpu" / "2026-01-31")


@pytest.fixture
def measured(whole: Recording) -> Measurements:
    return Measurements(whole)


def having(recording: Recording, **sections) -> Measurements:
    """What may be shown of a recording that has these sections, or lacks them."""
    changed = copy.copy(recording)
    for name, section in sections.items():
        setattr(changed, name, section)
    return Measurements(changed)


def judged(measured: Measurements) -> Judged:
    return Judged(measured, facts(measured))


def slowed(section, factor: float, chosen):
    """A section some of whose points take so much longer."""
    points = tuple(
        p.model_copy(update={"samples_ms": tuple(factor * s for s in p.samples_ms)})
        if p.samples_ms and chosen(p)
        else p
        for p in section.points
    )
    return section.model_copy(update={"points": points})


def traces(chart: Chart) -> list[dict]:
    return json.loads(chart.spec)["data"]


# Facts


def test_every_rung_has_a_step(measured: Measurements):
    """From the lesson up, each stands on one before it; so does what was tried."""
    order = ["lesson", *RUNGS, "specialized"]
    assert list(BELOW) == order[1:] and list(RUNG_NAMES) == order[:-1]
    for rung, below in BELOW.items():
        assert order.index(below) < order.index(rung)


def test_ratios_are_of_the_same_turns(measured: Measurements):
    """Vendor time over ours, both of one section, and a step of two rungs of it."""
    found = facts(measured)
    for shape in ladder_shapes(measured):
        for call in CALLS:
            key = f"ladder.{shape_key(shape)}.{call}"
            vendor = measured.rung(shape, call, "vendor").time_ms
            tried = ("specialized",) if shape in TRIED_SHAPES else ()
            for rung in ("lesson", *RUNGS, *tried):
                point = measured.rung(shape, call, rung)
                ratio = found[f"{key}.{rung}.over_vendor"]
                if isinstance(point, Missing):
                    assert ratio.value is None and ratio.note == point.reason
                    continue
                assert ratio.value == pytest.approx(vendor / point.time_ms)
                if rung in BELOW:
                    below = measured.rung(shape, call, BELOW[rung])
                    step = found[f"{key}.{rung}.step"].value
                    assert step == pytest.approx(below.time_ms / point.time_ms)


def test_a_step_of_the_worked_layer_is_a_sum(measured: Measurements):
    """Each of its products once, by one implementation."""
    found = facts(measured)
    key = f"gemm.{shape_key(WORKED)}"
    for who in ("vendor", "fast"):
        parts = [measured.gemm(WORKED, call, who).time_ms for call in STEP]
        assert found[f"{key}.sum.{who}.ms"].value == pytest.approx(sum(parts))
    ratio = found[f"{key}.sum.vendor.ms"].value / found[f"{key}.sum.fast.ms"].value
    assert found[f"{key}.sum.fast.over_vendor"].value == pytest.approx(ratio)


def test_means_are_over_every_shape(whole):
    """One slow shape is the worst, and pulls the mean as much as it should."""
    gemms = slowed(
        whole.gemms,
        2,
        lambda p: p.implementation == "fast" and p.shape == STARVED and p.op == "dx",
    )
    measured = having(whole, gemms=gemms)
    found = facts(measured)
    ratios = {
        shape: measured.gemm(shape, "dx", "vendor").time_ms
        / measured.gemm(shape, "dx", "fast").time_ms
        for shape in measured.gemm_shapes
    }
    mean, worst = (found[f"ladder.{what}.dx.fast"] for what in ("geomean", "worst"))
    assert mean.value == pytest.approx(geometric_mean(list(ratios.values())))
    assert worst.value == pytest.approx(min(ratios.values()))
    assert shape_label(STARVED) in worst.note


def test_only_dw_has_a_deterministic_form(measured: Measurements):
    """The other two have one owner a tile already."""
    found = [key.split(".") for key in facts(measured) if ".deterministic.ms" in key]
    assert {call for kind, _, call, *_ in found if kind == "gemm"} == {"dw", "dw+"}


def test_starved_shapes_have_fewer_tiles_than_sms(measured: Measurements):
    """Of 128×256: the worked layer has many, the lesson's starved one 32."""
    starved = starved_shapes(measured)
    assert STARVED in starved and WORKED not in starved
    for _, k, n in starved:
        assert -(-k // 128) * -(-n // 256) < measured.gpu.sm_count


def test_overhead_is_beyond_the_bare_launch(measured: Measurements):
    """Of each call, public less bare."""
    found = facts(measured)
    for call in CALLS:
        bare, public, over = (
            found[f"launch.{call}.{way}_us"].value
            for way in ("bare", "public", "overhead")
        )
        assert over == pytest.approx(public - bare)


def test_descriptors_need_rows_of_16_bytes():
    """T may be any, K and N may not."""
    assert described((1001, 64, 8)) and not described((64, 1001, 64))
    assert {described(shape) for shape in FURTHER_SHAPES} == {True, False}


# Charts


def test_every_rung_is_drawn_or_has_its_reason(measured: Measurements):
    """A row for each point of a rung; bars for those that ran; and a word in
    place of the others, of rungs that run the GEMM anywhere."""
    chart = BUILDERS["ladder"](measured)
    points = measured.recording.ladder.points
    assert len(chart.rows) == sum(p.implementation != "specialized" for p in points)
    run = {(row["gemm"], row["rung"]) for row in chart.rows if row.get("tflops")}
    for shape in LADDER_SHAPES:
        mine = [r for r in chart.rows if (r["T"], r["K"], r["N"]) == shape]
        ours = [row for row in mine if row["rung"] != "vendor"]
        group = [
            trace
            for trace in traces(chart)
            if trace.get("meta", {}).get("group") == shape_label(shape)
        ]
        bars = [x for t in group if t["type"] == "bar" for x in t["x"]]
        rates = [rounded(row["tflops"]) for row in ours if row.get("tflops")]
        assert sorted(bars) == sorted(rates)
        words = [h for t in group if t.get("mode") == "text" for h in t["hovertext"]]
        lost = [row for row in ours if not row.get("tflops")]
        assert words == [
            row["not_measured_reason"]
            for row in lost
            if (row["gemm"], row["rung"]) in run
        ]
        assert all(row["not_measured_reason"] for row in lost)
    cells = [cell for row in chart.table.rows for cell in row if cell.reason]
    assert len(cells) == sum(not row.get("tflops") for row in chart.rows)


def test_the_vendors_line_is_of_the_same_turns(measured: Measurements):
    """Through the rungs of a GEMM, at the vendor's rate in section ladder."""
    chart = BUILDERS["ladder"](measured)
    for shape in LADDER_SHAPES:
        (line,) = (
            trace
            for trace in traces(chart)
            if trace["name"].startswith("vendor")
            and trace["meta"]["group"] == shape_label(shape)
        )
        rates = [
            float(f"{measured.rung(shape, call, 'vendor').tflops:.4g}")
            for call in CALLS
        ]
        assert line["x"][::3] == rates == line["x"][1::3]


def test_limits_are_those_of_the_device(measured: Measurements):
    """The ceiling and the peak, dotted, at every shape."""
    ceilings = measured.recording.ceilings
    limits = [t for t in traces(BUILDERS["ladder"](measured)) if "meta" not in t]
    rates = [ceilings.gemm_tflops, ceilings.peak_tflops(measured.gpu)]
    assert [t["x"][0] for t in limits] == [float(f"{rate:.4g}") for rate in rates]
    assert all("dot" in t["line"]["dash"] for t in limits)


def test_a_device_without_ceilings_has_rungs(whole):
    """No limit is drawn that is not known."""
    chart = BUILDERS["ladder"](having(whole, ceilings=None))
    assert all("meta" in trace for trace in traces(chart))


def test_every_further_product_is_a_mark(measured: Measurements):
    """At its work and its ratio, open where descriptors cannot take all matrices."""
    chart = BUILDERS["further"](measured)
    drawn = sorted(
        (t["name"], x, y, symbol.endswith("-open"))
        for t in traces(chart)
        if t["mode"] == "markers"
        for x, y, symbol in zip(t["x"], t["y"], t["marker"]["symbol"], strict=True)
    )
    expected = []
    for t, k, n in further_shapes(measured):
        for call in CALLS:
            vendor, ours = (
                measured.further((t, k, n), call, who).time_ms
                for who in ("vendor", "fast")
            )
            work, ratio = (
                float(f"{value:.4g}") for value in (2 * t * k * n / 1e9, vendor / ours)
            )
            opened = k % 8 > 0 or n % 8 > 0
            expected.append((CALL_LABELS[call], work, ratio, opened))
    assert drawn == sorted(expected) and len(drawn) == 4 * len(FURTHER_SHAPES)


def test_the_slowest_are_the_slowest(whole):
    """The table begins, for each call, with the product furthest behind."""
    worst = (16384, 768, 768)
    gemms = slowed(
        whole.gemms, 3, lambda p: p.implementation == "fast" and p.shape == worst
    )
    measured = having(whole, gemms=gemms)
    first = {}
    for gemm, shape, *rest in slowest(measured).rows:
        first.setdefault(gemm.text, (shape.text, rest))
    assert list(first) == list(CALL_LABELS.values())
    for call, label in CALL_LABELS.items():
        shape, (kernel, ratio, *_) = first[label]
        point = measured.gemm(worst, call, "fast")
        over = measured.gemm(worst, call, "vendor").time_ms / point.time_ms
        assert shape == shape_label(worst) and ratio.text == f"{over:.3f}×"
        assert kernel.text.startswith(KERNEL_NAMES[point.configuration.kernel])


# Claims follow the data


@pytest.mark.parametrize(
    "anchor, section, factor, chosen",
    [
        ("worked-step", "gemms", 0.5, lambda p: p.implementation == "fast"),
        ("forward-keeps-up", "gemms", 0.9, lambda p: p.implementation == "fast"),
        ("dx-keeps-up", "gemms", 0.9, lambda p: p.implementation == "fast"),
        ("dw-keeps-up", "gemms", 0.9, lambda p: p.implementation == "fast"),
        (
            "accumulated-dw-keeps-up",
            "gemms",
            0.9,
            lambda p: p.implementation == "fast",
        ),
        (
            "no-shape-far-behind",
            "gemms",
            1.2,
            lambda p: p.implementation == "fast" and p.op == "dx",
        ),
        (
            "determinism-nearly-free",
            "gemms",
            1.2,
            lambda p: p.implementation == "deterministic",
        ),
        ("grouped-order-pays", "ladder", 2, lambda p: p.implementation == "grouped"),
        ("split-adds-pay", "ladder", 2, lambda p: p.implementation == "split"),
        ("stream-k-pays", "ladder", 2, lambda p: p.implementation == "stream_k"),
        (
            "specialized-warps-pay",
            "ladder",
            0.5,
            lambda p: p.implementation == "specialized",
        ),
        (
            "shared-forward-and-dx",
            "ladder",
            2,
            lambda p: p.implementation == "stream_k" and p.op != "dw",
        ),
        ("unfitted-means", "further", 1.2, lambda p: p.implementation == "fast"),
        (
            "unfitted-worst",
            "further",
            1.5,
            lambda p: p.implementation == "fast" and p.T == FURTHER_SHAPES[0][0],
        ),
        (
            "wide-loads-beat-copies",
            "further",
            2,
            lambda p: p.implementation == "pitched",
        ),
        (
            "broken-rows-fall-behind",
            "further",
            2,
            lambda p: p.implementation == "fast" and broken(p.shape),
        ),
        ("lines-are-counted", "further", 0.5, lambda p: p.implementation == "aligned"),
        (
            "odd-sizes-keep-up",
            "further",
            0.5,
            lambda p: p.implementation == "fast" and not described(p.shape),
        ),
    ],
)
def test_data_turns_the_verdict(whole, anchor, section, factor, chosen):
    """Faster or slower points, and the sentence says something else."""
    before = judged(Measurements(whole))
    changed = {section: slowed(getattr(whole, section), factor, chosen)}
    after = judged(having(whole, **changed))
    assert before.verdicts[anchor].outcome != after.verdicts[anchor].outcome
    assert before.text(anchor) != after.text(anchor)


@pytest.mark.parametrize(
    "grouped, said",
    [
        (lambda p: False, "52 products, all through copies of what"),
        (lambda p: True, "52 products, all through pointers,"),
        (lambda p: p.op == "dx", "cannot take and 13 through pointers,"),
    ],
    ids=("none", "all", "some"),
)
def test_odd_sizes_say_how_they_were_loaded(whole, grouped, said):
    """As the recorded launches have it, in recordings of pointers and of copies."""

    def loaded(p):
        if p.implementation != "fast" or described(p.shape):
            return p
        kernel = "grouped" if grouped(p) else "persistent"
        made = p.configuration.model_copy(update={"kernel": kernel})
        return p.model_copy(update={"configuration": made})

    points = tuple(map(loaded, whole.further.points))
    further = whole.further.model_copy(update={"points": points})
    assert said in judged(having(whole, further=further)).text("odd-sizes-keep-up")


def test_a_miss_says_by_how_much(whole):
    """Half the target is half of it short."""
    gemms = slowed(whole.gemms, 2 / 1.01, lambda p: p.implementation == "fast")
    found = judged(having(whole, gemms=gemms))
    assert found.verdicts["forward-keeps-up"].outcome == "does not hold"
    assert "That is 50.0 % short of even." in found.text("forward-keeps-up")
    assert "0.500×" in found.text("forward-keeps-up")


def test_an_aim_is_met_at_the_aim(whole):
    """Even is even."""
    gemms = whole.gemms
    samples = {
        p.key[:2] + p.shape: p.samples_ms
        for p in gemms.points
        if p.implementation == "vendor"
    }
    points = tuple(
        p.model_copy(update={"samples_ms": samples[p.key[:2] + p.shape]})
        for p in gemms.points
    )
    gemms = gemms.model_copy(update={"points": points})
    found = judged(having(whole, gemms=gemms))
    for anchor in ("forward-keeps-up", "no-shape-far-behind"):
        assert found.verdicts[anchor].outcome == "holds"
        assert "short" not in found.text(anchor)


def test_host_overhead_is_judged_by_call(whole):
    """One slow call of four is a part."""
    launches = whole.launches
    points = tuple(
        p.model_copy(update={"host_us": tuple(us + 10 for us in p.host_us)})
        if p.way == "public" and p.op == "dx"
        else p
        for p in launches.points
    )
    launches = launches.model_copy(update={"points": points})
    found = judged(having(whole, launches=launches))
    assert found.verdicts["small-host-overhead"].outcome == "holds in part"
    assert "up to 7.0 µs too many" in found.text("small-host-overhead")


def test_less_than_a_bare_launch_is_explained(whole):
    """Where a call costs less than the launch in it, the page says what it saves."""
    launches = whole.launches
    points = tuple(
        p.model_copy(update={"host_us": tuple(us - 20 for us in p.host_us)})
        if p.way == "public"
        else p
        for p in launches.points
    )
    less = launches.model_copy(update={"points": points})
    for section, said in ((launches, False), (less, True)):
        text = judged(having(whole, launches=section)).text("small-host-overhead")
        assert ("−8.00 µs" in text) == ("Less than nothing" in text) == said


# A recording without the sections


def test_sections_that_are_not_there_are_said(whole):
    """No chart, no number and no verdict, but the reason in each place."""
    measured = having(whole, **dict.fromkeys((*NEW, "gemms")))
    drawn = charts(measured)
    for name in ("ladder", "further"):
        assert drawn[name] == Missing(f"this recording has no section {name}")
    found = judged(measured)
    for claim in ladder.claims:
        assert found.verdicts[claim.anchor].outcome == "not measured"
        assert "this recording has no section" in found.text(claim.anchor)
    (row,) = slowest(measured).rows
    assert [cell.reason for cell in row if cell.reason] == [
        "this recording has no section gemms"
    ]


def test_a_failed_fast_kernel_shows_nothing(whole, maker):
    """No rung of it is drawn; the lesson's and the vendor's stay."""
    failing = maker.verification(failing=("fast",))
    drawn = charts(having(whole, verification=failing))
    shown = {row["rung"] for row in drawn["ladder"].rows if row.get("tflops")}
    assert shown == {"vendor", "lesson"}
    assert isinstance(drawn["further"], Missing)


def test_the_page_renders_with_and_without(site, maker):
    """Every number is measured, or says that it is not; every rung has a section."""
    text = (ROOT / "generate" / "templates" / PAGE).read_text("utf-8")
    site.page(PAGE, text)
    site.render()
    page = (site.root / "docs/fast/ladder.md").read_text("utf-8")
    assert re.findall(r'fact--missing" data-key="([^"]+)"', page) == []
    for rung in RUNGS:
        assert re.search(rf"^### {RUNG_NAMES[rung]}: ", page, flags=re.M | re.I)
        assert f"]({rung}.md)" in page
    for name in NEW:
        (site.recording.folder / f"{name}.json").unlink()
    site.render()
    page = (site.root / "docs/fast/ladder.md").read_text("utf-8")
    for name in NEW:
        assert f"this recording has no section {name}" in page
    assert page.count("Chart not measured") == 2
