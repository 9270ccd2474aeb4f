"""Drawings: every state drawn in Python, with the numbers of plan.py and the facts."""

import re
from html.parser import HTMLParser
from itertools import product

import pytest

from generate.render import RenderError
from generate.render.drawings import (
    CHIP_CHOICES,
    GEMM_CHOICES,
    SPLIT_CHOICES,
    Grid,
    chip,
    drawings,
    grid,
    side,
)
from generate.render.facts import facts
from generate.render.measured import Measurements, Missing
from generate.schema import Recording
from generate.shapes import STARVED
from kernels.plan import plan

NAMES = ("phenomenon", "gemms", "strides", "chip", "split-chip")


class Shown(HTMLParser):
    """Elements of a drawing, and whether each is well closed."""

    def __init__(self, html: str):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def drawn(recording: Recording):
    return drawings(Measurements(recording))


def boxes(svg: str, kind: str) -> int:
    """Closed outlines in the paths of a class."""
    found = re.findall(rf'class="{kind}" d="([^"]*)"', svg)
    return sum(path.count("z") for path in found)


def test_names(drawn):
    assert tuple(drawn) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_state_stands_in_the_page(site, drawn, name: str):
    """Every combination of the controls has a state; only the first one shows, so that
    a page without JavaScript is whole."""
    text = site.text(f'{{{{ drawing("{name}") }}}}')
    figure = text[text.index("<figure") : text.index("</figure>") + 9]
    elements = Shown(figure).elements
    controls = drawn[name].controls
    counted = [range(len(control.options)) for control in controls]
    wanted = {" ".join(map(str, values)) for values in product(*counted)}
    assert {a["data-when"] for _, a in elements if "data-when" in a} == wanted
    shown = {
        a["data-when"]
        for _, a in elements
        if a.keys() & {"data-when"} and "hidden" not in a
    }
    assert shown == {" ".join(str(control.chosen) for control in controls)}
    natives = [tag for tag, _ in elements if tag in ("select", "input")]
    assert len(natives) == len(controls)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_say_what_they_show(site, name: str):
    """Each SVG is an image with a description, or a mere mark and hidden; its colours
    are classes, so that schemes and paper choose them."""
    text = site.text(f'{{{{ drawing("{name}") }}}}')
    for tag, attributes in Shown(text[text.index("<figure") :]).elements:
        assert "style" not in attributes
        assert not attributes.keys() & {"fill", "stroke"}
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"]) > 20


def test_grid_is_what_would_be_launched(recording: Recording):
    """Programs are those of the plan with that split."""
    measured = Measurements(recording)
    device = measured.gpu.device
    for shape, split_t in product(CHIP_CHOICES, SPLIT_CHOICES):
        chosen = plan("dw", shape, 2, device, split_t=split_t)
        launch = grid(measured, "dw", shape, split_t)
        assert launch.programs == chosen.programs
        assert sum(len(launch.wave(i)) for i in range(launch.waves)) == launch.programs
        assert launch.used_pct == pytest.approx(
            100 * launch.programs / launch.waves / launch.slots
        )


@pytest.mark.parametrize(
    "launch, index, marks",
    [
        (Grid(64, 1, 132, 2), 0, {"d-fill": 64, "d-sm": 64, "d-idle": 68}),
        (Grid(64, 4, 132, 2), 0, {"d-fill": 128, "d-half": 128, "d-dot": 4}),
        (Grid(529, 1, 132, 2), 2, {"d-fill": 1, "d-sm": 1, "d-idle": 131}),
        (Grid(500, 1, 108, 3), 0, {"d-fill": 324, "d-sm": 108, "d-idle": 0}),
    ],
)
def test_a_chip_has_a_mark_for_each_program(launch, index, marks):
    """SMs fill one program each before any gets two; the rest stand idle."""
    svg = chip(launch, index, "dw", slices=True)
    assert {kind: boxes(svg, kind) for kind in marks} == marks


def test_states_say_the_numbers_drawn(drawn):
    says = {state.when: state.says for state in drawn["split-chip"].states}
    assert says["0 0"].startswith("64 tiles × 1 = 64 programs for 132 SMs × 2 = 264")
    assert says["0 2"].startswith("64 tiles × 4 = 256 programs")
    assert "3 waves, 67 % of their places used" in says["1 0"]


def test_times_are_facts_of_the_recording(site, recording):
    """A drawing's times carry their keys; a missing point says so in their place."""
    numbers = facts(Measurements(recording))
    for name in ("phenomenon", "chip", "split-chip"):
        text = site.text(f'{{{{ drawing("{name}") }}}}')
        keys = re.findall(r'data-key="([^"]+)"', text)
        assert keys and not set(keys) - set(numbers)
    assert numbers["split.32768x1024x1024.none.1.ms"].text in text


def test_no_sweep_no_time(tmp_path, maker):
    """Without the split sweep the drawing still stands, with the planned split."""
    measured = Measurements(maker.write(tmp_path / "bare", splits=None))
    assert isinstance(measured.best_split(STARVED), Missing)
    pictures = drawings(measured)["phenomenon"].initial.pictures
    planned = measured.plan(STARVED)
    assert pictures[-1].label.startswith(f"{planned.programs} programs")


def test_edges_grow_with_their_size():
    """Longer is never drawn shorter, and nothing vanishes."""
    for shape in GEMM_CHOICES:
        lengths = [side(size, max(shape)) for size in sorted(shape)]
        assert lengths == sorted(lengths)
        assert lengths[0] >= 20


def test_gemms_mark_the_contracted_edge(drawn):
    """The letter a product sums over stands on both operands, in heavy type; the two
    others once each."""
    pictures = drawn["gemms"].initial.pictures
    for picture, letter, turned in zip(pictures, "KNT", (0, 1, 1), strict=True):
        heavy = re.findall(r'class="d-strong d-op"[^>]*>(\w)<', picture.svg)
        plain = re.findall(r"<text x[^>]*>([TKN])<", picture.svg)
        assert heavy == [letter] * 2
        assert sorted(plain) == sorted(set("TKN") - {letter})
        assert picture.svg.count("d-dashed") == turned


def test_strides_agree(drawn):
    """Both readings of a state lead to its one offset."""
    for offset, state in enumerate(drawn["strides"].states):
        sums = re.findall(r"(\d)·(\d) \+ (\d)·(\d) = (\d)", state.says)
        assert len(sums) == 2
        for a, b, c, d, total in (map(int, numbers) for numbers in sums):
            assert a * b + c * d == total == offset


def test_an_unknown_drawing_stops_the_render(site):
    with pytest.raises(RenderError, match="there is no drawing 'chips'; there are"):
        site.text('{{ drawing("chips") }}')
