"""The data of `torchport record invariants`: how far its word reaches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Invariants:
    """`judged` has for each invariant how often a rank had something to judge in `steps` steps; `watched` says whether
    the run was made with the rules that watch it from inside (`torchport run --invariants`)."""

    steps: int
    ranks: int
    watched: bool
    judged: Mapping[str, int]
