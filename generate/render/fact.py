"""One number or word of a recording, as prose and JSON show it."""

from dataclasses import dataclass
from html import escape

from generate.render.formats import count, milliseconds, ratio, rounded
from generate.render.measured import Missing

Value = int | float | str


@dataclass(frozen=True)
class Fact:
    """One number or word: `text` with its unit, `note` for whoever hovers."""

    value: Value | None
    text: str
    note: str = ""

    def as_json(self) -> dict:
        value = rounded(self.value, 6) if isinstance(self.value, float) else self.value
        note = {"note": self.note} if self.note else {}
        return {"value": value, "text": self.text, **note}


Facts = dict[str, Fact]

# Figures of the lesson's text, written for an H100.
LESSON: Facts = {
    "tflops": Fact(490, "~490 TFLOP/s"),
    "bandwidth": Fact(3.35, "3.35 TB/s"),
    "sms": Fact(132, "~132"),
    "gemm_tflop": Fact(0.96, "~0.96 TFLOP"),
    "layer_tflop": Fact(2.9, "2.9 TFLOP"),
    "layer_ms": Fact(5.9, "~5.9 ms"),
}


def missing(reason: str) -> Fact:
    return Fact(None, "not measured", reason)


def known(value: Value | None, write=str, reason: str | None = None) -> Fact:
    if value is None:
        return missing(reason or "the driver does not say")
    return Fact(value, write(value))


def duration(point) -> Fact:
    """The median of a timed point's samples."""
    if isinstance(point, Missing):
        return missing(point.reason)
    note = f"median of {count(len(point.samples_ms), 'sample')}"
    return Fact(point.time_ms, milliseconds(point.time_ms), note)


def times(numerator: Fact, denominator: Fact, note: str) -> Fact:
    for side in (numerator, denominator):
        if side.value is None:
            return side
    value = numerator.value / denominator.value
    return Fact(value, ratio(value), note)


def element(key: str, fact: Fact, record: str, classes: str = "fact") -> str:
    """A fact in HTML: its key, its bare value and, on hover, where it is from."""
    if fact.value is None:
        return (
            f'<span class="fact fact--missing" data-key="{escape(key)}" '
            f'title="{_attribute(fact.note)}">{escape(fact.text)}</span>'
        )
    value = f"{fact.value:.6g}" if isinstance(fact.value, float) else fact.value
    title = "; ".join(filter(None, [record, fact.note]))
    return (
        f'<data class="{classes}" data-key="{escape(key)}" '
        f'value="{_attribute(value)}" title="{_attribute(title)}">'
        f"{escape(fact.text)}</data>"
    )


def _attribute(value) -> str:
    """Text for an attribute in Markdown, where a bar would end a table's cell."""
    return escape(str(value)).replace("|", "&#124;")
