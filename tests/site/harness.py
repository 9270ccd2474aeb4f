"""Builds the committed pages and moves through them as a reader does."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from generate.doctor import chromium

ROOT = Path(__file__).resolve().parents[2]
LIVE = 'figure.chart[data-state="live"]'
REPOSITORY = "https://github.com/owner/name"

# How long anything may take on a machine that is busy with other things.
PATIENCE_S = 60
expect.set_options(timeout=1000 * PATIENCE_S)

PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 2000}  # no table of contents scrolls

WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

# Counts draws; changes the colour scheme in the middle of one if window.flipTo is set.
COUNT_DRAWS = """
let library;
window.draws = 0;
Object.defineProperty(window, "Plotly", {
  get: () => library,
  set(value) {
    const react = value.react;
    value.react = (...given) => {
      window.draws += 1;
      const drawn = react(...given);
      if (window.flipTo) document.body.dataset.mdColorScheme = window.flipTo;
      window.flipTo = undefined;
      return drawn;
    };
    library = value;
  },
});
"""


def browser_options() -> dict:
    """How Chromium is started: the system's own, with no way out of this machine."""
    arguments = [
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
        "--disable-background-networking",
        "--disable-component-update",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--no-sandbox")
    found = chromium()
    executable = {"executable_path": found} if found else {}
    return {"args": arguments, **executable}


def build(folder: Path, into: Path, site_url: str, docs: Path = ROOT / "docs"):
    """Build the committed pages strictly, without the hook that would render anew."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "mkdocs.yml"
    settings = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(docs),
        "site_dir": str(into),
        "theme": {"custom_dir": str(ROOT / "generate" / "overrides")},
        "hooks": [],
        "watch": [],
    }
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    environment = os.environ | {
        "SITE_URL": site_url,
        "REPO_URL": REPOSITORY,
        "EDIT_URI_TEMPLATE": "edit/main/generate/templates/{path}.j2",
        "NO_MKDOCS_2_WARNING": "1",
    }
    # Not --quiet: it silences the very warnings that strict counts.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--config-file", str(config)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@dataclass
class Site:
    folder: Path
    origin: str

    @property
    def url(self) -> str:
        return self.origin + "/repo/"

    @property
    def pages(self) -> list[str]:
        """Addresses of all pages, relative to the site, in a fixed order."""
        found = (file.parent for file in self.folder.rglob("index.html"))
        paths = (folder.relative_to(self.folder).as_posix() for folder in found)
        return sorted("" if path == "." else path + "/" for path in paths)

    def html(self, page: str) -> str:
        return (self.folder / page / "index.html").read_text(encoding="utf-8")

    def pages_with(self, text: str) -> list[str]:
        return [page for page in self.pages if text in self.html(page)]


def chart_page(site, selecting=False):
    """A page below home with a chart, one with a choice if asked for; and its spec."""
    for page in filter(None, site.pages_with('class="chart"')):
        for address in re.findall(r'data-chart="([^"]+)"', site.html(page)):
            spec = json.loads((site.folder / address).read_text(encoding="utf-8"))
            if not selecting or "select" in spec["layout"].get("meta", {}):
                return page, spec
    raise AssertionError("no page with such a chart")


def enliven(page):
    """Move, and come to each chart, as a reader does. Returns how many there are."""
    page.mouse.move(100, 300)
    page.mouse.move(120, 320)
    figures = page.locator("figure.chart").all()
    for figure in figures:
        figure.scroll_into_view_if_needed()
        expect(figure).to_have_attribute("data-state", "live")
    return len(figures)


def toggle_to(page, scheme):
    """Press the reader's own colour button until the page wears the scheme."""
    for _ in range(3):
        page.locator("label[for^=__palette]:visible").click()
        if page.locator("body").get_attribute("data-md-color-scheme") == scheme:
            return
    raise AssertionError(f"no {scheme} scheme")


def follow(page, address):
    page.locator(f'.md-sidebar--primary a[href$="{address}"]').first.click()
    arrive(page, address)


def arrive(page, address):
    """Wait until the page at the address has been swapped in, head and all."""
    page.wait_for_url(f"**/repo/{address}")
    expect(page.locator("link[rel=canonical]")).to_have_attribute("href", page.url)


def until(page, expression, argument=None):
    """Wait until an expression holds.

    Not wait_for_function: it evaluates strings in the page, which a content policy
    forbids, at moments when the debugger's exception from it does not count.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression, argument):
        assert time.monotonic() < deadline, f"never: {expression}"
        page.wait_for_timeout(50)


def assert_colours(page):
    """Tick labels of every live chart wear the present scheme's ink."""
    until(
        page,
        """() => {
      const ink = document.createElement("i");
      ink.style.color = "var(--chart-fg)";
      document.body.append(ink);
      const wanted = getComputedStyle(ink).color;
      ink.remove();
      const ticks = [...document.querySelectorAll(".chart-live .xtick text")];
      const colours = ticks.map((tick) => getComputedStyle(tick).fill);
      return colours.length > 0 && colours.every((colour) => colour === wanted);
    }""",
    )


AXE = """async (options) =>
    (await axe.run("html", options)).violations.map((found) =>
        [location.pathname, found.id, ...found.nodes.map((node) => node.html)])"""

# Texts of one kind have one contrast, and one of each is measured: alike in colour,
# size and weight, on the same grounds. What leaves the flow may lie on any ground, so
# each such element is one of its own. Code has a test of its own.
KINDS = """() => {
  const grounds = new Map([[null, ""]]), seen = new Set();
  const ground = (part) => {
    if (!grounds.has(part)) {
      const style = getComputedStyle(part);
      const {backgroundColor, backgroundImage, opacity, position} = style;
      const flows = ["static", "relative"].includes(position) || grounds.size;
      grounds.set(part, ground(part.parentElement) +
          [backgroundColor, backgroundImage, opacity, flows]
              .join(";").replace("rgba(0, 0, 0, 0);none;1;true", ""));
    }
    return grounds.get(part);
  };
  for (const part of document.querySelectorAll("*:not(pre code, pre code *)")) {
    const {color, fontSize, fontWeight, textShadow} = getComputedStyle(part);
    const kind = [color, fontSize, fontWeight, textShadow, ground(part)].join();
    const says = part.matches("input, select, textarea") ||
        [...part.childNodes].some((node) =>
            node.nodeType === Node.TEXT_NODE && node.data.trim());
    const shown = part.checkVisibility({visibilityProperty: true});
    const first = says && shown && !seen.has(kind);
    if (first) seen.add(kind);
    part.toggleAttribute("data-kind", first);
  }
  axe.configure({rules: [{id: "color-contrast", selector: "[data-kind]"}]});
}"""

# Rules about colours, whose outcome is the same at any width.
COLOURS = ["color-contrast", "link-in-text-block"]


# Material lets the keyboard into a listing once it sees that it is too wide.
LISTINGS = """() => [...document.querySelectorAll("pre code")].every((code) =>
    !code.checkVisibility({ contentVisibilityAuto: true }) ||
    code.scrollWidth <= code.clientWidth || code.tabIndex >= 0)"""

# A table of contents that follows its reader scrolls its links under its own title.
WHOLE_CONTENTS = """() => [...document.querySelectorAll(
    ".md-sidebar--secondary .md-sidebar__scrollwrap")].every(
    (bar) => bar.scrollHeight <= bar.clientHeight)"""


def axe(page) -> list:
    """What an audit by WCAG 2.2, A and AA, finds on a page that is open, its charts
    drawn: narrow, then wide, then wide in dark colours."""
    without = {rule: {"enabled": False} for rule in COLOURS}
    audits = [
        (PHONE, "light", {"runOnly": WCAG, "rules": without}),
        (DESK, "light", {"runOnly": WCAG}),
        (DESK, "dark", {"runOnly": COLOURS}),
    ]
    page.evaluate(Axe().axe_script)
    found = []
    for size, scheme, rules in audits:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        worn = {"light": "default", "dark": "slate"}[scheme]
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", worn)
        page.evaluate("scrollTo(0, 0)")  # the same way down at every width
        enliven(page)
        page.evaluate("scrollTo(0, 0)")  # what a bar half covers is a smaller target
        assert page.evaluate(WHOLE_CONTENTS), page.url
        until(page, "() => 'settled' in document.documentElement.dataset")
        until(page, LISTINGS)
        page.evaluate(KINDS)
        found += page.evaluate(AXE, {**rules, "resultTypes": ["violations"]})
    return found
