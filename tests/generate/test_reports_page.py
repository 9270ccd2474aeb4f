"""Reports it survives: each has words and tests, and every test named is there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from generate.render.errors import RenderError
from generate.render.reports import Reports, naming, reports

ROOT = Path(__file__).resolve().parents[2]
NOTES = ROOT / "generate" / "templates" / "notes" / "reports.md"
PAGE = ROOT / "docs" / "training" / "reports.md"

# Public reports on matrix products and their backward passes, and on where kernels
# run, that were collected before there were tests of them.
COLLECTED = """
triton-lang/triton#5022 deepspeedai/DeepSpeed#8590 triton-lang/triton#630
triton-lang/triton#8899 triton-lang/triton#10772 triton-lang/triton#2183
triton-lang/triton#4217 triton-lang/triton#7181 triton-lang/triton#9230
triton-lang/triton#1387 triton-lang/triton#2630 triton-lang/triton#643
facebookexperimental/triton#1142 triton-lang/triton#10427 triton-lang/triton#3299
triton-lang/triton#1800 triton-lang/triton#9839 triton-lang/triton#1297
triton-lang/triton#10927 flagos-ai/FlagGems#4471 triton-lang/triton#8182
triton-lang/triton#2441 pytorch/pytorch#87979 fla-org/flash-linear-attention#1264
NVIDIA/Megatron-LM#548 fla-org/flash-linear-attention#1253
ROCm/TransformerEngine#623 pytorch/pytorch#194719 flagos-ai/FlagGems#5379
NVIDIA/TransformerEngine#545 NVIDIA/TransformerEngine#3437 pytorch/pytorch#58509
pytorch/pytorch#132102 pytorch/pytorch#136550 triton-lang/triton#10596
microsoft/onnxruntime#27003 triton-lang/triton#2534 pytorch/pytorch#47163
triton-lang/triton#9310 triton-lang/triton#6547 triton-lang/triton#8654
triton-lang/triton#11584 gpu-mode/lectures#47 triton-lang/triton#5895
triton-lang/triton#6227 deepseek-ai/DeepSeek-R1#493 unslothai/unsloth#2403
jwohlwend/boltz#555 Deep-Learning-Profiling-Tools/triton-viz#423
""".split()

ENTRY = """## Edges {{ #edges }}

### [{name}](https://github.com/{address})

Something < broke.

`here` it
does not.
"""
TEST = '''
def test_tail():
    """Right.

    a/b#1, a/b-c.d#22
    """


def helper():
    """No test: a/b#3."""
'''


def entry(name: str = "a/b#1", address: str = "a/b/issues/1") -> str:
    return ENTRY.format(name=name, address=address)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout whose one test names two reports."""
    folder = tmp_path / "tests" / "kernels"
    folder.mkdir(parents=True)
    (folder / "test_edges.py").write_text(TEST, "utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def ours() -> Reports:
    return reports(ROOT, NOTES.read_text("utf-8"), NOTES.name)


def test_every_report_collected_has_a_row(ours: Reports):
    """With words of both sides and a test; none can go out with its test."""
    found = {report.name: report for kind in ours.kinds for report in kind.reports}
    assert len(COLLECTED) == len(set(COLLECTED)) == 49
    assert set(COLLECTED) <= found.keys()
    for report in found.values():
        assert report.there.endswith(".") and report.here.endswith(".")
        assert report.tests


def test_every_test_named_is_there(ours: Reports):
    """The page leads to functions that the test files have."""
    page = PAGE.read_text("utf-8")
    named = set(re.findall(r'title="(tests/kernels/\w+\.py)::(test_\w+)"', page))
    assert {"::".join(test) for test in named} == ours.tests
    for file, name in named:
        functions = ast.parse((ROOT / file).read_text("utf-8")).body
        assert name in {getattr(node, "name", "") for node in functions}


def test_names_come_from_docstrings_of_tests(root: Path):
    """A helper's docstring names none."""
    test = "tests/kernels/test_edges.py::test_tail"
    assert naming(root) == {"a/b#1": [test], "a/b-c.d#22": [test]}


def test_words_are_shown_as_they_are(root: Path):
    """Backticks are code, line ends are spaces, and nothing is taken for HTML."""
    second = entry("a/b-c.d#22", "a/b-c.d/pull/22").split("\n\n", 1)[1]
    (kind,) = reports(root, f"{entry()}\n{second}", "notes").kinds
    assert (kind.title, kind.anchor, len(kind.reports)) == ("Edges", "edges", 2)
    first = kind.reports[0]
    assert first.address == "https://github.com/a/b/issues/1"
    assert first.there == "Something &lt; broke."
    assert first.here == "<code>here</code> it does not."


@pytest.mark.parametrize(
    "notes, sentence",
    (
        (entry(), "^notes: nothing is said of a/b-c.d#22$"),
        (2 * entry(), "^notes: a/b#1 stands twice$"),
        (entry("a/b#3", "a/b/issues/3"), "^notes: no test of tests/kernels names"),
        (entry(address="a/b/issues/2"), "^notes: .*/issues/2 is not that of a/b#1$"),
        (entry() + "\n### More\n\nWords.\n", "^notes: an entry below #edges is no"),
    ),
    ids=("unsaid", "twice", "no test", "another address", "no report"),
)
def test_what_is_missing_stops_the_render(root: Path, notes: str, sentence: str):
    """In one sentence, which names the file and the report."""
    with pytest.raises(RenderError, match=sentence):
        reports(root, notes, "notes")


def test_the_page_needs_no_torch():
    """Tests that import torch are read where there is none."""
    program = (
        "import sys; sys.modules |= {'torch': None, 'triton': None}; "
        "from pathlib import Path; from generate.render.reports import reports; "
        f"reports(Path('.'), Path({str(NOTES)!r}).read_text('utf-8'), 'notes')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
