"""Which part of a parameter of one device each rank of a distributed run has, told from sizes and initial norms.

No annotation is needed: a rank that has as many numbers of the same norm has the whole; parts together have the size
and the norm of the whole, as squares add up. Weights differ before the first step, so hardly two have one norm.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from torchport.record.recording import Process

SAME = 1e-5  # relative: of norms that float32 has added up in another order
WRAPPERS = frozenset(("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
Number = float | None


@dataclasses.dataclass(slots=True)
class Held:
    """The part of one parameter that a process has: numbers, their norm, its gradients and changes by step."""

    rank: int
    name: str
    size: int
    norm: float
    optimizer: int
    steps: list[int] = dataclasses.field(default_factory=list)
    gradients: list[Number] = dataclasses.field(default_factory=list)
    changes: list[Number] = dataclasses.field(default_factory=list)

    @property
    def is_constant(self) -> bool:
        """Whether it may be filled with zeros or ones, which any other part of this size is, too."""
        return not self.norm or math.isclose(self.norm, math.sqrt(self.size), rel_tol=SAME)


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """A parameter of one device, and its parts in the other run: each with the ranks that hold a copy of it."""

    whole: Held
    parts: tuple[tuple[Held, ...], ...]

    @property
    def is_whole(self) -> bool:
        """Whether each rank that has it has all of it."""
        return len(self.parts) == 1


def list_held(process: Process, rank: int) -> dict[str, Held]:
    """The parameters of a process by name, without the names of wrappers; of the first optimizer that has each."""
    found: dict[str, Held] = {}
    names: dict[int, list[str]] = {}
    for event in reversed(process.of_kind("parameters")):
        names[event["optimizer"]] = list(map(strip_wrappers, event["names"]))
    for event in process.of_kind("initial"):
        for name, norm, size in zip(names.get(event["optimizer"], ()), event["norms"], event["sizes"], strict=False):
            if norm is not None and name not in found:
                found[name] = Held(rank, name, size, float(norm), event["optimizer"])
    current: dict[int, list[str]] = {}
    for event in process.events:
        if event["kind"] == "parameters":
            current[event["optimizer"]] = list(map(strip_wrappers, event["names"]))
        elif event["kind"] == "norms" and len(event["gradient"]) == len(current.get(event["optimizer"], ())):
            for name, gradient, change in zip(
                current[event["optimizer"]], event["gradient"], event["change"], strict=True
            ):
                if name in found and found[name].optimizer == event["optimizer"]:
                    found[name].steps.append(event["step"])
                    found[name].gradients.append(None if gradient is None else float(gradient))
                    found[name].changes.append(None if change is None else float(change))
    return found


def strip_wrappers(name: str) -> str:
    """The name without what DistributedDataParallel, FSDP, checkpoint wrappers and torch.compile put into it."""
    return ".".join(part for part in str(name).split(".") if part not in WRAPPERS)


def find_layouts(one: Mapping[str, Held], ranks: Sequence[Mapping[str, Held]]) -> dict[str, Layout]:
    """The layout of each parameter of `one` that can be put together of what `ranks` have."""
    groups = _group_equal_ranks(ranks)
    renamed = [_rename(one, held) for held in ranks]
    found = {}
    for name, whole in one.items():
        held = [one_rank[name] for one_rank in renamed if name in one_rank]
        parts = _put_together(whole, held, groups)
        if parts:
            found[name] = Layout(whole, parts)
    return found


def _rename(one: Mapping[str, Held], held: Mapping[str, Held]) -> dict[str, Held]:
    """The parameters of a rank under the names of the one device: a pipeline stage may count its layers from 0."""
    prefixes: dict[str, str] = {}
    for name, part in held.items():
        known = one.get(name)
        if part.is_constant or (known is not None and _are_same(known, part)):
            continue
        others = [other for other, whole in one.items() if _are_same(whole, part)]
        pairs = _list_other_parts(name, others[0]) if len(others) == 1 else []
        if len(pairs) == 1:
            prefixes.setdefault(*pairs[0])
    return {_replace_prefix(name, prefixes): part for name, part in held.items()}


def _list_other_parts(name: str, other: str) -> list[tuple[str, str]]:
    """The prefixes up to each component in which two names of as many components differ."""
    here, there = name.split("."), other.split(".")
    if len(here) != len(there):
        return []
    places = [place for place, (mine, theirs) in enumerate(zip(here, there, strict=True)) if mine != theirs]
    return [(".".join(here[: place + 1]), ".".join(there[: place + 1])) for place in places]


def _replace_prefix(name: str, prefixes: Mapping[str, str]) -> str:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        known = prefixes.get(".".join(parts[:count]))
        if known is not None:
            return ".".join([known, *parts[count:]])
    return name


def _group_equal_ranks(ranks: Sequence[Mapping[str, Held]]) -> list[int]:
    """For each rank the first that has the same parameters with the same norms: they hold the same parts."""
    found: list[int] = []
    for number, held in enumerate(ranks):
        same = (
            earlier
            for earlier in range(number)
            if ranks[earlier].keys() == held.keys()
            and all(_are_same(ranks[earlier][name], part) for name, part in held.items())
        )
        found.append(next(same, number))
    return found


def _put_together(whole: Held, held: Sequence[Held], groups: Sequence[int]) -> tuple[tuple[Held, ...], ...]:
    """The parts of a parameter, empty if what the ranks have of it does not make it up."""
    full = [part for part in held if _are_same(whole, part)]
    if full:
        return (tuple(full),)
    for parts in _list_partitions(held, groups):
        together = math.hypot(*(part[0].norm for part in parts))
        if sum(part[0].size for part in parts) == whole.size and math.isclose(together, whole.norm, rel_tol=SAME):
            return parts
    return ()


def _list_partitions(held: Sequence[Held], groups: Sequence[int]) -> Iterator[tuple[tuple[Held, ...], ...]]:
    """Ways to say which ranks have one part: none share one, equal ranks do, equal norms do."""
    yield tuple((part,) for part in held)
    yield _group(
        sorted(held, key=lambda part: groups[part.rank]), lambda one, other: groups[one.rank] == groups[other.rank]
    )
    yield _group(sorted(held, key=lambda part: part.norm), _are_same)


def _group(held: Sequence[Held], same: Callable[[Held, Held], bool]) -> tuple[tuple[Held, ...], ...]:
    """Neighbours that are the same, together."""
    found: list[list[Held]] = []
    for part in held:
        if found and same(found[-1][0], part):
            found[-1].append(part)
        else:
            found.append([part])
    return tuple(map(tuple, found))


def _are_same(one: Held, other: Held) -> bool:
    return one.size == other.size and math.isclose(one.norm, other.norm, rel_tol=SAME)
