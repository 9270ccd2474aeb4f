"""The SM timeline in a real browser: stepped through by keyboard, whole without a
script, on a phone and on paper."""

import gzip
import re

import pytest
from playwright.sync_api import expect

from tests.site.harness import arrive, follow

TIMELINE = "evidence/timeline/"
PAIRS = ("", "lesson/dw-starves/")
FACTORS = ("S = 1", "S = 2", "S = 4", "S = 8")


def figure(page):
    return page.locator("#timeline")


def launches(page) -> list[str]:
    """Names of what can be chosen: every factor and, if it was traced, stream-K."""
    names = figure(page).locator(".timeline-factors label b").all_inner_texts()
    assert tuple(names) in (FACTORS, (*FACTORS, "stream-K"))
    return names


def shown(page) -> set[str]:
    """Which states show; the picture and its sentence agree on it."""
    parts = figure(page).locator("[data-state]")
    assert parts.count() == 2 * len(launches(page))
    return set(
        parts.evaluate_all(
            "parts => parts.filter(part => part.checkVisibility())"
            ".map(part => part.dataset.state)"
        )
    )


def test_launches_by_keyboard(page, site):
    """One stop for Tab, arrows step; a name says the launch, its time and its fill,
    the live sentence and the picture's description the rest."""
    page.goto(site.url + TIMELINE)
    first = figure(page).get_by_role("radio").first
    first.focus()
    for index, name in enumerate(launches(page)):
        assert shown(page) == {str(index)}
        chosen = figure(page).get_by_role("radio", checked=True)
        expect(chosen).to_have_accessible_name(re.compile(rf"{name} .*µs .*% full"))
        says = figure(page).locator(".timeline-says")
        expect(says).to_have_attribute("aria-live", "polite")
        sentence = says.locator("p:visible")
        said = name.replace("S =", "Split factor").replace("stream", "Stream")
        expect(sentence).to_contain_text(f"{said}: ")
        picture = figure(page).locator(".timeline-view").get_by_role("img")
        expect(picture).to_have_accessible_name(sentence.inner_text())
        page.keyboard.press("ArrowRight")


def test_picture_shows_the_chosen_bars(page, site):
    """What is drawn in large is what stands in the small picture, at the width that
    the time has of the longest."""
    page.goto(site.url + TIMELINE)
    for index in range(len(launches(page))):
        figure(page).get_by_role("radio").nth(index).check()
        state = figure(page).locator(f".timeline-view [data-state='{index}']")
        drawn = state.locator("use").bounding_box()
        whole = state.locator("svg").bounding_box()
        end = state.locator(".timeline-end").evaluate(
            "end => parseFloat(getComputedStyle(end).getPropertyValue('--end'))"
        )
        assert drawn["height"] > 0.9 * whole["height"]
        assert drawn["width"] / whole["width"] == pytest.approx(end / 100, abs=0.01)


def test_another_shape(page, site):
    """Its picture comes from its file; the chosen factor stays chosen."""
    page.goto(site.url + TIMELINE)
    figure(page).get_by_role("radio").nth(2).check()
    before = figure(page).locator(".timeline-says p:visible").inner_text()
    figure(page).get_by_label("Shape").select_option("4096x2880x2880")
    expect(figure(page).locator(".timeline-says p:visible")).to_contain_text(
        "Split factor 4: 2116 programs"
    )
    assert shown(page) == {"2"}
    assert figure(page).get_by_role("radio").nth(2).is_checked()
    assert figure(page).locator(".timeline-view use:visible").bounding_box()["width"]
    figure(page).get_by_label("Shape").select_option("32768x1024x1024")
    expect(figure(page).locator(".timeline-says p:visible")).to_have_text(before)


def test_a_shape_that_does_not_come(page, site, problems):
    """The reader is told, the picture stays and so does its name; another that does
    come ends the excuse."""
    page.goto(site.url + TIMELINE)
    page.route("**/timeline-32768x640x640.html", lambda route: route.abort())
    choice, says = figure(page).get_by_label("Shape"), figure(page).locator("p:visible")
    choice.select_option("32768x640x640")
    expect(says.filter(has_text="could not be loaded")).to_have_count(1)
    expect(choice).to_have_value("32768x1024x1024")
    expect(says.filter(has_text="Split factor 1: 64 programs")).to_have_count(1)
    assert shown(page) == {"0"}
    choice.select_option("131072x512x512")
    expect(says.filter(has_text="Split factor 1: 16 programs")).to_have_count(1)
    expect(says.filter(has_text="could not be loaded")).to_have_count(0)
    problems.clear()


def test_walk(page, site):
    """The figure answers on every arrival by instant navigation."""
    page.goto(site.url)
    page.evaluate("window.sameDocument = true")
    for _ in range(2):
        follow(page, TIMELINE)
        figure(page).get_by_label("Shape").select_option("32768x640x640")
        expect(figure(page).locator(".timeline-says p:visible")).to_contain_text(
            "25 programs"
        )
        follow(page, "lesson/dw-starves/")
    page.go_back()
    arrive(page, TIMELINE)
    expect(figure(page).get_by_label("Shape")).to_be_visible()
    assert page.evaluate("window.sameDocument"), "not an instant navigation"


def test_no_script(browser, site, watch):
    """Without JavaScript every launch stands in small, radio buttons still choose the
    large one, and the choice of a shape, which needs a script, does not show."""
    context = browser.new_context(java_script_enabled=False)
    page = watch(context.new_page())
    page.goto(site.url + TIMELINE)
    small = figure(page).locator(".timeline-factors svg")
    expect(small.locator("visible=true")).to_have_count(len(launches(page)))
    expect(figure(page).locator("select")).to_be_hidden()
    expect(figure(page).locator(".timeline-shape")).to_be_visible()
    figure(page).get_by_role("radio").nth(3).check()
    expect(figure(page).locator(".timeline-view svg:visible")).to_have_count(1)
    expect(figure(page).locator(".timeline-says p:visible")).to_contain_text("factor 8")
    context.close()


@pytest.mark.parametrize("address", [TIMELINE, *PAIRS])
def test_phone_and_paper(page, site, address):
    """At 360 px a picture fits its column and keeps rows that can be told apart; on
    paper, from dark colours, it stands in light ones without its controls."""
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.goto(site.url + address)
    picture = page.locator("figure.timeline").first
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 360
    for svg in picture.locator("svg:visible").all():
        box = svg.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360
    rows = int(
        picture.locator("[style*='--sms']").get_attribute("style").partition(":")[2]
    )
    large = picture.locator("[role=img]:visible").first.bounding_box()
    assert large["height"] >= (4 if address == TIMELINE else 2) * rows
    page.emulate_media(media="print", color_scheme="dark")
    expect(picture.locator("select, input").locator("visible=true")).to_have_count(0)
    expect(picture.locator("[role=img]:visible").first).to_be_visible()
    ink = picture.locator(".timeline-title").evaluate(
        "text => getComputedStyle(text).color"
    )
    assert max(map(int, re.findall(r"\d+", ink))) < 80, ink


def test_colours_of_the_system(page, site):
    """In forced colours a program, its neighbour and an idle SM are told apart."""
    page.emulate_media(forced_colors="active")
    page.goto(site.url + TIMELINE)
    figure(page).get_by_role("radio").nth(3).check()
    fills = [
        figure(page)
        .locator(f".timeline-key .timeline-{kind}")
        .first.evaluate("mark => getComputedStyle(mark).fill")
        for kind in ("first", "second", "idle")
    ]
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert len({*fills, paper}) == 4, fills


def test_weight(site):
    """The page stays under 120 kB compressed, the heaviest shape's file too, and a
    pair adds less than 25 kB to its page."""
    assert len(gzip.compress(site.html(TIMELINE).encode(), 9)) < 120_000
    files = list(site.folder.rglob("timeline-*.html"))
    assert len(files) >= 6
    for file in files:
        assert len(gzip.compress(file.read_bytes(), 9)) < 120_000, file
    for address in PAIRS:
        html = site.html(address)
        pair = re.search(r'<figure class="timeline.*?</figure>', html, re.DOTALL)[0]
        assert len(gzip.compress(pair.encode(), 9)) < 25_000
