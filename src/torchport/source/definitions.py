"""Which classes of a project define a method or attribute of torch's name, found in bytes without parsing.

In one file a call `x.cuda()` can only be torch's if no class of the file defines `cuda`. In a project, `x` may come
from another file; so a look at all files comes first.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

WATCHED = ("cuda", "is_cuda")
_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?", re.MULTILINE)
_DEFINES = re.compile(rb"^[ \t]+(?:def[ \t]+(cuda|is_cuda)\b|self\.(cuda|is_cuda)[ \t]*=[^=])", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Definitions:
    """For each watched name the classes of the project whose instances have it."""

    classes: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)

    def of(self, attribute: str) -> frozenset[str]:
        return self.classes.get(attribute, frozenset())


def definitions(sources: Iterable[bytes]) -> Definitions:
    """The classes that define a watched name, and those derived from them by name."""
    bases: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {name: set() for name in WATCHED}
    for data in sources:
        classes = [(match.start(), match[1].decode(), match[2] or b"") for match in _CLASS.finditer(data)]
        for _, name, parents in classes:
            bases.setdefault(name, set()).update(re.findall(r"\w+", parents.decode("utf-8", "replace")))
        for match in _DEFINES.finditer(data):
            around = [name for start, name, _ in classes if start < match.start()]
            if around:
                found[(match[1] or match[2]).decode()].add(around[-1])
    for names in found.values():
        grown = -1
        while grown != len(names):
            grown = len(names)
            names |= {name for name, parents in bases.items() if parents & names}
    return Definitions({name: frozenset(names) for name, names in found.items() if names})
