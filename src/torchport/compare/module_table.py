"""Every module of a model by itself, on a device: against float64, in train and in eval mode.

The user's factory is run in a process of its own (`module_run`), and nowhere else. Each module is given what it is
given in a run of the whole model on the CPU, so that what is found was introduced in it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torchport.errors import TorchportError

FACTORY = "--model is MODULE:FACTORY, a function that gives a module and a tuple of its inputs."


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleRow:
    """One module in one mode. `score` and the relative errors are those of its worst result (`scores.Score`), `result`
    says which: "output 0", "gradient of weight". `why` says why it was not judged."""

    mode: str
    module: str
    kind: str
    score: float = 0.0
    error: float = 0.0
    cpu: float = 0.0
    declared: float = 0.0
    wrong: bool = False
    result: str = ""
    results: int = 0
    spoilt: str = ""
    why: str = ""
    holds: str = ""
    """The module in it that is wrong, where one is: nothing is said of this one then."""


def tabulate_modules(
    factory: str, device: str, environment: Mapping[str, str], folder: Path | None = None
) -> Sequence[ModuleRow]:
    """The rows of the model that `factory` ("package:function") makes, on `device` ("npu"), in the order in which they
    run. `folder` is where it is imported, by default the current one.

    Raises TorchportError for whatever keeps the factory from giving that.
    """
    module, colon, name = factory.partition(":")
    if not (module and colon and name):
        raise TorchportError(f"--model {factory} names no function", hint=FACTORY)
    child = subprocess.run(
        [sys.executable, "-m", "torchport.compare.module_run", factory, device],
        capture_output=True,
        text=True,
        check=False,
        env=dict(environment),
        cwd=folder,
    )
    lines = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        if "failed" in line:
            raise TorchportError(line["failed"], hint=FACTORY)
    if child.returncode or not lines:
        last = child.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise TorchportError(
            f"the model's process ended with status {child.returncode}: {last[0]}",
            hint="Does the model run by itself, on the CPU and on that device?",
        )
    return list(_with_holders([ModuleRow(**line) for line in lines]))


def _with_holders(rows: Sequence[ModuleRow]) -> Iterable[ModuleRow]:
    """A module that holds a wrong one is not to blame for it."""
    for row in rows:
        # The innermost: what holds a wrong one comes before it.
        held = [
            one.module
            for one in rows
            if one.wrong and one.mode == row.mode and one.module != row.module and _inside(one.module, row.module)
        ]
        held = [name for name in held if not any(other != name and _inside(other, name) for other in held)]
        yield dataclasses.replace(row, wrong=False, holds=held[0]) if row.wrong and held else row


def _inside(name: str, of: str) -> bool:
    return not of or name.startswith(f"{of}.")
