"""What rendering owns under docs/, and how it comes to be what was rendered."""

from pathlib import Path

from generate.render.pages import RENDERED

ASSETS = "docs/assets/rendered"


def synchronise(root: Path, wanted: dict[str, str], check: bool) -> list[str]:
    """Make the rendered files those of `wanted`; paths that changed.

    Only files that differ are written. Rendered files that are not wanted any
    more are deleted. check: write and delete nothing, only say what would be.
    """
    changed = []
    for path, text in wanted.items():
        file = root / path
        if file.is_file() and file.read_bytes() == text.encode():
            continue
        changed.append(path)
        if not check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
    for file in _rendered(root):
        path = file.relative_to(root).as_posix()
        if path not in wanted:
            changed.append(path)
            if not check:
                file.unlink()
                _remove_empty(file.parent)
    return sorted(changed)


def _rendered(root: Path) -> list[Path]:
    """Files that an earlier render made, and no others."""
    pages = [
        file
        for file in (root / "docs").rglob("*.md")
        if RENDERED.search(file.read_text(encoding="utf-8"))
    ]
    assets = [file for file in (root / ASSETS).rglob("*") if file.is_file()]
    return sorted([*pages, *assets])


def _remove_empty(folder: Path) -> None:
    while not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
