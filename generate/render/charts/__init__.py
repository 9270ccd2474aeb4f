"""The site's charts, each a module with one function, `build`."""

from generate.render.charts import breakdown, splits, tiles
from generate.render.charts.base import Chart
from generate.render.measured import Measurements, Missing

BUILDERS = {
    "tiles": tiles.build,
    "splits": splits.build,
    "breakdown": breakdown.build,
}


def charts(measured: Measurements) -> dict[str, Chart | Missing]:
    """Every chart of a recording, or why it cannot be drawn."""
    return {name: build(measured) for name, build in BUILDERS.items()}
