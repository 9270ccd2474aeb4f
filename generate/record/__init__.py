"""Record the kernels on a GPU: one module a section, run in order.

Every section is written whole when it ends, so that a kill at any moment loses
at most the section under way, and a section that fails leaves the others; `resume`
makes up for what is missing.
"""

import hashlib
import os
import re
import traceback
from functools import partial
from importlib import import_module
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from generate.digest import kernels_digest
from generate.schema import (
    SECTIONS,
    DataError,
    Environment,
    Recording,
    first_fault,
    recordings,
    write_section,
)
from generate.shapes import Shape

# A compute mode of NVML: one process at a time has a context.
EXCLUSIVE_PROCESS = 3


class CannotRecord(Exception):
    """Recording cannot begin; says why in one sentence. Nothing was written."""


class Interrupted(Exception):
    """Sections could not be recorded; says which and why. The others are kept."""


def sentence(error: Exception) -> str:
    """An exception in one line, as a recorded reason: its cause, and no path."""
    return f"{type(error).__name__}: {without_paths(_cause(error))}"


def _cause(error: Exception) -> str:
    """The line of a message that says what is wrong."""
    if isinstance(error, ValidationError):
        return first_fault(error)
    lines = [line for line in str(error).splitlines() if line.strip()]
    # Triton's, by name, as nothing here needs it: its compiler says last what is
    # wrong, if not in the error that led to this one; the assembler, at first only
    # that there is an error.
    names = {kind.__name__ for kind in type(error).__mro__}
    if "CompilationError" in names:
        if error.__cause__:
            return _cause(error.__cause__)
        lines.reverse()
    elif "PTXASError" in names:
        found = [line for line in lines[1:] if re.search(r"\b(error|fatal)\s*:", line)]
        lines = found + lines
    return lines[0].strip() if lines else "no reason given"


def without_paths(text: str) -> str:
    """A text that says no folder, which names a machine and not what happened."""
    home = os.path.expanduser("~")
    if len(home) > 1:
        text = text.replace(home, "~")
    return re.sub(r"~?/\S*/", "", text)


def slug(name: str) -> str:
    """A folder name for a GPU name; distinct names never share one.

    Letters, digits, spaces and hyphens survive; a name that holds anything else,
    or nothing, gets a few digits of its own digest.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if re.fullmatch(r"[A-Za-z0-9]+( [A-Za-z0-9]+)*", name):
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return "-".join(filter(None, (plain or "gpu", digest)))


def record(
    root: Path,
    *,
    only_sections: tuple[str, ...] = (),
    only_shapes: tuple[Shape, ...] = (),
    resume: bool = False,
    extent: str = "quick",
    device_index: int = 0,
    console: Console | None = None,
) -> Path:
    """Record into `root`/data and return the recording's folder.

    only_sections: record these and `environment`, in order. only_shapes: instead
    of a section's own. resume: go on with the newest recording of this GPU and
    software, of these kernels, instead of beginning one. extent: "quick" or
    "full", each section at its fewest or at its widest.
    CannotRecord, in one sentence, before anything is written; Interrupted when
    sections failed, after all others were recorded.
    """
    console = console or Console()
    unknown = [name for name in only_sections if name not in SECTIONS]
    if unknown:
        raise CannotRecord(
            f"section must be one of {', '.join(SECTIONS)}, got {unknown[0]!r}"
        )
    distinct = tuple(dict.fromkeys(only_shapes))
    context = _context(root, distinct, extent, device_index)
    try:
        environment = import_module("generate.record.environment").record(context)
    except Exception as error:
        raise CannotRecord(
            f"this device cannot be described, {sentence(error)}"
        ) from error
    folder, present = _folder(root, environment, resume)
    wanted = [
        name
        for name in SECTIONS
        if name in (only_sections or SECTIONS)
        and not (name in present and not only_sections)
    ]
    if "environment" not in present and "environment" not in wanted:
        wanted.insert(0, "environment")
    if not wanted:
        raise CannotRecord(f"{folder} is complete, there is nothing to resume")
    if "environment" in wanted:
        write_section(folder / "environment.json", environment)
        wanted.remove("environment")
    modules = {name: import_module(f"generate.record.{name}") for name in wanted}
    failures = []
    with _progress(console) as progress:
        context.say = partial(progress.console.print, markup=False, highlight=False)
        total = sum(module.steps(context) for module in modules.values())
        whole = progress.add_task("whole recording", total=total)
        for name, module in modules.items():
            part = progress.add_task(name, total=module.steps(context))

            def advance(part=part):
                progress.advance(part)
                progress.advance(whole)

            context.advance = advance
            try:
                write_section(folder / f"{name}.json", module.record(context))
            except Exception as error:
                traceback.print_exception(error)
                failures.append(f"section {name}, {sentence(error)}")
                if fault := _fault(context):
                    failures.append(f"and none behind it, as the device fails: {fault}")
                    break
    if failures:
        raise Interrupted(
            f"not recorded: {'; '.join(failures)}; the others are kept, --resume "
            "tries again what is missing"
        )
    return folder


def _fault(context) -> str | None:
    """Why nothing more can run on the device, if an error has broken its context."""
    import torch

    try:
        torch.cuda.empty_cache()
        torch.cuda.synchronize(context.device)
    except Exception as error:
        return sentence(error)
    return None


def _context(
    root: Path, only_shapes: tuple[Shape, ...], extent: str, device_index: int
):
    try:
        import torch

        if torch.version.hip:
            raise CannotRecord("recording needs a CUDA GPU, this torch is for ROCm")
        import kernels

        kernels.matmul  # noqa: B018 - loads Triton and checks the versions
    except ImportError as error:
        raise CannotRecord(f"recording needs torch and triton: {error}") from None
    if not torch.cuda.is_available():
        raise CannotRecord("recording needs a CUDA GPU, and torch sees none here")
    if device_index >= torch.cuda.device_count():
        raise CannotRecord(
            f"device must be below {torch.cuda.device_count()}, got {device_index}"
        )
    from generate.record.context import Context

    # What is recorded is planned: no plan that somebody tuned here is found there.
    os.environ["XDG_CACHE_HOME"] = os.devnull
    torch.cuda.set_device(device_index)
    context = Context(
        device=torch.device("cuda", device_index),
        kernels_sha256=kernels_digest(root),
        only=only_shapes,
        extent=extent,
    )
    # Tests, profiler and sanitizer are processes of their own.
    found, _ = context.nvml.answers(mode=("DeviceGetComputeMode",))
    if found["mode"] == EXCLUSIVE_PROCESS:
        raise CannotRecord(
            "recording needs a GPU that several processes may use at once, and its "
            "compute mode is exclusive: nvidia-smi -c 0 changes it"
        )
    return context


def _folder(
    root: Path, environment: Environment, resume: bool
) -> tuple[Path, set[str]]:
    """Where to record, and which sections are there already."""
    software = environment.software
    base = root / "data" / slug(environment.gpu.name)
    stack = f"torch{software.torch.split('+')[0]}-triton{software.triton}"
    if resume:
        return _resumable(root, base, stack, environment)
    stem = f"{environment.recorded_on}-{stack}"
    folder, number = base / stem, 1
    while folder.exists():
        number += 1
        folder = base / f"{stem}-{number}"
    return folder, set()


def _resumable(
    root: Path, base: Path, stack: str, environment: Environment
) -> tuple[Path, set[str]]:
    try:
        known = recordings(root / "data")
    except DataError as error:
        raise CannotRecord(f"cannot resume: {error}") from None
    ours = [r for r in known if r.folder.parent == base and stack in r.folder.name]
    if not ours:
        raise CannotRecord(f"there is no recording to resume under {base} of {stack}")
    newest: Recording = ours[-1]
    before = newest.environment
    if before.kernels_sha256 != environment.kernels_sha256:
        raise CannotRecord(
            f"{newest.folder} was made from other kernels: begin a new recording"
        )
    if before.extent != environment.extent:
        raise CannotRecord(
            f"{newest.folder} is {before.extent}: resume it with --{before.extent}"
        )
    for one, other in (
        (before, environment),
        (before.gpu, environment.gpu),
        (before.software, environment.software),
    ):
        for field in type(one).model_fields:
            was, now = getattr(one, field), getattr(other, field)
            if was != now and field not in ("gpu", "software", "recorded_on"):
                raise CannotRecord(
                    f"{newest.folder} was made with {field} {was}, here it is {now}: "
                    "begin a new recording"
                )
    return newest.folder, set(newest.sections)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:>16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )
