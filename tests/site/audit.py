"""Measures the built site against its targets: `make audit`.

Builds the site as `make build` does, serves it compressed under its own address and
prints a table. What Lighthouse says of a page is the median of several runs, on a
machine that should have nothing else to do.

A score "with Plotly" is of the same page, served with a script in its head that
stands for a reader at work from the first moment: it gives the sign that charts wait
for, and tells them that all of them are in sight. So Plotly is fetched, run and draws
every chart of the page during the measurement; a run that did not is refused.
"""

import argparse
import gzip
import http.server
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table

from tests.site.harness import (
    COUNT_DRAWS,
    ROOT,
    Site,
    axe,
    browser_options,
    enliven,
)

LIGHTHOUSE = "lighthouse@12.2.3"
TOOLS = ROOT / ".audit"
CATEGORIES = {
    "accessibility": "accessibility",
    "best-practices": "best practices",
    "seo": "SEO",
}
PAGES = {"home": "", "lesson": "lesson/split-k/", "explore": "explore/"}
LIVE = "?live"
READER = b"""<script>
IntersectionObserver = class extends IntersectionObserver {
  #tell;
  constructor(tell, options) { super(tell, options); this.#tell = tell; }
  observe(target) {
    if (target.matches("figure.chart")) this.#tell([{ target, isIntersecting: true }]);
    else super.observe(target);
  }
};
addEventListener("DOMContentLoaded", () => dispatchEvent(new Event("scroll")));
</script>"""


@dataclass
class Row:
    what: str
    target: str
    measured: str
    met: bool | None  # None where it could not be measured


def at_least(what: str, value: float, target: float) -> Row:
    return Row(what, f"≥ {target:g}", f"{value:g}", value >= target)


def at_most(what: str, value: float, target: float, unit: str = "") -> Row:
    return Row(what, f"≤ {target:g}{unit}", f"{value:.4g}{unit}", value <= target)


# ---- The site, as a web server would send it -----------------------------


@cache
def compressed(file: Path) -> bytes:
    return gzip.compress(file.read_bytes(), 9)


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    plain = (".png", ".woff2", ".gz")

    def log_message(self, *_):
        pass

    def do_GET(self):
        file = Path(self.translate_path(self.path))
        if file.is_dir():
            file = file / "index.html"
        if not file.is_file():
            self.send_error(404)
            return
        packed = file.suffix not in self.plain
        body = compressed(file) if packed else file.read_bytes()
        if self.path.endswith(LIVE):
            page = file.read_bytes().replace(b"<head>", b"<head>" + READER, 1)
            body = gzip.compress(page, 9)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(file)))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)


def serve(folder: Path) -> str:
    """Serve a folder, which may still be empty. Returns the address."""

    def handler(*given):
        return Handler(*given, directory=str(folder))

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def build(folder: Path, origin: str) -> float:
    """Build strictly, rendering first, as `make build` does. Returns the seconds."""
    environment = os.environ | {"SITE_URL": origin + "/", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--site-dir", str(folder)]
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.perf_counter() - start


# ---- In a browser --------------------------------------------------------


def walk(site: Site) -> list[Row]:
    """Every page: what it loads, from where, and what an audit by axe finds."""
    weights, outside, findings = {}, [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**browser_options())
        for address in site.pages:
            context = browser.new_context()
            context.add_init_script(COUNT_DRAWS)
            page = context.new_page()
            asked = record_into([], page)
            page.on("request", lambda r: others(r, site.origin, outside))
            page.goto(site.origin + "/" + address)
            page.wait_for_load_state("networkidle")
            sizes = [request.sizes() for request in asked]
            weights[address] = sum(
                size["responseBodySize"] + size["responseHeadersSize"] for size in sizes
            )
            findings += axe(page)
            context.close()
        rows = [
            at_most("axe, WCAG 2.2 AA, all pages, both schemes", len(findings), 0),
            at_most("third-party requests, all pages", len(outside), 0),
            at_most(
                f"first load, compressed, heaviest page (/{heaviest(weights)})",
                max(weights.values()) / 1000,
                250,
                " KB",
            ),
            redraw(browser, site),
        ]
        browser.close()
    for said in [*findings, *outside]:
        print(said, file=sys.stderr)
    return rows


def record_into(asked: list, page) -> list:
    page.on("requestfinished", lambda request: asked.append(request))
    return asked


def others(request, origin: str, found: list[str]) -> None:
    if not request.url.startswith((origin, "data:", "blob:")):
        found.append(request.url)


def heaviest(weights: dict[str, float]) -> str:
    return max(weights, key=weights.get)


REDRAW = """async (slider) => {
  const times = [];
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = resolve;
    port2.postMessage(0);
  }));
  for (let step = 0; step < 40; step += 1) {
    await painted();
    const start = performance.now();
    const before = slider.value;
    slider.stepUp();
    if (slider.value === before) slider.value = slider.min;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await painted();
    times.push(performance.now() - start);
  }
  return times;
}"""


def redraw(browser, site: Site) -> Row:
    """From a slider's event until the frame that shows its effect is painted."""
    what = "slider to redraw, median of 40 steps of each slider"
    if PAGES["explore"] not in site.pages:
        return Row(what, "≤ 50 ms", "no explore page", None)
    page = browser.new_page()
    page.add_init_script(COUNT_DRAWS)
    page.goto(site.origin + "/" + PAGES["explore"])
    page.wait_for_load_state("networkidle")
    enliven(page)
    sliders = page.locator("input[type=range]:visible").all()
    medians = [statistics.median(slider.evaluate(REDRAW)) for slider in sliders]
    page.close()
    if not medians:
        return Row(what, "≤ 50 ms", "no slider", False)
    return at_most(what, max(medians), 50, " ms")


# ---- Lighthouse ----------------------------------------------------------


def lighthouse() -> Path | None:
    """Path of Lighthouse, installed by npm into an ignored folder where npm is."""
    program = TOOLS / "node_modules" / ".bin" / "lighthouse"
    version = LIGHTHOUSE.partition("@")[2]
    package = TOOLS / "node_modules" / "lighthouse" / "package.json"
    if package.is_file() and json.loads(package.read_text())["version"] == version:
        return program
    if not shutil.which("node") or not shutil.which("npm"):
        return None
    TOOLS.mkdir(exist_ok=True)
    command = ["npm", "install", "--prefix", str(TOOLS), "--no-save", "--no-audit"]
    subprocess.run([*command, "--no-fund", "--silent", LIGHTHOUSE], check=True)
    return program


def run_lighthouse(program: Path, url: str, desktop: bool) -> dict:
    options = browser_options()
    flags = " ".join(["--headless=new", *options["args"]]).replace(
        "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "'MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'"
    )
    wanted = ",".join(["performance", *CATEGORIES])
    command = [str(program), url, "--quiet", "--output=json", "--output-path=stdout"]
    command += [f"--only-categories={wanted}", f"--chrome-flags={flags}"]
    command += ["--preset=desktop"] if desktop else []
    environment = os.environ | {"CHROME_PATH": options.get("executable_path", "")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"Lighthouse failed on {url}:\n{done.stderr}")
    return json.loads(done.stdout)


def scores(program: Path, site: Site, runs: int, names: list[str]) -> list[Row]:
    rows = []
    for name in names:
        url = site.origin + "/" + PAGES[name]
        lowest = dict.fromkeys(CATEGORIES, 100.0)
        for kind, target, desktop, suffix in (
            ("phone, before interaction", 95, False, ""),
            ("phone, with Plotly", 90, False, LIVE),
            ("desktop, before interaction", 100, True, ""),
        ):
            if suffix and 'class="chart"' not in site.html(PAGES[name]):
                continue
            found, timings = [], []
            for _ in range(runs):
                report = run_lighthouse(program, url + suffix, desktop)
                fetched = json.dumps(report["audits"]["network-requests"])
                if ("plotly" in fetched) != bool(suffix):
                    sys.exit(
                        f"Plotly was{' not' * bool(suffix)} fetched by {url}{suffix}"
                    )
                found.append(100 * report["categories"]["performance"]["score"])
                timings.append(
                    [
                        report["audits"][audit]["numericValue"]
                        for audit in (
                            "largest-contentful-paint",
                            "total-blocking-time",
                            "cumulative-layout-shift",
                        )
                    ]
                )
                for category in CATEGORIES:
                    score = 100 * report["categories"][category]["score"]
                    lowest[category] = min(lowest[category], score)
                say_failures(report, url + suffix)
            row = at_least(
                f"{name}: performance, {kind}", round(statistics.median(found)), target
            )
            lcp, tbt, shift = map(statistics.median, zip(*timings, strict=True))
            runs_said = " ".join(f"{score:.0f}" for score in sorted(found))
            row.measured += (
                f"  ({runs_said}; LCP {lcp:.0f} ms, TBT {tbt:.0f} ms, CLS {shift:.3f})"
            )
            rows.append(row)
        rows += [
            at_least(f"{name}: {said}", lowest[category], 100)
            for category, said in CATEGORIES.items()
        ]
    return rows


def say_failures(report: dict, url: str) -> None:
    for category in CATEGORIES:
        for part in report["categories"][category]["auditRefs"]:
            audit = report["audits"][part["id"]]
            if part["weight"] and audit["score"] not in (1, None):
                print(f"{url}: {audit['title']}", file=sys.stderr)


# ---- The table -----------------------------------------------------------


def measure(runs: int, names: list[str]) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        origin = serve(Path(folder))
        site = Site(Path(folder), origin)
        rows = [at_most("strict build", build(site.folder, origin), 15, " s")]
        index = site.folder / "search" / "search_index.json"
        rows.append(at_most("search index", index.stat().st_size / 1000, 300, " KB"))
        rows += walk(site)
        program = lighthouse()
        there = [name for name in names if PAGES[name] in site.pages]
        if program:
            rows += scores(program, site, runs, there)
        else:
            rows.append(
                Row("Lighthouse", "", "not measured: node and npm are needed", None)
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="make audit", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--runs", type=int, default=3, help="of Lighthouse, each page")
    parser.add_argument("--page", choices=PAGES, nargs="*", default=list(PAGES))
    given = parser.parse_args()
    rows = measure(given.runs, given.page)
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        table = Table("What", "Target", "Measured", "")
        marks = {True: "met", False: "MISSED", None: "–"}
        for row in rows:
            table.add_row(row.what, row.target, row.measured, marks[row.met])
        Console(width=None if sys.stdout.isatty() else 140).print(table)
    return any(row.met is False for row in rows)


if __name__ == "__main__":
    sys.exit(main())
