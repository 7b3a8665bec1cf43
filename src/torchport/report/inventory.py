"""A project's obstacles, its libraries, and its operators without a kernel, in the same words everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchport.results.conversion import NEEDED, LibraryUse, Obstacle, OperatorUse, Release

LISTED = 12  # of each kind in a terminal


def describe_inventory(data: Mapping[str, Any]) -> Iterator[str]:
    """Lines for a terminal: what blocks, what is optional, packages and operators to look at, the release."""
    obstacles: Sequence[Obstacle] = data.get("obstacles", ())
    for blocking in (True, False):
        rows = [one for one in obstacles if (one.state == NEEDED) is blocking]
        yield from _shortened([f"{one.state}: {describe_obstacle(one)}" for one in rows])
    others: Sequence[LibraryUse] = [one for one in data.get("libraries", ()) if one.status != "works"]
    if others:
        yield "packages: " + ", ".join(f"{one.name}{one.version} ({one.status})" for one in others)
    operators: Sequence[OperatorUse] = data.get("operators_without_kernel", ())
    yield from _shortened([f"no NPU kernel: {one.name}, {one.how}: {describe_places(one.places)}" for one in operators])
    if release := data.get("release"):
        yield describe_release(release)


def describe_obstacle(one: Obstacle) -> str:
    """Its kind and name, its size, and why it is in the way or not."""
    what = one.name if one.kind == "place" else f"{one.kind} {one.name}"
    return f"{what}{f' ({one.work})' if one.work else ''}: {one.why.removeprefix('optional: ')}"


def describe_places(places: Sequence[str], most: int = 3) -> str:
    """The first places, and how many there are beside them."""
    more = f" and {len(places) - most} more" if len(places) > most else ""
    return ", ".join(places[:most]) + more


def describe_release(release: Release) -> str:
    """The versions that everything above is about."""
    return f"meant: torch {release.torch}, torch_npu {release.torch_npu}, CANN {release.cann}"


def _shortened(lines: list[str]) -> Iterator[str]:
    yield from lines[:LISTED]
    if len(lines) > LISTED:
        yield f"  and {len(lines) - LISTED} more (--json, --html)"
