"""A digest of the kernels' code: what a recording's numbers were made by.

Recorded with every section and compared when pages are rendered. Comments and
blank lines do not count, so that a reworded remark leaves numbers valid.
"""

import functools
import hashlib
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

# The kernels and what launches them. kernels/plan.py is left out: the configuration
# it chose stands in each recorded point. So is the tuner, which recordings never ask.
SOURCES = ("forward", "dx", "dw", "reduce", "ops", "host")
TUNER = ("tune", "tuned")


def kernels_digest(root: Path) -> str:
    """SHA-256, in hexadecimal, of the code under `root`/kernels."""
    folder = root / "kernels"
    lessons = [folder / f"{name}.py" for name in SOURCES]
    fast = sorted((folder / "fast").glob("*.py"))
    return _digest([*lessons, *(file for file in fast if file.stem not in TUNER)])


def traps_digest(root: Path) -> str:
    """As much of the code under `root`/kernels/traps."""
    return _digest(sorted((root / "kernels" / "traps").glob("*.py")))


def layers_digest(root: Path) -> str:
    """As much of the code of the linear layers."""
    return _digest([root / "kernels" / "layers.py"])


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        source = file.read_text(encoding="utf-8")
        digest.update(f"{file.stem}\n{_code(source)}\n".encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)
def _code(source: str) -> str:
    """The source without comments and blank lines."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    stripped = (line.rstrip() for line in lines)
    return "\n".join(line for line in stripped if line)
