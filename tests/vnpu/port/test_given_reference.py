"""A port against a recording that was made before: it has to notice a wrong port, and takes weights and batches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.findings import Result
from torchport.record.recording import Recording

# Weights and data are others in each run, as the clock and an unseeded order of files make them.
TRAIN = """
import os, sys
import torch

def chance(*shape):
    count = torch.Size(shape).numel()
    return torch.tensor(list(os.urandom(count)), dtype=torch.float32).view(shape) / 255

model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
with torch.no_grad():
    model[0].weight.copy_(chance(8, 6) - 0.5)
device = torch.device("cuda")
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for _ in range(12):
    x = chance(16, 6)
    y = x.sum(1, keepdim=True)
    x, y = x.to(device, non_blocking=True), y.cuda()
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), sys.argv[1])
print(f"final loss {loss.item():.5f}")
"""
OUT = Path("torchport-out", "train")
PORTED = OUT / "convert" / "tree" / "train.py"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHPORT_BACKEND", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def torchport(*words):
    return subprocess.run([sys.executable, "-m", "torchport", *words], capture_output=True, text=True, check=False)


def recorded(place):
    """Leaves a recording in `copied`, and gives what the script printed."""
    run = torchport("run", "--record", "rec", "--on", "cpu", "train.py", "model.pt")
    assert run.returncode == 0, run.stderr
    (place / "rec").rename(place / "copied")
    return run.stdout


def port(*more):
    return torchport("port", "--reference", "copied", *more, "train.py", "model.pt")


def test_a_port_against_a_recording(place):
    printed = recorded(place)
    assert printed.startswith("final loss ")
    assert (place / "model.pt").exists()  # in place

    ported = port()
    assert ported.returncode == 0, ported.stdout + ported.stderr
    assert "holds (12 optimizer steps compared one by one, float32" in ported.stdout
    assert "12 steps on the CPU, recorded before" in ported.stderr
    result = Result.read(OUT / "result.json")
    assert result.data["comparison"]["worst"]["run"] < 1e-4
    assert result.data["runs"]["reference"]["given"] == str(place / "copied")
    assert result.data["files"] == []
    assert (OUT / "npu" / "stdout.txt").read_text() == printed
    assert not (OUT / "npu" / "batches").exists()

    # A port whose optimizer does nothing.
    right = PORTED.read_text()
    assert right.count("    optimizer.step()\n") == 1
    PORTED.write_text(right.replace("    optimizer.step()\n", ""))
    wrong = port("--from", "npu")
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "does not hold" in wrong.stdout


@pytest.mark.ports
def test_further_ports_of_a_recording(place):
    recorded(place)
    assert port().returncode == 0
    right = PORTED.read_text()

    # A port whose model sees another batch: of the batches that are taken, the wrong one.
    PORTED.write_text(right.replace("model(x), y)", "model(x.flip(0)), y)"))
    assert port("--from", "npu").returncode == 1

    # And the right one again, without naming the recording; another one is not what was kept.
    PORTED.write_text(right)
    assert torchport("port", "--from", "npu", "train.py", "model.pt").returncode == 0
    (place / "copied").rename(place / "other")
    other = torchport("port", "--reference", "other", "--from", "npu", "train.py", "model.pt")
    assert other.returncode == 2 and "was not made from" in other.stderr

    # Without weights and batches nothing would agree: this is what the recording is for.
    plain = torchport("port", "train.py", "model.pt")
    assert plain.returncode in (1, 4), plain.stdout
    assert not (OUT / "reference" / "batches").exists()


def test_recordings_of_the_cpu_and_the_npu_are_compared(place):
    """The words of `compare` are those of `port`: the runs have the same random numbers."""
    (place / "train.py").write_text(TRAIN.replace("os.urandom(count)", "torch.randint(0, 255, (count,)).tolist()"))
    for on in ("cpu", "npu"):
        run = torchport("run", "--record", on, "--on", on, "train.py", f"{on}.pt")
        assert run.returncode == 0, run.stderr
    alike = torchport("compare", "cpu", "npu")
    assert alike.returncode == 0, alike.stdout + alike.stderr
    (place / "train.py").write_text((place / "train.py").read_text().replace("lr=0.05", "lr=0.06"))
    words = ("--record", "npu", "--force", "--on", "npu", "--steps", "5", "train.py", "npu.pt")
    run = torchport("run", *words)
    assert run.returncode == 0, run.stderr
    assert (Recording.from_directory("npu").steps, Recording.from_directory("npu").stopped) == (5, "steps")
    other = torchport("compare", "cpu", "npu")
    assert other.returncode == 1, other.stdout + other.stderr
    ended = torchport("port", "--reference", "cpu", "train.py", "cpu.pt")
    assert ended.returncode == 2 and "these files are others here: train.py" in ended.stderr


@pytest.mark.ports
def test_ranks_take_their_own_batches(place):
    text = TRAIN.replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)
    text = text.replace('device = torch.device("cuda")', DISTRIBUTED).replace(
        "optimizer = ", "model = torch.nn.parallel.DistributedDataParallel(model)\noptimizer = "
    )
    text = text.replace("torch.save(", "if dist.get_rank() == 0: torch.save(").replace(
        "print(", "if dist.get_rank() == 0: print("
    )
    (place / "train.py").write_text(text)
    run = torchport("run", "--record", "rec", "--on", "cpu", "--nproc", "2", "train.py", "model.pt")
    assert run.returncode == 0, run.stderr
    assert sorted(os.listdir("rec/batches")) == ["rank0", "rank1"]
    ported = torchport("port", "--reference", "rec", "--nproc", "2", "train.py", "model.pt")
    assert ported.returncode == 0, ported.stdout + ported.stderr
    refused = torchport("port", "--reference", "rec", "train.py", "model.pt")
    assert refused.returncode == 2 and "processes" in refused.stderr


DISTRIBUTED = """dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))"""
