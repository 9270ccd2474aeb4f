"""Tables as pages show them: cells that know whether they hold a number."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Head:
    text: str
    numeric: bool = False


@dataclass(frozen=True)
class Cell:
    """reason: why there is no number, for a cell that says "not measured"."""

    text: str
    numeric: bool = False
    header: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Table:
    """ends: the numbers of rows that end a group."""

    caption: str
    heads: list[Head]
    rows: list[list[Cell]]
    ends: frozenset[int] = frozenset()

    @property
    def reasons(self) -> list[str]:
        """Every reason of a missing number, once."""
        found = (cell.reason for row in self.rows for cell in row)
        return list(dict.fromkeys(reason for reason in found if reason))
