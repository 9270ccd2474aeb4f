"""The reader's choice of a recording: what changes, what stays, what is remembered.

The site has a second recording here: the committed one with another GPU's name,
matrix products that take twice as long, and no splits.
"""

import json
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from generate.render import render
from tests.site.harness import ROOT, Site, axe, enliven, until

OTHER = "test-gpu/2026-01-31"
WORKED = "lesson/worked-numbers/"
CHOICE = "#recording-shown"
LONGEST = """Math.max(...document.querySelector("#chart-breakdown .chart-live").data
    .filter((trace) => trace.type === "bar").flatMap((trace) => trace.x))"""
NUMBERS = ".fact[data-key]:not(.fact--lesson)"


@pytest.fixture(scope="session")
def both(site, building) -> Site:
    """A site beside the committed one, under a path of its own."""
    built = Site(site.folder.parent / "both", site.origin)
    building(built.folder, built.origin, lambda root: _rendered(root, site))
    return built


def _rendered(root: Path, site: Site) -> Path:
    """Pages of two recordings: that of the committed site, and another."""
    root.mkdir(parents=True)
    for name in ("kernels", "generate", "tests"):
        (root / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "docs", root / "docs")
    default = Path(re.search(r"rendered/([^\"]+)/\w+\.json", site.html(""))[1])
    shutil.copytree(ROOT / "data" / default, root / "data" / default)
    shutil.copytree(ROOT / "data" / default, root / "data" / OTHER)
    _disturb(root / "data" / OTHER)
    render(root, stills=False)
    return root / "docs"


def _disturb(folder: Path) -> None:
    (folder / "splits.json").unlink()
    for file in folder.glob("*.json"):
        section = json.loads(file.read_text("utf-8"))
        section["recorded_on"] = "2026-01-31"
        if file.stem == "environment":
            section["gpu"]["name"] = "Test GPU"
        if file.stem == "gemms":
            for point in section["points"]:
                if point["samples_ms"]:
                    point["samples_ms"] = [2 * ms for ms in point["samples_ms"]]
        file.write_text(json.dumps(section), "utf-8")


@pytest.fixture
def at(both, page):
    """Goes to a page of the site with two recordings, and waits for its choice."""

    def go(address: str):
        page.goto(f"{both.origin}/both/{address}")
        expect(page.locator(CHOICE)).to_be_visible()
        return page

    return go


def shown(page, name: str) -> None:
    """Wait until the page says that its numbers are this recording's."""
    expect(page.locator(".recording-says")).to_contain_text(f"are those of {name}")


def arrive(page, address: str) -> None:
    """Wait until the page has been swapped in: its address changes before it does."""
    expect(page.locator("link[rel=canonical]")).to_have_attribute("href", address)


def choose(page, name: str) -> None:
    page.locator(CHOICE).select_option(name)
    shown(page, name)


def default(page) -> str:
    return page.locator(".recording").get_attribute("data-default")


def query(page) -> dict:
    return parse_qs(urlsplit(page.url).query)


def facts(page) -> dict[str, list]:
    """Text and hover of each number outside of what cannot follow, by key."""
    return page.evaluate(
        """(numbers) => Object.fromEntries([...document.querySelectorAll(numbers)]
            .filter((fact) => !fact.closest("figure"))
            .map((fact) => [fact.dataset.key,
                [fact.textContent, fact.title, fact.getAttribute("value")]]))""",
        NUMBERS,
    )


def numbers(site: Site, name: str) -> dict:
    file = site.folder / "assets" / "rendered" / name / "facts.json"
    return json.loads(file.read_text("utf-8"))


def test_without_a_second_recording_there_is_no_choice(site):
    """The committed site offers one only if it has several."""
    several = len(list((ROOT / "data").glob("*/*/environment.json"))) > 1
    assert bool(site.pages_with('class="recording"')) == several


def test_numbers_follow(at, both):
    """Each number is the chosen recording's, with its record; back again they are
    as they were."""
    page = at(WORKED)
    before = facts(page)
    choose(page, OTHER)
    known = numbers(both, OTHER)
    after = facts(page)
    assert set(after) == set(before)
    for key, (text, title, value) in after.items():
        fact = known["facts"][key]
        assert text == fact["text"], key
        if fact["value"] is None:
            assert title == fact["note"] and value is None
        else:
            assert title.startswith("Test GPU, recorded 2026-01-31")
    key = "gemm.8192x4096x14336.sum.lesson.ms"
    assert float(after[key][2]) == pytest.approx(2 * float(before[key][2]), rel=1e-4)
    page.get_by_role("button", name="Back to the default").click()
    shown(page, default(page))
    back = facts(page)
    assert {k: v[:2] for k, v in back.items()} == {k: v[:2] for k, v in before.items()}
    assert page.locator(".recording button").is_hidden()


def test_what_a_recording_lacks_is_said(at, both):
    """A number that was not measured says so and why, a chart likewise."""
    page = at("")
    choose(page, OTHER)
    fact = page.locator('[data-key="split.32768x1024x1024.gain"]').first
    expect(fact).to_have_text("not measured")
    expect(fact).to_have_attribute("title", "this recording has no section splits")
    figure = page.locator("#chart-splits")
    expect(figure).to_be_hidden()
    expect(page.locator("#chart-splits + .recording-note")).to_have_text(
        "Chart not measured: this recording has no section splits."
    )
    choose(page, default(page))
    expect(figure).to_be_visible()
    expect(page.locator("#chart-splits + .recording-note")).to_have_count(0)


def test_charts_follow(at, both):
    """Words, table, files and the drawn chart become the other recording's, and the
    still of the default is not shown beside them."""
    page = at(WORKED)
    enliven(page)
    figure = page.locator("#chart-breakdown")
    title = figure.locator(".chart-title").inner_text()
    before = 1.9 * page.evaluate(LONGEST)
    choose(page, OTHER)
    expect(figure.locator(".chart-title")).to_have_text(re.compile("Test GPU$"))
    expect(figure.locator("figcaption")).to_contain_text("Test GPU")
    expect(figure.locator(".chart-recording")).to_have_text(OTHER)
    expect(figure.locator(".chart-still")).to_have_css("visibility", "hidden")
    for link in figure.locator(".chart-files a[download]").all():
        file = urlsplit(link.evaluate("a => a.href")).path.removeprefix("/both/")
        assert OTHER in file and (both.folder / file).is_file()
    reported = figure.get_by_text("report a wrong number").get_attribute("href")
    assert f"Recording:+{OTHER}%0A" in reported
    until(page, f"before => {LONGEST} > before", before)
    parts = both.folder / "assets" / "rendered" / OTHER / "page.json"
    words = json.loads(parts.read_text("utf-8"))["charts"]["breakdown"]
    assert figure.locator(".table-scroll table").count() == 1
    cells = figure.locator("tbody td").all_text_contents()
    assert cells == re.findall(r"<td[^>]*>([^<]*)</td>", words["table"])
    choose(page, default(page))
    expect(figure.locator(".chart-title")).to_have_text(title)


def test_a_chosen_group_stays_chosen(at):
    page = at(WORKED)
    enliven(page)
    select = page.locator("#chart-breakdown .chart-controls select")
    select.select_option(index=3)
    group = select.input_value()
    choose(page, OTHER)
    expect(page.locator("#chart-breakdown .chart-title")).to_contain_text("Test GPU")
    expect(page.locator("#chart-breakdown .chart-controls")).to_have_count(1)
    expect(select).to_have_value(group)


def test_claims_and_tables_follow(at, both):
    """A sentence that compares is the other recording's own; so are the tables of the
    hardware page and the verdicts."""
    page = at("hardware/")
    choose(page, OTHER)
    table = page.locator("[data-table=environment]")
    expect(table).to_contain_text("Test GPU")
    page = at("evidence/claims/")
    shown(page, OTHER)
    claims = numbers(both, OTHER)["claims"]
    found = page.evaluate("""() => [...document.querySelectorAll("[data-verdict-of]")]
        .map((w) => [w.dataset.verdictOf, w.textContent, w.dataset.verdict])""")
    assert len(found) == len(claims)
    for anchor, word, verdict in found:
        assert word == verdict == claims[anchor]["verdict"]
    html = page.evaluate("""() => [...document.querySelectorAll(".claim[data-claim]")]
        .map((claim) => [claim.dataset.claim, claim.textContent])""")
    assert len(html) >= len(claims)
    for anchor, text in html:
        words = re.sub(r"<[^>]+>", "", claims[anchor]["html"])
        assert text == unescape(words)


def test_what_cannot_follow_says_so(at):
    """A drawing of the default's GPU names the default, and keeps its numbers."""
    page = at("")
    drawing = page.locator("#drawing-phenomenon")
    before = drawing.inner_text()
    choose(page, OTHER)
    note = drawing.locator(".recording-note")
    expect(note).to_have_text("This part shows the default recording.")
    assert drawing.inner_text().startswith(before.strip())
    choose(page, default(page))
    expect(note).to_have_count(0)


def test_the_choice_is_in_the_address_and_goes_along(at, both):
    """Readable, through instant navigation and back, and gone with the default."""
    page = at(WORKED)
    assert not query(page)
    page.evaluate("window.sameDocument = true")
    choose(page, OTHER)
    assert page.url.endswith(f"?recording={OTHER}")
    page.locator('.md-sidebar--primary a[href$="hardware/"]').first.click()
    arrive(page, f"{both.origin}/both/hardware/")
    shown(page, OTHER)
    assert query(page) == {"recording": [OTHER]}
    page.go_back()
    arrive(page, f"{both.origin}/both/{WORKED}")
    shown(page, OTHER)
    assert page.evaluate("window.sameDocument"), "not an instant navigation"
    choose(page, default(page))
    assert not query(page)
    page.goto(f"{both.origin}/both/hardware/")
    shown(page, default(page))


def test_an_address_outranks_the_session(at, context, watch, both):
    """A link shows what it names, and an unknown name nothing else than before."""
    page = at(f"{WORKED}?recording={OTHER}#measured")
    shown(page, OTHER)
    assert page.url.endswith("#measured")
    page = at(f"hardware/?recording={default(page)}")
    shown(page, default(page))
    assert not query(page)
    other = watch(context.new_page())
    other.goto(f"{both.origin}/both/{WORKED}?recording=no-gpu/2020-01-01&x=1")
    expect(other.locator(CHOICE)).to_be_visible()
    shown(other, default(other))
    assert query(other) == {"x": ["1"]}


def test_the_latest_choice_counts(at, page, both):
    """A slow file does not undo what was chosen after it."""
    at(WORKED)
    held = []
    page.route(f"**/{OTHER}/facts.json", lambda route: held.append(route))
    with page.expect_request(f"**/{OTHER}/facts.json"):
        page.locator(CHOICE).select_option(OTHER)
    choose(page, default(page))
    before = facts(page)
    for route in held:
        route.continue_()
    page.wait_for_timeout(200)
    shown(page, default(page))
    assert held and facts(page) == before


def test_a_recording_that_does_not_load_changes_nothing(at, page, problems):
    at(WORKED)
    before = facts(page)
    page.route(f"**/{OTHER}/page.json", lambda route: route.fulfill(status=404))
    page.locator(CHOICE).select_option(OTHER)
    says = page.locator(".recording-says")
    expect(says).to_contain_text("could not be loaded")
    shown(page, default(page))
    expect(page.locator(CHOICE)).to_have_value(default(page))
    assert facts(page) == before
    problems.clear()


def test_the_choice_is_reached_by_keyboard(at):
    """A labelled native list that is announced, and leads on to its reset."""
    page = at(WORKED)
    select = page.get_by_label("Recording", exact=True)
    select.focus()
    page.keyboard.press("ArrowDown")
    shown(page, OTHER)
    expect(page.locator(".recording [role=status]")).to_contain_text(OTHER)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    shown(page, default(page))
    expect(select).to_be_focused()


def test_the_choice_passes_an_audit(at):
    """WCAG 2.2, A and AA, with another recording chosen, wide and narrow."""
    page = at(f"hardware/?recording={OTHER}")
    shown(page, OTHER)
    assert not axe(page)


def test_nothing_jumps_when_the_choice_comes_alive(browser, both):
    """Its place is kept while the script loads."""
    page = browser.new_page()
    box = page.locator(".recording")
    page.route("**/recordings.js", lambda route: route.abort())
    page.goto(f"{both.origin}/both/hardware/")
    expect(page.locator(CHOICE)).to_be_hidden()
    before = box.bounding_box()
    page.unroute("**/recordings.js")
    page.reload()
    expect(page.locator(CHOICE)).to_be_visible()
    assert box.bounding_box() == before
    page.close()


def test_without_javascript_the_default_stands(browser, both):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{both.origin}/both/{WORKED}?recording={OTHER}")
    name = page.locator(".recording").get_attribute("data-default")
    expect(page.locator(CHOICE)).to_be_hidden()
    # And that the kernels have changed since, where they have.
    said = page.locator(f"{CHOICE} option[selected]").get_attribute("data-says")
    begins = f"The numbers on this page are those of {name}"
    assert said.startswith((f"{begins}.", f"{begins}, "))
    expect(page.locator(".recording-says")).to_have_text(said)
    context.close()


def test_the_page_that_compares_offers_no_choice(both):
    assert 'class="recording"' not in both.html("evidence/repeat/")


def test_only_numbers_of_the_site_are_asked(at, page, both):
    """Nothing of a recording loads until it is chosen, and then from here."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    at("hardware/")
    page.wait_for_load_state("networkidle")
    assert not [url for url in asked if "facts.json" in url or "page.json" in url]
    choose(page, OTHER)
    files = [url for url in asked if re.search("/rendered/.*json", url)]
    assert len(files) == 2
    assert all(url.startswith(f"{both.origin}/both/") for url in files)
