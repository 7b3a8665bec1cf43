"""A stream of draws that a test installs, and the calls that both devices are compared in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torchport.patches import Patches
from torchport.record.draws import Draws


def site() -> str:
    """The line of the test that draws."""
    frame = sys._getframe()
    while frame.f_back is not None and "test_" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Told(list[tuple[str, str]]):
    """What was reported as unmatched."""


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def draws(told: Told) -> Iterator[Draws]:
    patches = Patches()
    state = torch.get_rng_state()
    stream = Draws(torch, 0, site, lambda operator, where: told.append((operator, where)))
    stream.install(patches)
    yield stream
    patches.undo()
    torch.set_rng_state(state)


@pytest.fixture
def events() -> list[dict[str, Any]]:
    """What the device's own draws were measured to be."""
    return []


@pytest.fixture
def measuring(events: list[dict[str, Any]], told: Told) -> Iterator[Draws]:
    """As `draws`; the device's own are measured, as in a port."""
    patches = Patches()
    state = torch.get_rng_state()
    stream = Draws(
        torch, 0, site, lambda operator, where: told.append((operator, where)), lambda **one: events.append(one)
    )
    stream.install(patches)
    yield stream
    patches.undo()
    torch.set_rng_state(state)


@pytest.fixture
def both(draws: Draws) -> Callable[[Callable[[str], Any]], tuple[list[Any], list[Any]]]:
    """What `function(device)` gives on the CPU and on the NPU, each after the same seed, as lists on the host."""

    def call(function: Callable[[str], Any]) -> tuple[list[Any], list[Any]]:
        found = []
        for device in ("cpu", "npu"):
            torch.manual_seed(11)
            result = function(device)
            parts = result if isinstance(result, tuple | list) else [result]
            found.append([part.detach().cpu() for part in parts])
        return found[0], found[1]

    return call
