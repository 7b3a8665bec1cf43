"""Which operator is wrong first, where the losses of a port have parted: both runs once more, with their tensors.

Of a reference that was recorded elsewhere the port alone runs again: its operators are held against what that recording
has of them.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

from torchport.compare.differences import find_parting_step
from torchport.errors import TorchportError
from torchport.findings import Result
from torchport.port import controls
from torchport.port.plan import COMPARE, NPU, REFERENCE, Plan
from torchport.port.progress import Progress
from torchport.port.watch import Watch
from torchport.record.operators.wanted import DROP, Wanted
from torchport.results.comparison import Comparison

LATEST = 200  # the last step that is run for again
MOST_BYTES = 4 << 30  # of operators on each side


def add_suspects(plan: Plan, folder: Path, result: Result[Comparison], progress: Progress) -> Result[Comparison]:
    """`result` with what was found of the operators of the step in which the runs part, and of the one before it; as it
    is where they do not part, or that cannot be looked into (a note says why). The recordings stay in `folder`."""
    step = find_parting_step(result.findings)
    if step is None or result.data.chance:
        return result
    if importlib.util.find_spec("h5py") is None:
        progress.note("which operator is wrong first is not known: recording operators needs h5py")
        return result
    if step > LATEST:
        progress.note(f"which operator is wrong first is not known: the runs part in step {step} only")
        return result
    sides = (REFERENCE, NPU) if plan.reference is None else (NPU,)
    who = "both run" if len(sides) == 2 else "the port runs"
    progress.note(f"the runs part in step {step}: {who} again, and their operators are recorded there")
    from torchport.compare.culprit import Culprit, find_culprit, find_port_culprit  # these need numpy
    from torchport.record.operators.reading import Operators

    first = max(step - 1, 0)
    wanted = Wanted("tensor", {"step": [f"{first}-{step}"]}, MOST_BYTES, DROP).to_dict()
    changes: dict[str, Any] = {"operators": wanted, "steps": step + 1}
    try:
        for side in sides:
            place = folder / side
            place.mkdir(parents=True)
            controls.rerun_side(plan, side, place, Watch(place, plan.timeout, progress), changes)
        found: Culprit | None
        if plan.reference is None:
            found = find_culprit(folder / REFERENCE, folder / NPU, parted=step)
        elif any(process.steps for process in Operators.read(plan.kept_in(REFERENCE)).processes):
            found = find_culprit(plan.kept_in(REFERENCE), folder / NPU, parted=step)
        else:
            found = find_port_culprit(folder / NPU, parted=step)
    except (OSError, TorchportError) as error:
        progress.note(f"which operator is wrong first is not known: {error}")
        return result
    if found is None:
        return result
    # The step's folder gets its name when it is done.
    found = dataclasses.replace(found, port=plan.kept_in(COMPARE) / folder.name / NPU)
    data = dataclasses.replace(result.data, culprit=found.to_json())
    return dataclasses.replace(result, findings=(*found.findings, *result.findings), data=data)
