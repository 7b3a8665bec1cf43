"""Records trainings, one after the other in one process: `python recording_run.py FOLDER DEVICE NAME ...`.

A name is that of a fault (`inside`, `around`), or of a program, which is recorded as it is. Each gets a folder of its name with
blanks as underscores. Prints a line of JSON for each: name, and the operator that was changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from around import AROUND, Around
from inside import INSIDE, Faulty
from programs import MODELS, batch, loss_of
from torch import distributed

from torchport.findings import Result
from torchport.patches import Patches
from torchport.record import recording, roundoff
from torchport.record.draws import Draws
from torchport.record.operators import part
from torchport.record.operators.mode import ModeRecorder
from torchport.record.operators.wanted import Wanted
from torchport.record.sites import Sites

STEPS = 3


@contextlib.contextmanager
def recorded(folder: Path, device: str, level: str = "tensor") -> Iterator[Any]:
    """A recording of operators in `folder`; gives the part, which is to be told of steps."""
    folder.mkdir(parents=True)
    known = {"recording": recording.VERSION, "side": device, "command": [], "device": device, "seed": 0}
    Result(recording.COMMAND, data=known).write(folder / recording.HEAD)
    journal = recording.Journal(folder)
    journal.write_event("process", pid=os.getpid(), name="MainProcess", rank=0, world=1)
    if device == "npu":
        journal.write_event("device", settings={**roundoff.read_npu_formats(torch), "virtual": True})
    wanted = Wanted(level)
    made = part.OperatorsPart(
        torch, ModeRecorder(torch, wanted, Sites()), wanted, folder, journal, lambda: 0, {}, lambda text: None
    )
    made.install()
    try:
        yield made
    finally:
        made.finish()
        journal.close()


def train(folder: Path, device: str, program: str, fault: Any) -> str:
    """Three steps of a program, with a fault; the operator that was changed (in the second step)."""
    around = fault if isinstance(fault, Around) else Around("", program, "")
    faulty = Faulty(fault) if fault is not None and around is not fault else None
    torch.manual_seed(0)
    model = around.model(MODELS[program]().to(device))
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, **{"lr": 1e-3, **around.options})
    batches = [batch(program, step) for step in range(STEPS)]
    batches = [(around.batch(given), wanted) for given, wanted in batches]
    # The recorder is entered later, so it is asked first: it sees what the fault gives.
    with faulty or contextlib.nullcontext(), recorded(folder, device) as made:
        for step, (given, wanted) in enumerate(batches):
            loss_of(model, given.to(device), wanted.to(device)).backward()
            if around.reduce:
                distributed.all_reduce(next(iter(trained)).grad)
            made.on_step_begin(optimizer, 0, step, False)
            optimizer.step()
            made.on_step_end(optimizer, 0, step)
            made.step_done()
            optimizer.zero_grad()
            if faulty is not None:
                faulty.next_step()
    return faulty.hit if faulty is not None else ""


def main() -> None:
    root, device, *names = sys.argv[1:]
    torch.set_num_threads(1)
    if device == "npu":
        import torch_npu  # noqa: F401 - the device
    # Both sides draw the same numbers, as in runs that `torchport run` records.
    Draws(torch, 0, lambda: "", lambda operator, site: None).install(Patches())
    with tempfile.TemporaryDirectory() as temporary:
        store = distributed.FileStore(f"{temporary}/store", 1)
        distributed.init_process_group("hccl" if device == "npu" else "gloo", store=store, rank=0, world_size=1)
        faults = {fault.name: fault for fault in (*INSIDE, *AROUND)}
        for name in names:
            fault = faults.get(name)
            hit = train(Path(root, name.replace(" ", "_")), device, fault.program if fault else name, fault)
            print(json.dumps({"name": name, "operator": hit}), flush=True)
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
