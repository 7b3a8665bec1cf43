"""Small scripts run through the machinery of a recorded process, each in a process of its own: they need plain torch on
the CPU, whatever the process that runs the tests has loaded."""

import atexit
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

from torchport.findings import Result
from torchport.record import recording, session
from torchport.record.recording import OPTIMIZER, Recording

STEPS = 8
# What comes before each script: `keep(name, tensors...)` leaves tensors for the test, and a part of the recorder that
# stands where those stand that measure keeps what is measured.
PRELUDE = """
import atexit, json, torch
from torchport.record import session
from torchport.record.part import Part

seen = {}
atexit.register(lambda: open("seen.json", "w").write(json.dumps(seen)))

def keep(name, *tensors):
    seen.setdefault(name, []).append([one.detach().double().flatten().tolist() for one in tensors])

class Measuring(Part):
    def on_step_begin(self, optimizer, number, step, closure):
        weights = [one for group in optimizer.param_groups for one in group["params"]]
        keep("before", *weights)
        if not closure:
            keep("gradients", *[torch.zeros(1) if one.grad is None else one.grad for one in weights])
    def on_step_end(self, optimizer, number, step):
        weights = [one for group in optimizer.param_groups for one in group["params"]]
        keep("after", *weights)
        keep("gradients at the end", *[torch.zeros(1) if one.grad is None else one.grad for one in weights])
    def on_backward_end(self, site, by, results):
        keep("results", *(results or [one.grad for one in globals().get("leaves", [])]))

parts = session._session._recorder.parts
parts.insert(next(i for i, part in enumerate(parts) if type(part).__name__ == "Quantities"), Measuring())
"""
MODEL = """
torch.manual_seed(3)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
"""
TRAIN = (
    MODEL
    + """
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
net.register_forward_pre_hook(lambda module, given: keep("inputs", *given))
for step in range(9):
    x = torch.rand(5, 6, device="cuda")
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    keep("own gradients", *[one.grad for one in net.parameters()])
    optimizer.step()
    keep("own weights", *net.parameters())
    keep("own buffers", *net.buffers())
    keep("own numbers", torch.rand(3), torch.rand(3, device="cuda"))
"""
)


def run(folder, text, **options):
    """The recording of the script `text` as an original, and what it kept: by name, a list of values for each time."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    Result(recording.COMMAND, data={"recording": recording.VERSION}).write(folder / recording.HEAD)
    (folder / "script.py").write_text(PRELUDE + text)
    chosen = {"side": session.REFERENCE, "kind": OPTIMIZER, "steps": STEPS, **options}
    variable = session.Options(str(folder), **chosen).to_variable()
    worker = _worker()
    worker.stdin.write(json.dumps({"folder": str(folder), "variable": variable}) + "\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == "0\n", (folder / "stderr.txt").read_text()
    return Recording.from_directory(folder), json.loads((folder / "seen.json").read_text())


@functools.cache
def _worker():
    """One process with torch for all scripts: it forks, which takes less time than importing torch."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1", "TORCHPORT_AUTO": "0"}
    path = Path(__file__).with_name("data") / "recorded_worker.py"
    worker = subprocess.Popen(
        [sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    )
    atexit.register(worker.stdin.close)  # its loop ends
    return worker
