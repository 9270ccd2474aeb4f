"""Charts in a real browser: when they draw, what they follow, what else is left."""

import base64
import hashlib
import os
import re

import pytest
from playwright.sync_api import expect

from tests.site.harness import (
    LIVE,
    ROOT,
    arrive,
    assert_colours,
    chart_page,
    enliven,
    follow,
    toggle_to,
    until,
)


def test_walk(page, site):
    """Home, chart, source page and back, colours toggled on the way: charts draw once
    on every arrival, in the scheme of the moment (FZJ-IEK3-VSA/tsam#388,
    plotly/plotly.py#5413)."""
    address, _ = chart_page(site)
    page.goto(site.url)
    page.evaluate("window.sameDocument = true")
    follow(page, address)
    count = enliven(page)
    assert_colours(page)
    draws = page.evaluate("window.draws")

    toggle_to(page, "slate")
    assert_colours(page)
    plot = page.evaluate_handle("document.querySelector('.chart-live')")

    follow(page, "kernels/dw/")
    assert plot.evaluate("plot => plot._fullLayout === undefined"), "not purged"
    toggle_to(page, "default")
    before = page.evaluate("window.draws")
    page.go_back()
    arrive(page, address)
    assert enliven(page) == count
    assert_colours(page)
    assert page.evaluate("window.draws") - before == count == draws
    assert page.locator(".js-plotly-plot").count() == count
    assert page.locator(".chart-controls").count() <= count

    page.go_back()
    arrive(page, "")
    assert page.evaluate("window.sameDocument"), "not an instant navigation"


def test_plotly_keeps_its_styles_after_navigation(page, site):
    """Charts stay laid out although instant navigation clears foreign styles away."""
    address, _ = chart_page(site)
    page.goto(site.url + address)
    enliven(page)
    follow(page, "about/")
    follow(page, address)
    enliven(page)
    expect(page.locator(".chart-live .main-svg").first).to_have_css(
        "position", "absolute"
    )


@pytest.mark.parametrize("system, wanted", [("dark", "default"), ("light", "slate")])
def test_reader_outranks_system(page, site, system, wanted):
    """A chart follows the reader's button, not the system's preference
    (fralau/mkdocs-mermaid2-plugin#39)."""
    address, _ = chart_page(site)
    page.emulate_media(color_scheme=system)
    page.goto(site.url + address)
    enliven(page)
    toggle_to(page, wanted)
    assert_colours(page)


def test_toggle_during_a_draw(page, site):
    """A colour change that comes while a chart is being drawn is not lost."""
    address, _ = chart_page(site)
    page.goto(site.url + address)
    page.evaluate("window.flipTo = 'slate'")
    enliven(page)
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    assert_colours(page)


def test_nothing_loads_before_a_reader_moves(page, site):
    """Neither library nor chart numbers are fetched until there is a reader."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 1280, "height": 8000})  # every chart in sight
    address, _ = chart_page(site)
    page.goto(site.url + address)
    page.wait_for_load_state("networkidle")
    lazy = [url for url in asked if re.search(r"plotly|/rendered/.*json$", url)]
    assert not lazy
    expect(page.locator(".chart-still svg:visible").first).to_be_visible()
    enliven(page)
    assert sum("plotly" in url for url in asked) == 1


def test_no_layout_shift(page, site):
    """A still gives way to a live chart without moving a line of text."""
    address, _ = chart_page(site, selecting=True)
    page.goto(site.url + address)
    until(page, "() => 'settled' in document.documentElement.dataset")
    tops = """[...document.querySelectorAll("figcaption, h2")].map((e) =>
        e.getBoundingClientRect().top + scrollY)"""
    before = page.evaluate(tops)
    enliven(page)
    assert page.evaluate(tops) == before


def test_selection(page, site):
    """Choosing a group shows its traces alone and says its sentence
    (AfterBTCreate/per-tab-audio-control#17)."""
    address, spec = chart_page(site, selecting=True)
    select, describe = (spec["layout"]["meta"][key] for key in ("select", "describe"))
    other = next(group for group in select["groups"] if group != select["selected"])
    page.goto(site.url + address)
    enliven(page)
    figure = page.locator(LIVE).filter(has=page.locator("select")).first
    expect(figure.get_by_label(select["label"])).to_have_value(select["selected"])
    draws = page.evaluate("window.draws")
    figure.get_by_label(select["label"]).select_option(other)
    expect(figure.locator("[aria-live=polite]")).to_have_text(describe[other])
    until(page, "draws => window.draws > draws", draws)
    shown = figure.locator(".chart-live").evaluate("""plot => plot._fullData
        .filter((t) => t.visible === true).map((t) => t.meta?.group ?? null)""")
    groups = [trace.get("meta", {}).get("group") for trace in spec["data"]]
    assert shown == [group for group in groups if group in (other, None)]


def test_keyboard(page, site):
    """By keyboard alone a reader changes the choice and opens the table of the same
    numbers; nothing of the chart library takes focus (plotly/plotly.js#6940,
    plotly/plotly.js#7708)."""
    address, spec = chart_page(site, selecting=True)
    select = spec["layout"]["meta"]["select"]
    last = select["groups"][-1] == select["selected"]
    page.goto(site.url + address)
    enliven(page)
    figure = page.locator(LIVE).filter(has=page.locator("select")).first
    figure.locator("select").focus()
    page.keyboard.press("ArrowUp" if last else "ArrowDown")
    expect(figure.locator("select")).not_to_have_value(select["selected"])
    passed = []
    while "summary" not in passed:
        page.keyboard.press("Tab")
        passed.append(
            page.evaluate("""(() => {
          const at = document.activeElement;
          return at.closest(".chart-live") ? "plot" : at.localName;
        })()""")
        )
        assert "plot" not in passed and len(passed) < 10
    page.keyboard.press("Enter")
    expect(figure.locator("table")).to_be_visible()
    assert page.locator(".modebar-btn").count() == 0


def test_hidden_while_the_window_changes(page, site):
    """A chart that is hidden while the window is resized fills its box when shown again
    (plotly/plotly.js#2769, executablebooks/sphinx-tabs#108)."""
    address, _ = chart_page(site)
    page.set_viewport_size({"width": 1200, "height": 800})
    page.goto(site.url + address)
    enliven(page)
    figure = page.locator(LIVE).first
    figure.evaluate("figure => { figure.style.display = 'none'; }")
    page.set_viewport_size({"width": 420, "height": 800})
    figure.evaluate("figure => { figure.style.display = ''; }")
    until(
        page,
        """figure => {
      const [drawn, box] = [".main-svg", ".chart-live"].map((name) =>
        figure.querySelector(name).getBoundingClientRect().width);
      return Math.abs(drawn - box) <= 1;
    }""",
        figure.element_handle(),
    )


def test_finger(browser, site, watch):
    """A finger that lands on a chart scrolls the page, and a tap still shows a value
    (plotly/plotly.js#6902)."""
    phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True}
    context = browser.new_context(**phone, is_mobile=True)
    page = watch(context.new_page())
    address, _ = chart_page(site)
    page.goto(site.url + address)
    page.touchscreen.tap(5, 400)
    page.locator("figure.chart").first.scroll_into_view_if_needed()
    expect(page.locator(LIVE).first).to_be_visible()
    plot = page.locator(f"{LIVE} .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    before = page.evaluate("scrollY")
    finger = context.new_cdp_session(page)
    for kind, down in [("Start", 0), *(("Move", 12 * step) for step in range(1, 11))]:
        touch = {"type": f"touch{kind}", "touchPoints": [{"x": x, "y": y + down}]}
        finger.send("Input.dispatchTouchEvent", touch)
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    until(page, "before => before - scrollY > 60", before)

    mark = page.locator(".chart-live .points path").first
    mark.evaluate("mark => mark.scrollIntoView({ block: 'center' })")
    box = mark.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
    expect(page.locator(".hoverlayer .hovertext").first).to_be_visible()
    context.close()


def test_content_policy(browser, site, watch):
    """Charts work where only the site's own scripts, and Material's inline ones by
    hash, may run (18F/tock#1417)."""
    inline = re.compile(r"<script>(.+?)</script>", re.DOTALL)
    scripts = {text for page in site.pages for text in inline.findall(site.html(page))}
    digests = (hashlib.sha256(text.encode()).digest() for text in sorted(scripts))
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)
    policy = (
        f"default-src 'self'; script-src 'self' {hashes}; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:"
    )

    def with_policy(route):
        response = route.fetch()
        headers = {**response.headers, "content-security-policy": policy}
        route.fulfill(response=response, headers=headers)

    context = browser.new_context()
    context.route(lambda url: url.endswith("/"), with_policy)
    page = watch(context.new_page())
    address, _ = chart_page(site)
    page.goto(site.url)
    follow(page, address)
    assert enliven(page)
    page.goto(site.url + address)
    assert enliven(page)
    context.close()


def test_address_without_slash(page, site):
    """Opened at /repo, the site finds its charts (mkdocs/mkdocs#2748,
    JakubAndrysek/mkdocs-open-in-new-tab#10)."""
    address, _ = chart_page(site)
    page.goto(site.url.rstrip("/"))
    follow(page, address)
    assert enliven(page)


def assert_still(page):
    """The first chart could not be drawn: still and table stay, and a sentence."""
    figure = page.locator("figure.chart").first
    figure.scroll_into_view_if_needed()
    page.mouse.move(100, 300)
    page.mouse.move(120, 320)
    expect(figure).to_have_attribute("data-state", "failed")
    expect(figure.locator(".chart-says")).to_contain_text("could not be loaded")
    expect(figure.locator(".chart-still svg:visible")).to_be_visible()
    figure.locator("summary").click()
    expect(figure.locator("table")).to_be_visible()


def test_data_is_found_from_the_script(page, site):
    """Charts find library and numbers from where their script lies, whatever the
    address line says (mkdocs/mkdocs#2748)."""
    address, _ = chart_page(site)
    page.goto(site.url + address)
    page.evaluate("history.replaceState(null, '', '/elsewhere')")
    assert enliven(page)


def test_no_palette_is_remembered_by_its_place(page, site):
    """What storage holds, from another version or under another prefix, does not
    decide a chart's colours: the page's scheme does (fralau/mkdocs-mermaid2-plugin#47).
    """
    address, _ = chart_page(site)
    page.add_init_script("""
      const stale = JSON.stringify({ index: 7, color: { scheme: "slate" } });
      for (const key of ["__palette", "/.__palette", "/other/.__palette"])
        localStorage.setItem(key, stale);
    """)
    page.emulate_media(color_scheme="light")
    page.goto(site.url + address)
    enliven(page)
    assert_colours(page)
    for scheme in ("slate", "default"):
        page.evaluate("scheme => document.body.dataset.mdColorScheme = scheme", scheme)
        assert_colours(page)


def test_nothing_grows(browser, site, watch):
    """Arrivals at a chart leave behind what the theme leaves of any page, and no drawn
    chart; redraws leave nothing (plotly/plotly.js#2852)."""
    address, _ = chart_page(site, selecting=True)

    def opened(scripts):
        page = watch(browser.new_context().new_page())
        if not scripts:
            instead = "document.documentElement.dataset.bare = true"
            page.route(
                "**/charts.js",
                lambda route: route.fulfill(
                    body=instead, content_type="text/javascript"
                ),
            )
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        page.goto(site.url + address)
        return page, session

    def nodes(session):
        session.send("HeapProfiler.collectGarbage")
        found = session.send("Performance.getMetrics")["metrics"]
        return next(it["value"] for it in found if it["name"] == "Nodes")

    growth = {}
    for scripts in (True, False):
        page, session = opened(scripts)
        for trip in range(3):
            if trip == 1:
                before = nodes(session)
            follow(page, "about/")
            follow(page, address)
            if scripts:
                enliven(page)
        growth[scripts] = (nodes(session) - before) / 2
        if not scripts:
            page.context.close()
            continue
        drawn = page.locator(f"{LIVE} .chart-live *").count()
        live = page

    choose = """([select, times]) => {
      const plot = select.closest(".chart-area").querySelector(".chart-live");
      const step = (left) => left && new Promise((resolve) => {
        plot.once("plotly_afterplot", resolve);
        select.selectedIndex = (select.selectedIndex + 1) % select.length;
        select.dispatchEvent(new Event("change"));
      }).then(() => step(left - 1));
      return step(times);
    }"""
    select = live.locator(f"{LIVE} .chart-controls select").first.element_handle()
    session = live.context.new_cdp_session(live)
    session.send("Performance.enable")
    live.evaluate(choose, [select, 10])
    few = nodes(session)
    live.evaluate(choose, [select, 20])
    assert nodes(session) < few + drawn / 2
    assert growth[True] - growth[False] < drawn / 2, (growth, drawn)
    live.context.close()


def test_style_policy(browser, site, watch, problems):
    """Where a policy refuses the styles that Plotly writes, which charts cannot do
    without, the still and the table stay, and a sentence (plotly/plotly.js#2355)."""

    def with_policy(route):
        response = route.fetch()
        policy = {"content-security-policy": "style-src 'self'"}
        route.fulfill(response=response, headers={**response.headers, **policy})

    context = browser.new_context()
    context.route(lambda url: url.endswith("/"), with_policy)
    page = watch(context.new_page())
    address, _ = chart_page(site)
    page.goto(site.url + address)
    assert_still(page)
    assert all("violates the following" in problem for problem in problems)
    problems.clear()
    context.close()


def test_opened_from_disk(page, site, problems):
    """A page opened as a file says that charts need a server, and shows still and table
    (squidfunk/mkdocs-material#4282)."""
    address, _ = chart_page(site)
    page.goto((site.folder / address / "index.html").as_uri())
    figure = page.locator("figure.chart").first
    expect(figure.locator(".chart-says")).to_contain_text("python -m http.server")
    expect(figure.locator(".chart-still svg:visible")).to_be_visible()
    figure.locator("summary").click()
    expect(figure.locator("table")).to_be_visible()
    problems.clear()  # browsers refuse modules from a file, aloud


@pytest.mark.parametrize("missing", ["plotly-basic", r"/rendered/.*json"])
def test_still_stays_when_a_chart_cannot_load(page, site, problems, missing):
    """When library or numbers do not arrive, still and table stay, and a sentence."""
    address, _ = chart_page(site)
    page.route(re.compile(missing), lambda route: route.fulfill(status=404))
    page.goto(site.url + address)
    assert_still(page)
    problems.clear()


def test_no_script(browser, site, watch):
    """Without JavaScript every chart is a still and a table."""
    context = browser.new_context(java_script_enabled=False)
    page = watch(context.new_page())
    for address in site.pages_with('class="chart"'):
        page.goto(site.url + address)
        for figure in page.locator("figure.chart").all():
            expect(figure.locator(".chart-still svg:visible")).to_be_visible()
            assert (
                figure.locator(".chart-still svg:visible").bounding_box()["height"]
                > 150
            )
            figure.locator("summary").click()
            expect(figure.locator("table")).to_be_visible()
    context.close()


def test_the_picture_of_the_readme(page, site):
    """README shows the chart of the recording that the pages show; `make picture`
    takes it anew after another was recorded."""
    page.set_viewport_size({"width": 1000, "height": 900})
    page.goto(site.url)
    enliven(page)
    figure = page.locator("#chart-splits")
    recording = re.search(r"recording (\S+)", figure.inner_text())[1]
    file = f"docs/assets/images/splits-{recording.replace('/', '-')}.png"
    if os.environ.get("TAKE_PICTURE"):
        figure.evaluate("figure => { figure.style.padding = '16px' }")
        figure.screenshot(path=ROOT / file)
    assert f"]({file})" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert (ROOT / file).is_file()
