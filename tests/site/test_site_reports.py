"""Public reports of faults of sites like this one: each has a test that names it."""

import ast

import pytest

from tests.site.harness import ROOT

# What went wrong there: the report.
REPORTS = {
    "charts blank after a page swap": "FZJ-IEK3-VSA/tsam#388",
    "formulas raw after a page swap": "squidfunk/mkdocs-material#2530",
    "a script of the tree that no page loads": "xjtu-ai/xjtu-ai.github.io#32",
    "charts light on a dark page": "plotly/plotly.py#5413",
    "system preferred to the reader's button": "fralau/mkdocs-mermaid2-plugin#39",
    "palette read from storage by its place": "fralau/mkdocs-mermaid2-plugin#47",
    "charts narrow after they were hidden": "plotly/plotly.js#2769",
    "hidden charts keep an old width": "executablebooks/sphinx-tabs#108",
    "data newer than the library in the page": "plotly/plotly.py#5045",
    "a library that is years old": "CarloLepelaars/fh-plotly#2",
    "NaN in JSON": "plotly/plotly.py#202",
    "a toolbar out of the keyboard's reach": "plotly/plotly.js#6940",
    "values for a mouse alone": "plotly/plotly.js#7708",
    "controls without name or meaning": "AfterBTCreate/per-tab-audio-control#17",
    "faint marks told apart by colour": "vega/vega-lite#6603",
    "styles that a policy refuses": "plotly/plotly.js#2355",
    "inline scripts that a policy refuses": "18F/tock#1417",
    "a search index full of data": "danielfrg/mkdocs-jupyter#123",
    "a search index full of scripts": "danielfrg/mkdocs-jupyter#107",
    "addresses from the server's root": "JakubAndrysek/mkdocs-open-in-new-tab#10",
    "home without its slash": "mkdocs/mkdocs#2748",
    "an offline build that asks a CDN": "squidfunk/mkdocs-material#6181",
    "pages opened from disk": "squidfunk/mkdocs-material#4282",
    "a library missing on a CDN": "plotly/plotly.js#7899",
    "annotations that stay marks": "squidfunk/mkdocs-material#3431",
    "notes that drift from their lines": "squidfunk/mkdocs-material#7296",
    "copied code with marks in it": "squidfunk/mkdocs-material#3219",
    "charts that pile up": "plotly/plotly.js#2852",
    "a finger caught by a chart": "plotly/plotly.js#6902",
    "charts wider than a phone": "plotly/plotly.js#6609",
    "charts cut on paper": "plotly/plotly.js#1275",
    "a build that needs a browser": "stefan-jansen/machine-learning-for-trading#432",
    "a version that moved by itself": "plotly/Kaleido#223",
    "a strict build that passes bad links": "mkdocs/mkdocs#3842",
    "controls and letters that an audit finds": "plotly/plotly.js#6645",
}


@pytest.fixture(scope="module")
def sayings() -> list[str]:
    """What each test says it holds."""
    found = []
    for file in (ROOT / "tests").rglob("test_*.py"):
        for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(part, ast.FunctionDef) and part.name.startswith("test_"):
                found.append(ast.get_docstring(part) or "")
    return found


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_some_test_names(sayings, report):
    """Every report is named, alone or with others, by a test of its kind."""
    assert any(f"{report}{end}" in said for said in sayings for end in (",", ")", "\n"))
