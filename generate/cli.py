"""python -m generate: record on a GPU, render pages, check and report data."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from generate import shapes
from generate.schema import DataError, Recording, recordings

ROOT = Path(__file__).parents[1]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False
)
console = Console()
errors = Console(stderr=True)


def _stop(sentence: str) -> typer.Exit:
    errors.print(sentence, soft_wrap=True, markup=False, highlight=False)
    return typer.Exit(1)


@app.command()
def record(
    section: Annotated[
        list[str] | None, typer.Option(help="Record this section; may repeat.")
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="T,K,N instead of the usual; may repeat.")
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick",
            help="More split shapes and more repeated runs, or what the site shows.",
        ),
    ] = False,
    resume: Annotated[
        bool, typer.Option(help="Go on with the newest recording of this GPU.")
    ] = False,
    device: Annotated[int, typer.Option(min=0, help="Index of the CUDA device.")] = 0,
    root: Annotated[Path, typer.Option(help="The checkout.")] = ROOT,
) -> None:
    """Run the kernels on a GPU and write a recording under data/."""
    from generate.check import check as find_faults
    from generate.record import CannotRecord, Interrupted
    from generate.record import record as make

    try:
        folder = make(
            root,
            only_sections=tuple(section or ()),
            only_shapes=tuple(shapes.parse(text) for text in shape or ()),
            resume=resume,
            extent="full" if full else "quick",
            device_index=device,
            console=console,
        )
    except (CannotRecord, Interrupted, ValueError) as error:
        raise _stop(str(error)) from None
    console.print(f"recorded {folder}", soft_wrap=True, highlight=False)
    if faults := find_faults(root / "data"):
        raise _stop("\n".join(faults))
    skipped = _skipped(Recording(folder))
    for sentence in skipped:
        console.print(sentence, soft_wrap=True, markup=False, highlight=False)


def _skipped(recording: Recording) -> list[str]:
    found = []
    for name, section in recording.sections.items():
        for point in getattr(section, "points", ()):
            if reason := getattr(point, "skipped_reason", None):
                words = " ".join(map(str, point.key))
                found.append(f"skipped {name} {words}: {reason}")
    verification = recording.verification
    for point in verification.points if verification else ():
        if point.outcome in ("failed", "error"):
            found.append(f"GPU test {point.outcome}: {point.name}: {point.message}")
    return found


@app.command()
def render(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if pages are stale.")
    ] = False,
    stills: Annotated[
        bool | None,
        typer.Option(help="Draw charts' still pictures; by default where possible."),
    ] = None,
    root: Annotated[Path, typer.Option(help="The checkout.")] = ROOT,
) -> None:
    """Render pages and charts under docs/ from data/ and generate/templates/."""
    from generate.render import RenderError
    from generate.render import render as write

    try:
        changed = write(root, check=check, stills=stills)
    except (RenderError, DataError) as error:
        raise _stop(str(error)) from None
    for path in changed:
        console.print(path, soft_wrap=True, markup=False, highlight=False)
    if check and changed:
        raise _stop("stale: run python -m generate render")


@app.command()
def check(
    data: Annotated[Path, typer.Argument(help="Folder of recordings.")] = ROOT / "data",
) -> None:
    """Validate every recording: strict JSON, schema, physics, identity."""
    from generate.check import check as find_faults

    if faults := find_faults(data):
        raise _stop("\n".join(faults))
    for recording in recordings(data):
        sections = ", ".join(recording.sections)
        console.print(f"{recording.name}: {sections}", soft_wrap=True, highlight=False)


@app.command()
def report(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    recording: Annotated[
        str | None, typer.Option(help="gpu/recording; by default the newest.")
    ] = None,
    root: Annotated[Path, typer.Option(help="The checkout.")] = ROOT,
) -> None:
    """Print ours against vendor per op and shape, splits, targets and each claim."""
    from generate.report import print_report
    from generate.report import report as compute

    try:
        found = recordings(root / "data")
    except DataError as error:
        raise _stop(str(error)) from None
    chosen = [r for r in found if recording in (None, r.name)]
    if not chosen:
        raise _stop(f"there is no recording {recording or ''} under {root / 'data'}")
    if as_json:
        typer.echo(json.dumps(compute(chosen[-1], found), allow_nan=False, indent=1))
    else:
        print_report(chosen[-1], console, found)


@app.command()
def doctor() -> None:
    """Say what this machine can do for the project."""
    from generate.doctor import examine

    for what, there, detail in examine():
        mark = "[green]✓[/]" if there else "[yellow]–[/]"
        console.print(f"{mark} {what}: {detail}", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    app()
