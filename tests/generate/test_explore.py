"""The crossover widget's file and first state: every number from plan and recording."""

import json
import re
from dataclasses import replace

import pytest

from generate.gpus import DATASHEETS
from generate.render import explore
from generate.render.facts import facts
from generate.render.measured import Measurements
from generate.render.readings import fixed, readings, three
from generate.schema import Recording
from generate.shapes import SPLIT_SHAPES, STARVED, WORKED
from kernels.plan import (
    choose_tile,
    contracted_blocks,
    expected_resident,
    plan,
    split_time,
)


@pytest.fixture
def measured(recording: Recording) -> Measurements:
    return Measurements(recording)


@pytest.fixture
def found(measured: Measurements) -> dict:
    return explore.data(measured, [measured])


def at(found: dict, shape, **more) -> dict:
    sizes = dict(zip("TKN", shape, strict=True))
    return readings(found, {**found["default"], **sizes, **more})


@pytest.mark.parametrize("shape", SPLIT_SHAPES, ids=str)
def test_it_says_what_plan_plans(found, measured, shape):
    """Tiles, blocks, residents, the split and the curve are those of kernels.plan."""
    device = measured.gpu.device
    chosen, tile = plan("dw", shape, 2, device), choose_tile("dw", 2, device)
    blocks = contracted_blocks("dw", shape, tile)
    resident = expected_resident("dw", tile, 2, device)
    said = at(found, shape)
    show = said["show"]
    assert show["tiles"] == str(chosen.tiles)
    assert show["blocks"] == str(blocks)
    assert show["resident"] == str(resident)
    assert show["planned"] == str(chosen.split_t)
    given = chosen.tiles, blocks, device.sm_count, resident
    unsplit = split_time(1, *given)
    for split, modelled, *_ in said["rows"]:
        if modelled != "not computed":
            assert modelled == fixed(split_time(int(split), *given) / unsplit, 2)


def test_the_ridge_is_of_whole_numbers(found, measured):
    """What a reading rounds was not rounded before."""
    gpu, known = found["gpus"][0], facts(measured)
    assert gpu["peak_tflops"]["2"] == known["ceilings.gemm_tflops"].value
    assert gpu["bandwidth_tbps"] == known["ceilings.copy_tbps"].value


def test_measured_points_are_those_of_the_recording(found, measured):
    """Ratios of recorded medians, at the shape itself or, named, at the nearest."""
    plain = measured.split(STARVED, "none", 1).time_ms
    said = at(found, STARVED)
    rows = {row[0]: row for row in said["rows"]}
    for column, way in ((2, "atomic"), (3, "workspace")):
        point = measured.split(STARVED, way, 8)
        assert rows["8"][column] == fixed(point.time_ms / plain, 2)
    assert said["when"]["measured"]
    assert measured.recording.name in said["show"]["measured"]
    near = at(found, (32768, 1024, 1040))
    assert near["when"]["measured"]
    assert "nearest recorded shape, 32768 × 1024 × 1024" in near["show"]["measured"]
    far = at(found, (64, 16, 16))
    assert not far["when"]["measured"]
    assert {row[2] for row in far["rows"]} == {"not measured"}


def test_other_tiles_and_types_have_no_measured_points(found):
    """A sweep was recorded with one tile and one dtype, and is shown for no other."""
    for choice in ({"tile": "64x64"}, {"bytes": 4}):
        said = at(found, STARVED, **choice)
        assert not said["when"]["measured"]
        assert "16-bit" in said["show"]["measured"]


def test_withheld_points_stay_away(tmp_path, maker):
    """Points of a kernel whose test failed are not in the widget's file; nor is
    anything that a recording does not hold."""
    failing = maker.verification(("dw",))
    recording = maker.write(tmp_path / "test-gpu" / "a", verification=failing)
    measured = Measurements(recording)
    found = explore.data(measured, [measured])
    assert found["gpus"][0]["splits"] == []
    assert "no split sweep" in at(found, STARVED)["show"]["measured"]
    bare = Measurements(maker.write(tmp_path / "test-gpu" / "b", ceilings=None))
    (tmp_path / "test-gpu" / "b" / "ceilings.json").unlink(missing_ok=True)
    found = explore.data(bare, [bare])
    assert at(found, STARVED)["show"]["ridge"] == "not measured for this dtype"


def test_every_recorded_gpu_is_offered_once(tmp_path, maker, measured):
    """The newest recording of each GPU, the page's own first, then datasheets."""
    again = Measurements(maker.write(tmp_path / "other-gpu" / "2026-01-30"))
    newer = Measurements(maker.write(tmp_path / "other-gpu" / "2026-01-31"))
    found = explore.data(measured, [again, newer, measured])
    ids = [gpu["id"] for gpu in found["gpus"]]
    assert ids == ["test-gpu", "other-gpu", *(sheet.id for sheet in DATASHEETS)]
    assert found["gpus"][1]["recording"] == "other-gpu/2026-01-31"


def test_datasheets_name_sources_and_are_marked(found):
    """What was not measured says so, and where its figures are from."""
    for sheet in DATASHEETS:
        assert all(link.startswith("https://") for _, link in sheet.sources)
        assert sheet.device is None or sheet.device.sm_count == sheet.sm_count
        show = at(found, STARVED, gpu=sheet.id)["show"]
        assert show["origin"] == "datasheet, not measured"
        assert "datasheet, not measured" in show["ridge"]


def test_nothing_is_planned_where_the_model_does_not_apply(found):
    """A GPU with warps of 64 gets tiles and FLOPs, and no residency, split or time."""
    said = at(found, STARVED, gpu="mi300x")
    assert said["show"]["tiles"] == "64"
    assert "240 compute units idle" in said["show"]["sentence"]
    assert "warps of 64" in said["show"]["sentence"]
    assert not said["when"]["planned"] and not said["rows"]
    for key in ("resident", "slots", "waves", "planned", "workspace"):
        assert said["show"][key] == "not computed"


def test_a_tile_that_does_not_fit_is_named(found):
    """128 × 256 needs more shared memory than an RTX 4090 has for a program."""
    said = at(found, STARVED, gpu="rtx-4090", tile="128x256")
    assert "144 KiB" in said["show"]["sentence"]
    assert "99.0 KiB" in said["show"]["sentence"]
    assert not said["when"]["planned"]


def test_sentences_follow_the_state(found):
    """Starved, partly filled, a last wave, a full grid and a short T differ."""
    texts = [
        at(found, shape)["show"]["sentence"]
        for shape in (
            STARVED,
            (16384, 768, 3072),
            (4096, 2880, 2880),
            WORKED,
            (256, 64, 64),
        )
    ]
    words = [
        "leaves 68 SMs idle",
        "of the 264 places",
        "3 waves, the last 0.4 % full",
        "14 waves, the last 58 % full",
        "T is too short",
    ]
    for text, word in zip(texts, words, strict=True):
        assert word in text, text


def test_prompts_have_one_right_answer(found):
    """Each question offers its answer once, and leads to a state of the widget."""
    for prompt in explore.prompts(found):
        assert len(set(prompt.choices)) == len(prompt.choices) == 3
        assert prompt.choices[prompt.right] in prompt.answer or prompt.right == 1
        assert re.fullmatch(r"\?v=1&gpu=test-gpu(&\w+=\w+){5}", prompt.state)


def test_the_page_stands_in_its_first_state(site, found):
    """The markup holds the first state's numbers, with no script."""
    page = site.text("{{ explore() }}")
    first = readings(found, found["default"])["show"]
    assert first["sentence"] in page
    assert f'data-show="planned">{first["planned"]}<' in page
    assert page.count("<fieldset disabled>") == 1
    file = re.search(r'data-explore="([^"]+)"', page)[1]
    read = json.loads((site.root / "docs" / file).read_text("utf-8"))
    assert read == json.loads(json.dumps(found))


def test_numbers_are_rounded_as_in_a_browser():
    """Halves go up, as JavaScript's toFixed has them, on the exact binary value."""
    assert [fixed(2.125, 2), fixed(0.5, 0), fixed(1.005, 2)] == ["2.13", "1", "1.00"]
    assert [three(744.1), three(99.94), three(4.256)] == ["744", "99.9", "4.26"]


def test_another_gpu_gets_its_own_questions(tmp_path, maker):
    """Questions and answers are computed for the GPU recorded, whatever it has."""
    gpu = maker.gpu.model_copy(update={"sm_count": 32})
    small = Measurements(type(maker)(gpu=gpu).write(tmp_path / "small" / "2026-01-31"))
    found = explore.data(small, [small])
    assert replace(small.gpu.device).sm_count == 32
    for prompt in explore.prompts(found):
        assert len(set(prompt.choices)) == 3
