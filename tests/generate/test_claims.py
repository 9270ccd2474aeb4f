"""Claims: every one is judged from any recording, and data alone turns a verdict."""

import json
import random
import re
import shutil
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

from generate.render import RenderError
from generate.render.claims import CLAIMS, GROUPS, OUTCOMES, Judged
from generate.render.claims.base import PLACE
from generate.render.fact import Fact
from generate.render.facts import facts
from generate.render.measured import Measurements
from generate.schema import Recording
from generate.shapes import STARVED
from kernels.plan import rung_plan
from tests.generate.conftest import fast_configuration

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "generate" / "templates"
# It sets two recordings beside each other and does not follow the reader's choice.
COMPARES_RECORDINGS = "evidence/repeat.md.j2"
COUNTS = (".distinct", ".split_t")
# Powers of ten between which numbers are changed: hardly, a little, any way, all
# up, all down.
CHANGES = ((-0.001, 0.001), (-0.05, 0.05), (-4, 4), (0.5, 1), (-4, -3))
# What every recording knows of its GPU.
KNOWN = {"gpu.name", "gpu.sm_count", "gpu.memory_gib", "gpu.l2_mib"}


def judged(recording: Recording) -> Judged:
    measured = Measurements(recording)
    return Judged(measured, facts(measured))


def scattered(found: dict[str, Fact], seed: int) -> dict[str, Fact]:
    """Facts of a GPU that does anything: numbers off by a little or by a lot, a few
    gone, and some number for what the recording does not have."""
    chance = random.Random(seed)
    low, high = CHANGES[seed % len(CHANGES)]
    made = {}
    for key, fact in found.items():
        arithmetic = key in KNOWN or key.endswith(".planned.split_t")
        if arithmetic or isinstance(fact.value, str):
            made[key] = fact
        elif chance.random() < 0.02:
            made[key] = Fact(None, "not measured", "it was skipped")
        else:
            start = fact.value or (1 if fact.value is None or low > 0 else 0)
            value = start * 10 ** chance.uniform(low, high)
            value = max(1, round(value)) if key.endswith(COUNTS) else value
            made[key] = Fact(value, f"{value:.3g}")
    return made


def as_the_lesson_has_it(found: dict[str, Fact]) -> dict[str, Fact]:
    """The facts of a GPU with the figures of the lesson."""
    worked = "gemm.8192x4096x14336"
    figures = {
        "ceilings.gemm_tflops": 490.0,
        "ceilings.copy_tbps": 3.35,
        f"{worked}.sum.vendor.ms": 5.9,
        f"{worked}.sum.lesson.ms": 5.9,
    }
    return found | {key: Fact(value, f"{value}") for key, value in figures.items()}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory, maker) -> list[Judged]:
    """The claims as the lesson's GPU and sixty imagined ones would have them."""
    measured = Measurements(maker.write(tmp_path_factory.mktemp("data") / "gpu" / "a"))
    known = facts(measured)
    found = [as_the_lesson_has_it(known)]
    found += [scattered(known, seed) for seed in range(60)]
    return [Judged(measured, facts) for facts in found]


# Verdicts


def test_anchors_are_unique_and_plain():
    """A claim has one place to be linked to."""
    anchors = [claim.anchor for group in GROUPS for claim in group.claims]
    assert len(anchors) == len(set(anchors)) == len(CLAIMS)
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", anchor) for anchor in anchors)


def test_claims_name_a_page_that_is_there():
    """Each stands under the page that makes it."""
    for group in GROUPS:
        assert (TEMPLATES / f"{group.page}.md.j2").is_file()
        assert group.claims


def test_every_page_of_the_lesson_makes_claims():
    """No part of the lesson is left out."""
    parts = {f"lesson/{file.name[:-6]}" for file in TEMPLATES.glob("lesson/*.md.j2")}
    assert parts | {"explore"} <= {group.page for group in GROUPS}


def test_every_claim_is_judged(recording: Recording):
    """A verdict is one of four words, with a sentence and the facts it rests on."""
    found = judged(recording)
    for anchor, verdict in found.verdicts.items():
        assert verdict.outcome in OUTCOMES
        assert verdict.sentence.endswith(".")
        assert set(PLACE.findall(verdict.sentence)) <= set(verdict.used)
        text, html = found.text(anchor), found.html(anchor)
        assert not set("{}") & set(text + html)
        for key in PLACE.findall(verdict.sentence):
            assert f'data-key="{key}"' in html


def test_launches_of_fast_kernels_are_judged_too(tmp_path, maker):
    """A launch with a configuration of its own kind reads back, and stops no claim."""
    plan = rung_plan("stream_k", "dw", STARVED, 2, maker.gpu.device)
    section = maker.occupancy()
    update = {
        "kernel": "fast",
        "reduction": "atomic",
        "split_t": 1,
        "configuration": fast_configuration(plan),
    }
    points = (*section.points, section.points[0].model_copy(update=update))
    occupancy = section.model_copy(update={"points": points})
    recording = maker.write(tmp_path / "gpu" / "2026-01-31", occupancy=occupancy)
    assert recording.occupancy.points[-1].configuration.kernel == "stream_k"
    verdicts, plain = judged(recording).verdicts, maker.write(tmp_path / "gpu" / "2")
    assert verdicts["grids"].outcome == judged(plain).verdicts["grids"].outcome


def test_sentences_are_plain_text(recording: Recording):
    """They pass through Markdown on a page, and past it in the file of facts."""
    found = judged(recording)
    for anchor, claim in CLAIMS.items():
        assert not re.search(r"[*`<\\]|\]\(|__", found.text(anchor) + claim.statement)


def test_no_numbers_stop_a_verdict(worlds: list[Judged]):
    """Whatever a GPU does, each claim has a sentence for it, whole and finished."""
    for found in worlds:
        for anchor, verdict in found.verdicts.items():
            assert verdict.outcome in OUTCOMES
            assert re.fullmatch(r"[^{}]+\.", found.text(anchor))
            assert not re.search(r"\b(None|nan|inf)\b", found.text(anchor))


def test_data_can_turn_every_measured_claim(worlds: list[Judged]):
    """A claim that no numbers could turn would be no claim about numbers."""
    for anchor in CLAIMS:
        verdicts = [found.verdicts[anchor] for found in worlds]
        rests_on = {key for verdict in verdicts for key in verdict.used}
        outcomes = {verdict.outcome for verdict in verdicts}
        if rests_on - KNOWN:
            assert len(outcomes - {"not measured"}) > 1, anchor


def test_the_lessons_figures_hold_on_the_lessons_gpu(worlds: list[Judged]):
    """What fails on another GPU is the other GPU, not the comparison."""
    for anchor in ("sm-count", "sustained-rate", "memory-bandwidth", "layer-time"):
        assert worlds[0].verdicts[anchor].outcome == "holds"


def test_what_was_not_measured_has_a_reason(tmp_path, maker):
    """Without sections only arithmetic is judged, and the others say why not."""
    names = [name for name in maker.sections() if name != "environment"]
    bare = judged(maker.write(tmp_path / "gpu" / "bare", **dict.fromkeys(names)))
    for anchor, verdict in bare.verdicts.items():
        if verdict.outcome == "not measured":
            assert re.search(r": not measured \(.+\)\.$", bare.text(anchor))
        else:
            assert set(verdict.used) <= KNOWN
    assert bare.verdicts["two-splits"].outcome == "not measured"
    assert bare.verdicts["worked-tiles"].outcome == "holds"


def test_a_failed_kernel_proves_nothing(tmp_path, maker):
    """Points of a kernel whose test failed are no evidence."""
    failing = maker.verification(("dw",))
    found = judged(maker.write(tmp_path / "gpu" / "bad", verification=failing))
    assert found.verdicts["two-splits"].outcome == "not measured"
    assert "a test of the dw kernel failed" in found.text("two-splits")
    assert found.verdicts["any-size"].outcome == "does not hold"


def test_the_slip_of_the_lesson(recording: Recording):
    """K = N = 4096 is 1024 tiles, and the sentence names the layers that do starve."""
    found = judged(recording)
    assert found.verdicts["attention-4096"].outcome == "does not hold"
    text = found.text("attention-4096")
    assert (
        "1024 tiles" in text and "rank 64 (32)" in text and "d_model 768 (36)" in text
    )


def test_the_slip_is_right_on_a_larger_chip(recording: Recording):
    """On a GPU of more SMs than 1024 the same claim holds."""
    gpu = recording.environment.gpu.model_copy(update={"sm_count": 2000})
    environment = recording.environment.model_copy(update={"gpu": gpu})
    recording.environment = environment
    assert judged(recording).verdicts["attention-4096"].outcome == "holds"


# Other recordings change pages


def slower(maker, chosen) -> dict:
    """Split points of which some take three times as long."""
    splits = maker.splits()
    points = tuple(
        p.model_copy(update={"samples_ms": tuple(3 * s for s in p.samples_ms)})
        if chosen(p)
        else p
        for p in splits.points
    )
    return {"splits": splits.model_copy(update={"points": points})}


def test_a_claim_that_fails_changes_the_page(site, maker):
    """A GPU on which splitting slows dW down gets another sentence, and no error."""
    template = '{{ claim("two-splits") }}'
    before = site.text(template)
    assert "the time fell to" in before
    changed = slower(maker, lambda p: p.reduction == "atomic")
    maker.write(site.recording.folder, **changed)
    after = site.text(template)
    assert "did not shorten the time" in after and "the time fell to" not in after


def test_a_claim_leads_to_its_verdict(site):
    """The sentence carries its anchor, and a link to how it is judged."""
    site.page("lesson/part.md.j2", '# Part\n\n{{ claim("two-splits") }}\n')
    site.render()
    page = (site.root / "docs/lesson/part.md").read_text("utf-8")
    assert '<span class="claim" data-claim="two-splits">Two programs a tile' in page
    assert 'href="../../evidence/claims/#two-splits"' in page
    assert 'data-key="split.32768x1024x1024.atomic.2.ms"' in page


def test_an_unknown_claim_stops_the_render(site):
    """A typing error never becomes an empty sentence."""
    with pytest.raises(RenderError, match="there is no claim 'two-split'"):
        site.text('{{ claim("two-split") }}')


def test_recordings_carry_their_claims(site, maker):
    """Every recording has its own sentences in a file, for the reader's choice."""
    other = site.root / "data/other-gpu/2026-01-30"
    maker.write(other, **slower(maker, lambda p: p.reduction == "atomic"))
    page = site.text('{{ claim("two-splits") }}')
    assets = site.root / "docs/assets/rendered"
    found = {}
    for name in ("test-gpu/2026-01-31", "other-gpu/2026-01-30"):
        file = assets / name / "facts.json"
        found[name] = json.loads(file.read_text("utf-8"))["claims"]
        assert set(found[name]) == set(CLAIMS)
    mine, theirs = (claims["two-splits"] for claims in found.values())
    assert (mine["verdict"], theirs["verdict"]) == ("holds", "does not hold")
    assert f">{mine['html']}</span>" in page


def test_the_page_judges_every_claim_by_every_recording(site, maker):
    """Each claim stands once, with the verdict of each recording; counts add up."""
    other = site.root / "data/other-gpu/2026-01-30"
    maker.write(other, **slower(maker, lambda p: p.reduction == "atomic"))
    name = "evidence/claims.md.j2"
    site.page(name, (TEMPLATES / name).read_text("utf-8"))
    site.render()
    page = (site.root / "docs/evidence/claims.md").read_text("utf-8")
    agreeing = set()
    for anchor in CLAIMS:
        start = page.index(f'<section class="judgement" id="{anchor}"')
        entry = page[start : page.index("</section>", start)]
        words = [re.escape(word) for word in OUTCOMES]
        marks = re.findall(rf"<strong[^>]*>({'|'.join(words)})</strong>", entry)
        same = "The same in all 2 recordings." in entry
        assert len(marks) == (1 if same else 3)
        assert same or marks[0] in marks[1:]
        agreeing.add(same)
    assert agreeing == {True, False}
    assert page.count('<section class="judgement"') == len(CLAIMS)
    rows = re.findall(r"^\| (\S.*20\d\d\S*) \|(.*)\|$", page, re.MULTILINE)
    assert len(rows) == 2
    for _, counts in rows:
        assert sum(map(int, counts.split("|"))) == len(CLAIMS)


# Prose


def comparisons(text: str) -> list[int]:
    """Lines of a template that compare measured values, or ask more of one than
    whether it is there."""
    tree = jinja2.Environment().parse(text)
    measured = set()

    def depends(node: nodes.Node) -> bool:
        if isinstance(node, nodes.Test) and node.name == "none":
            return False
        if isinstance(node, nodes.Name) and node.name in measured:
            return True
        called = isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name)
        if called and node.node.name == "value":
            return True
        return any(map(depends, node.iter_child_nodes()))

    before = None
    while before != measured:
        before = set(measured)
        for assignment in tree.find_all(nodes.Assign):
            if depends(assignment.node):
                names = (nodes.Name, nodes.NSRef)
                targets = [assignment.target, *assignment.target.find_all(names)]
                measured |= {t.name for t in targets if isinstance(t, names)}
    found = [n for n in tree.find_all(nodes.Compare) if depends(n)]
    tests = [n.test for n in tree.find_all((nodes.If, nodes.CondExpr))]
    return sorted({n.lineno for n in [*found, *filter(depends, tests)]})


@pytest.mark.parametrize(
    "text, wrong",
    [
        ('{% if value("a") < value("b") %}x{% endif %}', True),
        ('{% set a = value("a") %}{% if a > 1 %}x{% endif %}', True),
        ('{% set a = value("a") %}{% set b = a / 2 %}{{ "x" if b else "y" }}', True),
        ('{% set n = namespace(a=1) %}{% set n.a = value("a") %}{{ n.a > 2 }}', True),
        ('{% if value("a") %}x{% endif %}', True),
        (
            '{% if value("a") is none %}x{% else %}{{ value("a") / 2 }}{% endif %}',
            False,
        ),
        ('{% set a = value("a") %}{% if a is not none %}{{ a * 2 }}{% endif %}', False),
        ("{% if tiles(1, 2) > 3 %}x{% endif %}", False),
    ],
)
def test_comparisons_are_found(text: str, wrong: bool):
    """What the test below finds, and what it lets pass."""
    assert bool(comparisons(text)) == wrong


@pytest.mark.parametrize(
    "name",
    [
        file.relative_to(TEMPLATES).as_posix()
        for file in sorted(TEMPLATES.rglob("*.md*"))
        if file.parent.name != "partials"
    ],
)
def test_no_page_compares_what_was_measured(name: str):
    """A sentence that compares is a claim, so that prose cannot contradict data.

    Partials show the numbers of one thing each, and no sentences.
    """
    if name != COMPARES_RECORDINGS:
        text = (TEMPLATES / name).read_text("utf-8")
        assert comparisons(text) == [], f"{name}: make it a claim"


def test_claims_in_pages_are_judged_somewhere(site):
    """Every claim that a page places is one, on every page of the site."""
    shutil.rmtree(site.templates)
    shutil.copytree(TEMPLATES, site.templates)
    site.render()
    placed = set()
    for page in (site.root / "docs").rglob("*.md"):
        if page.name != "claims.md":
            text = page.read_text("utf-8")
            placed |= set(re.findall(r'class="claim" data-claim="([^"]+)"', text))
    assert placed and placed <= set(CLAIMS)
