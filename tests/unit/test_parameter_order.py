"""Parameters that a program keeps in a set have another order in each run, and are compared by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchport.compare.order import order_parameters
from torchport.record.recording import Process, Recording


def recording(*events: dict[str, Any]) -> Recording:
    return Recording(Path("recording"), {}, (Process(1, ({"kind": "step"}, *events)),), None)


def events(names: list[str], gradients: list[float | None], optimizer: int = 0) -> list[dict[str, Any]]:
    sizes = [{"a": 4, "b": 9}.get(name, 1) for name in names]
    return [
        {"kind": "initial", "optimizer": optimizer, "norms": gradients, "sizes": sizes},
        {"kind": "parameters", "optimizer": optimizer, "step": 0, "names": names, "sizes": sizes, "devices": []},
        {"kind": "norms", "optimizer": optimizer, "step": 0, "gradient": gradients, "norm": gradients, "change": [1.0]},
    ]


def test_another_order_is_the_same() -> None:
    reference = recording(*events(["a", "b", "c"], [1.0, None, 3.0]))
    other = recording(*events(["c", "a", "b"], [3.0, 1.0, None]))
    assert order_parameters(reference, other).processes[0].events == reference.processes[0].events


def test_other_names_and_one_optimizer_of_two_stay() -> None:
    same, apart = events(["b", "a"], [2.0, 1.0]), events(["y", "x"], [2.0, 1.0], optimizer=1)
    reference = recording(*events(["a", "b"], [1.0, 2.0]), *events(["x", "z"], [1.0, 2.0], optimizer=1))
    found = order_parameters(reference, recording(*same, *apart)).processes[0].events
    assert [event.get("names") for event in found if event["kind"] == "parameters"] == [["a", "b"], ["y", "x"]]


def test_names_that_come_twice_say_nothing() -> None:
    reference, other = (recording(*events(names, [1.0, 2.0, 3.0])) for names in (["a", "a", "b"], ["a", "b", "a"]))
    assert order_parameters(reference, other) is other
