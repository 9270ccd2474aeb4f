"""Entries of a notes file: headings with an anchor, which other pages lead to."""

import re
from dataclasses import dataclass

from generate.render.errors import RenderError

ENTRY = re.compile(r"^## (.+?) \{ #([a-z0-9-]+) \}\n\n(.+?)(?:\n\n|\n*\Z)", re.M | re.S)
# What would not be plain text.
MARKUP = re.compile(r"[`*\[{<]")


@dataclass(frozen=True)
class Entry:
    """first: the paragraph below the heading, in one line."""

    title: str
    first: str


def entries(text: str) -> dict[str, Entry]:
    """Entries by anchor."""
    return {
        anchor: Entry(title, " ".join(first.split()))
        for title, anchor, first in ENTRY.findall(text)
    }


def definitions(text: str, name: str) -> dict[str, Entry]:
    """Entries that begin with a definition. RenderError if one is no plain text."""
    found = entries(text)
    for anchor, entry in found.items():
        if MARKUP.search(entry.first):
            raise RenderError(
                f"{name}: the definition of #{anchor} must be plain text, since it "
                "is also shown beside the term on other pages"
            )
    return found
