"""Rendering: what templates may use, and which files it owns."""

import json
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from filelock import FileLock
from jsonschema import Draft202012Validator

from generate import render as rendering
from generate.digest import SOURCES, kernels_digest
from generate.render import RenderError, render, stills
from generate.render.charts import charts
from generate.render.facts import facts
from generate.render.formats import milliseconds, significant
from generate.render.measured import Measurements
from generate.schema import Recording

ROOT = Path(__file__).resolve().parents[2]
needs_browser = pytest.mark.skipif(
    not stills.possible(), reason="needs kaleido and a Chromium"
)


def files(root: Path) -> dict[str, bytes]:
    """Everything under docs/, by path."""
    found = (file for file in (root / "docs").rglob("*") if file.is_file())
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in found}


def numbers(recording: Recording):
    return facts(Measurements(recording))


# Facts


@pytest.mark.parametrize(
    "value, text",
    [
        (1.2294, "1.23 ms"),
        (0.029712, "0.0297 ms"),
        (0.03, "0.0300 ms"),
        (9.996, "10.0 ms"),
        (141.3, "141 ms"),
        (1234.5, "1230 ms"),
    ],
)
def test_times_have_three_digits_in_one_unit(value: float, text: str):
    """Milliseconds everywhere: a reader never converts between two numbers."""
    assert milliseconds(value) == text


def test_zero_is_written():
    """Nothing has no logarithm."""
    assert significant(0) == "0"


def test_facts_follow_the_recording(recording: Recording):
    """Derived facts are what their parts make."""
    found = numbers(recording)
    key = "gemm.8192x4096x14336"
    calls = ("forward", "dx", "dw+")
    total = sum(found[f"{key}.{call}.lesson.ms"].value for call in calls)
    assert found[f"{key}.sum.lesson.ms"].value == pytest.approx(total)
    vendor, ours = (found[f"{key}.dx.{i}.ms"].value for i in ("vendor", "lesson"))
    assert found[f"{key}.dx.ratio"].value == pytest.approx(vendor / ours)
    assert found["summary.shapes"].value == 14
    assert found["verification.passed"].value == found["verification.tests"].value == 5


def test_gain_is_over_the_plain_kernel(recording: Recording):
    """A split's gain counts from one program a tile that needs no addition."""
    found = numbers(recording)
    key = "split.32768x1024x1024"
    plain, best = found[f"{key}.none.1.ms"].value, found[f"{key}.best.ms"].value
    assert found[f"{key}.gain"].value == pytest.approx(plain / best)
    times = [
        fact.value
        for name, fact in found.items()
        if re.fullmatch(rf"{key}\.\w+\.\d+\.ms", name)
    ]
    assert best == min(times)


def test_a_planned_factor_that_was_not_recorded_is_said(tmp_path, maker):
    """The nearest recorded factor stands in, and the note says so."""
    splits = maker.splits()
    planned = maker.plan("dw", (32768, 1024, 1024)).split_t
    kept = tuple(p for p in splits.points if p.split_t != planned)
    recording = maker.write(
        tmp_path / "gpu" / "one", splits=splits.model_copy(update={"points": kept})
    )
    found = numbers(recording)["split.32768x1024x1024.planned.ms"]
    assert found.value is not None
    assert "nearest recorded factor" in found.note


def test_a_missing_section_leaves_its_keys(tmp_path, maker):
    """Every key of a complete recording is there, with a reason for no number."""
    whole = numbers(maker.write(tmp_path / "gpu" / "whole"))
    gone = dict.fromkeys(
        ["ceilings", "gemms", "splits", "occupancy", "verification"], None
    )
    bare = numbers(maker.write(tmp_path / "gpu" / "bare", **gone))
    assert list(bare) == list(whole)
    for key, fact in bare.items():
        if whole[key].value is not None and fact.value is None:
            assert "no section" in fact.note


def test_a_failed_kernel_is_no_number(tmp_path, maker):
    """Prose gets "not measured" for what a broken kernel timed."""
    recording = maker.write(
        tmp_path / "gpu" / "one", verification=maker.verification(failing=("dw",))
    )
    found = numbers(recording)
    for key in (
        "gemm.8192x4096x14336.dw.lesson.ms",
        "gemm.8192x4096x14336.sum.lesson.ms",
        "summary.dw.geomean",
        "split.32768x1024x1024.gain",
        "occupancy.32768x1024x1024.dw.none.1.resident",
    ):
        assert found[key].value is None
        assert "dw kernel failed" in found[key].note
    assert found["gemm.8192x4096x14336.dw.vendor.ms"].value is not None


# Pages


def test_a_fact_carries_key_value_and_record(site):
    """A number in prose can be found, read by machine and traced."""
    page = site.text('{{ fact("gemm.8192x4096x14336.dw+.lesson.ms") }}')
    (found,) = re.findall(r"<data ([^>]*)>([^<]*)</data>", page)
    attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', found[0]))
    fact = numbers(site.recording)["gemm.8192x4096x14336.dw+.lesson.ms"]
    assert attributes["data-key"] == "gemm.8192x4096x14336.dw+.lesson.ms"
    assert float(attributes["value"]) == pytest.approx(fact.value, rel=1e-5)
    assert "Test GPU 132, recorded 2026-01-31" in attributes["title"]
    assert found[1] == fact.text


def test_what_was_not_measured_says_why(site, maker):
    """Instead of a number stands "not measured", with the reason."""
    maker.write(site.recording.folder, occupancy=None)
    (site.recording.folder / "occupancy.json").unlink()
    page = site.text('{{ fact("occupancy.8192x4096x14336.dx.none.1.registers") }}')
    assert ">not measured</span>" in page
    assert 'title="this recording has no section occupancy"' in page


def test_a_mistyped_key_stops_the_render(site):
    """The sentence names the template and the key; nothing is written."""
    before = files(site.root)
    site.page("lesson/part.md.j2", '# Part\n\n{{ fact("gemm.typo.ms") }}\n')
    with pytest.raises(RenderError, match=r"lesson/part\.md\.j2.*gemm\.typo\.ms"):
        site.render()
    assert files(site.root) == before


def test_an_unknown_name_stops_the_render(site):
    """A template cannot use what is not supplied."""
    site.page("page.md.j2", "# Page\n\n{{ surprise }}\n")
    with pytest.raises(RenderError, match=r"page\.md\.j2.*surprise"):
        site.render()


def test_pages_name_their_template(site):
    """Readers who edit are led to the template; its own front matter stays."""
    site.page("lesson/part.md.j2", "---\ntitle: A part\n---\n\n# Part\n")
    site.render()
    page = (site.root / "docs/lesson/part.md").read_text("utf-8")
    template = "generate/templates/lesson/part.md.j2"
    start = f"---\ntitle: A part\nedit_template: {template}\n---\n"
    assert page.startswith(start + f"<!-- Rendered from {template} by ")


def test_lesson_figures_are_marked(site):
    """A figure of the lesson's text never looks measured."""
    page = site.text('{{ lesson_figure("layer_ms") }}')
    assert 'class="fact fact--lesson"' in page
    assert ">~5.9 ms</data>" in page


def test_changed_kernels_are_said(site):
    """Numbers of older kernels carry a notice; pages without numbers do not."""
    site.page("plain.md.j2", "# Plain\n\nNo number.\n")
    site.page("page.md.j2", '# Title\n\n{{ fact("gpu.name") }}\n')
    site.render()
    page = site.root / "docs/page.md"
    assert "earlier version of the kernels" not in page.read_text("utf-8")
    with site.kernel("dw").open("a") as stream:
        stream.write("\nCHANGED = True\n")
    site.render()
    text = page.read_text("utf-8")
    assert text.index("# Title") < text.index("earlier version of the kernels")
    assert "earlier" not in (site.root / "docs/plain.md").read_text("utf-8")


def test_notice_stands_where_a_page_has_it(site):
    """A page may keep its first screen: changed or not, nothing stands below the title
    and no mark is left."""
    for changed in (False, True):
        text = site.text('Words.\n\n{{ notice }}\n\n{{ fact("gpu.name") }}')
        assert "<!-- notice -->" not in text
        assert ("earlier version of the kernels" in text) == changed
        assert "# Page\n\nWords.\n" in text
        with site.kernel("dw").open("a") as stream:
            stream.write("\nCHANGED = True\n")


@pytest.mark.parametrize("name", SOURCES)
def test_digest_follows_code_alone(site, name: str):
    """A remark leaves numbers valid, a change of code does not."""
    before = kernels_digest(site.root)
    source = site.kernel(name).read_text("utf-8")
    site.kernel(name).write_text(source + "\n# A remark.\n", "utf-8")
    assert kernels_digest(site.root) == before
    site.kernel(name).write_text(source + "\nCHANGED = 1\n", "utf-8")
    assert kernels_digest(site.root) != before


def test_hardware_tables_are_accessible(site):
    """Each table has a caption, and header cells with a scope."""
    page = site.text("{% for t in hardware_tables().values() %}{{ t }}\n{% endfor %}")
    tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    assert len(tables) == int(site.text("{{ hardware_tables() | length }}").split()[-1])
    for table in tables:
        assert "<caption>" in table
        assert table.count("<th ") == table.count(' scope="')
        assert len(set(map(count_cells, re.findall(r"<tr>.*?</tr>", table)))) == 1


def count_cells(row: str) -> int:
    return len(re.findall(r"<t[hd][ >]", row))


def test_a_table_lists_reasons_below(site, maker):
    """Why counters are missing stands in the cell and under the table."""
    occupancy = maker.occupancy()
    points = tuple(
        p.model_copy(update={"counters": None, "counters_reason": "ncu is missing"})
        for p in occupancy.points
    )
    maker.write(
        site.recording.folder, occupancy=occupancy.model_copy(update={"points": points})
    )
    page = site.text("{{ hardware_tables().occupancy }}")
    assert 'title="ncu is missing">not measured' in page
    assert "<p>Not measured, because ncu is missing.</p>" in page


def test_stream_k_has_a_name_and_no_split(site, maker):
    """Among the compiled kernels, with why it counts no atomic request."""
    plain = site.text("{{ hardware_tables().occupancy }}")
    section = maker.occupancy()
    first = section.points[0]
    made = first.configuration.model_copy(update={"reduction": "atomic"})
    update = {"kernel": "fast", "reduction": "atomic", "configuration": made}
    points = (*section.points, first.model_copy(update=update))
    section = section.model_copy(update={"points": points})
    maker.write(site.recording.folder, occupancy=section)
    page = site.text("{{ hardware_tables().occupancy }}")
    row = re.search(r"<tr><th[^>]*>dw, stream-K</th>.*?</tr>", page)[0]
    assert re.findall(r"<td[^>]*>(.*?)</td>", row)[1:3] == ["atomic", "–"]
    assert "through the copy engine" in page and "copy engine" not in plain


def test_every_template_renders_from_any_recording(site, maker):
    """The site's own pages stand whatever a recording lacks."""
    shutil.rmtree(site.root / "generate/templates")
    shutil.copytree(ROOT / "generate/templates", site.root / "generate/templates")
    folder = site.recording.folder
    site.render()
    maker.write(folder, verification=maker.verification(("forward", "dx", "dw")))
    site.render()
    for name in ("ceilings", "gemms", "splits", "occupancy", "verification"):
        (folder / f"{name}.json").unlink()
        site.render()


# Files


def test_two_renders_are_alike(site):
    """The second render finds nothing to write."""
    site.page("page.md.j2", '# P\n\n{{ chart("splits") }}\n\n{{ source("dw") }}\n')
    assert site.render()
    before = files(site.root)
    assert site.render() == []
    rendering._computed.cache_clear()  # so that every chart is made anew
    shutil.rmtree(site.root / "docs")
    site.render()
    assert files(site.root) == before


def test_check_names_what_is_stale_and_writes_nothing(site):
    """Stale, missing and superfluous files are named and left alone."""
    site.page("old.md.j2", "# Old\n")
    site.page("page.md.j2", "# Page\n")
    site.render()
    (site.templates / "old.md.j2").unlink()
    (site.root / "docs/page.md").write_text("edited by hand", "utf-8")
    before = files(site.root)
    found = site.render(check=True)
    assert {"docs/old.md", "docs/page.md"} <= set(found)
    assert files(site.root) == before


def test_only_rendered_files_are_deleted(site):
    """Pages and assets written by hand stay; what lost its template goes."""
    site.page("old.md.j2", "# Old\n")
    site.render()
    by_hand = site.root / "docs/by-hand.md"
    by_hand.write_text("# Mine\n", "utf-8")
    style = site.root / "docs/assets/css/site.css"
    style.parent.mkdir(parents=True)
    style.write_text("", "utf-8")
    left = site.root / "docs/assets/rendered/test-gpu/gone/tiles.csv"
    left.parent.mkdir(parents=True)
    left.write_text("", "utf-8")
    (site.templates / "old.md.j2").unlink()
    site.render()
    assert by_hand.exists() and style.exists()
    assert not (site.root / "docs/old.md").exists()
    assert not left.parent.exists()


def test_every_recording_has_its_files(site, maker):
    """Charts and facts of each recording stand in a folder of its own; pages show
    the newest complete one."""
    newer = site.root / "data/test-gpu/2026-02-01"
    maker.write(newer, splits=None)
    page = site.text('{{ fact("recording.name") }}')
    assert ">test-gpu/2026-01-31</data>" in page
    assets = site.root / "docs/assets/rendered/test-gpu"
    for name in ("2026-01-31", "2026-02-01"):
        found = json.loads((assets / name / "facts.json").read_text("utf-8"))
        assert found["recording"] == f"test-gpu/{name}"
        assert (assets / name / "tiles.csv").exists()
    assert not (assets / "2026-02-01/splits.json").exists()


def test_no_recording_stops_the_render(site):
    """Pages are never made from nothing."""
    shutil.rmtree(site.root / "data")
    with pytest.raises(RenderError, match="generate record"):
        site.render()


def test_published_schema_is_that_of_the_data(site):
    """Each section of a recording is valid by the JSON Schema on the site."""
    site.render()
    file = site.root / "docs/assets/rendered/recording.schema.json"
    schema = json.loads(file.read_text("utf-8"))
    for name, section in schema["sections"].items():
        raw = json.loads((site.recording.folder / f"{name}.json").read_text("utf-8"))
        Draft202012Validator(section).validate(raw)


# Charts in pages


@pytest.fixture
def fake_stills(monkeypatch):
    """Pictures without a browser: a stamp and nothing else."""

    def draw(given):
        svg = '<svg data-digest="{}"><g/></svg>\n'
        return {
            c.name: dict.fromkeys(stills.SIZES, svg.format(c.digest)) for c in given
        }

    monkeypatch.setattr(stills, "possible", lambda: True)
    monkeypatch.setattr(stills, "draw", draw)


def test_chart_markup_is_what_scripts_expect(site, fake_stills):
    """Figure, still, caption, downloads and table, with addresses that lead there."""
    site.page("lesson/part.md.j2", '# Part\n\n{{ chart("tiles") }}\n')
    site.render(stills=None)
    page = (site.root / "docs/lesson/part.md").read_text("utf-8")
    (spec,) = re.findall(r'data-chart="([^"]+)"', page)
    assert (site.root / "docs" / spec).is_file()
    for address in re.findall(r'<a download href="([^"]+)"', page):
        at = (site.root / "docs/lesson/part" / address).resolve()
        assert at.is_file()
    assert page.count('id="chart-tiles"') == page.count('id="chart-tiles-title"') == 1
    figure = page[page.index("<figure") : page.index("</figure>")]
    assert "\n\n" not in figure, "Markdown would end the figure there"
    assert unescape(figure).count("<figcaption>") == 1


def test_a_current_still_is_embedded(site, fake_stills):
    """The picture in the page bears the digest of its figure."""
    site.page("page.md.j2", '# P\n\n{{ chart("tiles") }}\n')
    site.render(stills=None)
    page = (site.root / "docs/page.md").read_text("utf-8")
    (digest,) = re.findall(r'<figure [^>]*data-digest="(\w+)"', page)
    assert page.count(f'<svg data-digest="{digest}">') == len(stills.SIZES)


def test_an_old_still_is_never_shown(site, fake_stills, maker, capsys):
    """When numbers change and no picture can be drawn, a sentence stands there."""
    site.page("page.md.j2", '# P\n\n{{ chart("breakdown") }}\n')
    site.render(stills=None)
    gemms = maker.gemms()
    slower = tuple(
        p.model_copy(update={"samples_ms": tuple(2 * s for s in p.samples_ms)})
        for p in gemms.points
    )
    maker.write(
        site.recording.folder, gemms=gemms.model_copy(update={"points": slower})
    )
    capsys.readouterr()
    site.render(stills=False)
    page = (site.root / "docs/page.md").read_text("utf-8")
    assert "<svg" not in page
    assert "The chart needs JavaScript; the table below holds the same" in page
    assert capsys.readouterr().err.count("breakdown") == 1
    stale = site.render(check=True)
    folder = "docs/assets/rendered/test-gpu/2026-01-31"
    drawn_from_gemms = ("breakdown", "predicted")
    assert stale == [
        f"{folder}/{name}-{size}.svg"
        for name in drawn_from_gemms
        for size in stills.SIZES
    ]


def kinds(chart) -> set:
    """What of Plotly a chart is made of."""
    made = chart.figure.to_plotly_json()
    parts = {"annotations", "shapes", "yaxis2", "meta"}.intersection(made["layout"])
    return parts.union((t["type"], t.get("mode")) for t in made["data"])


@pytest.fixture(scope="module")
def drawn(maker, tmp_path_factory, worker_id):
    """Charts of every kind, and their pictures by two exports: a browser's work, done
    once."""
    folder = tmp_path_factory.mktemp("drawn") / "gpu"
    found = [maker.write(folder / name) for name in ("one", "two")]
    present, known = [], set()
    for chart in charts(Measurements(found[0], found)).values():
        if kinds(chart) - known:
            present.append(chart)
            known |= kinds(chart)
    base = tmp_path_factory.getbasetemp()
    file = (base if worker_id == "master" else base.parent) / "stills.json"
    with FileLock(f"{file}.lock"):
        if not file.is_file():
            exports = [stills.draw(present), stills.draw(present)]
            file.write_text(json.dumps(exports), "utf-8")
    return present, *json.loads(file.read_text("utf-8"))


@pytest.fixture(scope="module")
def committed() -> dict[str, list[str]]:
    """The pictures in docs/, which `render --check` holds to their charts, by size."""
    folder = ROOT / "docs/assets/rendered"
    found = {n: sorted(folder.rglob(f"*-{n}.svg")) for n in stills.SIZES}
    assert len(found["narrow"]) == len(found["wide"]) > 0
    return {n: [file.read_text("utf-8") for file in found[n]] for n in found}


def assert_fit_for_a_page(svgs: list[str]) -> None:
    """Coloured by variables, without a fixed ground; ids differ between pictures."""
    for svg in svgs:
        assert "var(--op-dw)" in svg and "rgb(9, 9" not in svg
        assert not re.search(r"rgb\(255, 255, 255\)|: white\b", svg)
        assert 'role="img"' in svg and re.search(r'aria-label="[^"]+"', svg)
    ids = [name for svg in svgs for name in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids)) > 0


@needs_browser
def test_stills_are_stamped_named_and_repeatable(drawn):
    """Two exports are the same bytes, with the digest and title of their chart."""
    present, first, second = drawn
    assert first == second
    for chart in present:
        for svg in first[chart.name].values():
            assert stills.stamp(svg) == chart.digest
            assert f'aria-label="{chart.title}"' in svg
    assert_fit_for_a_page([svg for both in first.values() for svg in both.values()])


def test_committed_stills_are_fit_for_a_page(committed):
    """What pages hold is as what is exported today."""
    assert_fit_for_a_page([*committed["narrow"], *committed["wide"]])


def assert_legible(svg: str) -> None:
    """At 360 px the picture is 328 wide; no letter is smaller than 12 px there."""
    width, _ = stills.SIZES["narrow"]
    found = re.findall(r"font-size: ([\d.]+)px", svg)
    assert min(map(float, found)) * 328 / width >= 12


@needs_browser
def test_letters_of_stills_are_legible_on_a_phone(drawn):
    """As they are exported."""
    for both in drawn[1].values():
        assert_legible(both["narrow"])


def test_letters_of_committed_stills_are_legible_on_a_phone(committed):
    """As pages hold them."""
    for svg in committed["narrow"]:
        assert_legible(svg)


def test_rendering_needs_no_torch_and_no_browser(site):
    """Neither torch nor Triton is imported on the way to a page, nor what draws by a
    browser (stefan-jansen/machine-learning-for-trading#432)."""
    site.page("page.md.j2", '# P\n\n{{ chart("tiles") }}\n\n{{ source("dw") }}\n')
    program = (
        "import sys; from pathlib import Path; from generate.render import render; "
        f"render(Path({str(site.root)!r}), stills=False); "
        "assert not {'torch', 'triton', 'kaleido', 'playwright'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_hook_renders_the_site(site, monkeypatch):
    """The hook is a door to the same function, for the folder of mkdocs.yml."""
    from mkdocs.config.defaults import MkDocsConfig

    from generate.hook import on_pre_build

    monkeypatch.setattr(sys, "path", [*sys.path])
    site.page("page.md.j2", "# Page\n")
    config = MkDocsConfig(config_file_path=str(site.root / "mkdocs.yml"))
    on_pre_build(config)
    assert (site.root / "docs/page.md").is_file()


def test_hook_stops_a_build_with_the_sentence(site, monkeypatch):
    """A mistake in a template ends a build, not with a traceback."""
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.exceptions import PluginError

    from generate.hook import on_pre_build

    monkeypatch.setattr(sys, "path", [*sys.path])
    site.page("page.md.j2", '{{ fact("typo") }}')
    config = MkDocsConfig(config_file_path=str(site.root / "mkdocs.yml"))
    with pytest.raises(PluginError, match="typo"):
        on_pre_build(config)


def test_render_is_the_function_of_the_command(site):
    """`python -m generate render` and tests share one door."""
    assert render(site.root, check=True) == site.render(check=True)
