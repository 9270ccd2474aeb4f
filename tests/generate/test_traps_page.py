"""The gallery of traps: its facts, its pictures, and that traps and words pair."""

import re
import shutil
from pathlib import Path

import pytest

from generate.render import RenderError, traps
from generate.render.facts import facts
from generate.render.measured import Measurements
from generate.schema import CheckOutcome, Effect, Reading
from kernels.traps import TRAPS

ROOT = Path(__file__).resolve().parents[2]
NOTES = ROOT / "generate" / "templates" / "notes" / "traps.md"
PAGE = "evidence/traps.md.j2"
RIGHT, OFF = 1e-7, 0.5


@pytest.fixture
def shown(site):
    """Renders the gallery as it is, from a recording with some traps changed."""

    def rendered(maker, **changes) -> str:
        section = maker.traps()
        points = tuple(
            p.model_copy(update=changes.get(p.trap, {})) for p in section.points
        )
        section = section.model_copy(update={"points": points})
        maker.write(site.recording.folder, traps=section)
        return site.text((NOTES.parent.parent / PAGE).read_text(encoding="utf-8"))

    return rendered


def effect(**fields) -> Effect:
    empty = dict.fromkeys(Effect.model_fields)
    right = "reading" not in fields
    counts = {"elements": 4 * right, "wrong_elements": 0, "non_finite_elements": 0}
    if right:
        counts |= {"error": 0.0, "picture": ((0.0, 0.0), (0.0, 0.0))}
    return Effect(**{**empty, **counts, **fields})


def exhibit(html: str, trap: str) -> str:
    """One trap's part of the page."""
    anchor = traps.anchor(trap)
    return re.split(r"^##", html.split(f"{{ #{anchor} }}")[1], flags=re.M)[0]


# Traps, their files and their words


def test_each_trap_is_shown_with_its_words(recording):
    """Kind, title, one line and operands of each; the kinds stand together."""
    found = traps.gallery(ROOT, Measurements(recording), NOTES.read_text("utf-8"))
    assert sorted(e.name for e in found.exhibits) == sorted(TRAPS)
    kinds = [exhibit.kind for exhibit in found.exhibits]
    assert [k for k in traps.KINDS for e in found.exhibits if e.kind == k] == kinds
    assert set(kinds) == set(traps.KINDS)
    for exhibit in found.exhibits:
        assert exhibit.says.endswith(".") and "\n" not in exhibit.says
        assert exhibit.case.endswith(".")


def test_differences_show_the_mistake_and_little_else(recording):
    """Of a kernel few lines differ from the lesson's, and no marker is among them."""
    found = traps.gallery(ROOT, Measurements(recording), NOTES.read_text("utf-8"))
    text = {exhibit.name: exhibit.difference for exhibit in found.exhibits}
    for name, lines in text.items():
        changed = [line for line in lines.split("--- broken")[0].splitlines()]
        assert sum(line[:1] in "+-" for line in changed) <= 16, name
        assert "\n-def broken(" in lines and "\n+def fixed(" in lines
        assert not re.search(r"^.\s*# \[", lines, re.M)
    assert "\n-            mask=k[:, None] < K,\n" in text["no_fill"]
    assert "\n+            other=0.0,\n" in text["no_fill"]
    assert "\n-def reduce_slices(args, exception):\n" in text["reduce_in_a_hook"]
    assert "+++ dw.py" not in text["transpose_first"]


@pytest.mark.parametrize(
    "old, new, complaint",
    [
        ("{ #no-fill }", "{ #no-fills }", "#no-fill: has no entry"),
        ("## Overwriting", "## Extra { #extra }\n\nText.\n\n## Over", "#extra: kern"),
    ],
)
def test_traps_and_entries_pair(recording, old, new, complaint):
    """A trap without an entry stops the render, and so does an entry without one."""
    text = NOTES.read_text("utf-8").replace(old, new, 1)
    with pytest.raises(RenderError, match=complaint):
        traps.gallery(ROOT, Measurements(recording), text)


def test_an_entry_may_say_why_it_is_not_shown():
    """One trap is not of dW."""
    sections = dict(traps.SECTION.findall(NOTES.read_text("utf-8")))
    left_out = [name for name, text in sections.items() if traps.LEFT_OUT in text]
    assert left_out == ["cast-through-fp16"]


def test_an_unknown_exhibit_stops_the_render(site):
    with pytest.raises(RenderError, match="there is no trap 'surprise'"):
        site.text('{{ exhibit("surprise") }}')


# Facts


def test_facts_of_a_wrong_result(maker, tmp_path):
    """Errors and shares, and the checks by what they said."""
    found = facts(Measurements(maker.write(tmp_path / "data" / "gpu" / "day")))
    assert found["trap.no_fill.broken.error"].text == "0.500"
    assert found["trap.no_fill.broken.wrong_pct"].value == 25
    assert found["trap.no_fill.fixed.wrong_pct"].text == "0 %"
    assert found["trap.no_fill.caught"].text == "odd sizes"
    assert found["trap.no_fill.missed"].text == "none"
    assert found["trap.no_fill.slowdown"].value is None
    assert found["traps.shown"].value == len(TRAPS)
    assert found["traps.tried"].value is None
    assert found["traps.most_caught"].value == len(TRAPS)


def changed(maker, **changes):
    """Facts of a recording whose first trap is another."""
    section = maker.traps()
    first = section.points[0].model_copy(update=changes)
    points = (first, *section.points[1:])
    return section.model_copy(update={"points": points})


def test_facts_of_what_is_not_a_number(maker, tmp_path):
    """No finite element, no result, and a reading of whole units."""
    counts = {"elements": 4, "wrong_elements": 4, "non_finite_elements": 4}
    nothing = effect(**counts, error=None)
    read = effect(reading=Reading(value=49.0, unit="runs", meaning="refused"))
    section = changed(maker, broken=nothing, fixed=read)
    recording = maker.write(tmp_path / "data" / "gpu" / "day", traps=section)
    found, key = facts(Measurements(recording)), f"trap.{TRAPS[0]}"
    assert found[f"{key}.broken.error"].value is None
    assert found[f"{key}.broken.error"].text == "none is finite"
    assert found[f"{key}.broken.non_finite"].value == 4
    assert found[f"{key}.fixed.wrong_pct"].value is None
    assert found[f"{key}.fixed.reading"].text == "49 runs"


@pytest.mark.parametrize(
    "wrong, text", [(9999, "over 99.9 %"), (10000, "100 %"), (1, "0.0100 %")]
)
def test_nearly_all_is_not_all(maker, tmp_path, wrong, text):
    """100 % is said of every element only."""
    section = changed(maker, broken=effect(elements=10000, wrong_elements=wrong))
    recording = maker.write(tmp_path / "data" / "gpu" / "day", traps=section)
    assert facts(Measurements(recording))[f"trap.{TRAPS[0]}.broken.wrong_pct"].text == (
        text
    )


def test_lost_time_is_a_ratio(maker, tmp_path):
    """Median over median."""
    slow, fast = effect(samples_ms=(3.0,) * 5), effect(samples_ms=(2.0,) * 5)
    section = changed(maker, broken=slow, fixed=fast)
    recording = maker.write(tmp_path / "data" / "gpu" / "day", traps=section)
    found = facts(Measurements(recording))
    assert found[f"trap.{TRAPS[0]}.slowdown"].text == "1.50×"


# The picture


def test_a_picture_covers_each_cell_once():
    """Boxes of one step, merged along and down, are the grid they were made from."""
    grid = (
        (None, None, RIGHT, OFF),
        (None, None, RIGHT, OFF),
        (2.0, RIGHT, RIGHT, RIGHT),
    )
    drawn = {}
    for kind, path in re.findall(r'class="trap-(\w+)" d="([^"]+)"', traps.svg(grid)):
        boxes = re.findall(r"M(\d+) (\d+)h(\d+)V(\d+)h-(\d+)z", path)
        assert "".join(path.split("z")).count("M") == len(boxes)
        for left, top, width, bottom, back in (map(int, box) for box in boxes):
            assert width == back
            for cell in ((y, x) for y in range(top, bottom) for x in range(width)):
                assert (cell[0], left + cell[1]) not in drawn
                drawn[cell[0], left + cell[1]] = kind
    steps = {None: "nan", RIGHT: "0", OFF: "4", 2.0: "5"}
    assert drawn == {
        (y, x): steps[value]
        for y, row in enumerate(grid)
        for x, value in enumerate(row)
    }


def grid(off: dict, rows: int = 4, columns: int = 8):
    return tuple(
        tuple(off.get((y, x), RIGHT) for x in range(columns)) for y in range(rows)
    )


ALL = [(y, x) for y in range(4) for x in range(8)]


@pytest.mark.parametrize(
    "off, value, said",
    [
        ([], OFF, "No cell is further off than 1.0·10⁻⁷ of dW's RMS."),
        (ALL, OFF, "Every cell: off by up to 50 % of dW's RMS."),
        (ALL, None, "Every cell holds a value that is not finite."),
        (ALL[-8:], 2.5, "The last of 4 rows: off by up to 2.5 times dW's RMS."),
        (ALL[:16], OFF, "The first 2 of 4 rows: off by up to 50 % of dW's RMS."),
        (ALL[8:24], OFF, "Rows 2 to 3 of 4: off by up to 50 % of dW's RMS."),
        (ALL[6::8] + ALL[7::8], None, "The last 2 of 8 columns: off and 8 cells"),
        ([(0, 0), (3, 5)], OFF, "2 of 32 cells: off by up to 50 % of dW's RMS."),
        ([(0, 0), (0, 1)], OFF, "The first of 4 rows, the first 2 of 8 columns: off"),
    ],
)
def test_a_picture_in_words(off, value, said):
    """Which cells are further off than the fix, and how far."""
    assert traps.words(grid(dict.fromkeys(off, value)), RIGHT).startswith(said)


def test_steps_end_where_they_say():
    """A cell at the end of a step is in it; one beyond all ends is in the last."""
    assert [traps.level(end) for end in traps.LEVELS] == [0, 1, 2, 3, 4, 5]
    assert traps.level(traps.LEVELS[-1] * 1.01) == len(traps.LEVEL_NAMES) - 1
    assert traps.level(None) is None


# Pages


def test_every_outcome_is_said(shown, maker):
    """Marks have words: what a check says of both forms, in table and exhibit."""
    forms = [(False, True), (True, True), (False, False), (True, False)]
    checks = tuple(
        CheckOutcome(check=f"check {n}", broken_passes=broken, fixed_passes=fixed)
        for n, (broken, fixed) in enumerate(forms)
    )
    html = shown(maker, no_fill={"checks": checks})
    text = re.sub(r"<[^>]+>", "", exhibit(html, "no_fill"))
    for said in (
        "✓ Caught by: check 0",
        "✗ Missed by: check 1",
        "± Refuses the fix too: check 2",
        "⇄ Refuses the fix alone: check 3",
    ):
        assert said in text
    row = next(r for r in html.split("<tr>") if 'href="#no-fill"' in r)
    words = re.findall(r'trap-hidden">([^<]+)<', row)
    assert sorted(words) == sorted([*traps.OUTCOMES.values(), "not run"])


def test_the_answer_counts_what_the_usual_test_misses(shown, maker):
    """It is computed, and says so where nothing was tried."""
    usual = CheckOutcome(check=traps.USUAL, broken_passes=True, fixed_passes=True)
    seen = usual.model_copy(update={"broken_passes": False})
    html = shown(maker, no_fill={"checks": (usual,)}, overwrite={"checks": (seen,)})
    answer = re.sub(r"<[^>]+>", "", re.search(r'class="answer".*', html)[0])
    assert "Of 2 mistakes that spoil the result" in answer
    assert "round sizes in fresh memory, passes 1." in answer
    assert "This recording does not say" in shown(maker)


def test_a_skipped_trap_says_why(shown, maker):
    """Beside its difference, which needs no recording."""
    lost = {"broken": None, "fixed": None, "checks": (), "skipped_reason": "too small"}
    html = exhibit(shown(maker, offsets=lost), "offsets")
    assert "Not measured: too small." in html
    assert "-def broken(" in html and "trap-map" not in html


def test_no_reading_is_lost_for_being_zero(shown, maker):
    """Zero is a result; a count of wrong elements is only shown if there are some."""
    read = effect(reading=Reading(value=0.0, unit="tokens", meaning="of 64 missing"))
    html = shown(maker, tolerance={"broken": read, "fixed": read})
    html = exhibit(html, "tolerance")
    assert html.count(">0 tokens</data>") == 2
    assert "Of 64 missing" in html and "Elements wrong" not in html


@pytest.mark.parametrize(
    "changes, said",
    [
        ({}, "25.0 % of the elements wrong; error against fp64 0.500, with the fix"),
        (
            {
                "broken": effect(samples_ms=(3.0,) * 5),
                "fixed": effect(samples_ms=(2.0,) * 5),
            },
            "3.00 ms, with the fix 2.00 ms: 1.50×.",
        ),
        (
            {
                "broken": effect(
                    reading=Reading(value=9.0, unit="µs", meaning="a call")
                ),
                "fixed": effect(
                    reading=Reading(value=2.0, unit="µs", meaning="a call")
                ),
            },
            "9 µs a call; with the fix 2 µs.",
        ),
        (
            {"broken": None, "fixed": None, "skipped_reason": "too small"},
            "not in this recording; [the exhibit]",
        ),
    ],
)
def test_the_lesson_says_what_came_of_it(site, maker, changes, said):
    """One sentence for each kind of number, with the way to the exhibit."""
    section = changed(maker, **changes)
    maker.write(site.recording.folder, traps=section)
    anchor = traps.anchor(TRAPS[0])
    html = site.text(f'{{{{ exhibit("{anchor}") }}}}')
    assert said in re.sub(r"</?(data|span)[^>]*>", "", html)
    assert f"(../evidence/traps.md#{anchor})" in html


def test_both_pages_stand_without_the_section(site):
    """The difference of each trap is shown, and nothing is said to be measured."""
    (site.recording.folder / "traps.json").unlink()
    shutil.rmtree(site.templates)
    shutil.copytree(ROOT / "generate" / "templates", site.templates)
    site.render()
    html = (site.root / "docs/evidence/traps.md").read_text("utf-8")
    assert html.count("````diff") == len(TRAPS)
    assert html.count("Not measured: this recording has no section traps.") == len(
        TRAPS
    )
    lesson = (site.root / "docs/lesson/traps.md").read_text("utf-8")
    assert "Not measured here" in lesson
    assert lesson.count("**Measured:** not in this recording") == len(TRAPS)


def test_results_of_an_earlier_trap_are_flagged(site):
    """A page that shows a trap's numbers says when a trap's code has changed, and a
    page without them does not."""
    shown, other = '{{ fact("trap.no_fill.broken.error") }}', '{{ fact("gpu.name") }}'
    notice = "Numbers of an earlier version"
    assert notice not in site.text(shown)
    trap = site.kernel("traps/no_fill")
    trap.write_text(trap.read_text("utf-8") + "\nCHANGED = 1\n", "utf-8")
    assert notice in site.text(shown)
    assert notice not in site.text(other)
