"""The plans that `kernels.fast.tune.tune` found fastest, kept in a file.

The file is matmul-backward/plans.json under $XDG_CACHE_HOME, or else ~/.cache.
A process reads it once, when it first has a choice of plans. Delete it to
forget what was tuned; a process that has read it forgets when it ends.

A kept plan serves calls that are alike: in operation, sizes, strides, dtypes,
whether tensors begin at multiples of 16 bytes, mode, reduction, name and facts of
the device, versions of torch and Triton, and the code of this package.
"""

import functools
import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch
import triton

from kernels.plan import FastPlan, ranked_plans

HERE = Path(__file__).parent


def find(question: dict, a, b, dtype, strides) -> FastPlan | None:
    """The plan kept for a product of a and b into strides of dtype, if any.

    question: what `ranked_plans` is asked. A kept plan that is none of its
    answers, as in a file that was changed by hand, is ignored.
    """
    if not _kept():
        return None
    plan = _kept().get(_key(question, a, b, dtype, strides))
    if plan is None:
        return None
    possible = (p for _, p in ranked_plans(**question))
    return next((p for p in possible if asdict(p) == plan), None)


def keep(plan: FastPlan, question: dict, a, b, dtype, strides) -> None:
    """Keep a plan for what `find` is asked, for this process and later ones.

    Where the file cannot be written, for this process alone.
    """
    new = {_key(question, a, b, dtype, strides): asdict(plan)}
    _kept().update(new)
    # Others may have written meanwhile, and read while this writes.
    text = json.dumps(_read() | new, indent=1)
    try:
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, whole = tempfile.mkstemp(dir=file.parent)
        try:
            with open(handle, "w") as opened:
                opened.write(text)
            os.replace(whole, file)
        except OSError:
            os.unlink(whole)
    except (OSError, RuntimeError):
        pass


@functools.cache
def _kept() -> dict[str, dict]:
    return _read()


def _read() -> dict[str, dict]:
    """What the file says; nothing, if it is missing, unreadable or broken."""
    try:
        plans = json.loads(_file().read_text())
    except (OSError, RuntimeError, ValueError):
        return {}
    return plans if isinstance(plans, dict) else {}


def _file() -> Path:
    """RuntimeError where nobody has a home."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "matmul-backward", "plans.json")


def _key(question: dict, a, b, dtype, strides) -> str:
    on_cpu = a.device.type == "cpu"
    facts = {
        **question,
        "device": asdict(question["device"]),
        "layout": asdict(question["layout"]),
        "name": "cpu" if on_cpu else torch.cuda.get_device_name(a.device),
        "a": (str(a.dtype), a.stride()),
        "b": (str(b.dtype), b.stride()),
        "out": (str(dtype), strides),
        "versions": (torch.__version__, triton.__version__, _code()),
    }
    return json.dumps(facts)


@functools.cache
def _code() -> str:
    """A digest of this package, whose version number changes less often."""
    digest = hashlib.sha256()
    for file in sorted((*HERE.parent.glob("*.py"), *HERE.glob("*.py"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
