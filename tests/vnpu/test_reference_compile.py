"""Scripts with torch.compile: the reference runs them eagerly, the port without inductor, and both train alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.record import reference

SCRIPT = """
import json, torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).cuda()
model = torch.compile(net, mode="reduce-overhead")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(16, 8).cuda(), torch.zeros(16, dtype=torch.long).cuda()
losses = []
for step in range(4):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

@torch.compile
def twice(value):
    return value.sin() * 2

print(json.dumps({"losses": losses, "names": list(model.state_dict()), "twice": twice(torch.ones(1).cuda()).item()}))
"""

RUN = """
import runpy, sys
from torchport.on_import import after_import
{prepare}
runpy.run_path(sys.argv[1], run_name="__main__")
"""
REFERENCE = "from torchport.record import reference\nafter_import('torch', reference.apply_reference_patches)"
PORT = "from torchport.record import port_side\nafter_import('torch', lambda torch: port_side.apply_port_patches(torch, print))"


def run(prepare: str, script: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN.format(prepare=prepare), str(script)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.ports
def test_both_sides_of_a_compiled_script(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "out"
    script.write_text(SCRIPT)
    convert = [sys.executable, "-m", "torchport", "convert", str(script), "-o", str(out)]
    subprocess.run(convert, check=False, capture_output=True)
    original = run(REFERENCE, script, reference.make_reference_environment(os.environ))
    port = run(PORT, out / "train.py", dict(os.environ))
    assert original.returncode == 0, original.stderr
    assert port.returncode == 0, port.stderr
    assert "aot_eager" in port.stdout
    ours, theirs = (json.loads(one.stdout[one.stdout.index("{") :]) for one in (original, port))
    assert (
        ours["names"]
        == theirs["names"]
        == [f"_orig_mod.{layer}.{name}" for layer in (0, 2, 3) for name in ("weight", "bias")]
    )
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-2)
    assert ours["twice"] == pytest.approx(theirs["twice"], rel=1e-5)
    assert ours["losses"][-1] < ours["losses"][0]
    assert "torch._inductor" not in original.stderr


def test_importing_the_port_side_patches_nothing() -> None:
    code = (
        "import sys\nfrom torchport.record import port_side\n"
        "assert 'torch' not in sys.modules\nassert 'torchport.auto' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
