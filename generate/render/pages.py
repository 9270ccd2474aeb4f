"""Pages from templates: what a template may use, and the frame of a page."""

import re
from functools import cached_property
from html import escape
from pathlib import Path, PurePosixPath

import jinja2

from generate.check import TOLERANCE
from generate.digest import kernels_digest, layers_digest, traps_digest
from generate.render import (
    choice,
    entries,
    promises,
    reference,
    repeat,
    reports,
    source,
    timelines,
    traps,
)
from generate.render.charts import Chart
from generate.render.claims import CLAIMS, GROUPS, MARGIN, OUTCOMES, Judged, Said
from generate.render.drawings import drawings
from generate.render.errors import RenderError
from generate.render.fact import LESSON, Fact, element
from generate.render.measured import Measurements, Missing
from generate.render.stills import Stills
from generate.schema import Recording
from kernels import SUPPORTED_PAIRS
from kernels.promises import REFUSED_AT, ROWS

TEMPLATES = "generate/templates"
NO_PAGES = ("partials/", "notes/")
GLOSSARY, TRAPS = "notes/glossary.md", "notes/traps.md"
REPORTS = "notes/reports.md"
# Stands for the repository's address, which a build knows and a render does not:
# generate/overrides/partials/content.html puts it in.
REPOSITORY = "repository:"
FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
# A page's title, and the line under it that says how long it takes.
# Where a page has the word on changed kernels, instead of below the title.
NOTICE = "<!-- notice -->"
TITLE = re.compile(r'^# .+\n(?:\n<p class="page-meta">.+\n)?', re.MULTILINE)
# Says of a file under docs/ that it was rendered, and may be deleted.
RENDERED = re.compile(
    r"^<!-- Rendered from \S+ by python -m generate render", re.MULTILINE
)


def templates(root: Path) -> jinja2.Environment:
    """Every template of the site, partials among them."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(root / TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html.j2"], default=False),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


class Pages:
    """Renders every template with one recording's numbers.

    judgement: its facts and verdicts; judged: those of every recording. folder: where
    its chart files stand, relative to docs/. stills: the SVGs of each chart that has
    them. explore: what the crossover widget starts from.
    """

    def __init__(
        self,
        root: Path,
        measured: Measurements,
        judgement: Judged,
        judged: list[Judged],
        charts: dict[str, Chart | Missing],
        explore: dict,
        stills: dict[str, Stills],
        folder: str,
    ):
        self.root = root
        self.measured = measured
        self.judgement = judgement
        self.judged = judged
        self.facts = judgement.facts
        self.record = judgement.record
        self.charts = charts
        self.explore = explore
        self.stills = stills
        self.folder = folder
        self.drawings = drawings(measured)
        self.kernels_sha256 = kernels_digest(root)
        self.kernels_changed = self.changed_since(measured.recording)
        shown = measured.recording.traps
        self.traps_changed = shown and shown.traps_sha256 != traps_digest(root)
        trained = measured.recording.training
        self.layers_changed = trained and trained.layers_sha256 != layers_digest(root)
        self.environment = templates(root)

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

    def changed_since(self, recording: Recording) -> bool:
        """Whether a recording was made with other kernels than there are now."""
        sections = recording.sections.values()
        return any(s.kernels_sha256 != self.kernels_sha256 for s in sections)

    @cached_property
    def gallery(self) -> traps.Gallery:
        loader = self.environment.loader
        notes = loader.get_source(self.environment, TRAPS)[0]
        return traps.gallery(self.root, self.measured, notes)


class Page:
    """One page while it is rendered; its methods are what templates may call."""

    def __init__(self, pages: Pages, name: str):
        self.pages = pages
        self.name = name
        self.shows_numbers = False
        self.shows_traps = False
        self.shows_training = False
        # Whether another recording can take this one's place here, and whether the
        # choice of it stands where the template has it, instead of below the title.
        self.follows = False
        self.placed = False
        self.terms = set()
        self.context = {
            "fact": self.fact,
            "value": self.value,
            "lesson_figure": self.lesson_figure,
            "tiles": pages.measured.tiles,
            "claim": self.claim,
            "claims": self.claims,
            "judged": pages.judged,
            "outcomes": OUTCOMES,
            "margin": MARGIN,
            "allowance": f"{100 * (TOLERANCE - 1):.0f} %",
            "chart": self.chart,
            "explore": self.explore,
            "drawing": self.drawing,
            "timeline": self.timeline,
            "timeline_pair": self.timeline_pair,
            "timeline_table": self.timeline_table,
            "slowest_table": self.slowest_table,
            "source": self.source,
            "excerpt": self.excerpt,
            "function": self.function,
            "reference": self.reference,
            "supported_pairs": SUPPORTED_PAIRS,
            "promises": self.promises,
            "reports": self.reports,
            "exhibit": self.exhibit,
            "gallery": self.gallery,
            "hardware_tables": self.hardware_tables,
            "plan_tables": self.plan_tables,
            "targets": self.targets,
            "recordings": self.recordings,
            "notice": NOTICE,
            "repeat_tables": self.repeat_tables,
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
        pages = self.pages
        if (
            (self.shows_numbers and pages.kernels_changed)
            or (self.shows_traps and pages.traps_changed)
            or (self.shows_training and pages.layers_changed)
        ):
            body = self._with_notice(body)
        body = body.replace(NOTICE, "")
        if self.follows and not self.placed and (choice := self.recordings()):
            body = self._below_title(body, choice)
        return (
            f"---\n{fields}edit_template: {template}\n---\n"
            f"<!-- Rendered from {template} by python -m generate render: edit that. "
            f"-->\n\n{body.strip()}\n"
        )

    def fact(self, key: str) -> str:
        """A number of the recording with its unit, its key and its record."""
        self.follows = True
        return element(key, self._fact(key), self.pages.record)

    def value(self, key: str) -> int | float | str | None:
        """The bare number, for a condition; None if it was not measured."""
        return self._fact(key).value

    def claim(self, anchor: str) -> str:
        """A sentence as the recording has it, and the way to how it is judged."""
        if anchor not in CLAIMS:
            raise RenderError(
                f"{TEMPLATES}/{self.name}: there is no claim {anchor!r}; there are "
                f"{', '.join(CLAIMS)}"
            )
        self.shows_numbers = True
        self.follows = True
        return (
            f'<span class="claim" data-claim="{anchor}">'
            f"{self.pages.judgement.html(anchor)}</span>"
            f'<a class="claim-judged" href="{self._up()}evidence/claims/#{anchor}" '
            'aria-label="how this is judged" title="How this is judged">†</a>'
        )

    def claims(self) -> list[tuple[Said, str]]:
        """Each page that makes claims, and what every recording says of them."""
        self.shows_numbers = True
        self.follows = True
        template = "partials/claims.html.j2"
        shown, judged = self.pages.judgement, self.pages.judged
        return [
            (said, self._use(template, said=said, shown=shown, judged=judged).strip())
            for said in GROUPS
        ]

    def lesson_figure(self, key: str) -> str:
        if key not in LESSON:
            raise RenderError(
                f"{TEMPLATES}/{self.name}: there is no lesson figure {key!r}; there "
                f"are {', '.join(LESSON)}"
            )
        title = "the lesson's figure, for an H100; not measured"
        return element(f"lesson.{key}", LESSON[key], title, "fact fact--lesson")

    def chart(self, name: str) -> str:
        pages, chart = self.pages, self.pages.charts.get(name)
        if chart is None:
            raise RenderError(
                f"{TEMPLATES}/{self.name}: there is no chart {name!r}; there are "
                f"{', '.join(pages.charts)}"
            )
        self.shows_numbers = True
        self.follows = True
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

    def timeline(self) -> str:
        """The SM timeline, its first shape showing."""
        return self._timeline("partials/timeline.html.j2")

    def timeline_pair(self) -> str:
        """The first shape of the SM timeline, unsplit and at its best factor."""
        return self._timeline("partials/timeline-pair.html.j2")

    def timeline_table(self) -> str:
        """The numbers of every traced launch."""
        return self._tables()["timeline"]

    def slowest_table(self) -> str:
        """The fast products furthest behind the vendor's, and their launches."""
        return self._tables()["slowest"]

    def _timeline(self, template: str) -> str:
        self.shows_numbers = True
        pages, pictures = self.pages, timelines.pictures(self.pages.measured)
        if isinstance(pictures, Missing):
            why = escape(pictures.reason)
            return f'<p class="fact--missing">Timeline not measured: {why}.</p>'
        return self._use(
            template,
            pictures=pictures,
            picture=pictures[0],
            folder=pages.folder,
            up=self._up(),
            recording=pages.measured.recording.name,
        ).strip()

    def explore(self) -> str:
        """The crossover widget in its first state."""
        self.shows_numbers = True
        pages = self.pages
        file = f"{pages.folder}/explore.json"
        template = "partials/explore.html.j2"
        return self._use(template, file=file, **pages.explore).strip()

    def source(self, name: str) -> str:
        """A kernel's file, such as "dw" or "fast/split", in blocks beside its notes."""
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
            name=PurePosixPath(name).name,
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
            '<span class="term-says" data-search-exclude '
            f'id="term-{anchor}" role="tooltip" hidden>'
            f"{escape(terms[anchor].first)}</span>"
        )

    def excerpt(self, name: str, marker: str) -> str:
        """One block of a kernel's file, under its true line numbers."""
        block = source.block(self._kernel(name), marker)
        fence = f'````python title="kernels/{name}.py" linenums="{block.first}"'
        return f"{fence}\n{block.text}\n````"

    def function(self, name: str, *functions: str) -> str:
        """Functions, or other names, of a kernel's file or of the plan's."""
        code = "\n".join(self._definition(name, function) for function in functions)
        return f'````python title="kernels/{name}.py"\n{code}\n````'

    def reference(self, name: str, function: str) -> str:
        """How a function or class of a file is called, and its docstring."""
        code = self._definition(name, function)
        text = self._kernel(name).read_text(encoding="utf-8")
        return self._use(
            "partials/reference.md.j2",
            entry=reference.entry(code, reference.address(name, function)),
            file=f"kernels/{name}.py",
            line=text[: text.index(f"{code}\n")].count("\n") + 1,
        ).strip()

    def promises(self) -> dict:
        """What the functions promise: tables by question, and of how many rows; and
        what is refused besides."""
        partial = "partials/measurements.html.j2"
        return {
            "tables": {
                name: self._use(partial, given=table).strip()
                for name, table in promises.tables().items()
            },
            "rows": len(ROWS),
            "refused_at": REFUSED_AT,
            "refusals": promises.refusals(),
        }

    def _definition(self, name: str, function: str) -> str:
        found = source.definitions(self._kernel(name))
        if function not in found:
            raise RenderError(f"{TEMPLATES}/{self.name}: {name}.py has no {function}")
        return found[function]

    def reports(self) -> reports.Reports:
        """Public reports, and the tests that hold what went wrong there."""
        notes, name = self._text(REPORTS), f"{TEMPLATES}/{REPORTS}"
        return reports.reports(self.pages.root, notes, name)

    def exhibit(self, anchor: str) -> str:
        """What a trap did, in one sentence, and the way to its exhibit."""
        self.shows_traps = True
        found = [trap for trap in self.pages.gallery.exhibits if trap.anchor == anchor]
        if not found:
            raise RenderError(f"{TEMPLATES}/{self.name}: there is no trap {anchor!r}")
        return self._use("partials/exhibit.md.j2", trap=found[0]).strip()

    def gallery(self) -> traps.Gallery:
        """Every trap that was made on purpose."""
        self.shows_numbers = self.shows_traps = True
        return self.pages.gallery

    def hardware_tables(self) -> dict[str, str]:
        return self._tables()

    def plan_tables(self) -> dict[str, str]:
        """Both rules for a split at every shape, and the model worked out at one."""
        found = self._tables()
        return {name: found[f"plan-{name}"] for name in ("rules", "waves")}

    def targets(self) -> str:
        """What the fast kernels are to reach, and what they reached."""
        return self._tables()["targets"]

    def _tables(self) -> dict[str, str]:
        """Each in a box of its name, where another recording's may take its place."""
        self.shows_numbers = self.follows = True
        found = choice.tables(self.pages.measured, self.pages.environment)
        return {
            name: f'<div data-table="{name}">\n{html}\n</div>'
            for name, html in found.items()
        }

    def repeat_tables(self) -> dict[str, str]:
        """What two recordings of the GPU disagree on; or the reason alone.

        A page of theirs is about these two, and offers no other.
        """
        self.shows_numbers = self.placed = True
        found = repeat.repetition(self.pages.measured)
        if isinstance(found, Missing):
            return {"reason": found.reason}
        judged = {one.measured.recording.name: one for one in self.pages.judged}
        verdicts = [
            {
                anchor: verdict.outcome
                for anchor, verdict in judged[m.recording.name].verdicts.items()
                if verdict.outcome != "not measured"
            }
            for m in (found.first, found.second)
        ]
        return {
            name: self._use("partials/measurements.html.j2", given=table).strip()
            for name, table in repeat.tables(found, *verdicts).items()
        }

    def _fact(self, key: str) -> Fact:
        self.shows_numbers = True
        self.shows_traps |= key.startswith("trap")
        self.shows_training |= key.startswith("training.")
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
        if NOTICE in body:
            return body.replace(NOTICE, notice)
        return self._below_title(body, notice)

    def recordings(self) -> str:
        """The reader's choice of a recording, where there are several."""
        self.placed, pages = True, self.pages
        if len(pages.measured.found) < 2:
            return ""
        return self._use(
            "partials/recordings.html.j2",
            shown=pages.measured.recording,
            found=pages.measured.found,
            changed_since=pages.changed_since,
        ).strip()

    def _below_title(self, body: str, html: str) -> str:
        title = TITLE.search(body)
        at = title.end() if title else 0
        return f"{body[:at]}\n{html}\n{body[at:]}"


def repository(path: str, text: str) -> str:
    """A link into the repository; only the text where a build has no address of it."""
    return f'<a href="{REPOSITORY}{escape(path)}">{text}</a>'
