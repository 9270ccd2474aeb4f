"""Drawings in a real browser: chosen by keyboard, spoken, whole without a script."""

import re

import pytest
from playwright.sync_api import expect

from tests.site.harness import arrive, follow, toggle_to

GEMMS = "lesson/two-gradients/"
STRIDES = "lesson/stride-swap/"
CHIP = "lesson/dw-starves/"
SPLITS = "lesson/split-k/"
PLACES = {GEMMS: "gemms", STRIDES: "strides", CHIP: "chip", SPLITS: "split-chip"}


def drawing(page, name):
    return page.locator(f"#drawing-{name}")


def shown(figure):
    """Which states show in the figure; its views and its sentence agree on it."""
    parts = figure.locator("[data-when]")
    return set(
        parts.evaluate_all(
            "parts => parts.filter(part => getComputedStyle(part).display != 'none')"
            ".map(part => part.dataset.when)"
        )
    )


def test_first_screen(page, site):
    """At 1280 × 800 the question, the whole answer and the whole drawing stand in the
    first screen; the three bars are of one length."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(site.url)
    figure = drawing(page, "phenomenon")
    for part in (page.locator("p.answer"), figure):
        box = part.bounding_box()
        assert box["y"] + box["height"] <= 800
    bars = figure.locator(".d-bar").all()
    assert len({round(bar.bounding_box()["width"], 1) for bar in bars}) == 1 < len(bars)
    assert figure.locator("data.fact, .fact--missing").count() >= 3


def test_slider_by_keyboard(page, site):
    """Arrow keys step through the elements; the slider says what it marks, not a bare
    number (AfterBTCreate/per-tab-audio-control#17)."""
    page.goto(site.url + STRIDES)
    figure = drawing(page, "strides")
    slider = figure.get_by_role("slider", name="Element")
    slider.focus()
    page.keyboard.press("Home")
    for k in (0, 1):
        for n in (0, 1, 2):
            spoken = f"W[{k},{n}] and Wᵀ[{n},{k}], element {3 * k + n + 1}"
            expect(slider).to_have_attribute("aria-valuetext", spoken)
            expect(figure.locator("output")).to_have_text(spoken)
            assert shown(figure) == {str(3 * k + n)}
            lit = figure.locator("[data-when]:not([hidden]) .d-lit")
            assert lit.count() == 3
            page.keyboard.press("ArrowRight")
    expect(figure.locator(".drawing-says")).to_have_attribute("aria-live", "polite")


def test_split_and_layer(page, site):
    """Both controls choose one state together; it says its numbers and its time."""
    page.goto(site.url + SPLITS)
    figure = drawing(page, "split-chip")
    figure.get_by_label("Layer").select_option("1")
    slider = figure.get_by_role("slider", name="SPLIT_T")
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert shown(figure) == {"1 1"}
    says = figure.locator(".drawing-says p:visible")
    expect(says).to_contain_text("529 tiles × 2 = 1058 programs")
    expect(says.locator("[data-key]")).to_have_attribute(
        "data-key", "split.4096x2880x2880.atomic.2.ms"
    )
    expect(slider).to_have_attribute("aria-valuetext", "2, 1058 programs")


def test_proportions_follow_the_layer(page, site):
    """Another layer, other rectangles."""
    page.goto(site.url + GEMMS)
    figure = drawing(page, "gemms")
    sizes = []
    for choice in ("0", "1"):
        figure.get_by_label("Layer").select_option(choice)
        output = figure.locator(".d-dw .d-out:visible")
        box = output.bounding_box()
        sizes.append((round(box["width"]), round(box["height"])))
    assert sizes[0][0] > sizes[1][0] and sizes[0][1] > sizes[1][1]


def test_walk(page, site):
    """Drawings answer on every arrival by instant navigation, also after going back
    (FZJ-IEK3-VSA/tsam#388)."""
    page.goto(site.url)
    page.evaluate("window.sameDocument = true")
    for address in (STRIDES, SPLITS, STRIDES):
        follow(page, address)
        figure = drawing(page, PLACES[address])
        slider = figure.get_by_role("slider")
        slider.focus()
        page.keyboard.press("End")
        assert len(shown(figure)) == 1
        last = slider.get_attribute("max")
        assert shown(figure).pop().endswith(last)
        toggle_to(page, "slate")
        expect(figure.locator("svg:visible").first).to_be_visible()
        toggle_to(page, "default")
    page.go_back()
    arrive(page, SPLITS)
    figure = drawing(page, "split-chip")
    figure.get_by_label("Layer").select_option("2")
    assert shown(figure).pop().startswith("2 ")
    assert page.evaluate("window.sameDocument"), "not an instant navigation"


def test_no_script(browser, site, watch):
    """Without JavaScript the first state stands whole and no dead control shows."""
    context = browser.new_context(java_script_enabled=False)
    page = watch(context.new_page())
    for address, name in {"": "phenomenon", **PLACES}.items():
        page.goto(site.url + address)
        figure = drawing(page, name)
        expect(figure.locator("select, input").locator("visible=true")).to_have_count(0)
        assert figure.locator(".drawing-views svg:visible").count() > 0
        if name != "phenomenon":
            expect(figure.locator(".drawing-says p:visible")).to_have_count(1)
    context.close()


@pytest.mark.parametrize("address", ["", *PLACES])
def test_phone_and_paper(page, site, address):
    """At 360 px every drawing, in its widest state, fits its column; on paper, from
    dark colours, it stands in light ones without its controls (plotly/plotly.js#6609,
    plotly/plotly.js#1275)."""
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.goto(site.url + address)
    figure = drawing(page, PLACES.get(address, "phenomenon"))
    for select in figure.locator("select").all():
        select.select_option(index=1)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 360
    for svg in figure.locator("svg:visible").all():
        box = svg.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360
    page.emulate_media(media="print", color_scheme="dark")
    expect(figure.locator("select, input").locator("visible=true")).to_have_count(0)
    label = figure.locator(".drawing-title")
    ink = label.evaluate("text => getComputedStyle(text).color")
    assert max(map(int, re.findall(r"\d+", ink))) < 80, ink
