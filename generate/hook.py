"""MkDocs hook: renders before each build, so that `mkdocs serve` follows edits.

Nothing depends on it: the rendered pages are committed.
"""

import sys
from pathlib import Path

from mkdocs.exceptions import PluginError

_serving = False


def on_startup(command: str, dirty: bool) -> None:
    global _serving
    _serving = command == "serve"


def on_pre_build(config) -> None:
    root = Path(config.config_file_path).parent
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if _serving:
        _forget()
    from generate.render import RenderError, render
    from generate.schema import DataError

    try:
        render(root, stills=False)
    except (RenderError, DataError) as error:
        raise PluginError(str(error)) from None


def _forget() -> None:
    """Import the project's modules anew: one of them may be what was edited."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("generate", "kernels"):
            del sys.modules[name]
