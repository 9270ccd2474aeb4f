"""Rows and columns: what a picture shows, as a table and as two downloads.

Rows come first. The picture, the table and both downloads are made from them,
so the four cannot disagree.
"""

import csv
import io
import json
from dataclasses import dataclass

from generate.render.formats import rounded, shape_label
from generate.render.measured import Measurements
from generate.render.tables import Cell, Head, Table

Row = dict[str, int | float | str | None]


@dataclass(frozen=True)
class Column:
    """One column: `key` names it, with its unit, in CSV and JSON.

    digits: how many significant ones the files hold of a number that is not whole.
    """

    key: str
    head: str
    numeric: bool = True
    digits: int = 4


REASON = Column("not_measured_reason", "Why not measured", numeric=False)


@dataclass(frozen=True)
class Rows:
    """What a picture shows, for the table under it and both downloads.

    labels: how many of the first columns name a row, a shape's dimensions. rows: not
    rounded, so that whoever writes one of their numbers rounds it once.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    labels: int
    rows: list[Row]

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """The columns, and reasons where a row has no measurement."""
        if any(row.get(REASON.key) for row in self.rows):
            return (*self.columns, REASON)
        return self.columns

    @property
    def written(self) -> list[Row]:
        """The rows as the files hold them."""
        digits = {column.key: column.digits for column in self.shown_columns}
        return [
            {
                key: rounded(value, digits[key]) if isinstance(value, float) else value
                for key in digits
                for value in (row.get(key),)
            }
            for row in self.rows
        ]

    @property
    def csv(self) -> str:
        stream = io.StringIO()
        keys = [column.key for column in self.shown_columns]
        writer = csv.DictWriter(stream, keys, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.written)
        return stream.getvalue()

    def data(self, measured: Measurements) -> str:
        """The rows as JSON, with what they are and where they come from."""
        columns = self.shown_columns
        rows = map(json.dumps, self.written)
        about = {
            "chart": self.name,
            "title": self.title,
            "gpu": measured.gpu.name,
            "recording": measured.recording.name,
            "columns": {column.key: column.head for column in columns},
        }
        fields = [f"  {json.dumps(k)}: {_json(v)}" for k, v in about.items()]
        points = ",\n".join(f"    {row}" for row in rows)
        return "{\n" + ",\n".join(fields) + ',\n  "rows": [\n' + points + "\n  ]\n}\n"

    @property
    def table(self) -> Table:
        labels = self.columns[: self.labels]
        columns = self.shown_columns[self.labels :]
        heads = [Head(shape_label(tuple(column.key for column in labels)))]
        heads += [Head(column.head, column.numeric) for column in columns]
        return Table(self.title, heads, [self._cells(row) for row in self.written])

    def _cells(self, row: Row) -> list[Cell]:
        labels = self.columns[: self.labels]
        name = shape_label(tuple(row[column.key] for column in labels))
        cells = [Cell(name, header=True)]
        for column in self.shown_columns[self.labels :]:
            value = row.get(column.key)
            text = f"{value:.10g}" if isinstance(value, float) else str(value)
            cells.append(Cell("" if value is None else text, column.numeric))
        return cells


def _json(value) -> str:
    return json.dumps(value, ensure_ascii=False)
