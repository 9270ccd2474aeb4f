"""The site's charts, each a module with one function, `build`."""

from generate.render.charts import (
    accumulation,
    apart,
    breakdown,
    determinism,
    further,
    ladder,
    partials,
    plan,
    predicted,
    repeat,
    splits,
    tiles,
    training,
    transposes,
)
from generate.render.charts.base import Chart
from generate.render.measured import Measurements, Missing

BUILDERS = {
    "tiles": tiles.build,
    "splits": splits.build,
    "breakdown": breakdown.build,
    "transposes": transposes.build,
    "determinism": determinism.build,
    "accumulation": accumulation.build,
    "partials": partials.build,
    "plan": plan.build,
    "predicted": predicted.build,
    "repeat": repeat.build,
    "ladder": ladder.build,
    "further": further.build,
    "training": training.build,
    "apart": apart.build,
}


def charts(measured: Measurements) -> dict[str, Chart | Missing]:
    """Every chart of a recording, or why it cannot be drawn."""
    return {name: build(measured) for name, build in BUILDERS.items()}
