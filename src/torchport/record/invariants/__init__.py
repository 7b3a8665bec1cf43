"""Invariants of training, watched while a script trains: what the original and its port may both do wrong.

Each rule is a part of the recording in a file of its own, listed in `RULES`. It looks at what the program does, never
at what another run does, and writes an event `invariant` where it does not hold. Ranks are held against each other when
all have ended (`compare.invariants`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record.invariants.clearing import GradientsCleared
from torchport.record.invariants.clipping import Clipping
from torchport.record.invariants.dropout import Dropout
from torchport.record.invariants.freezing import Freezing
from torchport.record.invariants.loading import Loading
from torchport.record.invariants.modes import Modes
from torchport.record.invariants.normalizing import Normalizing
from torchport.record.invariants.ownership import Ownership
from torchport.record.invariants.restoring import Restoring
from torchport.record.invariants.rule import Rule
from torchport.record.invariants.schedules import Schedules
from torchport.record.invariants.tying import Tying
from torchport.record.invariants.updates import Updates

RULES: tuple[type[Rule], ...] = (
    GradientsCleared,
    Ownership,
    Updates,
    Modes,
    Dropout,
    Clipping,
    Schedules,
    Restoring,
    Loading,
    Freezing,
    Normalizing,
    Tying,
)


def make_rules(
    torch: Any,
    write: Callable[..., None],
    patches: Patches,
    find_site: Callable[[], str],
    find_name: Callable[[Any], str],
) -> list[Rule]:
    """All rules, installed; `write` appends an event, `find_site` gives the line of the user's that runs, `find_name`
    the name of a parameter."""
    made = [rule(torch, write, find_site, find_name) for rule in RULES]
    for rule in made:
        rule.install(patches)
    return made
