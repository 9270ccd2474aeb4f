"""The reference: entries that say what the docstrings say, and no less."""

import ast
import html
import re
import subprocess
import sys
from pathlib import Path

import markdown
import pytest

import kernels
from generate.render.errors import RenderError
from generate.render.reference import address, entry
from tests.generate.conftest import SiteRoot

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "generate" / "templates" / "reference.md.j2"
CALLS = re.findall(r'\{\{ reference\("(.+?)", "(.+?)"\) \}\}', PAGE.read_text("utf-8"))
CODE = '''
class Layer(Base):
    """A layer of `sizes`, for x < 3 & *any* other_number.

    rows, columns: how many; a note. kind: "a" or "b". Both may change.
    scale: of
    all rows.
    Raises nothing.
    It is called so:
        layer = Layer(3)

        layer(x)
    And so on.
    """

    scale: float = 1.0
    _hidden: int = 0

    def __init__(self, rows: int, columns=2, *, kind: str = "a"):
        # A remark is no part of the head.
        self.rows = rows

    @property
    def size(self) -> int:
        return 0

    def forward(self, x):
        """Applies it. x: a matrix."""
        return x

    def _inner(self):
        """Nobody's business."""
'''.strip()


def words(text: str) -> str:
    """What is read: one space between words, no marks of Markdown or HTML."""
    text = html.unescape(re.sub(r"</?(?:p|ul|li|code|a|div)\b[^>]*>", " ", text))
    found = " ".join(re.sub(r"`+(?:python\n)?", " ", text).split())
    return re.sub(r" (?=[.,:;)’'])|(?<=\() ", "", found)


def defined(file: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    tree = ast.parse((ROOT / "kernels" / f"{file}.py").read_text("utf-8"))
    return next(node for node in tree.body if getattr(node, "name", "") == name)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """The page as it is rendered, with a made-up recording."""
    site = SiteRoot(tmp_path_factory.mktemp("site"))
    return site.text(PAGE.read_text("utf-8"))


def test_what_one_imports_has_an_entry(page: str):
    """Under the name that it is imported by, which is also its address."""
    headings = re.findall(r"^### `(.+)` \{ #(.+) \}$", page, re.M)
    assert len(headings) == len(CALLS) == len(set(headings))
    assert all(name == anchor for name, anchor in headings)
    wanted = {f"kernels.{name}" for name in kernels.__all__}
    assert wanted <= {name for name, _ in headings}
    for torch, triton in kernels.SUPPORTED_PAIRS.items():
        assert f"{torch} with {triton}" in page


def test_an_entry_names_nothing_that_is_not_here(page: str):
    """A reader is sent to no module that the page calls internal."""
    named = set(re.findall(r"`(kernels\.[\w.]+)`", page)) - {"kernels.plan"}
    assert named == set(re.findall(r"^#+ `(.+)` \{", page, re.M))


@pytest.mark.parametrize("file, name", CALLS)
def test_an_entry_is_the_docstring_and_the_head(file: str, name: str, page: str):
    """Every sentence, in order, after the same arguments and defaults; and the line of
    the file that it comes from."""
    text = page.split(f"### `{address(file, name)}`", 1)[1].split("\n### ", 1)[0]
    node = defined(file, name)
    assert words(ast.get_docstring(node)) in words(text)
    listing = re.search(r"^````python\n(.*?)\n````$", text, re.M | re.S)[1]
    shown = ast.parse(listing).body[0]
    if isinstance(node, ast.FunctionDef):
        assert ast.dump(shown.args) == ast.dump(node.args)
        assert ast.dump(shown.returns) == ast.dump(node.returns)
    else:
        fields = [
            [ast.dump(part) for part in given.body if isinstance(part, ast.AnnAssign)]
            for given in (node, shown)
        ]
        assert fields[0] == fields[1]
        for method in (part for part in node.body if isinstance(part, ast.FunctionDef)):
            says = ast.get_docstring(method) or ""
            assert words(says) in words(text) or method.name.startswith("_")
    line = int(re.search(rf'blob/HEAD/kernels/{file}\.py#L(\d+)"', text)[1])
    lines = (ROOT / "kernels" / f"{file}.py").read_text("utf-8").splitlines()
    assert lines[line - 1] == listing.splitlines()[0]


def test_a_class_shows_what_a_caller_needs():
    """Fields and public methods as they are written, no bodies, nothing hidden."""
    found = entry(CODE, "kernels.Layer")
    assert found.listing == (
        "class Layer(Base):\n"
        "    scale: float = 1.0\n\n"
        '    def __init__(self, rows: int, columns=2, *, kind: str = "a"): ...\n\n'
        "    @property\n"
        "    def size(self) -> int: ...\n\n"
        "    def forward(self, x): ..."
    )
    (method,) = found.methods
    assert method.address == "kernels.Layer.forward"
    assert method.prose == (
        "<p>Applies it.</p>\n\n<ul>\n<li><code>x</code>: a matrix.</li>\n</ul>"
    )


def test_a_docstring_keeps_its_structure():
    """Arguments and fields are items, lines that end a sentence end a paragraph, and
    what looks like HTML or Markdown is shown as it is."""
    shown = markdown.markdown(
        entry(CODE, "kernels.Layer").prose, extensions=["pymdownx.superfences"]
    )
    assert (
        "<p>A layer of <code>sizes</code>, for x &lt; 3 &amp; *any* other_number.</p>"
        in shown
    )
    assert re.findall(r"<li><code>(.+?)</code>: (.+?)</li>", shown) == [
        ("rows, columns", "how many; a note."),
        ("kind", '"a" or "b".'),
        ("scale", "of all rows."),
    ]
    for paragraph in ("Both may change.", "Raises nothing.", "It is called so:"):
        assert f"<p>{paragraph}</p>" in shown
    code = html.unescape(re.sub(r"<[^>]+>", "", shown))
    assert "\nlayer = Layer(3)\n\nlayer(x)\n" in code
    assert shown.endswith("<p>And so on.</p>")


@pytest.mark.parametrize(
    "call, sentence",
    [
        ('reference("plan", "fast_plans")', "page.md.j2: plan.py has no fast_plans"),
        ('reference("plans", "plan")', "page.md.j2: there is no plans.py"),
    ],
)
def test_what_is_gone_stops_the_render(call: str, sentence: str, site):
    """The sentence names the page, the file and what it lacks."""
    with pytest.raises(RenderError, match=sentence):
        site.text(f"{{{{ {call} }}}}")


def test_the_reference_needs_no_torch(site):
    """Files that import torch are read where there is none."""
    site.page("page.md.j2", '# P\n\n{{ reference("ops", "matmul") }}\n')
    program = (
        "import sys; sys.modules |= {'torch': None, 'triton': None}; "
        "from pathlib import Path; from generate.render import render; "
        f"render(Path({str(site.root)!r}), stills=False)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    assert "def matmul(" in (site.root / "docs" / "page.md").read_text("utf-8")
