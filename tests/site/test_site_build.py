"""The build refuses broken pages; what it makes is whole and self-contained."""

import json
import re
import shutil
from html.parser import HTMLParser
from importlib import metadata
from urllib.parse import unquote, urljoin, urlsplit

import plotly.offline
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.site.harness import REPOSITORY, ROOT, build

VOID = {
    "area",
    "base",
    "br",
    "col",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "source",
    "wbr",
}
PARTS = {"link", "script", "img", "iframe", "source"}
BUNDLED = {"scatter", "bar", "pie"}  # by plotly.js's "basic" bundle


class Page(HTMLParser):
    """A built page: ids, addresses, listings, numbers in and out of charts."""

    def __init__(self, html: str):
        super().__init__()
        self.ids, self.links, self.parts, self.listings = set(), [], [], []
        self.chart_cells, self.other_text = set(), []
        self.let_in = []
        self._open, self._cell = [], None
        self.feed(html)

    def inside(self, name: str) -> bool:
        return any(name in classes for _, classes, _ in self._open)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        classes = (given.get("class") or "").split()
        excluded = "data-search-exclude" in given
        if tag in {outer for outer, _, out in self._open if out}:
            self.let_in.append((tag, given))
        if tag not in VOID:
            self._open.append((tag, classes, excluded))
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in PARTS and (address := given.get("href") or given.get("src")):
            self.parts.append((given.get("rel"), address))
        if tag == "code" and len(self._open) > 1 and self._open[-2][0] == "pre":
            self.listings.append(
                {"first": None, "text": "", "anno": self.inside("anno")}
            )
        if "data-linenos" in given and self.listings[-1]["first"] is None:
            self.listings[-1]["first"] = int(given["data-linenos"])
        if tag in ("td", "th") and self.inside("chart-table"):
            self._cell = ""

    def handle_endtag(self, tag):
        if tag in ("td", "th") and self._cell is not None:
            self.chart_cells.add(self._cell.strip())
            self._cell = None
        if tag not in VOID:
            while self._open and self._open.pop()[0] != tag:
                pass

    def handle_data(self, data):
        names = [name for name, _, _ in self._open]
        if "code" in names and "pre" in names:
            self.listings[-1]["text"] += data
        if self._cell is not None:
            self._cell += data
        elif not self.inside("chart-table") and not self.inside("chart-still"):
            self.other_text.append(data)


@pytest.fixture(scope="module")
def parsed(site):
    return {page: Page(site.html(page)) for page in site.pages}


@pytest.mark.parametrize(
    "file, text, complaint",
    [
        ("about.md", "\n[gone](index.md#no-such-part)\n", "no-such-part"),
        ("orphan.md", "# Orphan\n", "orphan.md"),
    ],
    ids=["dead anchor", "orphan page"],
)
def test_strict_build_refuses(tmp_path, file, text, complaint):
    """A dead anchor and a page outside the navigation each stop a strict build
    (mkdocs/mkdocs#3842)."""
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs)
    with (docs / file).open("a", encoding="utf-8") as page:
        page.write(text)
    address = "http://127.0.0.1/repo/"
    result = build(tmp_path / "config", tmp_path / "site", address, docs)
    assert result.returncode != 0
    assert complaint in result.stdout + result.stderr


def test_links_resolve(site, parsed):
    """Every link of every built page leads to a file, and a part of it, that exists."""
    lost = Page((site.folder / "404.html").read_text(encoding="utf-8"))
    broken = []
    for page, found in {**parsed, "404.html": lost}.items():
        here = urljoin(site.url, page)
        for link in found.links + [address for _, address in found.parts]:
            target = urlsplit(urljoin(here, link))
            if f"{target.scheme}://{target.netloc}" != site.origin:
                continue
            path = unquote(target.path).removeprefix("/repo/")
            file = site.folder / path
            file = file / "index.html" if file.is_dir() else file
            part = unquote(target.fragment)
            if not target.path.startswith("/repo/") or not file.is_file():
                broken.append((page, link))
            elif part and path in parsed and part not in parsed[path].ids:
                broken.append((page, link))
    assert not broken


def test_nothing_from_elsewhere(parsed):
    """No page names a script, style or picture at another address
    (squidfunk/mkdocs-material#6181, plotly/plotly.js#7899)."""
    outside = [
        (page, address)
        for page, found in parsed.items()
        for rel, address in found.parts
        if "//" in address and rel not in ("canonical", "prev", "next")
    ]
    assert not outside


def test_edit_leads_to_the_template(parsed):
    """Edit this page opens the template of the page, never the rendered page."""
    for page, found in parsed.items():
        path = (page.rstrip("/") or "index") + ".md.j2"
        wanted = f"{REPOSITORY}/edit/main/generate/templates/{path}"
        assert [link for link in found.links if "/edit/" in link] == [wanted]
        assert (ROOT / "generate" / "templates" / path).is_file(), path


def test_vendored_plotly_is_the_one_python_writes_for():
    """The site's one chart library is of the version plotly.py writes for, with its
    licence (plotly/plotly.py#5045, CarloLepelaars/fh-plotly#2)."""
    version = plotly.offline.get_plotlyjs_version()
    vendor = ROOT / "docs" / "assets" / "vendor"
    name = f"plotly-basic-{version}.min.js"
    assert [file.name for file in vendor.glob("*.js")] == [name]
    assert f"v{version}" in (vendor / name).read_text(encoding="utf-8")[:200]
    assert name in (vendor.parent / "js" / "charts.js").read_text(encoding="utf-8")
    assert "MIT" in (vendor / f"plotly-basic-{version}.LICENSE.txt").read_text()
    # Plotly draws a trace of a type that its bundle lacks as a scatter, silently.
    rendered = (vendor.parent / "rendered").rglob("*.json")
    specs = [json.loads(file.read_text(encoding="utf-8")) for file in rendered]
    specs = [spec for spec in specs if "layout" in spec]
    assert {trace["type"] for spec in specs for trace in spec["data"]} <= BUNDLED


def test_the_build_holds_what_the_tree_holds(site, parsed):
    """Every style and script of ours is part of the built pages, the same, in the order
    of the configuration; all styles as one sheet (xjtu-ai/xjtu-ai.github.io#32)."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    wanted = re.findall(r"assets/(?:rendered|js)/[\w-]+\.(?:css|js)", config)
    for page, found in parsed.items():
        addresses = [urlsplit(urljoin(site.url + page, a)).path for _, a in found.parts]
        ours = [a.removeprefix("/repo/") for a in addresses if "/assets/" in a]
        ours = [
            a for a in ours if re.fullmatch(r"assets/(?:rendered|js)/[\w-]+\.\w+", a)
        ]
        assert ours == wanted, page
    tree = ROOT / "docs" / "assets"
    sheet = (site.folder / "assets/rendered/site.css").read_text(encoding="utf-8")
    for file in tree.glob("css/*.css"):
        assert file.read_text(encoding="utf-8") in sheet
    texts = {file: file.read_text(encoding="utf-8") for file in tree.glob("js/*.js")}
    imported = set(re.findall(r'from "\./([\w-]+\.js)"', "".join(texts.values())))
    for file, text in texts.items():
        name = file.relative_to(ROOT / "docs").as_posix()
        assert name in wanted or file.name in imported, f"no page loads {name}"
        assert (site.folder / name).read_text(encoding="utf-8") == text


def test_formulas_are_letters(site, parsed):
    """No page waits for a script to set its formulas: they are plain characters
    (squidfunk/mkdocs-material#2530)."""
    for page, found in parsed.items():
        assert not re.search(r"mathjax|katex|arithmatex", site.html(page), re.I), page
        prose = "".join(found.other_text)
        assert not re.search(r"\\[(\[]|\\(?:frac|cdot|times|top)\b|\$\$", prose), page


def test_code_is_highlighted_and_whole(site):
    """Every block of code made by the highlighter has a language, and none holds a mark
    of an annotation that nothing turns into one (squidfunk/mkdocs-material#3431)."""
    for page in site.pages:
        html = site.html(page)
        for classes in re.findall(r'<div class="([^"]*\bhighlight\b[^"]*)"', html):
            assert re.search(r"\blanguage-\w+", classes), (page, classes)
        for code in re.findall(r"<pre\b.*?</pre>", html, re.DOTALL):
            text = re.sub(r"<[^>]+>", "", code)
            assert not re.search(r"(?:#|//)\s*\(\d+\)!?\s*$", text, re.M), (page, text)


def test_charts_are_plain(site):
    """Every spec of a chart is strict JSON, draws SVG, never WebGL, and tells lines and
    points apart by more than colour (plotly/plotly.js#2852, plotly/plotly.py#202,
    vega/vega-lite#6603)."""

    def refuse(constant):
        raise AssertionError(constant)

    specs = {
        address
        for page in site.pages
        for address in re.findall(r'data-chart="([^"]+)"', site.html(page))
    }
    assert specs
    for address in specs:
        text = (site.folder / address).read_text(encoding="utf-8")
        data = json.loads(text, parse_constant=refuse)["data"]
        assert not any("gl" in trace["type"] or "bdata" in str(trace) for trace in data)
        names = {}
        for trace in data:
            if trace["type"] == "scatter":
                # One symbol, or one a point.
                mark = str(trace.get("marker", {}).get("symbol"))
                dash = trace.get("line", {}).get("dash", "solid")
                look = [
                    mark if "markers" in trace["mode"] else None,
                    dash if "lines" in trace["mode"] else None,
                ]
                names.setdefault(tuple(look), set()).add(trace["name"])
        assert all(len(found) == 1 for found in names.values()), (address, names)


def needed(requirement: Requirement, seen: set[str]):
    """Add the names of all that a requirement needs on this machine."""
    name = canonicalize_name(requirement.name)
    if name in seen or name == "torch":  # whose CUDA libraries follow its wheel
        return
    seen.add(name)
    for text in metadata.requires(name) or ():
        part = Requirement(text)
        extras = [*requirement.extras, ""]
        if not part.marker or any(part.marker.evaluate({"extra": e}) for e in extras):
            needed(part, seen)


def test_versions_are_exact():
    """Every package of an environment, and all that it needs, has an exact version
    (plotly/Kaleido#223)."""
    pins, names = {}, set()
    for file in ROOT.glob("requirements*.txt"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if text := line.partition("#")[0].strip():
                requirement = Requirement(text)
                assert re.fullmatch(r"==[\d.]+\w*", str(requirement.specifier)), text
                pins[canonicalize_name(requirement.name)] = requirement
    for name, requirement in pins.items():
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # only for recording on a GPU, or another platform
        needed(requirement, names)
    assert names - set(pins) <= {"pip", "setuptools"}


def test_search_index_is_prose(site, parsed):
    """The search index stays small and holds neither chart numbers nor library text
    (danielfrg/mkdocs-jupyter#123, danielfrg/mkdocs-jupyter#107)."""
    file = site.folder / "search" / "search_index.json"
    assert file.stat().st_size <= 300_000
    text = {}
    for entry in json.loads(file.read_text(encoding="utf-8"))["docs"]:
        page = entry["location"].split("#")[0]
        text[page] = text.get(page, "") + " " + entry["text"]
    for page, found in parsed.items():
        elsewhere = set(re.findall(r"\d[\d.]*\d", " ".join(found.other_text)))
        charted = set(re.findall(r"\d[\d.]{3,}\d", " ".join(found.chart_cells)))
        assert not (charted - elsewhere) & set(re.findall(r"\d[\d.]*\d", text[page])), (
            page
        )
    assert not re.search(
        r"scatterlayer|js-plotly|hovertemplate|var\(--", "".join(text.values())
    )


def test_what_search_leaves_out_is_left_out_whole(parsed):
    """No element that is excluded from the search index has one of its own tag inside,
    whose end would end the exclusion, too."""
    assert not {page: found.let_in for page, found in parsed.items() if found.let_in}


def test_source_pages_show_the_files(parsed):
    """The blocks of an annotated page are the tested file, whole, without its markers
    (squidfunk/mkdocs-material#7296, squidfunk/mkdocs-material#3219)."""
    kernels = ROOT / "kernels"
    for file in (*kernels.glob("*.py"), *kernels.glob("fast/*.py")):
        if "@triton.jit" not in file.read_text(encoding="utf-8"):
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        shown = {}
        for block in parsed[f"{file.parent.name}/{file.stem}/"].listings:
            if not block["anno"]:
                continue
            text = block["text"].rstrip("\n").split("\n")
            for number, line in enumerate(text, block["first"]):
                assert number not in shown, f"{file}:{number} is shown twice"
                shown[number] = line
        assert shown == {number: lines[number - 1] for number in shown}
        hidden = [line for number, line in enumerate(lines, 1) if number not in shown]
        assert all(re.fullmatch(r"\s*(# \[[a-z0-9-]+\])?", line) for line in hidden), (
            hidden
        )


def test_numbered_listings_are_quotations(parsed):
    """Code with line numbers is what some kernel file holds at those lines."""
    kernels = (ROOT / "kernels").rglob("*.py")
    files = [file.read_text(encoding="utf-8").splitlines() for file in kernels]
    for page, found in parsed.items():
        for block in found.listings:
            if block["first"] is None:
                continue
            wanted = block["text"].rstrip("\n").split("\n")
            at = slice(block["first"] - 1, block["first"] - 1 + len(wanted))
            assert any(lines[at] == wanted for lines in files), (page, block)
