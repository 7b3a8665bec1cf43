"""Values that several files of a project have: what one file knows of them, all come to know.

A device that `config.py` names and `train.py` hands to torch is proven by the second and written in the first. Each
file that may hold a part of such a value is looked at by itself (`survey_source`), in the worker processes; what they
found is put together here (`Joined`), in one union of all their classes of values, and handed back by file.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Hashable, Iterable, Mapping

from torchport.convert.inspection import keep_module, parse_module
from torchport.knowledge.arguments import load_role
from torchport.rules import device_string, nccl_backend
from torchport.rules.roles import Proof, Roles
from torchport.source.definitions import Definitions, Known
from torchport.source.equivalence import Equivalence
from torchport.source.links import Key, find_links, find_reexports, find_star_imports

# Files in which a value may begin: those that spell out a device or a backend.
SPELLS = re.compile(rb"""['"](?:cuda['":%{]|nccl['"])""")
_ROLES = ("device", "backend")
_LONGEST_CHAIN = 20  # re-exports on the way of a name


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """One value of a file: its keys in the project, how well it is known to be a device and a backend, whether a
    CUDA word of it is spelled out in the file, and whether one of those cannot be edited."""

    keys: tuple[Key, ...]
    proofs: tuple[Proof, ...]
    spelled: bool = False
    fixed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Survey:
    """What one file knows of values that it shares with others."""

    path: str
    groups: tuple[Group, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    stars: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()


def survey_source(path: str, data: bytes, project: Definitions) -> Survey:
    """Look at one Python file; a file that cannot be parsed knows nothing."""
    try:
        module = parse_module(path, data, project)
        keep_module(path)
        keys: dict[Hashable, set[Key]] = {}
        for value, key in find_links(module):
            keys.setdefault(module.flow.find(value), set()).add(key)
        roles = [Roles(module, load_role(name)) for name in _ROLES]
        literals = [*device_string.find_device_literals(module), *nccl_backend.find_backend_literals(module)]
        spelled = {module.flow.find(node) for node, _ in literals}
        fixed = {module.flow.find(node) for node, edit in literals if edit is None}
        groups = []
        for root, found in keys.items():
            proofs = tuple(role.proof_of(root) for role in roles)
            if root in spelled or any(proofs) or len(found) > 1:
                groups.append(Group(tuple(sorted(found, key=str)), proofs, root in spelled, root in fixed))
    except Exception:  # what cannot be parsed, and a mistake of ours, are findings when the file is converted
        return Survey(path)
    names = frozenset(module.names.scopes[module.tree].bindings)
    return Survey(path, tuple(groups), find_reexports(module), tuple(find_star_imports(module)), names)


class Joined:
    """The values of all files that were looked at, each once."""

    def __init__(self, surveys: Iterable[Survey]) -> None:
        self._surveys = {survey.path: survey for survey in surveys}
        self._canonical = functools.cache(self._find_canonical)  # each key is asked for several times
        self._uniform = {
            key[1:]
            for survey in self._surveys.values()
            for group in survey.groups
            for key in group.keys
            if key[0] == "uniform"
        }
        self._same = Equivalence()
        for survey in self._surveys.values():
            for group in survey.groups:
                first, *rest = [self._canonical(key) for key in group.keys]
                for key in rest:
                    # What is known by a name alone is not the same value in all files.
                    if first[0] != "option" and key[0] != "option":
                        self._same.unite(first, key)
                    elif first[0] == "option":
                        first = key
        self._known: dict[Hashable, Known] = {}
        for survey in self._surveys.values():
            for group in survey.groups:
                for root in {self._same.find(self._canonical(key)) for key in group.keys}:
                    self._known[root] = _with(self._known.get(root, Known((0, 0), False)), group)

    def find_known_values(self, path: str) -> dict[Key, Known]:
        """What the other files know of the values of one file, by their keys there."""
        found = {}
        for group in self._surveys[path].groups if path in self._surveys else ():
            for key in group.keys:
                known = self._known[self._same.find(self._canonical(key))]
                (device, backend), fixed = known.proofs, known.fixed
                if key[0] == "option":  # only the name says that it is the same
                    device, backend = min(device, Proof.NAMED), min(backend, Proof.NAMED)
                    fixed = False
                if device or backend or fixed:
                    found[key] = Known((device, backend), fixed)
        return found

    def find_spelled_keys(self) -> set[Key]:
        """The keys of values that are spelled out somewhere: other files that know one of them matter."""
        groups = [
            (survey, group, {self._same.find(self._canonical(key)) for key in group.keys})
            for survey in self._surveys.values()
            for group in survey.groups
        ]
        spelled: set[Hashable] = set().union(*(roots for _, group, roots in groups if group.spelled))
        found = {key for _, group, roots in groups if roots & spelled for key in group.keys if key[0] != "option"}
        # A name alone proves little: it is asked for only where nothing else is known of the value.
        found |= {
            key
            for _, group, _ in groups
            if group.spelled and not any(group.proofs)
            for key in group.keys
            if key[0] == "option"
        }
        for survey in self._surveys.values():  # what `import *` brings into a file can be imported from it
            found |= {(key[0], survey.path, *key[2:]) for key in found if len(key) > 2 and key[1] in survey.stars}
        return found

    def _find_canonical(self, key: Key) -> Key:
        """The key in the file that defines the name, through re-exports."""
        for _ in range(_LONGEST_CHAIN):
            if key[0] == "option" or len(key) < 3:
                return key
            kind, path, word, *rest = key
            one = self._surveys.get(str(path))
            if one is None:
                break
            if word in one.aliases:
                key = (kind, *one.aliases[str(word)], *rest)
            elif word not in one.names and one.stars:
                star = next((star for star in one.stars if self._provides(star, str(word))), one.stars[0])
                key = (kind, star, word, *rest)
            else:
                break
        if key[0] == "item" and key[1:-1] in self._uniform:
            return ("elements", *key[1:-1])
        return key

    def _provides(self, path: str, word: str) -> bool:
        one = self._surveys.get(path)
        return one is not None and (word in one.names or bool(one.stars))


def _with(known: Known, group: Group) -> Known:
    """What is known of a value, and what one file knows of it besides."""
    (device, backend), more = known.proofs, group.proofs
    return Known((max(device, more[0]), max(backend, more[1])), known.fixed or group.fixed)


def find_readers(keys: Iterable[Key], importers: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """For each file that may know one of the keys the words by which it would name it.

    `importers` are the files that import a file. What a key says of its own file, that file knows.
    """
    found: dict[str, set[str]] = {}
    for key in keys:
        if key[0] == "option":
            found.setdefault("", set()).add(str(key[1]))
            continue
        path, words = str(key[1]), [word for word in key[2:] if isinstance(word, str)]
        if not words:
            continue
        found.setdefault(path, set()).add("")
        last = words[-1] if key[0] == "name" else words[min(1, len(words) - 1) if len(words) > 2 else 0]
        for importer in importers.get(path, ()):
            found.setdefault(importer, set()).update({last, words[0]})
    return found
