"""The word on a port, from what was found.

- *holds*: nothing speaks against it, and everything that has to be known is known;
- *does not hold*: a finding speaks against it;
- *undecided*: none does, but something has to be known first. The code of such a finding is in `OPEN`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from torchport.findings import Finding, Severity


class Word(enum.StrEnum):
    """What is said of a port."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    UNDECIDED = "undecided"


# Findings that leave the question open. They come before those that speak against the port where they are about what
# the port is compared with: what a broken reference shows says nothing.
NO_REFERENCE = frozenset({"TP351", "TP340", "TP341", "TP342"})
OPEN = NO_REFERENCE | {"TP304", "TP311", "TP343", "TP344", "TP349", "TP356", "TP364", "TP370"}


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The word, one sentence that says why, and what would decide it where it is open."""

    word: Word
    reason: str
    decide: tuple[str, ...] = ()

    @classmethod
    def from_findings(cls, findings: Iterable[Finding], grounds: str) -> Verdict:
        """The verdict on what was found; `grounds` is what it rests on where nothing was."""
        findings = list(findings)
        broken = [finding for finding in findings if finding.code in NO_REFERENCE]
        against = [
            finding
            for finding in findings
            if finding.severity is Severity.ERROR and finding.code.startswith("TP3") and finding.code not in OPEN
        ]
        open_ = [finding for finding in findings if finding.code in OPEN]
        for word, reasons in ((Word.UNDECIDED, broken), (Word.DOES_NOT_HOLD, against), (Word.UNDECIDED, open_)):
            if reasons:
                decide = [finding.hint for finding in reasons if finding.hint] if word is Word.UNDECIDED else []
                return cls(word, _first_of_all(reasons).message, tuple(dict.fromkeys(decide)))
        return cls(Word.HOLDS, grounds)


def _first_of_all(reasons: list[Finding]) -> Finding:
    # That the NPU was not used explains everything else.
    return next((finding for finding in reasons if finding.code == "TP345"), reasons[0])
