"""What a step takes, from a log; and the command's refusals that need no run."""

from __future__ import annotations

import dataclasses

import pytest

from torchport.predict.cost import summarize_step
from torchport.predict.timeline import Log, Task

TASK = Task("aclnnAdd", 0, 0, 1, "stream", False, 1, 1, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, ())


def log(*tasks: tuple[str, str, int, int]) -> Log:
    """Of tasks with name, unit, begin and end in microseconds."""
    made = [
        dataclasses.replace(TASK, name=name, unit=unit, virtual_began=began * 1000, virtual_ended=ended * 1000)
        for name, unit, began, ended in tasks
    ]
    return Log(1, 0, 1, "Ascend910B1", True, 0, 0, made, [], True)


def test_time_by_unit_and_what_bounds() -> None:
    found = summarize_step(
        log(("mm", "cube", 100, 900), ("add", "stream", 900, 950), ("before", "cube", 0, 90)), 100, 1000
    )
    assert found.time == pytest.approx(0.9)
    assert found.units == {"cube": pytest.approx(0.8), "stream": pytest.approx(0.05)}
    assert (found.bound, found.launches, found.operators["mm"][0]) == ("cube", 2, 1)


def test_gaps_are_the_programs() -> None:
    found = summarize_step(log(("mm", "cube", 100, 200), ("mm", "cube", 900, 1000)), 0, 1000)
    assert found.bound == "host" and found.busy == pytest.approx(0.2)


def test_communication_counts_where_nothing_hides_it() -> None:
    hidden = summarize_step(log(("mm", "cube", 0, 900), ("reduce", "collective", 100, 800)), -1, 1000)
    assert hidden.exposed == pytest.approx(0) and hidden.bound == "cube"
    exposed = summarize_step(log(("mm", "cube", 0, 300), ("reduce", "collective", 200, 1000)), -1, 1000)
    assert exposed.exposed == pytest.approx(0.7) and exposed.bound == "collective"
