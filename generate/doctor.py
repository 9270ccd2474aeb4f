"""Say what this machine can do for the project, and what is missing for more."""

import os
import shutil
import sys
from importlib import metadata, util

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def examine() -> list[tuple[str, bool, str]]:
    """(what, there or not, detail) for everything that a command may need."""
    from generate.record.programs import find_sanitizer

    return [
        _python(),
        *[_package(name, "the site") for name in ("mkdocs", "plotly", "jinja2")],
        _pair(),
        _gpu(),
        _package("pynvml", "clocks and throttle reasons in a recording"),
        _found("ncu, for hardware counters in a recording", shutil.which("ncu")),
        _found("compute-sanitizer, for its section of a recording", find_sanitizer()),
        _package("kaleido", "drawing the charts' still pictures"),
        _found("chromium, for still pictures and browser tests", chromium()),
    ]


def chromium() -> str | None:
    """Path of a Chromium: named by CHROMIUM, or else one on the PATH."""
    named = os.environ.get("CHROMIUM")
    found = (shutil.which(name) for name in ([named] if named else CHROMIUM))
    return next(filter(None, found), None)


def _python() -> tuple[str, bool, str]:
    version = sys.version.split()[0]
    return "Python 3.11 or later", sys.version_info >= (3, 11), version


def _package(name: str, use: str) -> tuple[str, bool, str]:
    there = util.find_spec(name) is not None
    return f"{name}, for {use}", there, "installed" if there else "not installed"


def _found(what: str, path: str | None) -> tuple[str, bool, str]:
    return what, path is not None, path or "not on the PATH"


def _pair() -> tuple[str, bool, str]:
    from kernels import check_versions

    what = "torch and triton, for kernels and recordings"
    try:
        versions = metadata.version("torch"), metadata.version("triton")
        check_versions(*versions)
    except ImportError as error:
        return what, False, str(error)
    return what, True, f"torch {versions[0]}, triton {versions[1]}"


def _gpu() -> tuple[str, bool, str]:
    what = "a CUDA GPU, for recordings"
    if util.find_spec("torch") is None:
        return what, False, "torch is not installed"
    import torch

    if torch.version.hip:
        return what, False, "this torch is for ROCm"
    if not torch.cuda.is_available():
        return what, False, "torch sees none"
    return what, True, torch.cuda.get_device_name()
