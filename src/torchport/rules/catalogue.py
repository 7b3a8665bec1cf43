"""All codes with what is to be known about them: for `explain`, the documentation and SARIF."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from torchport.knowledge.codes import load_codes
from torchport.rules import list_rules
from torchport.rules.custom import CUSTOM
from torchport.rules.distribute import distribution_rules
from torchport.rules.files import file_rules
from torchport.rules.stops import stop_rules
from torchport.rules.torch_support import SUPPORT


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One code: `rewrites` are (before, after), `reports` and `ignores` texts that stay, with a finding and without;
    `next` says what to do if no rule does.
    """

    code: str
    title: str
    safety: str
    why: str
    reference: str
    rewrites: tuple[tuple[str, str], ...]
    reports: tuple[str, ...]
    ignores: tuple[str, ...]
    next: str = ""


@functools.cache
def build_catalogue() -> Mapping[str, Entry]:
    """All codes in order. Raises ValueError for a code that two rules have."""
    entries = [
        Entry(
            rule.code,
            rule.title,
            rule.safety.value,
            rule.why,
            rule.reference,
            rule.rewrites,
            rule.reports,
            rule.ignores,
        )
        for rule in (*list_rules(), *distribution_rules(), CUSTOM, *SUPPORT, *stop_rules())
    ]
    entries += [
        Entry(
            rule.code,
            rule.title,
            rule.safety.value,
            rule.why,
            rule.reference,
            tuple((f"# {name}\n{before}", f"# {name}\n{after}") for name, before, after in rule.rewrites),
            tuple(f"# {name}\n{text}" for name, text in rule.reports),
            tuple(f"# {name}\n{text}" for name, text in rule.ignores),
        )
        for rule in file_rules()
    ]
    entries += [
        Entry(row.code, row.title, "report", row.why, "", (), (), (), row.next) for row in load_codes().values()
    ]
    found: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda entry: entry.code):
        if entry.code in found:
            raise ValueError(f"{entry.code} is both {found[entry.code].title!r} and {entry.title!r}")
        found[entry.code] = entry
    return found
