"""Which places of csrc/opapi become mutants: all that the operators can change, in a seeded order for each family."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "csrc/opapi/aclnn"))

import signatures
from changes import ON, OPERATORS, SPOKEN, Change, Place
from cpp import STATEMENTS, Region, Source

# What every operator stands on: descriptors, checks, executors. A fault there is no fault of a kernel.
MACHINERY = {f"aclnn/{name}" for name in ("check", "descriptors", "executor", "gap", "op", "tensor")}
GENERATED = '#include "opapi/aclnn/mutant.h"\n'


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one file; `line` counts from 1."""

    file: str
    line: int
    function: str
    change: Change

    @property
    def key(self) -> str:
        """The same for the same change wherever in the file it stands."""
        return f"{self.file}: {self.function}: {self.change.operator}: {self.change.original} -> {self.change.mutated}"

    def rank(self, seed: int) -> str:
        """Its place in the seed's order."""
        return hashlib.sha256(f"{seed} {self.key}".encode()).hexdigest()


def candidates(folder: Path) -> dict[str, list[Mutant]]:
    """Every change that can be made to the kernels in the family folders of `folder`, by file."""
    paths = sorted([*folder.glob("*/*.cpp"), *folder.glob("*/*.h")])
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    sources = {
        name: Source(path.read_text(encoding="utf-8"))
        for path, name in names.items()
        if name.rpartition(".")[0] not in MACHINERY
    }
    headers = {
        macro: text for name, source in sources.items() if name.endswith(".h") for macro, text in source.macros.items()
    }
    for source in sources.values():
        source.macros = headers | source.macros
    known = signatures.of_all(folder / "aclnn")
    regions = {name: source.regions() for name, source in sources.items()}
    running = _running(sources, regions)
    found: dict[str, list[Mutant]] = {}
    for name, source in sources.items():
        mutants = [
            Mutant(name, source.text.count("\n", 0, change.start) + 1, region.name, change)
            for region in regions[name]
            if region.operator or (name, region.name) in running
            for change in _changes(source, region, _parameters(region, known))
        ]
        if mutants:
            found[name] = mutants
    return found


def chosen(mutants: list[Mutant], seed: int, count: int) -> list[Mutant]:
    """Up to `count` mutants of a file in the seed's order, no two of which touch. An edit elsewhere in the file does
    not change the order, and no operator comes twice before every other one came."""
    seeded = sorted(mutants, key=lambda mutant: mutant.rank(seed))
    taken: list[Mutant] = []
    rounds: dict[str, int] = {}
    order = {}
    for mutant in seeded:
        rounds[mutant.change.operator] = rounds.get(mutant.change.operator, 0) + 1
        order[id(mutant)] = rounds[mutant.change.operator]
    for mutant in sorted(seeded, key=lambda mutant: order[id(mutant)]):
        change = mutant.change
        if all(change.end <= other.change.start or other.change.end <= change.start for other in taken):
            taken.append(mutant)
        if len(taken) == count:
            break
    return taken


def rewritten(text: str, mutants: dict[int, Mutant]) -> tuple[str, dict[int, int]]:
    """The file with all of its mutants, and which mutant stands in which of its lines: each has one of its own."""
    parts, position, lines = [GENERATED], 0, {}
    for number, mutant in sorted(mutants.items(), key=lambda item: item[1].change.start):
        change = mutant.change
        parts += [text[position : change.start], "\n"]
        lines["".join(parts).count("\n") + 1] = number
        parts += [change.schema.replace(ON, ON.replace("@", str(number))), "\n"]
        position = change.end
    return "".join([*parts, text[position:]]), lines


def _changes(source: Source, region: Region, kinds: dict[str, str]) -> Iterator[Change]:
    def named(*wanted: str) -> frozenset[str]:
        return frozenset(name for name, kind in kinds.items() if kind in wanted)

    booleans, numbers = named("bool"), named("double", "float")
    scalars = named("aclScalar*", "ScalarArgument")
    silent = _spoken(source, region)
    for index in range(region.first, region.last):
        if index in silent or (source.tokens[index].kind == "mark" and not source.tokens[index].apart):
            continue
        place = Place(source, region, index, booleans, numbers, scalars)
        for operator in OPERATORS:
            for change in operator(place):
                if change.original != change.mutated:
                    yield change


def _parameters(region: Region, known: dict[str, dict[str, list[list[str]]]]) -> dict[str, str]:
    """Types of the names that a region gets, without const and reference."""
    rows = (
        [(kind, name) for kind, name, *_ in known[region.name]["params"]]
        if region.operator
        else list(region.parameters)
    )
    return {name: kind.removeprefix("const ").removesuffix("&").strip() for kind, name in rows}


def _spoken(source: Source, region: Region) -> set[int]:
    """Tokens of statements that refuse an argument, with their condition: first-phase checks inside of kernels."""
    found: set[int] = set()
    for index in range(region.first, region.last):
        if source.tokens[index].text.rpartition("::")[2] not in SPOKEN:
            continue
        first = source.chain(index)
        while source.is_(first - 1, ")", "{"):
            header = source.match[first - 1] if source.is_(first - 1, ")") else -1
            if source.is_(first - 1, "{"):
                first -= 1
            elif source.is_(header - 1, *STATEMENTS):
                first = header - 1
            else:
                break
        last = index
        while last < region.last and not source.is_(last, ";"):
            last = max(source.match.get(last, last), last) + 1
        found |= set(range(first, last))
    return found


def _running(sources: dict[str, Source], regions: dict[str, list[Region]]) -> set[tuple[str, str]]:
    """(file, function) that operators call when they run: what only first phases call is not among them."""
    defined: dict[tuple[str, bool], set[str]] = {}  # (function, whether a method) -> files
    for file, parts in regions.items():
        for region in parts:
            if not region.operator:
                defined.setdefault((region.name, region.method), set()).add(file)
    running: set[tuple[str, str]] = set()
    todo = [(file, region) for file, parts in regions.items() for region in parts if region.operator]
    while todo:
        file, region = todo.pop()
        for name, method in _called(sources[file], region) | {("operator", True)}:
            files = defined.get((name, method), set())
            for target in {file} & files or files:
                if (target, name) not in running:
                    running.add((target, name))
                    todo += [(target, one) for one in regions[target] if one.name == name]
    return running


def _called(source: Source, region: Region) -> set[tuple[str, bool]]:
    """Functions, methods (True) and constructors (methods of their class) of ours that a region calls."""
    called: set[tuple[str, bool]] = set()
    for index in range(region.first, region.last):
        token = source.tokens[index]
        if token.kind != "name" or token.text.startswith(("at::", "std::", "c10::")):
            continue
        name = token.text.partition("<")[0].rpartition("::")[2]
        if source.is_(index + 1, "(", "{") or source.tokens[index + 1].kind == "name":
            called.add((name, True))
            if not source.is_(index - 1, ".", "->"):
                called.add((name, False))
    return called
