"""What a step takes on the virtual clock, and which unit of the chip bounds it."""

from __future__ import annotations

from torchport.predict.timeline import Log, Task
from torchport.results.prediction import Step

# What a step is bound by, in words.
WORDS = {
    "cube": "matrix products and convolutions",
    "depthwise": "depthwise convolutions",
    "stream": "memory bandwidth of element-wise kernels",
    "norm": "normalisation and softmax",
    "pool": "pooling",
    "move": "transpositions, copies of views and format conversions",
    "gather": "indexing",
    "device_cpu": "operators on the device's CPU",
    "host_copy": "copies between host and device",
    "collective": "communication between ranks",
    "host": "launching operators from the program",
}
MOST_OPERATORS = 20


def summarize_step(log: Log, begin: float, end: float) -> Step:
    """The step between two moments of the virtual clock, in microseconds."""
    first, last = begin * 1e3, end * 1e3
    tasks = [task for task in log.tasks if first < task.virtual_ended <= last and task.unit != "none"]
    units: dict[str, float] = {}
    operators: dict[str, tuple[int, float]] = {}
    for task in tasks:
        units[task.unit] = units.get(task.unit, 0.0) + task.virtual_time / 1e6
        count, spent = operators.get(task.name, (0, 0.0))
        operators[task.name] = count + 1, spent + task.virtual_time / 1e6
    busy = _covered(tasks) / 1e6
    exposed = busy - _covered([task for task in tasks if task.unit != "collective"]) / 1e6
    time = (end - begin) / 1e3
    waits = {**units, "collective": exposed, "host": time - busy}
    top = sorted(operators.items(), key=lambda item: -item[1][1])[:MOST_OPERATORS]
    return Step(
        time=time,
        busy=busy,
        exposed=exposed,
        units=dict(sorted(units.items(), key=lambda item: -item[1])),
        operators=dict(top),
        launches=len(tasks),
        converted=sum(task.converted for task in tasks),
        bound=max(waits, key=lambda unit: waits[unit]) if waits else "host",
    )


def _covered(tasks: list[Task]) -> float:
    """Nanoseconds in which at least one of the tasks ran."""
    covered = reached = 0
    for began, ended in sorted((task.virtual_began, task.virtual_ended) for task in tasks):
        covered += max(0, ended - max(began, reached))
        reached = max(reached, ended)
    return covered
