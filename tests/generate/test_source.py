"""Annotated source: the tested file itself, and notes that cannot drift from it."""

import ast
import html
import re
from pathlib import Path
from typing import get_args

import markdown
import pytest

from generate.render.entries import definitions, entries
from generate.render.errors import RenderError
from generate.render.source import annotated, block, blocks, difference
from kernels.plan import FastKernel, rung_plan
from tests.generate.conftest import GPU

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "generate" / "templates"
FAST = (
    *("tiles", "grouped", "pitched", "descriptor", "persistent", "split", "stream_k"),
    *("shares", "zero", "pad"),
)
KERNELS = ("forward", "dx", "dw", "reduce", *(f"fast/{name}" for name in FAST))
FILE = '''"""A docstring with
# [not-a-marker]
in it."""

# [first]
a = 1  # [not-one-either]

    # [second]
b = "# [nor-this]"
c = 2
'''
NOTES = "## head\n\nOne.\n\n## first\n\nTwo.\n\n## second\n\nThree.\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(FILE.replace("    # [", "# ["), "utf-8")
    return path


def refusal(file: Path, notes: str) -> str:
    with pytest.raises(RenderError) as caught:
        annotated(file, "notes/kernel.md", notes)
    return str(caught.value)


def test_only_comment_lines_are_markers(file: Path):
    """Text within strings and remarks behind code never cut a file."""
    assert [found.name for found in blocks(file)] == ["head", "first", "second"]


@pytest.mark.parametrize("name", KERNELS)
def test_every_line_is_shown_once_under_its_number(name: str):
    """Blocks hold every line but markers and the blank lines around blocks."""
    path = ROOT / "kernels" / f"{name}.py"
    lines = path.read_text("utf-8").splitlines()
    shown = {}
    for found in blocks(path):
        for number, line in enumerate(found.lines, found.first):
            assert number not in shown
            assert line == lines[number - 1]
            shown[number] = line
    for number, line in enumerate(lines, 1):
        left_out = not line.strip() or re.fullmatch(r"\s*# \[[\w-]+\]", line)
        assert number in shown or left_out, f"{path.name}:{number} is not shown"


@pytest.mark.parametrize("name", KERNELS)
def test_notes_of_the_kernels_pair(name: str):
    """Each block of each kernel has its note, in order."""
    notes = f"generate/templates/notes/{name}.md"
    rows = annotated(ROOT / "kernels" / f"{name}.py", notes, (ROOT / notes).read_text())
    assert [row.block.name for row in rows][0] == "head"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("# [second]\n", ""),
        lambda text: text.replace("# [second]", "# [renamed]"),
        lambda text: (
            text.replace("[first]", "[x]")
            .replace("[second]", "[first]")
            .replace("[x]", "[second]")
        ),
        lambda text: text + "# [unexplained]\nd = 3\n",
    ],
    ids=["vanished", "renamed", "reordered", "unexplained"],
)
def test_markers_that_drift_stop_the_render(file: Path, change):
    """The sentence names the file, the notes and both lists."""
    file.write_text(change(file.read_text("utf-8")), "utf-8")
    sentence = refusal(file, NOTES)
    assert "kernel.py" in sentence and "notes/kernel.md" in sentence
    assert ", ".join(found.name for found in blocks(file)) in sentence
    assert "head, first, second" in sentence


def test_an_empty_note_stops_the_render(file: Path):
    """A heading alone explains nothing."""
    assert "[first]" in refusal(file, NOTES.replace("Two.", ""))


def test_a_marker_twice_stops_the_render(file: Path):
    """Two blocks of one name would share an address."""
    file.write_text(file.read_text("utf-8").replace("[second]", "[first]"), "utf-8")
    assert "[first] stands twice" in refusal(file, NOTES)


def test_lines_inserted_above_only_move_numbers(file: Path):
    """Notes stay with their code when lines come before it."""
    before = block(file, "second")
    file.write_text("import os\n" * 10 + file.read_text("utf-8"), "utf-8")
    after = block(file, "second")
    assert (after.first, after.lines) == (before.first + 10, before.lines)


def test_an_unknown_excerpt_stops_the_render(file: Path):
    """The sentence names the markers there are."""
    with pytest.raises(RenderError, match="no marker .third.; it has head, first"):
        block(file, "third")


def test_a_note_binds_tests_and_traps(file: Path):
    """Lines that name them are taken out of the note; alone they explain nothing."""
    bound = "Two.\n\nAvoids: a-trap\nGuarded by: tests/test_x.py::test_y[a b]"
    row = annotated(file, "notes/kernel.md", NOTES.replace("Two.", bound))[1]
    assert (row.note, row.traps) == ("Two.", ("a-trap",))
    assert row.guards == ("tests/test_x.py::test_y[a b]",)
    assert "[first]" in refusal(file, NOTES.replace("Two.", "Avoids: a-trap"))


def test_an_unknown_trap_stops_the_render(site):
    """The sentence names the notes and the trap."""
    notes = site.templates / "notes" / "dw.md"
    notes.write_text(notes.read_text("utf-8").replace("Avoids: ", "Avoids: no-", 1))
    with pytest.raises(RenderError, match="notes/dw.md: there is no trap 'no-"):
        site.text('{{ source("dw") }}')


def test_named_tests_exist():
    """Each test that a note or a page names is there, and so is each mutation."""
    texts = [file.read_text("utf-8") for file in TEMPLATES.rglob("*.md*")]
    found = re.findall(
        r"(tests/\w+/test_\w+\.py)::(\w+)(?:\[(\w+)-(.+?)\])?", "\n".join(texts)
    )
    assert len(found) > 60
    for path, name, kernel, broken in found:
        text = (ROOT / path).read_text("utf-8")
        assert f"\ndef {name}(" in text, (path, name)
        if kernel:
            mutations = text.split("\nMUTATIONS = {", 1)[1].split("\n}\n", 1)[0]
            own = mutations.split(f'\n    "{kernel}": {{', 1)[1].split("\n    },", 1)[0]
            assert f'\n        "{broken}": ' in own, (kernel, broken)


def test_every_trap_says_who_notices():
    """What is written, what goes wrong, who notices, and an address of its own."""
    text = (TEMPLATES / "notes" / "traps.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert len(entries(text)) == len(sections) >= 13
    for section in sections:
        for part in ("Written", "Goes wrong", "Who notices"):
            assert f"\n**{part}:** " in section, section.split("\n")[0]
        assert re.search(r"\*\*(Seen in|Measured|Its mirror image):\*\*", section)


def test_a_difference_is_that_of_the_files(file: Path, tmp_path: Path):
    """Lines of one file alone have a -, of the other a +, letters exchanged first."""
    other = tmp_path / "other.py"
    other.write_text(file.read_text("utf-8").replace("a = 1", "d = 1"), "utf-8")
    changed = difference(file, other, {}).splitlines()
    assert changed[:2] == ["--- kernel.py", "+++ other.py"]
    assert "-a = 1  # [not-one-either]" in changed
    assert "+d = 1  # [not-one-either]" in changed
    assert not [
        line
        for line in difference(file, other, {"a": "d"}).splitlines()[2:]
        if line.startswith(("-a", "+d"))
    ]


def test_forward_becomes_dx_by_exchanging_letters(site):
    """No line of the body is left over: what the page says of the two files."""
    page = (TEMPLATES / "kernels" / "dx.md.j2").read_text("utf-8")
    call = re.search(r'\{\{ difference\("forward", "dx", .*? \}\}', page)[0]
    shown = site.text(call).split("````diff\n", 1)[1].split("\n````", 1)[0]
    left = [line for line in shown.splitlines() if line.startswith(("-", "+"))]
    parameters = r"[-+]    (\w+,|\w+: tl.constexpr,)"
    described = r"[-+](---|\+\+\+|.*\"\"\"|    (dy_ptr|once\.|cast once)).*|[-+]{3} .*"
    for line in left:
        assert re.fullmatch(parameters, line) or re.fullmatch(described, line), line


def test_every_fast_kernel_has_its_page():
    """Each file of kernels/fast that is compiled is shown, on a page of its name."""
    files = (ROOT / "kernels" / "fast").glob("*.py")
    compiled = {file.stem for file in files if "@triton.jit" in file.read_text("utf-8")}
    assert compiled == set(FAST)
    for name in FAST:
        page = (TEMPLATES / "fast" / f"{name}.md.j2").read_text("utf-8")
        assert f'{{{{ source("fast/{name}") }}}}' in page


def test_fast_blocks_have_addresses_of_their_file(site):
    """The folder does not stand in them."""
    assert '<div class="anno-row" id="split-store" markdown>' in site.text(
        '{{ source("fast/split") }}'
    )


def test_grouped_is_dw_in_another_order(site):
    """What the page says is left of the two files: names, the order, counts in 64
    bits and a cast."""
    page = (TEMPLATES / "fast" / "grouped.md.j2").read_text("utf-8")
    call = re.search(r'\{\{ difference\("dw", "fast/grouped", .*? \}\}', page)[0]
    shown = site.text(call).split("````diff\n", 1)[1].split("\n````", 1)[0]
    body = shown[shown.index("# [tile]") :].splitlines()
    left = [line for line in body if line.startswith(("-", "+"))]
    order = r"[-+]    (tiles_down|above, before|r|c) = .*"
    counts = r"[-+]    (tiles_across|blocks) = tl\.cdiv.*"
    cast = r"[-+]        tl\.store\(out_ptrs, acc.*"
    for line in left:
        assert re.fullmatch(rf"{order}|{counts}|{cast}|-        # .*", line), line
    assert len([line for line in left if re.fullmatch(order, line)]) == 6


def test_persistent_is_descriptor_in_a_loop():
    """Apart from their indentation the two sections are the same lines."""
    for name in ("contract", "store"):
        texts = [
            [line.strip() for line in block(ROOT / f"kernels/fast/{file}", name).lines]
            for file in ("descriptor.py", "persistent.py")
        ]
        assert texts[0] == texts[1], name


@pytest.mark.parametrize("name", sorted({*get_args(FastKernel)} - {"pitched"}))
def test_examples_launch_the_kernel_of_the_page(name: str):
    """The rung that a page's example asks for has a launch at its shape."""
    page = (TEMPLATES / "fast" / f"{name}.md.j2").read_text("utf-8")
    calls = [
        node
        for code in re.findall(
            r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
        )
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "rung_plan"
    ]
    assert len(calls) == 1
    *given, device = calls[0].args[:5]
    assert ast.unparse(device) == "facts(0)"
    given = [ast.literal_eval(node) for node in given]
    mode = [ast.literal_eval(node) for node in calls[0].args[5:]]
    assert rung_plan(*given, GPU.device, *mode).kernel == name


def test_a_term_leads_to_its_definition(site):
    """The first use is a link, described by the glossary's own sentence."""
    text = site.text('{{ term("wave", "waves") }}')
    says = definitions((TEMPLATES / "notes" / "glossary.md").read_text("utf-8"), "")
    assert 'href="../glossary/#wave" aria-describedby="term-wave">waves</a>' in text
    assert f'id="term-wave" role="tooltip" hidden>{says["wave"].first}</span>' in text


def test_terms_are_known_and_used_once(site):
    """A second use would repeat an id; a word that is not there says nothing."""
    with pytest.raises(RenderError, match="'wave' stands twice"):
        site.text('{{ term("wave") }} {{ term("wave") }}')
    with pytest.raises(RenderError, match="'ripple' is not in the glossary"):
        site.text('{{ term("ripple") }}')


def test_definitions_are_plain_text():
    """They are shown where no Markdown is read."""
    with pytest.raises(RenderError, match="notes/x.md: the definition of #a"):
        definitions("## A { #a }\n\nA `word`.\n", "notes/x.md")


@pytest.mark.parametrize("name", KERNELS)
def test_pages_hold_the_code_as_the_file_does(name: str, site):
    """Through Markdown, no space or character of the code is lost or changed."""
    site.page("page.md.j2", f'# Title\n\n{{{{ source("{name}") }}}}\n')
    site.render()
    text = (site.root / "docs" / "page.md").read_text("utf-8")
    found = markdown.markdown(
        text.split("-->", 1)[1],
        extensions=["attr_list", "md_in_html", "pymdownx.highlight"]
        + ["pymdownx.superfences"],
        extension_configs={
            "pymdownx.highlight": {
                "linenums_style": "pymdownx-inline",
                "anchor_linenums": False,
            }
        },
    )
    assert found.count('class="anno-row"') == len(blocks(site.kernel(name)))
    codes = re.findall(r"<pre>.*?<code>(.*?)</code></pre>", found, re.DOTALL)
    shown = {}
    for code in codes:
        for line in code.rstrip("\n").split("\n"):
            number = int(re.search(r'data-linenos="\s*(\d+) "', line)[1])
            shown[number] = html.unescape(re.sub(r"<[^>]+>", "", line))
    lines = site.kernel(name).read_text("utf-8").splitlines()
    assert len(shown) == sum(len(found.lines) for found in blocks(site.kernel(name)))
    for number, line in shown.items():
        assert line == lines[number - 1]
