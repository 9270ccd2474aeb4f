"""Every page for every reader: phone, paper, assistive technology, copied code."""

import re

import pytest
from playwright.sync_api import expect

from tests.site.harness import (
    PHONE,
    ROOT,
    axe,
    chart_page,
    enliven,
    toggle_to,
    until,
)

MOVING = """() => {
  const longest = (times) => Math.max(...times.split(",").map(parseFloat));
  return [...document.querySelectorAll("*")].filter((part) => {
    const style = getComputedStyle(part);
    const times = [style.animationDuration, style.transitionDuration];
    return Math.max(...times.map(longest)) > .1;
  }).map((part) => [location.pathname, part.outerHTML.slice(0, 80)]);
}"""
WIDTH = "document.scrollingElement.scrollWidth"
WHOLE = """() => [...document.querySelectorAll("article *")].filter((part) =>
    getComputedStyle(part).breakInside === "avoid" && part.offsetHeight > 986
).map((part) => [location.pathname, part.outerHTML.slice(0, 80)])"""


PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))  # which may run beside one another
def test_every_page(page, site, part):
    """At 360 px no page scrolls sideways, before its charts draw or after
    (plotly/plotly.js#6609). An audit by WCAG 2.0, 2.1 and 2.2, A and AA, finds nothing
    on it, charts drawn, in either scheme, wide or narrow (plotly/plotly.js#6645,
    vega/vega-lite#6603). On paper none is wider than the sheet, since browsers then
    shrink all of it, and what must not be cut is lower than one. Nothing moves for a
    reader who asked for less motion.

    One visit for all of it: loading a page and drawing its charts are most of the work.
    """
    wide, high, found, moving = [], [], [], []
    for address in site.pages[part::PARTS]:
        page.emulate_media(
            media="screen", color_scheme="light", reduced_motion="reduce"
        )
        page.set_viewport_size(PHONE)
        page.goto(site.url + address)
        widths = [page.evaluate(WIDTH)]
        enliven(page)
        widths += [page.evaluate(WIDTH)]
        found += axe(page)
        moving += page.evaluate(MOVING)
        on_paper(page)
        paper = page.evaluate(WIDTH)
        if max(widths) > 360 or paper > 673:
            wide.append((address, *widths, paper))
        high += page.evaluate(WHOLE)
        for table in page.locator("details.chart-table").all():
            assert_printed(page, table)
    assert not found, "\n".join(map(str, found))
    assert not moving
    assert not wide, "wider than a phone or a sheet"
    assert not high, "higher than a sheet"


def assert_printed(page, table):
    """A table of a chart is printed, one of more than 60 rows only if its reader
    opened it; and is no wider than the sheet (plotly/plotly.js#1275)."""
    inside = table.locator("table")
    table.evaluate("table => { table.open = false }")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    long = table.locator("tbody tr").count() > 60
    expect(inside).to_be_visible(visible=not long)
    table.evaluate("table => { table.open = true }")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(inside).to_be_visible()
    box = inside.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 673, page.url


def test_an_audit_measures_every_kind_of_text(page, site):
    """Text of too little contrast is found among any other: for its colour, its ground,
    what it shines through, or what lies under it."""
    page.goto(site.url + "about/")
    page.locator(
        "article"
    ).evaluate("""(article) => article.insertAdjacentHTML("beforeend", `
      <p>As all other text is.</p>
      <p id="colour" style="color: #999">text</p>
      <div style="background: #666"><p><span id="ground">text</span></p></div>
      <div style="opacity: .4"><p id="opacity">text</p></div>
      <div style="position: relative">
        <p style="background: #666; height: 2rem"></p>
        <p id="place" style="position: absolute; top: 0">text</p>
      </div>`)""")
    said = str([found for found in axe(page) if found[1] == "color-contrast"])
    missed = [
        name for name in ("colour", "ground", "opacity", "place") if name not in said
    ]
    assert not missed


def test_contrast(page, site):
    """Marks of charts have a contrast of 3:1 with the page, text of charts and of code
    4.5:1, in both schemes (vega/vega-lite#6603)."""
    page.goto(site.url)
    measure = """([names, ground]) => {
      const paint = document.createElement("canvas").getContext("2d");
      const style = getComputedStyle(document.body);
      const light = (name) => {
        paint.fillStyle = style.getPropertyValue(name);
        paint.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data]
          .map((c) => c / 255)
          .map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b + .05;
      };
      const ratios = names.map((name) => light(name) / light(ground));
      return ratios.map((ratio) => Math.max(ratio, 1 / ratio));
    }"""
    marks = ["--op-forward", "--op-dx", "--op-dw", "--chart-vendor", "--chart-limit"]
    css = (ROOT / "docs" / "assets" / "css" / "site.css").read_text(encoding="utf-8")
    code = sorted(set(re.findall(r"--md-code-hl-[a-z]+-color", css)))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert min(page.evaluate(measure, [marks, "--md-default-bg-color"])) >= 3
        assert min(page.evaluate(measure, [["--chart-fg"], "--chart-bg"])) >= 4.5
        assert min(page.evaluate(measure, [code, "--md-code-bg-color"])) >= 4.5


def on_paper(page):
    page.set_viewport_size({"width": 673, "height": 986})  # A4 between our margins
    page.emulate_media(media="print")


def test_paper(page, site, tmp_path):
    """On paper, even from dark colours with a live chart, stand the whole still and its
    table in light colours (plotly/plotly.js#1275)."""
    address, _ = chart_page(site)
    page.goto(site.url + address)
    toggle_to(page, "slate")
    enliven(page)
    assert page.pdf(path=tmp_path / "page.pdf", format="A4").startswith(b"%PDF")

    on_paper(page)
    for figure in page.locator("figure.chart").all():
        still = figure.locator(".chart-still svg:visible")
        expect(still).to_be_visible()
        expect(figure.locator(".chart-live")).to_be_hidden()
        box = still.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 673 and box["height"] > 150
    assert page.locator(".chart-controls:visible").count() == 0
    ink = page.locator("article").evaluate("text => getComputedStyle(text).color")
    assert max(map(int, re.findall(r"\d+", ink))) < 80, ink
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")


def test_a_long_table_costs_no_paper(page, site):
    """Printed by the browser itself, a page is longer when its long table is open."""
    tables = re.compile(r'<details class="chart-table".*?</details>', re.DOTALL)
    address = next(
        address
        for address in site.pages
        if any(t.count("<tr") > 61 for t in tables.findall(site.html(address)))
    )
    page.goto(site.url + address)
    summary = page.locator("details.chart-table:has(tr:nth-child(61)) summary").first

    def sheets():
        return len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))

    shut = sheets()
    summary.click()
    opened = sheets()
    summary.click()
    assert opened > shut == sheets() > 0


def test_captions_of_wide_tables(page, site):
    """The caption of a table that scrolls sideways is read without scrolling."""
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(site.url + "hardware/")
        boxes = page.locator(".table-scroll:has(caption)").all()
        assert boxes
        for box in boxes:
            inner, outer = box.evaluate("""box => {
              const text = document.createRange();
              text.selectNodeContents(box.querySelector("caption"));
              return [text, box].map((it) => it.getBoundingClientRect().right);
            }""")
            assert inner <= outer + 1


def test_an_added_element_is_cheap(page, site):
    """No rule of a stylesheet is matched anew against the whole page for it: the
    best of five takes less than a frame."""
    page.goto(site.url + "kernels/dw/")
    page.wait_for_load_state()
    fastest = page.evaluate("""() => Math.min(...[1, 2, 3, 4, 5].map(() => {
      const added = document.createElement("p"), begin = performance.now();
      document.querySelector("article").append(added);
      document.body.offsetHeight;
      added.remove();
      document.body.offsetHeight;
      return performance.now() - begin;
    }))""")
    assert fastest < 16


@pytest.mark.parametrize(
    "idle",
    ["undefined", "(step, given) => given && setTimeout(step, given.timeout)"],
    ids=["unknown", "never"],
)
def test_a_page_settles_without_idle_time(page, site, idle):
    """Where the browser knows no idle time, or a busy machine has none, a page
    becomes whole all the same."""
    page.add_init_script(f"window.requestIdleCallback = {idle};")
    page.goto(site.url + "kernels/dw/")
    until(page, "() => 'settled' in document.documentElement.dataset")


def test_copy(browser, site, watch):
    """What the copy button of an annotated block gives is what the kernel file holds at
    those lines (squidfunk/mkdocs-material#3219)."""
    lines = (ROOT / "kernels" / "dw.py").read_text(encoding="utf-8").splitlines()
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = watch(context.new_page())
    page.goto(site.url + "kernels/dw/")
    blocks = page.locator(".anno-code pre").all()
    assert blocks
    for block in blocks:
        numbered = block.locator("[data-linenos]").first
        at = int(numbered.get_attribute("data-linenos")) - 1
        block.locator("button[data-clipboard-target]").click()
        copied = page.evaluate("navigator.clipboard.readText()").split("\n")
        assert copied == lines[at : at + len(copied)]
    context.close()
