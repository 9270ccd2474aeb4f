"""Glossary, traps, differences and reports: what stands around the lesson."""

import re
from types import SimpleNamespace

import jinja2
import pytest
from playwright.sync_api import expect

from generate.render.entries import entries
from kernels.traps import TRAPS
from tests.site.harness import REPOSITORY, ROOT

NOTES = ROOT / "generate" / "templates" / "notes"
PAGE = (
    '<h1>Title</h1><a href="repository:issues/new?title=x">report</a> '
    '<a href="repository:blob/HEAD/tests/test_x.py">test</a>'
)


def content(repo_url: str) -> str:
    """What the theme makes of a page's content, around a repository's address."""
    folder = ROOT / "generate" / "overrides" / "partials"
    others = ("tags", "actions", "source-file", "feedback", "comments")
    loader = jinja2.ChoiceLoader(
        [
            jinja2.DictLoader({f"partials/{name}.html": "" for name in others}),
            jinja2.FileSystemLoader(folder),
        ]
    )
    environment = jinja2.Environment(loader=loader)
    environment.filters["url"] = lambda path: f"../{path}"
    return environment.get_template("content.html").render(
        page=SimpleNamespace(content=PAGE), config=SimpleNamespace(repo_url=repo_url)
    )


def test_links_into_the_repository():
    """They lead there, with or without a stroke at the end of its address."""
    for address in (REPOSITORY, REPOSITORY + "/"):
        text = content(address)
        assert f'<a href="{REPOSITORY}/issues/new?title=x">report</a>' in text
        assert f'<a href="{REPOSITORY}/blob/HEAD/tests/test_x.py">test</a>' in text


def test_without_an_address_of_the_repository():
    """A report leads to what to say in one, and a file nowhere: no dead link."""
    text = content("")
    assert '<a href="../about/#report-a-wrong-number"' in text
    assert '<a data-file="blob/HEAD/tests/test_x.py">test</a>' in text
    assert "repository:" not in text


def test_reports_name_chart_and_recording(site):
    """Below each chart a link begins an issue that says which numbers are meant."""
    charts = [page for page in site.pages if 'class="chart"' in site.html(page)]
    assert charts
    for page in charts:
        html = site.html(page)
        for name, body in re.findall(
            r'<figure class="chart" id="chart-([\w-]+)"(.*?)</figure>', html, re.DOTALL
        ):
            link = re.search(rf'href="{REPOSITORY}/issues/new\?([^"]+)"', body)[1]
            recording = re.search(r"recording <span [^>]+>([^<]+)<", body)[1]
            assert f"Chart:+{name}%0ARecording:+{recording}%0A" in link
    assert "repository:" not in "".join(map(site.html, site.pages))


def test_every_trap_and_term_has_its_address(site):
    """Notes and the lesson lead to them."""
    for page, notes in (("lesson/traps/", "traps"), ("glossary/", "glossary")):
        for anchor in entries((NOTES / f"{notes}.md").read_text(encoding="utf-8")):
            assert f'id="{anchor}"' in site.html(page), anchor


def test_blocks_lead_to_tests_and_traps(page, site):
    """Beside each tensor line of dW stand the tests that guard it and its trap."""
    page.goto(site.url + "kernels/dw/")
    row = page.locator("#dw-first-operand .anno-prose")
    test = row.get_by_role("link", name="test_ops.py::test_dw_of_slices")
    wanted = f"{REPOSITORY}/blob/HEAD/tests/kernels/test_ops.py"
    expect(test).to_have_attribute("href", wanted)
    row.get_by_role("link", name="No fill on a masked contraction tail").click()
    page.wait_for_url("**/lesson/traps/#no-fill")
    expect(page.locator("#no-fill")).to_be_in_viewport()


def test_differences_have_marks_and_fold(page, site):
    """Added and removed lines are told by + and -, not by colour alone."""
    page.goto(site.url + "kernels/dw/")
    first, second = page.locator("details.difference").all()
    for kind, mark in (("gi", "+"), ("gd", "-")):
        lines = first.locator(f".{kind}").all_text_contents()
        assert lines and all(line.startswith(mark) for line in lines)
    expect(first.locator("pre")).to_be_visible()
    expect(second.locator("pre")).to_be_hidden()
    second.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(second.locator("pre")).to_be_visible()


GALLERY = "evidence/traps/"


def test_lesson_and_gallery_lead_to_each_other(site):
    """Each trap has its words in part 9 and its exhibit in the gallery."""
    lesson, gallery = site.html("lesson/traps/"), site.html(GALLERY)
    for name in TRAPS:
        anchor = name.replace("_", "-")
        assert f'id="{anchor}"' in gallery, anchor
        assert f'href="../../lesson/traps/#{anchor}"' in gallery, anchor
        assert f'href="../../evidence/traps/#{anchor}"' in lesson, anchor


def test_traps_and_checks_fit_a_phone(page, site):
    """The table of checks scrolls in its own box, its traps stay in sight, and each
    leads to its exhibit."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(site.url + GALLERY)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    box = page.get_by_role("region", name="Which check catches which trap")
    name = box.locator("tbody th[scope=row]").first
    before = name.bounding_box()["x"]
    scrolled = box.evaluate("box => { box.scrollLeft = 120; return box.scrollLeft }")
    assert scrolled > 60
    assert name.bounding_box()["x"] == pytest.approx(before, abs=8)
    name.get_by_role("link").click()
    expect(page.locator("#no-fill")).to_be_in_viewport()


def test_marks_and_pictures_have_words(page, site):
    """No cell of the table says what it says by a mark alone, and what a picture shows
    stands below it."""
    page.goto(site.url + GALLERY)
    cells = page.locator(".trap-table td").all_text_contents()
    assert cells and all(re.search("[a-z]{3}", cell) for cell in cells)
    for picture in page.locator(".trap-map + p").all():
        assert re.search(r"cell|row|column", picture.inner_text())
    maps = page.locator(".trap-map").count()
    assert maps == page.locator(".trap-map + p").count() > 10


def test_what_is_not_finite_is_hatched(page, site):
    """The pattern is there once, and the key shows it."""
    page.goto(site.url + GALLERY)
    assert page.locator("#trap-hatch").count() == 1
    cell = page.locator(".trap-key .trap-nan")
    assert cell.evaluate("cell => getComputedStyle(cell).fill").startswith("url(")


def test_differences_of_traps_are_printed(page, site):
    """Also one that its reader has folded."""
    page.goto(site.url + GALLERY)
    listing = page.locator("details.difference pre").first
    expect(listing).to_be_visible()
    page.locator("details.difference summary").first.click()
    expect(listing).to_be_hidden()
    page.emulate_media(media="print")
    expect(listing).to_be_visible()


TERM_PAGE = "lesson/dw-starves/"


def test_a_term_explains_itself_to_the_keyboard(page, site):
    """Focus shows what a word means, Escape puts it away, Enter leads to the
    glossary; what is shown is also its description (WCAG 1.4.13)."""
    page.goto(site.url + TERM_PAGE)
    term = page.locator("a.term", has_text="wave")
    says = page.locator("#term-wave")
    expect(says).to_be_hidden()
    term.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(term).to_be_focused()
    expect(says).to_be_visible()
    expect(term).to_have_accessible_description(says.inner_text())
    page.keyboard.press("Escape")
    expect(says).to_be_hidden()
    page.keyboard.press("Enter")
    page.wait_for_url("**/glossary/#wave")


def test_a_term_explains_itself_to_a_pointer(page, site):
    """Its explanation stays while the pointer is on it, and within a phone's width."""
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(site.url + TERM_PAGE)
    for term in page.locator("a.term").all():
        says = term.locator("+ .term-says")
        term.evaluate("term => term.scrollIntoView({block: 'center'})")
        term.hover()
        expect(says).to_be_visible()
        box = says.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360
        says.hover()
        expect(says).to_be_visible()
        page.mouse.move(1, 1)
        expect(says).to_be_hidden()


@pytest.mark.parametrize("media", ("print", "screen"))
def test_terms_are_prose_until_asked(page, site, media):
    """Explanations stand on no paper and in no sentence."""
    page.emulate_media(media=media)
    page.goto(site.url + TERM_PAGE)
    assert page.locator(".term-says").count() >= 4
    assert page.locator(".term-says:visible").count() == 0
