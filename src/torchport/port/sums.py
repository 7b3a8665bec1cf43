"""How much of a port's first step has other bits than the original's, where the virtual NPU adds in another order."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.port import controls
from torchport.port.plan import NPU, REFERENCE, Plan
from torchport.port.progress import Progress
from torchport.port.watch import Watch
from torchport.record.operators.wanted import DROP, Wanted
from torchport.results.port import SumOrder

MOST_BYTES = 4 << 30  # of operators on each side
SECONDS = 120.0  # of each side: a script that makes its data by a loop over operators takes minutes


def measure_sum_order(plan: Plan, folder: Path, progress: Progress) -> SumOrder | None:
    """Run both sides once more, for one step of which `folder` gets all operators, and count the results of those that
    both have; None if the port adds in the CPU's order. Where that cannot be counted a note says why."""
    if plan.sum_order is None:
        return None
    unknown = SumOrder(plan.sum_order)
    if not plan.operators or plan.reference is not None:
        return unknown
    if importlib.util.find_spec("h5py") is None:
        progress.note("how many results have other bits is not known: recording operators needs h5py")
        return unknown
    progress.note("both run again for one step: how many results of operators have other bits?")
    from torchport.compare.pairs import pair_results  # needs numpy
    from torchport.record.operators.reading import Operators

    wanted = Wanted("tensor", {"step": ["0"]}, MOST_BYTES, DROP).to_dict()
    changes: dict[str, Any] = {"operators": wanted, "steps": 1}
    try:
        for side in (REFERENCE, NPU):
            place = folder / side
            place.mkdir(parents=True)
            limit = min(SECONDS, plan.timeout or SECONDS)
            _, ended = controls.rerun_side(plan, side, place, Watch(place, limit, progress), changes)
            if ended.stopped:
                raise TorchportError(f"recording one step took more than {limit:g} s")
        reference, port = (Operators.read(folder / side) for side in (REFERENCE, NPU))
        if not reference.processes or not port.processes:
            raise TorchportError("the run of one step recorded no operator")
        pairs = pair_results(reference, port, port.processes[0].rank or 0).pairs
    except (OSError, TorchportError) as error:
        progress.note(f"how many results have other bits is not known: {error}")
        return unknown
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return SumOrder(plan.sum_order, len(pairs), sum(pair.euclidean != 0 for pair in pairs))
