"""Training: facts, claims, charts and the page, with a recording of it and without."""

import json
import re

import pytest

from generate.render.charts import BUILDERS, Chart
from generate.render.claims import Judged
from generate.render.facts import facts
from generate.render.measured import Measurements, Missing
from generate.render.training import OURS, WAYS, apart
from generate.schema import Training
from tests.generate.conftest import ROOT, SiteRoot

PAGE = "training/train.md.j2"


def having(maker, tmp_path, **sections) -> Measurements:
    return Measurements(maker.write(tmp_path / "gpu" / "one", **sections))


@pytest.fixture
def measured(recording) -> Measurements:
    return Measurements(recording)


def judged(measured: Measurements) -> Judged:
    return Judged(measured, facts(measured))


def outcome(measured: Measurements, anchor: str) -> str:
    return judged(measured).verdicts[f"training-{anchor}"].outcome


def changed(section: Training, chosen, change) -> Training:
    """Where `chosen` takes a point's key, `change` makes its run's new fields."""
    points = tuple(
        p.model_copy(update={"run": p.run.model_copy(update=change(p.run))})
        if chosen(*p.key)
        else p
        for p in section.points
    )
    return section.model_copy(update={"points": points})


# Facts


def test_distance_is_of_the_same_steps():
    """The root of the mean square; a run is no distance from itself."""
    assert apart((1.0, 2.0), (1.0, 2.0)) == 0
    assert apart((1.0, 2.0, 3.0), (1.0, 5.0, 3.0)) == pytest.approx(3**0.5)


def test_facts_follow_the_runs(measured: Measurements):
    """Times over the vendor's, bits and digests, noise over all pairs of orders."""
    found = facts(measured)
    assert found["training.tokens"].text == "8,192"
    assert found["training.atomic.ms"].text == "9.00 ms"
    assert found["training.atomic.over_vendor"].value == 9 / 8
    assert found["training.atomic.distinct"].value == 2
    assert found["training.deterministic.distinct"].value == 1
    assert found["training.main_grad.distinct"].note == "it was run once"
    assert found["training.noise.runs"].value == 4
    assert found["training.noise.pairs"].value == 6
    runs = {p.key: p.run.losses_nats for p in measured.recording.training.points}
    first, other = (runs["vendor", 0, order, 1] for order in (0, 2))
    distance = apart(first, other)
    least, most = (found[f"training.noise.{name}"].value for name in ("least", "apart"))
    assert least <= distance <= most
    ours = runs["main_grad", 0, 0, 1]
    mean = sum(apart(ours, runs["vendor", 0, order, 1]) for order in range(4)) / 4
    assert found["training.main_grad.apart"].value == pytest.approx(mean)


def test_keys_stand_without_their_section(maker, tmp_path, measured):
    """Each says why it was not measured."""
    bare = facts(having(maker, tmp_path, training=None))
    keys = [key for key in bare if key.startswith("training.")]
    assert keys == [key for key in facts(measured) if key.startswith("training.")]
    for key in keys:
        assert bare[key].value is None
        assert "section training" in bare[key].note or "held against" in bare[key].note


# Claims


def test_one_curve_is_within_noise(measured: Measurements):
    """What the made-up runs were made to be."""
    for anchor in ("learns", "within-noise", "repeats", "atomics-do-not-repeat"):
        assert outcome(measured, anchor) == "holds", anchor


@pytest.mark.parametrize("factor, expected", [(1.5, "in part"), (9, "does not hold")])
def test_a_curve_of_its_own_is_no_noise(maker, tmp_path, factor, expected):
    """One run of one way that strays is enough, and how far decides."""
    section = maker.training()
    noise = facts(having(maker, tmp_path))["training.noise.apart"].value
    strays = changed(
        section,
        lambda *key: key == ("atomic", 0, 0, 2),
        lambda run: {
            "losses_nats": tuple(loss + factor * noise for loss in run.losses_nats)
        },
    )
    measured = having(maker, tmp_path, training=strays)
    assert expected in outcome(measured, "within-noise")


def test_one_bit_ends_repeatability(maker, tmp_path):
    """Parameters of another digest, after equal losses, are no repeat."""
    section = changed(
        maker.training(),
        lambda *key: key == ("deterministic", 0, 0, 2),
        lambda run: {"parameters_sha256": "f" * 64},
    )
    measured = having(maker, tmp_path, training=section)
    assert outcome(measured, "repeats") == "does not hold"


def test_a_model_that_learns_nothing_is_told(maker, tmp_path):
    """A held-out loss no better than counting bytes."""
    section = changed(
        maker.training(),
        lambda way, *_: way == "main_grad",
        lambda run: {"held_out_nats": 3.3},
    )
    measured = having(maker, tmp_path, training=section)
    assert outcome(measured, "learns") == "does not hold"
    assert outcome(measured, "ends-alike") == "does not hold"


def test_the_host_is_blamed_only_where_it_is_slow(maker, tmp_path, measured):
    """A step that is queued long before it has run waits for the GPU."""
    assert outcome(measured, "host") == "holds"
    section = changed(
        maker.training(),
        lambda *_: True,
        lambda run: {"host_ms": tuple(0.4 * ms for ms in run.host_ms)},
    )
    measured = having(maker, tmp_path, training=section)
    assert outcome(measured, "host") == "does not hold"


def test_a_failed_kernel_has_trained_nothing(maker, tmp_path):
    """Where a test of the fast kernels failed, only the vendor's runs are shown."""
    failing = maker.verification(failing=("fast",))
    measured = having(maker, tmp_path, verification=failing)
    assert facts(measured)["training.vendor.ms"].value == 8
    assert isinstance(BUILDERS["training"](measured), Missing)
    assert outcome(measured, "within-noise") == "not measured"
    assert "a test of the fast kernel failed" in judged(measured).text(
        "training-within-noise"
    )


# Charts


def test_every_run_of_the_seed_is_in_the_chart(measured: Measurements):
    """A curve a run, a legend a way, and no run of other batches."""
    chart = BUILDERS["training"](measured)
    drawn = json.loads(chart.spec)["data"]
    assert len(drawn) == 10
    legend = [trace["name"] for trace in drawn if trace["showlegend"]]
    assert legend == list(WAYS.values())
    assert {len(trace["y"]) for trace in drawn} == {60}
    assert chart.rows[0]["atomic_1"] == 5.5
    assert not [column for column in chart.columns if "seed" in column.key]


def test_a_run_that_repeats_is_not_drawn_apart(measured: Measurements):
    """No difference has no place on a log axis: the caption says which run."""
    chart = BUILDERS["apart"](measured)
    assert isinstance(chart, Chart)
    assert "Not drawn, for no step of theirs differs: nn.Linear, run 2." in (
        chart.caption
    )
    drawn = json.loads(chart.spec)["data"]
    assert len(drawn) == 8
    assert all(row["vendor_2"] == 0 for row in chart.rows)
    assert len(chart.table.rows) == len(measured.recording.training.points)


def test_a_run_that_failed_is_a_row_with_a_reason(maker, tmp_path):
    """The others are drawn; the table says why this one is not."""
    section = maker.training()
    points = tuple(
        p.model_copy(update={"run": None, "skipped_reason": "no memory"})
        if p.way == "main_grad"
        else p
        for p in section.points
    )
    section = section.model_copy(update={"points": points})
    measured = having(maker, tmp_path, training=section)
    found = facts(measured)["training.main_grad.ms"]
    assert (found.value, found.note) == (None, "no memory")
    chart = BUILDERS["apart"](measured)
    assert chart.table.reasons == ["no memory"]
    assert outcome(measured, "step-time") == "does not hold"


# The page


def test_the_page_stands_with_and_without(site: SiteRoot):
    """Every number is measured, or says that it is not, and nothing is compared."""
    site.page(PAGE, (ROOT / "generate" / "templates" / PAGE).read_text("utf-8"))
    site.render()
    page = (site.root / "docs/training/train.md").read_text("utf-8")
    missing = re.findall(r'fact--missing" data-key="([^"]+)"', page)
    assert missing == ["training.main_grad.distinct"]
    assert page.count('data-chart="') == 2
    for way in OURS:
        assert f'data-key="training.{way}.over_vendor"' in page
    (site.recording.folder / "training.json").unlink()
    site.render()
    page = (site.root / "docs/training/train.md").read_text("utf-8")
    assert "This recording does not say: no such run is in it." in page
    assert page.count("Chart not measured: this recording has no section") == 2
    assert not re.search(r'<data class="fact" data-key="training\.', page)


def test_numbers_of_other_layers_are_flagged(site: SiteRoot):
    """Code of the layers that changed since is said on this page and no other."""
    site.page(PAGE, (ROOT / "generate" / "templates" / PAGE).read_text("utf-8"))
    site.page("other.md.j2", '# Other\n\n{{ fact("gpu.name") }}\n')
    notice = "Numbers of an earlier version"
    for change, flagged in (("# as before", False), ("CHANGED = 1", True)):
        with site.kernel("layers").open("a", encoding="utf-8") as file:
            file.write(f"\n{change}\n")
        site.render()
        page = (site.root / "docs/training/train.md").read_text("utf-8")
        assert (notice in page) == flagged
        assert notice not in (site.root / "docs/other.md").read_text("utf-8")
