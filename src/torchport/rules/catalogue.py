"""All codes with what is to be known about them: for `explain`, the documentation and SARIF."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from torchport.rules import rules
from torchport.rules.custom import CUSTOM
from torchport.rules.distribute import distribution_rules
from torchport.rules.files import file_rules

# What is said about a file as a whole has a code and no rule.
_FILES = {
    "TP900": (
        "a file cannot be read",
        "Its permissions or the disk do not allow it; nothing is known about it.",
    ),
    "TP901": (
        "a file cannot be parsed",
        "It is not Python 3, has a syntax error, or nests too deeply. Python 2 scripts need 2to3 first.",
    ),
    "TP902": (
        "the encoding of a file is wrong",
        "The bytes do not fit the encoding that the file states, or an edit could not keep them.",
    ),
    "TP903": (
        "a bug in torchport",
        "A rule failed, or its output failed the self-check; the file was left alone.",
    ),
    "TP904": ("a file is too large or takes too long", "It was left alone so that the others could go on."),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One code: `rewrites` are (before, after), `unchanged` what stays."""

    code: str
    title: str
    safety: str
    why: str
    reference: str
    rewrites: tuple[tuple[str, str], ...]
    unchanged: tuple[str, ...]


@functools.cache
def catalogue() -> Mapping[str, Entry]:
    """All codes in order."""
    entries = [
        Entry(
            rule.code, rule.title, rule.safety.value, rule.why, rule.reference, rule.rewrites, rule.unchanged
        )
        for rule in (*rules(), *distribution_rules(), CUSTOM)
    ]
    entries += [
        Entry(
            rule.code,
            rule.title,
            rule.safety.value,
            rule.why,
            rule.reference,
            tuple((f"# {name}\n{before}", f"# {name}\n{after}") for name, before, after in rule.rewrites),
            tuple(f"# {name}\n{text}" for name, text in rule.unchanged),
        )
        for rule in file_rules()
    ]
    entries += [Entry(code, title, "report", why, "", (), ()) for code, (title, why) in _FILES.items()]
    return {entry.code: entry for entry in sorted(entries, key=lambda entry: entry.code)}
