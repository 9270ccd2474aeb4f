"""Every claim of the lesson, each a function from what was measured to a verdict.

A sentence that compares measured numbers is one of these: its module writes it once
for each outcome, and pages only place it. In a sentence `{number}` is the fact
itself; what is computed is written out.
"""

from generate.render.claims import (
    figures,
    gradients,
    ladder,
    planning,
    starving,
    sums,
    training,
    traps,
)
from generate.render.claims.base import (
    MARGIN,
    OUTCOMES,
    Claim,
    Outcome,
    Said,
    Verdict,
)
from generate.render.fact import Facts
from generate.render.measured import Measurements

__all__ = ["CLAIMS", "GROUPS", "MARGIN", "OUTCOMES", "Judged", "Outcome", "Said"]

# In the order of the site.
GROUPS = (
    gradients.two_gradients,
    gradients.stride_swap,
    gradients.dx,
    starving.dw_starves,
    starving.split_k,
    sums.determinism,
    sums.accumulate,
    figures.worked_numbers,
    traps.traps,
    starving.crossover,
    figures.next_lesson,
    gradients.dx_file,
    starving.dw_file,
    ladder.ladder,
    planning.planning,
    training.training,
    starving.timeline,
    figures.hardware,
)
CLAIMS: dict[str, Claim] = {
    claim.anchor: claim for page in GROUPS for claim in page.claims
}


class Judged:
    """One recording's verdict on every claim, by anchor, and how it reads."""

    def __init__(self, measured: Measurements, facts: Facts):
        self.measured = measured
        self.facts = facts
        self.name = f"{measured.gpu.name}, {measured.recording.folder.name}"
        self.record = measured.record
        self.verdicts: dict[str, Verdict] = {
            anchor: claim.verdict(measured, facts) for anchor, claim in CLAIMS.items()
        }

    def text(self, anchor: str) -> str:
        return self.verdicts[anchor].text(self.facts)

    def html(self, anchor: str) -> str:
        return self.verdicts[anchor].html(self.facts, self.record)

    def claims(self, outcome: Outcome) -> list[Claim]:
        """The claims with this verdict."""
        return [c for a, c in CLAIMS.items() if self.verdicts[a].outcome == outcome]
