"""Claims and verdicts: what the lesson says, and what a recording says of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

from generate.render.fact import Fact, Facts, element
from generate.render.formats import ratio, shape_key
from generate.render.measured import Measurements, Missing
from generate.shapes import STARVED, WORKED

Outcome = Literal["holds", "holds in part", "does not hold", "not measured"]
OUTCOMES: tuple[Outcome, ...] = (
    "holds",
    "holds in part",
    "does not hold",
    "not measured",
)
# Times that differ by less count as even.
NOISE = 0.03
MARGIN = f"{100 * NOISE:.0f} %"
AT_WORKED = "At T = 8192, K = 4096, N = 14336"
AT_STARVED = "At T = 32768, K = N = 1024"
# Where the facts of the worked GEMMs, the starved sweep and its compiled dW stand.
GEMM = f"gemm.{shape_key(WORKED)}"
SPLIT = f"split.{shape_key(STARVED)}"
DW = f"occupancy.{shape_key(STARVED)}.dw"
# Where a sentence holds a fact: its key in braces.
PLACE = re.compile(r"\{([^{}]+)\}")


class NotMeasured(Exception):
    """A claim needs what the recording does not have; says why it does not."""


class Number(float):
    """A fact's value; written into a sentence, it is the fact itself."""

    def __new__(cls, key: str, fact: Fact):
        number = super().__new__(cls, fact.value)
        number.key = key
        return number

    def __format__(self, form: str) -> str:
        return f"{{{self.key}}}" if not form else super().__format__(form)


class Evidence:
    """What a claim is judged by: facts by their keys, points, and tile counts.

    used: keys of the facts that were asked for, once each.
    """

    def __init__(self, measured: Measurements, facts: Facts):
        self.measured = measured
        self.facts = facts
        self.used: dict[str, None] = {}

    def __getitem__(self, key: str) -> Number:
        """A number that the claim cannot do without."""
        return Number(key, self._known(key))

    def get(self, key: str) -> Number | None:
        """A number, or None where it was not measured."""
        return None if self.facts[key].value is None else self[key]

    def known(self, keys: list[str]) -> list[Number]:
        """Those of the numbers that were measured. NotMeasured if none was."""
        found = [number for key in keys if (number := self.get(key)) is not None]
        return found or [self[keys[0]]]

    def word(self, key: str) -> str:
        """A fact in words, for a sentence."""
        self._known(key)
        return f"{{{key}}}"

    def point(self, found):
        """A point of the measurements, unless it is missing."""
        if isinstance(found, Missing):
            raise NotMeasured(found.reason)
        return found

    def tiles(self, k: int, n: int) -> int:
        """Output tiles of dW[K, N]."""
        return self.measured.tiles(k, n)

    def _known(self, key: str) -> Fact:
        fact = self.facts[key]
        if fact.value is None:
            raise NotMeasured(fact.note)
        self.used[key] = None
        return fact


@dataclass(frozen=True)
class Verdict:
    """An outcome and the sentence that gives it, with keys of facts in braces.

    used: keys of the facts it rests on.
    """

    outcome: Outcome
    sentence: str
    used: tuple[str, ...] = ()

    def text(self, facts: Facts) -> str:
        return PLACE.sub(lambda place: facts[place[1]].text, self.sentence)

    def html(self, facts: Facts, record: str) -> str:
        """record: where the numbers are from, as they say it on hover."""
        return PLACE.sub(
            lambda place: element(place[1], facts[place[1]], record),
            escape(self.sentence, quote=False),
        )


def holds(sentence: str) -> Verdict:
    return Verdict("holds", sentence)


def in_part(sentence: str) -> Verdict:
    return Verdict("holds in part", sentence)


def fails(sentence: str) -> Verdict:
    return Verdict("does not hold", sentence)


def counted(good: int, of: int, sentence: str) -> Verdict:
    """A verdict on many cases: all, some or none of them as the claim has it."""
    outcome = "holds" if good == of else "holds in part" if good else "does not hold"
    return Verdict(outcome, sentence)


@dataclass(frozen=True)
class Claim:
    """A sentence of the lesson, and the function that judges it."""

    anchor: str
    statement: str
    judge: Callable[[Evidence], Verdict]

    def verdict(self, measured: Measurements, facts: Facts) -> Verdict:
        evidence = Evidence(measured, facts)
        try:
            return replace(self.judge(evidence), used=tuple(evidence.used))
        except NotMeasured as reason:
            words = self.statement.removesuffix(".")
            return Verdict("not measured", f"{words}: not measured ({reason}).")


class Said:
    """The claims of one page, in its order; as a decorator it takes one more.

    page: its template, without suffixes.
    """

    def __init__(self, page: str, title: str):
        self.page = page
        self.title = title
        self.claims: list[Claim] = []

    def __call__(self, anchor: str, statement: str):
        def take(judge: Callable[[Evidence], Verdict]):
            self.claims.append(Claim(anchor, statement, judge))
            return judge

        return take


def longer(a: float, b: float) -> bool:
    """Whether a time is longer than another by more than noise."""
    return a > b * (1 + NOISE)


def more(a: float, b: float) -> str:
    """By how much a exceeds b: 12 %."""
    return f"{100 * (a / b - 1):.0f} %"


def span(ratios: list[float]) -> str:
    """Ratios from the least to the greatest."""
    low, high = ratio(min(ratios)), ratio(max(ratios))
    return low if low == high else f"{low} to {high}"
