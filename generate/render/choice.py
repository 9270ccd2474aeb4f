"""What a page shows of another recording, where its reader chooses one.

Numbers and claims travel in facts.json, figures in a file each; here are the words
and tables around them.
"""

import json

import jinja2

from generate.render import hardware, ladder, planning, targets, timelines
from generate.render.charts import Chart
from generate.render.measured import Measurements, Missing


def text(
    measured: Measurements,
    drawn: dict[str, Chart | Missing],
    templates: jinja2.Environment,
) -> str:
    """The file: a line a chart and a table, so that a diff names what changed."""
    table = templates.get_template("partials/table.html.j2").module.table
    charts = {name: _chart(chart, table) for name, chart in drawn.items()}
    parts = {"charts": charts, "tables": tables(measured, templates)}
    blocks = [f"  {_line(key)}: {_lines(found)}" for key, found in parts.items()]
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def tables(measured: Measurements, templates: jinja2.Environment) -> dict[str, str]:
    """Tables that no chart has above it, as pages show them."""
    partial = templates.get_template("partials/measurements.html.j2")
    found = {
        **hardware.tables(measured),
        "timeline": timelines.table(measured),
        "slowest": ladder.slowest(measured),
        **planning.tables(measured),
        "targets": targets.table(measured),
    }
    return {name: partial.render(given=table).strip() for name, table in found.items()}


def _chart(chart: Chart | Missing, table) -> dict:
    if isinstance(chart, Missing):
        return {"reason": chart.reason}
    caption = chart.table.caption if chart.grid else None
    return {
        "title": chart.title,
        "caption": chart.caption,
        "table": table(chart.table, caption),
    }


def _lines(found: dict) -> str:
    entries = ",\n".join(f"    {_line(k)}: {_line(v)}" for k, v in found.items())
    return "{\n" + entries + "\n  }"


def _line(value) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
