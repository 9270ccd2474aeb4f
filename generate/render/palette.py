"""Colours of the charts: names of CSS variables, so that pages choose them.

Plotly takes no `var(…)`, so a figure is built in sentinel colours that stand
for the variables, one for one, and are exchanged on the way out.
"""

import re
from typing import Any

VARIABLES = (
    "--op-forward",
    "--op-dx",
    "--op-dw",
    "--chart-vendor",
    "--chart-limit",
    "--chart-fg",
    "--chart-grid",
    "--chart-bg",
)
SENTINELS = {name: f"rgb(9, 9, {index})" for index, name in enumerate(VARIABLES, 1)}
FORWARD, DX, DW, VENDOR, LIMIT, FOREGROUND, GRID, BACKGROUND = SENTINELS.values()
NOTHING = "rgba(0, 0, 0, 0)"

_TO_VARIABLE = {colour: f"var({name})" for name, colour in SENTINELS.items()}
_TO_SENTINEL = {variable: colour for colour, variable in _TO_VARIABLE.items()}
_SENTINEL = re.compile("|".join(map(re.escape, _TO_VARIABLE)))


def with_variables(text: str) -> str:
    """Every sentinel colour as its CSS variable."""
    return _SENTINEL.sub(lambda match: _TO_VARIABLE[match[0]], text)


def with_sentinels(spec: Any) -> Any:
    """A figure in CSS variables as one that Plotly can draw."""
    if isinstance(spec, dict):
        return {key: with_sentinels(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [with_sentinels(value) for value in spec]
    return _TO_SENTINEL.get(spec, spec) if isinstance(spec, str) else spec
