"""Two recordings of one GPU: what is compared, what explains a change, what is said."""

import csv
import io
import json
import re
from html import unescape
from pathlib import Path

import pytest
from rich.console import Console

from generate.render import repeat
from generate.render.charts import BUILDERS
from generate.render.facts import facts
from generate.render.measured import Measurements, Missing
from generate.render.repeat import (
    EXPLANATIONS,
    Pair,
    Repetition,
    Spread,
    repetition,
)
from generate.report import print_report, report
from generate.schema import Recording, Section, Timed, recordings
from generate.shapes import STARVED, WORKED
from tests.generate.conftest import ROOT, STATE, Maker, SiteRoot, measured

PAGE = "generate/templates/evidence/repeat.md.j2"


@pytest.fixture
def data(tmp_path: Path, maker: Maker) -> Path:
    maker.write(tmp_path / "data" / "gpu" / "2026-01-31")
    return tmp_path / "data"


def again(data: Path, maker: Maker, name: str = "2026-01-31-2", **sections) -> None:
    maker.write(data / "gpu" / name, **sections)


def found(data: Path, index: int = -1) -> Repetition | Missing:
    everything = recordings(data)
    return repetition(Measurements(everything[index], everything))


def longer(point: Timed, factor: float, **more) -> Timed:
    """A timed point whose samples are so many times as long."""
    if point.samples_ms is None:
        return point
    samples = tuple(factor * sample for sample in point.samples_ms)
    return point.model_copy(update={"samples_ms": samples, **more})


def changed(section: Section, change) -> Section:
    """A section whose points went through `change`."""
    return section.model_copy(update={"points": tuple(map(change, section.points))})


def timed(time_ms: float, state: dict | None = None) -> Timed:
    fields = measured(time_ms)
    return Timed(**{**fields, "state": STATE.model_copy(update=state or {})})


def pair(first: Timed, second: Timed) -> Pair:
    times = first.time_ms, second.time_ms
    return Pair("gemms", "dX, lesson", "dx", WORKED, *times, ((first,), (second,)))


def test_identical_recordings_agree_on_everything(data, maker):
    again(data, maker)
    same = found(data)
    assert len(same.times) > 300 and len(same.ratios) > 200
    assert not same.moved
    assert {pair.change for pair in [*same.times, *same.ratios]} == {0}
    assert all(each.same == each.compared for each in same.equal)
    assert {pair.section for pair in same.times} == set(repeat.SECTIONS) - {"all"}


def test_the_earlier_comes_first_whichever_is_asked(data, maker):
    again(data, maker)
    for index in (0, 1):
        both = found(data, index)
        names = [m.recording.folder.name for m in (both.first, both.second)]
        assert names == ["2026-01-31", "2026-01-31-2"]


def test_the_newest_other_one_is_taken(data, maker):
    again(data, maker)
    again(data, maker, "2026-01-31-3")
    both = found(data, 0)
    assert both.second.recording.folder.name == "2026-01-31-3"


def test_a_recording_alone_leaves_it_to_the_newest_pair(data, maker):
    """Newer kernels, recorded once: the two before them are compared still."""
    again(data, maker)
    Maker(kernels_sha256="1" * 64).write(data / "gpu" / "2026-01-31-3")
    both = found(data, 2)
    names = [m.recording.folder.name for m in (both.first, both.second)]
    assert names == ["2026-01-31", "2026-01-31-2"]
    assert found(data, 0).first.recording.folder.name == "2026-01-31"


def test_one_recording_is_no_comparison(data):
    assert found(data) == Missing("there is one recording of the Test GPU 132")


def test_other_kernels_are_no_repetition(data, maker):
    other = Maker(kernels_sha256="1" * 64)
    other.write(data / "gpu" / "2026-01-31-2")
    assert "same kernels" in found(data).reason


def test_other_software_is_no_repetition(data, maker):
    environment = maker.environment()
    software = environment.software.model_copy(update={"driver": "590.0"})
    again(
        data, maker, environment=environment.model_copy(update={"software": software})
    )
    assert "software" in found(data).reason


@pytest.mark.parametrize(
    "explanation, state, samples",
    [
        ("clock", {"clock_sm_mhz": 1800}, None),
        ("clock", {"clock_sm_mhz": 1800, "throttle": ("software power cap",)}, None),
        ("throttle", {"throttle": ("software power cap",)}, None),
        ("throttle", {"clock_sm_mhz": 1900, "throttle": ("sync boost",)}, None),
        ("spread", {}, (0.8, 0.9, 1, 1.1, 1.2)),
        ("unexplained", {}, None),
        ("unexplained", {"clock_sm_mhz": 1900}, None),
        (
            "unexplained",
            {"clock_sm_mhz": None, "throttle": None, "nvml_reason": "refused"},
            None,
        ),
    ],
)
def test_a_change_is_explained_by_what_was_logged(explanation, state, samples):
    """A tenth longer: by the clock only if that fell by a tenth, and so on."""
    second = timed(1.1, state)
    if samples:
        around = tuple(1.1 * sample for sample in samples)
        second = second.model_copy(update={"samples_ms": around})
    assert pair(timed(1.0), second).explanation == explanation


@pytest.mark.parametrize(
    "factor, moved", [(1.029, False), (1.031, True), (0.971, False), (0.969, True)]
)
def test_beyond_3_percent_a_time_has_moved(factor, moved):
    assert pair(timed(1.0), timed(factor)).moved == moved


def test_ratios_stand_where_all_times_move(data, maker):
    """A slower clock in one recording moves each time and no ratio within it."""
    again(
        data,
        maker,
        gemms=changed(maker.gemms(), lambda point: longer(point, 1.05)),
    )
    spreads = found(data).spreads
    assert spreads["gemms", "times"].median == pytest.approx(0.05)
    assert spreads["gemms", "times"].within(0.03) == 0
    assert spreads["gemms", "ratios"].within(1e-9) == 1
    assert spreads["splits", "times"].within(1e-9) == 1


def test_a_ratio_moves_where_one_side_does(data, maker):
    def change(point):
        return longer(point, 1.02 if point.implementation == "vendor" else 1)

    again(data, maker, gemms=changed(maker.gemms(), change))
    ratios = [pair for pair in found(data).ratios if pair.section == "gemms"]
    assert len(ratios) == 56
    assert all(pair.change == pytest.approx(0.02) for pair in ratios)


def test_counts_that_differ_are_counted(data, maker):
    """Registers, a best split and a winner that are not the same in both."""
    occupancy = maker.occupancy()
    first = occupancy.points[0]
    more = first.model_copy(update={"registers_per_thread": 255})
    points = (more, *occupancy.points[1:])

    def faster(point):
        mine = (point.shape, point.reduction, point.split_t) == (STARVED, "atomic", 64)
        return longer(point, 0.01 if mine else 1)

    def overtake(point):
        mine = (point.shape, point.op, point.implementation) == (WORKED, "dx", "lesson")
        return longer(point, 0.9 if mine else 1)

    again(
        data,
        maker,
        occupancy=occupancy.model_copy(update={"points": points}),
        splits=changed(maker.splits(), faster),
        gemms=changed(maker.gemms(), overtake),
    )
    both = found(data)
    differing = {same.what: same.compared - same.same for same in both.equal}
    assert sum(differing.values()) == 3
    assert both.best_splits.compared - both.best_splits.same == 1
    first, second = both.first.best_split(STARVED), both.second.best_split(STARVED)
    assert (second.reduction, second.split_t) == ("atomic", 64)
    assert both.best_split_cost == pytest.approx(first.time_ms / second.time_ms - 1)
    assert both.winners.compared - both.winners.same == 1


def test_points_of_a_failed_kernel_are_not_compared(data, maker):
    again(data, maker, verification=maker.verification(failing=("dx",)))
    names = {pair.what for pair in found(data).times if pair.section == "gemms"}
    assert "dX, vendor" in names and "dX, lesson" not in names


def test_percentiles_lie_in_order():
    spread = Spread(tuple(step / 1000 for step in range(-50, 51)))
    assert spread.median == 0
    assert spread.low == pytest.approx(-0.045)
    assert spread.high == pytest.approx(0.045)
    assert spread.half == pytest.approx(0.025)
    assert spread.half < spread.most < 0.05
    assert spread.within(0.0105) == pytest.approx(21 / 101)
    assert Spread((0.02,)).most == Spread((0.02,)).low == 0.02


def test_keys_of_facts_are_the_same_with_and_without(data, maker):
    everything = recordings(data)
    alone = repeat.facts(Measurements(everything[0], everything))
    again(data, maker)
    everything = recordings(data)
    both = repeat.facts(Measurements(everything[0], everything))
    assert list(alone) and set(alone) == set(both)
    assert all(fact.value is None for fact in alone.values())
    assert both["repeat.gemms.times.within_1_pct"].value == 100
    assert set(both) <= set(facts(Measurements(everything[0], everything)))


def test_the_chart_holds_every_quantity(data, maker):
    """One mark a row, in its group; what moved is marked once more, as it is
    explained."""
    again(
        data,
        maker,
        gemms=changed(
            maker.gemms(),
            lambda p: longer(p, 1.1 if p.shape == WORKED else 1),
        ),
    )
    everything = recordings(data)
    later = Measurements(everything[-1], everything)
    chart, both = BUILDERS["repeat"](later), found(data)
    rows = list(csv.DictReader(io.StringIO(chart.csv)))
    assert len(rows) == len(both.times) + len(both.ratios)
    assert sum(bool(row["explanation"]) for row in rows) == len(both.moved) == 8
    traces = json.loads(chart.spec)["data"]
    marks = [t for t in traces if t["name"] == "not explained"]
    assert [len(trace["x"]) for trace in marks] == [8]
    for group, pairs in (
        ("times", both.times),
        ("ratios of times taken in turns", both.ratios),
    ):
        drawn = [t for t in traces if t["meta"]["group"] == group and t not in marks]
        assert sum(len(trace["x"]) for trace in drawn) == len(pairs)


def rendered(site: SiteRoot) -> str:
    site.page("evidence/repeat.md.j2", (ROOT / PAGE).read_text("utf-8"))
    site.render()
    return (site.root / "docs" / "evidence" / "repeat.md").read_text("utf-8")


def plain(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", page).split())


def second(site: SiteRoot, **sections) -> Recording:
    now = site.recording.environment.kernels_sha256
    return Maker(kernels_sha256=now).write(
        site.root / "data" / "test-gpu" / "2026-01-31-2", **sections
    )


def test_the_page_without_a_second_recording(site: SiteRoot):
    """It says what is missing and how to make it."""
    words = plain(rendered(site))
    assert "Not measured: there is one recording of the Test GPU 132." in words
    assert "make record" in words and "95 of 100" not in words


def test_the_page_says_what_the_numbers_say(site: SiteRoot):
    maker = Maker(kernels_sha256=site.recording.environment.kernels_sha256)
    second(site, gemms=changed(maker.gemms(), lambda point: longer(point, 1.05)))
    words = plain(rendered(site))
    assert "Both ran on the same board." in words
    assert "made on the same day" in words
    assert "The ratios are the steadier of the two" in words
    assert f"112 of {len(found(site.root / 'data').times)} times moved" in words
    assert "**112** for no reason that was logged" in words
    assert EXPLANATIONS["unexplained"] in words
    assert "Verdicts on the lesson's claims" in unescape(words)


def test_the_page_does_not_praise_ratios_that_moved(site: SiteRoot):
    maker = Maker(kernels_sha256=site.recording.environment.kernels_sha256)

    def apart(point):
        return longer(point, 1.03 if point.implementation == "vendor" else 0.97)

    second(site, gemms=changed(maker.gemms(), apart))
    words = plain(rendered(site))
    assert "ratios were no steadier" in words and "the steadier of the two" not in words


def test_the_report_says_how_far_a_repetition_agrees(data, maker):
    """Printed in a line, whole for machines; a lack of one is said as well."""

    def printed(*given) -> str:
        console = Console(width=300, record=True, file=io.StringIO())
        print_report(*given[:1], console, *given[1:])
        return console.export_text().splitlines()[-1]

    everything = recordings(data)
    alone = printed(everything[0], everything)
    assert alone.endswith("not measured, there is one recording of the Test GPU 132.")
    again(data, maker, gemms=changed(maker.gemms(), lambda point: longer(point, 1.05)))
    everything = recordings(data)
    line = printed(everything[0], everything)
    assert "56 ratios to the vendor: 95 of 100 within 0.0 %." in line
    assert "112 times moved by more than 3 %, 112 of them for no reason" in line
    changes = report(everything[0], everything)["repeat"]["changes"]
    (gemms,) = (c for c in changes if (c["section"], c["what"]) == ("gemms", "times"))
    assert gemms["compared"] == 112
    assert gemms["median"] == pytest.approx(0.05)


# The choice of a recording


def test_no_choice_with_one_recording(site: SiteRoot):
    assert "<select" not in site.text('{{ fact("gpu.name") }}')
    assert not list((site.root / "docs").rglob("page.json"))


@pytest.fixture(scope="module")
def several(tmp_path_factory) -> SiteRoot:
    """Pages of three recordings: the default, one of the same day, and one of another
    GPU, with earlier kernels and no splits."""
    site = SiteRoot(tmp_path_factory.mktemp("several"))
    second(site)
    Maker().write(site.root / "data" / "other-gpu" / "2026-01-31", splits=None)
    for name, text in {
        "words": "Words.",
        "numbers": '{{ fact("gpu.name") }}',
        "placed": '{{ fact("gpu.name") }}\n\n{{ recordings() }}',
        "parts": '{{ chart("breakdown") }}\n{{ hardware_tables().ceilings }}',
    }.items():
        site.page(f"{name}.md.j2", f"# Page\n\n{text}\n")
    site.render()
    return site


def page(site: SiteRoot, name: str) -> str:
    return (site.root / "docs" / f"{name}.md").read_text("utf-8")


def options(page: str) -> list[tuple[str, str, str]]:
    return re.findall(r'<option value="([^"]+)" data-says="([^"]+)"( selected)?', page)


def test_a_page_that_shows_numbers_offers_every_recording(several):
    """Below its title, the shown one selected, each with a sentence of its own."""
    text = page(several, "numbers")
    assert text.index("# Page") < text.index("<select") < text.index("<data")
    assert [(name, bool(chosen)) for name, _, chosen in options(text)] == [
        ("test-gpu/2026-01-31-2", True),
        ("test-gpu/2026-01-31", False),
        ("other-gpu/2026-01-31", False),
    ]
    assert all(name in says for name, says, _ in options(text))
    default = ["remain those of the default" in says for _, says, _ in options(text)]
    assert default == [False, True, True]


def test_a_recording_of_earlier_kernels_says_so(several):
    says = {name: says for name, says, _ in options(page(several, "numbers"))}
    earlier = [name for name, words in says.items() if "earlier version" in words]
    assert earlier == ["other-gpu/2026-01-31"]


def test_a_page_without_numbers_offers_none(several):
    assert "<select" not in page(several, "words")


def test_a_template_may_place_the_choice(several):
    text = page(several, "placed")
    assert text.count("<select") == 1
    assert text.index("<data") < text.index("<select")


def test_each_recording_carries_its_words_and_tables(several):
    """What the page shows of the default is what its own file would put there; a
    chart that another lacks is a reason."""
    text = page(several, "parts")
    files = {
        f"{file.parents[1].name}/{file.parent.name}": json.loads(
            file.read_text("utf-8")
        )
        for file in (several.root / "docs").rglob("page.json")
    }
    assert len(files) == 3
    mine = files["test-gpu/2026-01-31-2"]
    assert mine["charts"]["breakdown"]["table"] in text
    assert mine["charts"]["breakdown"]["title"] in text
    assert mine["tables"]["ceilings"] in text
    other = files["other-gpu/2026-01-31"]["charts"]["splits"]
    assert other == {"reason": "this recording has no section splits"}


def test_records_of_one_day_are_told_apart(several):
    title = "Test GPU 132, recorded 2026-01-31 (2026-01-31-2)"
    assert f'title="{title}"' in page(several, "numbers")
