"""The SM timeline: its numbers are the trace's, and its picture is its numbers."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generate.render import timelines
from generate.render.claims import Judged
from generate.render.claims.starving import LAST_WAVE
from generate.render.facts import facts
from generate.render.measured import Measurements, Missing
from generate.render.timelines import ACROSS, FORMS, ROW, draw, launch, pictures
from generate.schema import Trace
from generate.shapes import STARVED, TIMELINE_FACTORS, TIMELINE_SHAPES

FIFTH = (32768, 640, 640)
DW_ALONE = ("dw", "overwrite", "none", 1)
BOX = re.compile(r"M(\d+) ([\d.]+)h(\d+)v([\d.]+)h-\d+z")
SEAM = re.compile(r"M(\d+) ([\d.]+)v([\d.]+)")


def trace(*programs: tuple[int, int, int]) -> Trace:
    """Of SM, start and end of each program."""
    sm, start, end = zip(*programs, strict=True)
    return Trace(sm=sm, start_ns=start, end_ns=end)


def path(drawn: str, kind: str) -> str:
    found = re.search(rf'class="timeline-{kind}" d="([^"]*)"', drawn)
    return found[1] if found else ""


def boxes(drawn: str, *kinds: str) -> list[tuple[float, ...]]:
    """Left, top, width and height of every box of these kinds."""
    found = [BOX.findall(path(drawn, kind)) for kind in kinds]
    return [tuple(map(float, box)) for boxes in found for box in boxes]


@pytest.fixture
def measured(recording) -> Measurements:
    return Measurements(recording)


@pytest.fixture
def changed(tmp_path, maker):
    """A recording whose timelines are others; None: without that section."""

    def written(change, **sections):
        section = maker.timelines()
        points = tuple(filter(None, map(change, section.points)))
        found = section.model_copy(update={"points": points}) if points else None
        folder = tmp_path / "data" / "changed-gpu" / "2026-01-31"
        return Measurements(maker.write(folder, timelines=found, **sections))

    return written


def test_bars_seams_and_idle_times():
    """Two programs side by side, a third right after the first, one after a gap."""
    found = trace((0, 0, 40), (0, 0, 60), (0, 40, 100), (2, 0, 30), (2, 50, 80))
    drawn = draw(found, {0: 0, 1: 1, 2: 2}, lanes=2, until_ns=200)
    assert boxes(drawn, "first") == [
        (0, 0, 500, 2),
        (0, 2 * ROW, 150, 2),
        (250, 2 * ROW, 150, 2),
    ]
    assert boxes(drawn, "second") == [(0, 2, 300, 2)]
    assert SEAM.findall(path(drawn, "seam")) == [("200", "0", "2")]
    assert boxes(drawn, "idle") == [
        (0, ROW, 500, ROW),
        (150, 2 * ROW, 100, ROW),
        (400, 2 * ROW, 100, ROW),
    ]


PROGRAMS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 900), st.integers(1, 400)),
    min_size=1,
    max_size=40,
)


@given(PROGRAMS, st.integers(1, 8))
def test_picture_is_the_trace(programs, unused):
    """Every program is a bar or begins at a seam; the grey share of the area up to the
    last end is what fill lacks of the whole; nothing stands outside."""
    first = min(start for _, start, _ in programs)
    found = trace(*((sm, s - first, s - first + d) for sm, s, d in programs))
    sms = 6 + unused
    row_of = {sm: sm for sm in range(sms)}
    drawn = draw(found, row_of, found.resident, found.makespan_ns)
    bars, idle = boxes(drawn, "first", "second"), boxes(drawn, "idle")
    assert len(bars) + len(SEAM.findall(path(drawn, "seam"))) == len(programs)
    height = ROW - found.resident % 2
    grey = sum(width for _, _, width, _ in idle) / (sms * ACROSS)
    assert grey == pytest.approx(1 - found.fill(sms), abs=2 * len(programs) / ACROSS)
    for left, top, width, tall in bars + idle:
        assert width >= 1 and left + width <= ACROSS + 1
        assert top // ROW == (top + tall - 0.01) // ROW
        assert top % ROW + tall <= height + 0.01


def test_sm_numbers_may_leave_some_out():
    """Rows are as many as SMs, in the order of the numbers that were used and the
    lowest of those that were not."""
    row_of = timelines._rows_of([trace((9, 0, 5), (2, 0, 5))], 4)
    assert row_of == {0: 0, 1: 1, 2: 2, 9: 3}


def test_launches_share_a_scale(measured):
    """What is done in half the time ends in the middle."""
    for picture in pictures(measured):
        longest = max(s.launch.trace.makespan_ns for s in picture.states)
        assert [state.form for state in picture.states] == list(FORMS)
        for state in picture.states:
            end = 100 * state.launch.trace.makespan_ns / longest
            assert state.end == pytest.approx(end, rel=1e-3)
            right = max(x + w for x, _, w, _ in boxes(state.drawn, "first", "second"))
            assert right == pytest.approx(10 * end, abs=1)
        assert picture.height == ROW * measured.gpu.sm_count
        assert 2 <= len(picture.ticks) <= 6 and picture.ticks[0] == (0, "0 µs")
        at, time = picture.ticks[-1]
        assert float(time.removesuffix(" µs")) * 1e5 / longest == pytest.approx(
            at, rel=1e-3
        )


def test_a_row_is_the_room_of_its_launch(measured):
    """Blank beside a bar is free room: beside one that fits only once there is none."""
    picture = pictures(measured)[0]
    for state in picture.states:
        room = 1 if state.form == "stream_k" else 2
        assert state.launch.point.resident_programs == room
        heights = {height for *_, height in boxes(state.drawn, "first", "second")}
        assert heights == {(ROW - room % 2) / room}


def test_starved_stands_first(measured):
    shapes = [picture.shape for picture in pictures(measured)]
    assert shapes[0] == STARVED and sorted(shapes) == sorted(TIMELINE_SHAPES)


def test_a_state_says_its_numbers(measured):
    """25 tiles on 132 SMs: a fifth of them, for the whole time."""
    found = launch(measured, FIFTH, 1)
    assert found.fill_pct == pytest.approx(100 * 25 / 132)
    for words in ("25 programs", "25 of 132 SMs", "18.9 %", "1 wave.", "+1.0 %"):
        assert words in found.says
    assert "2 at once" in launch(measured, STARVED, 4).says
    shared = launch(measured, STARVED, "stream_k")
    for words in ("Stream-K: 132 programs", "132 of 132 SMs", "100.0 %", "1 wave."):
        assert words in shared.says


def test_facts_name_every_point(measured):
    """What a template may ask for is there, recorded or not."""
    found = facts(measured)
    for shape in TIMELINE_SHAPES:
        for form in FORMS:
            key = f"timeline.{'x'.join(map(str, shape))}.{form}"
            for name in ("fill_pct", "makespan_us", "waves", "sms", "overhead_pct"):
                assert found[f"{key}.{name}"].value is not None
            counted = shape == STARVED and form != "stream_k"
            for name in ("ncu_sm_active_pct", "achieved_pct", "difference_points"):
                assert (found[f"{key}.{name}"].value is not None) == counted
    key = "timeline.32768x1024x1024.2"
    assert found[f"{key}.difference_points"].value == pytest.approx(
        found[f"{key}.fill_pct"].value - found[f"{key}.ncu_sm_active_pct"].value
    )


def test_agreement_is_counted(changed, maker):
    """Within 5 points, or not: one of four splits, beside stream-K, is 6 points off."""
    occupancy, fill = maker.occupancy(), {1: 64 / 132, 2: 128 / 132, 4: 1.0, 8: 1.0}
    points = []
    for point in occupancy.points:
        if point.kernel == "dw" and point.shape == STARVED and point.counters:
            off = 6 if point.split_t == 4 else 2.5
            counters = point.counters.model_copy(
                update={"sm_active_pct": 100 * fill[point.split_t] - off}
            )
            point = point.model_copy(update={"counters": counters})
        points.append(point)
        if point.key == (*DW_ALONE, *STARVED):
            counters = point.counters.model_copy(update={"sm_active_pct": 95.5})
            made = point.configuration.model_copy(update={"reduction": "atomic"})
            form = {"kernel": "fast", "reduction": "atomic", "counters": counters}
            form |= {"configuration": made}
            points.append(point.model_copy(update=form))
    occupancy = occupancy.model_copy(update={"points": tuple(points)})
    found = facts(changed(lambda point: point, occupancy=occupancy))
    assert found["timeline.compared"].value == 5
    assert found["timeline.within"].value == 4
    assert found["timeline.largest"].value == pytest.approx(6)
    key = "timeline.32768x1024x1024.stream_k"
    assert found[f"{key}.difference_points"].value == pytest.approx(4.5)
    assert found[f"{key}.ncu_sm_active_pct"].value == 95.5


def test_nearest_reading_is_computed(changed, maker):
    """It is whichever comes nearest to 20, not the one that should."""
    for active, achieved, nearest in (
        (18.9, 12.5, "SM-active share"),
        (60.0, 19.0, "achieved occupancy"),
    ):
        section = maker.occupancy()
        one = next(p for p in section.points if p.key[:4] == DW_ALONE)
        counters = one.counters.model_copy(
            update={"sm_active_pct": active, "achieved_occupancy_pct": achieved}
        )
        other = {**dict(zip("TKN", FIFTH, strict=True)), "num_warps": 16}
        added = one.model_copy(update={**other, "counters": counters})
        section = section.model_copy(update={"points": (*section.points, added)})
        found = facts(changed(lambda point: point, occupancy=section))
        assert nearest in found["timeline.32768x640x640.nearest-20.reading"].value


def test_without_traces(changed, site):
    """Nothing traced: every fact, the figure and the pair give the reason."""
    measured = changed(lambda point: None)
    assert isinstance(pictures(measured), Missing)
    assert timelines.files(measured, None) == {}
    found = facts(measured)
    assert found["timeline.32768x1024x1024.1.fill_pct"].note == (
        "this recording has no section timelines"
    )
    assert found["timeline.compared"].value is None
    (site.recording.folder / "timelines.json").unlink()
    text = site.text("{{ timeline() }}\n\n{{ timeline_pair() }}\n")
    assert text.count("Timeline not measured: this recording has no section") == 2


@pytest.mark.parametrize("failing", [("dw",), ("fast",), ("dw", "fast")])
def test_failed_kernel_is_withheld(changed, maker, failing):
    """What its own kernel computed wrong is not shown, the other's launches are."""
    measured = changed(lambda p: p, verification=maker.verification(failing=failing))
    withheld = {form: "fast" if form == "stream_k" else "dw" for form in FORMS}
    if len(failing) == 2:
        assert "a test of the dw kernel failed" in pictures(measured).reason
    for form, kernel in withheld.items():
        found = launch(measured, STARVED, form)
        assert isinstance(found, Missing) == (kernel in failing)
        if kernel in failing:
            assert f"a test of the {kernel} kernel failed" in found.reason
        else:
            assert form in [s.form for s in pictures(measured)[0].traced]


def test_a_recording_without_stream_k(changed):
    """Its pictures and table have the split factors alone; facts give the reason."""
    measured = changed(lambda p: None if p.implementation == "stream_k" else p)
    for picture in pictures(measured):
        assert [state.form for state in picture.states] == list(TIMELINE_FACTORS)
    table = timelines.table(measured)
    assert len(table.rows) == len(TIMELINE_SHAPES) * len(TIMELINE_FACTORS)
    assert not {row["implementation"] for row in timelines.rows(measured).rows} - {
        "lesson"
    }
    fact = facts(measured)["timeline.32768x1024x1024.stream_k.fill_pct"]
    assert fact.value is None and fact.note == "this recording does not hold that point"


@pytest.mark.parametrize(
    "even, times, filled, sooner, verdict",
    [
        (False, 0.5, 2, 2, "holds"),
        (False, 0.98, 2, 0, "holds in part"),
        (True, 0.5, 0, 2, "holds in part"),
        (True, 2, 0, 0, "does not hold"),
    ],
)
def test_stream_k_is_judged_beside_the_best_split(
    changed, even, times, filled, sooner, verdict
):
    """Its programs end together, or one of them late; soon, or not."""
    ends = {}

    def other(point):
        trace = point.trace
        if point.implementation == "lesson":
            ends.setdefault(point.shape, []).append(trace.makespan_ns)
            each = trace.end_ns[0]
        else:
            each = int(times * min(ends[point.shape]))
        late = 1 if even == (point.implementation == "lesson") else 4
        end = [start + each // late for start in trace.start_ns]
        end[-1] = trace.start_ns[-1] + each
        trace = trace.model_copy(update={"end_ns": tuple(end)})
        return point.model_copy(update={"trace": trace})

    measured = changed(other)
    found = Judged(measured, facts(measured)).verdicts["stream-k-sooner"]
    assert found.outcome == verdict
    assert f"better than the best traced split at {filled} and" in found.sentence
    assert f"sooner at {sooner}:" in found.sentence
    for shape in LAST_WAVE:
        picture = next(p for p in pictures(measured) if p.shape == shape)
        assert f"S = {picture.best.form}, after" in found.sentence
    rest = [p for p in pictures(measured) if p.shape not in LAST_WAVE]
    late = sum(
        picture.states[-1].launch.makespan_us > 1.03 * picture.best.launch.makespan_us
        for picture in rest
    )
    assert f"At the other {len(rest)} traced shapes" in found.sentence
    assert found.sentence.endswith(f"later than the best traced split at {late}.")


def test_skipped_launch_gives_its_reason(changed):
    """It stands among the others as words; the rest is drawn."""

    def skip(point):
        if point.key not in [
            ("lesson", "atomic", 8, *STARVED),
            ("stream_k", "atomic", 1, *STARVED),
        ]:
            return point
        gone = dict.fromkeys(("trace", "plain_ms", "traced_ms", "resident_programs"))
        return point.model_copy(update={**gone, "skipped_reason": "out of memory"})

    measured = changed(skip)
    picture = pictures(measured)[0]
    assert [state.form for state in picture.traced] == [1, 2, 4]
    assert [state.form for state in picture.states] == list(FORMS)
    rows = timelines.rows(measured).rows
    skipped = [r for r in rows if r["not_measured_reason"] == "out of memory"]
    assert [row["split_t"] for row in skipped] == [8, None]
    assert not any("fill_pct" in row for row in skipped)
    assert "out of memory" in timelines.table(measured).reasons


def test_table_and_downloads_agree(measured):
    """Five launches a shape; the page's table rounds what the files hold, and says of
    fill what the text says."""
    known = facts(measured)
    read = list(csv.DictReader(io.StringIO(timelines.rows(measured).csv)))
    lines = timelines.table(measured).rows
    assert len(read) == len(lines) == len(TIMELINE_SHAPES) * len(FORMS)
    for row, cells in zip(read, lines, strict=True):
        shown = [cell.text.replace("−", "-") for cell in cells]
        assert shown[0] == " × ".join(row[key] for key in "TKN")
        assert (row["implementation"] == "stream_k") == (row["split_t"] == "")
        form = row["split_t"] or "stream-K"
        assert shown[1:4] == [form, row["programs"], row["sms"]]
        assert float(shown[4]) == pytest.approx(float(row["fill_pct"]), abs=0.05)
        shape = "x".join(row[key] for key in "TKN")
        fact = known[f"timeline.{shape}.{row['split_t'] or 'stream_k'}.fill_pct"]
        assert fact.text == f"{shown[4]} %"


def test_page_and_file_hold_one_picture(site):
    """The first shape's file is what the page shows; every program is in it."""
    text = site.text("{{ timeline() }}\n")
    folder = site.root / "docs/assets/rendered/test-gpu/2026-01-31"
    files = sorted(folder.glob("timeline-*.html"))
    assert len(files) == len(TIMELINE_SHAPES)
    first = folder / "timeline-32768x1024x1024.html"
    assert first.read_text("utf-8").strip() in text
    assert text.count('type="radio"') == len(FORMS)
    assert text.count(" checked") == 1
    for file in files:
        html = file.read_text("utf-8")
        assert html.count('role="img" aria-label="Split factor') == 4
        assert html.count('role="img" aria-label="Stream-K: ') == 1
        for form in FORMS:
            key = file.stem.removeprefix("timeline-")
            assert html.count(f'id="timeline-{key}-{form}"') == 1
            assert html.count(f'"#timeline-{key}-{form}"') == 1


def test_pair_shows_the_unsplit_and_the_best(site):
    """Stream-K is no split factor, however soon it is done."""
    text = site.text("{{ timeline_pair() }}\n")
    picture = pictures(Measurements(site.recording))[0]
    best = picture.best.form
    assert picture.states[-1].launch.makespan_us < picture.best.launch.makespan_us
    assert re.findall(r"<b>S = (\d+)</b>", text) == ["1", str(best)]
    assert best != 1
