"""Pages from templates: what a template may use, and the frame of a page."""

import re
from html import escape
from pathlib import Path, PurePosixPath

import jinja2

from generate.digest import kernels_digest
from generate.render import entries, hardware, source
from generate.render.charts import Chart
from generate.render.drawings import drawings
from generate.render.errors import RenderError
from generate.render.facts import LESSON, Fact, Facts
from generate.render.measured import Measurements, Missing
from generate.render.stills import Stills

TEMPLATES = "generate/templates"
NO_PAGES = ("partials/", "notes/")
GLOSSARY, TRAPS = "notes/glossary.md", "notes/traps.md"
# Stands for the repository's address, which a build knows and a render does not:
# generate/overrides/partials/content.html puts it in.
REPOSITORY = "repository:"
FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r"^# .+\n", re.MULTILINE)
# Says of a file under docs/ that it was rendered, and may be deleted.
RENDERED = re.compile(
    r"^<!-- Rendered from \S+ by python -m generate render", re.MULTILINE
)


class Pages:
    """Renders every template with one recording's numbers.

    folder: where its chart files stand, relative to docs/. stills: the SVGs of
    each chart that has them. explore: what the crossover widget starts from.
    """

    def __init__(
        self,
        root: Path,
        measured: Measurements,
        facts: Facts,
        charts: dict[str, Chart | Missing],
        explore: dict,
        stills: dict[str, Stills],
        folder: str,
    ):
        self.root = root
        self.measured = measured
        self.facts = facts
        self.charts = charts
        self.explore = explore
        self.stills = stills
        self.folder = folder
        self.drawings = drawings(measured)
        sections = measured.recording.sections.values()
        now = kernels_digest(root)
        self.kernels_changed = any(s.kernels_sha256 != now for s in sections)
        self.environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(root / TEMPLATES),
            undefined=jinja2.StrictUndefined,
            autoescape=jinja2.select_autoescape(["html.j2"], default=False),
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )

    def names(self) -> list[str]:
        """Templates that are pages."""
        names = self.environment.list_templates(extensions=["j2"])
        pages = [name for name in names if name.endswith(".md.j2")]
        return [name for name in pages if not name.startswith(NO_PAGES)]

    def render(self) -> dict[str, str]:
        """Text of each page, by its path from the root."""
        return {
            f"docs/{name.removesuffix('.j2')}": Page(self, name).text()
            for name in self.names()
        }

    @property
    def record(self) -> str:
        """Where numbers are from, as they say it on hover."""
        environment = self.measured.recording.environment
        return f"{environment.gpu.name}, recorded {environment.recorded_on}"


class Page:
    """One page while it is rendered; its methods are what templates may call."""

    def __init__(self, pages: Pages, name: str):
        self.pages = pages
        self.name = name
        self.shows_numbers = False
        self.terms = set()
        self.context = {
            "fact": self.fact,
            "value": self.value,
            "lesson_figure": self.lesson_figure,
            "tiles": pages.measured.tiles,
            "chart": self.chart,
            "explore": self.explore,
            "drawing": self.drawing,
            "source": self.source,
            "excerpt": self.excerpt,
            "hardware_tables": self.hardware_tables,
            "difference": self.difference,
            "guard": self.guard,
            "repository": repository,
            "term": self.term,
        }

    def text(self) -> str:
        body = self._use(self.name)
        found = FRONT_MATTER.match(body)
        fields, body = (found[1], body[found.end() :]) if found else ("", body)
        template = f"{TEMPLATES}/{self.name}"
        if self.shows_numbers and self.pages.kernels_changed:
            body = self._with_notice(body)
        return (
            f"---\n{fields}edit_template: {template}\n---\n"
            f"<!-- Rendered from {template} by python -m generate render: edit that. "
            f"-->\n\n{body.strip()}\n"
        )

    def fact(self, key: str) -> str:
        """A number of the recording with its unit, its key and its record."""
        fact = self._fact(key)
        if fact.value is None:
            return (
                f'<span class="fact fact--missing" data-key="{escape(key)}" '
                f'title="{_attribute(fact.note)}">{escape(fact.text)}</span>'
            )
        title = "; ".join(filter(None, [self.pages.record, fact.note]))
        return _data("fact", key, fact, title)

    def value(self, key: str) -> int | float | str | None:
        """The bare number, for a condition; None if it was not measured."""
        return self._fact(key).value

    def lesson_figure(self, key: str) -> str:
        if key not in LESSON:
            raise RenderError(
                f"{TEMPLATES}/{self.name}: there is no lesson figure {key!r}; there "
                f"are {', '.join(LESSON)}"
            )
        title = "the lesson's figure, for an H100; not measured"
        return _data("fact fact--lesson", f"lesson.{key}", LESSON[key], title)

    def chart(self, name: str) -> str:
        pages, chart = self.pages, self.pages.charts.get(name)
        if chart is None:
            raise RenderError(
                f"{TEMPLATES}/{self.name}: there is no chart {name!r}; there are "
                f"{', '.join(pages.charts)}"
            )
        self.shows_numbers = True
        if isinstance(chart, Missing):
            why = escape(chart.reason)
            return f'<p class="fact--missing">Chart not measured: {why}.</p>'
        return self._use(
            "partials/chart.html.j2",
            chart=chart,
            stills=pages.stills.get(name),
            folder=pages.folder,
            up=self._up(),
            recording=pages.measured.recording.name,
        ).strip()

    def drawing(self, name: str) -> str:
        """A drawing in all its states, the first one showing."""
        drawn = self.pages.drawings
        if name not in drawn:
            raise RenderError(
                f"{TEMPLATES}/{self.name}: there is no drawing {name!r}; there are "
                f"{', '.join(drawn)}"
            )
        self.shows_numbers = True
        return self._use("partials/drawing.html.j2", drawing=drawn[name]).strip()

    def explore(self) -> str:
        """The crossover widget in its first state."""
        self.shows_numbers = True
        pages = self.pages
        file = f"{pages.folder}/explore.json"
        template = "partials/explore.html.j2"
        return self._use(template, file=file, **pages.explore).strip()

    def source(self, name: str) -> str:
        """A kernel's file in blocks, each beside its note."""
        notes = f"notes/{name}.md"
        rows = source.annotated(
            self._kernel(name), f"{TEMPLATES}/{notes}", self._use(notes)
        )
        traps = entries.entries(self._text(TRAPS))
        for row in rows:
            for trap in row.traps:
                if trap not in traps:
                    raise RenderError(f"{TEMPLATES}/{notes}: there is no trap {trap!r}")
        beside = "../" * (len(PurePosixPath(self.name).parts) - 1)
        return self._use(
            "partials/annotated.md.j2",
            name=name,
            rows=rows,
            traps=traps,
            gallery=f"{beside}lesson/traps.md",
        ).strip()

    def difference(self, before: str, after: str, **letters: str) -> str:
        """What changes from one kernel's file to another's, as a listing.

        letters: words of the first and what to read instead of each.
        """
        lines = source.difference(self._kernel(before), self._kernel(after), letters)
        return f"````diff\n{lines}\n````"

    def guard(self, test: str) -> str:
        """A test, as pytest names it, which leads to its file.

        Of a test's case only the case is shown, the test on pointing at it.
        """
        path, _, name = test.partition("::")
        case = name.partition("[")[2].removesuffix("]")
        text = escape(case) or f"{PurePosixPath(path).name}::<wbr>{escape(name)}"
        return repository(
            f"blob/HEAD/{path}", f'<code title="{escape(test)}">{text}</code>'
        )

    def term(self, anchor: str, text: str | None = None) -> str:
        """A word of the glossary, at its first use on a page; it says what it means."""
        terms = entries.definitions(self._text(GLOSSARY), f"{TEMPLATES}/{GLOSSARY}")
        if anchor not in terms or anchor in self.terms:
            wrong = "stands twice" if anchor in terms else "is not in the glossary"
            raise RenderError(f"{TEMPLATES}/{self.name}: the term {anchor!r} {wrong}")
        self.terms.add(anchor)
        return (
            f'<a class="term" href="{self._up()}glossary/#{anchor}" '
            f'aria-describedby="term-{anchor}">{escape(text or anchor)}</a>'
            f'<span class="term-says" id="term-{anchor}" role="tooltip" hidden>'
            f"{escape(terms[anchor].first)}</span>"
        )

    def excerpt(self, name: str, marker: str) -> str:
        """One block of a kernel's file, under its true line numbers."""
        block = source.block(self._kernel(name), marker)
        fence = f'````python title="kernels/{name}.py" linenums="{block.first}"'
        return f"{fence}\n{block.text}\n````"

    def hardware_tables(self) -> dict[str, str]:
        self.shows_numbers = True
        return {
            name: self._use("partials/measurements.html.j2", given=table).strip()
            for name, table in hardware.tables(self.pages.measured).items()
        }

    def _fact(self, key: str) -> Fact:
        self.shows_numbers = True
        if key not in self.pages.facts:
            raise RenderError(f"{TEMPLATES}/{self.name}: there is no fact {key!r}")
        return self.pages.facts[key]

    def _text(self, template: str) -> str:
        """A template as it is written."""
        loader = self.pages.environment.loader
        return loader.get_source(self.pages.environment, template)[0]

    def _kernel(self, name: str) -> Path:
        file = self.pages.root / "kernels" / f"{name}.py"
        if not file.is_file():
            raise RenderError(f"{TEMPLATES}/{self.name}: there is no {file.name}")
        return file

    def _use(self, template: str, **more) -> str:
        """Render a template. RenderError says which, and where in it."""
        try:
            found = self.pages.environment.get_template(template)
            return found.render({**self.context, **more})
        except jinja2.TemplateSyntaxError as error:
            where = f"{TEMPLATES}/{error.name}, line {error.lineno}"
            raise RenderError(f"{where}: {error.message}") from None
        except jinja2.UndefinedError as error:
            raise RenderError(f"{TEMPLATES}/{template}: {error.message}") from None

    def _up(self) -> str:
        """From the page's address to the site's root, as "../../"."""
        path = PurePosixPath(self.name.removesuffix(".md.j2"))
        depth = len(path.parts) - (path.name == "index")
        return "../" * depth

    def _with_notice(self, body: str) -> str:
        recording = self.pages.measured.recording
        notice = self._use(
            "partials/changed.md.j2",
            recording=recording.name,
            date=recording.environment.recorded_on,
        )
        title = TITLE.search(body)
        at = title.end() if title else 0
        return f"{body[:at]}\n{notice}\n{body[at:]}"


def repository(path: str, text: str) -> str:
    """A link into the repository; only the text where a build has no address of it."""
    return f'<a href="{REPOSITORY}{escape(path)}">{text}</a>'


def _data(classes: str, key: str, fact: Fact, title: str) -> str:
    value = f"{fact.value:.6g}" if isinstance(fact.value, float) else fact.value
    return (
        f'<data class="{classes}" data-key="{escape(key)}" '
        f'value="{_attribute(value)}" title="{_attribute(title)}">'
        f"{escape(fact.text)}</data>"
    )


def _attribute(value) -> str:
    """Text for an attribute in Markdown, where a bar would end a table's cell."""
    return escape(str(value)).replace("|", "&#124;")
