"""Recorded operators: the run is the same, bit by bit, and what is written is what was computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from torchport.record.operators.reading import Operators, ProcessOperators
from torchport.record.recording import Recording

DATA = Path(__file__).parent / "data"


def run(words: list[object], **variables: str) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended


def torchport(*words: object) -> list[object]:
    return [sys.executable, "-m", "torchport", *words]


@pytest.mark.parametrize(
    ("device", "precision"),
    [
        ("cpu", "float32"),
        ("npu", "float32"),
        pytest.param("cpu", "bfloat16", marks=pytest.mark.recorded),
        pytest.param("npu", "bfloat16", marks=pytest.mark.recorded),
    ],
)
def test_a_recorded_run_is_the_same(tmp_path: Path, device: str, precision: str) -> None:
    """Losses and parameters after twelve optimizer steps, and the operators of each; two optimizers, accumulation,
    dropout, a checkpoint."""
    variables = {} if device == "npu" else {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    program = "import torchport.vnpu; torchport.vnpu.activate(); " if device == "npu" else ""
    program += f"import runpy; runpy.run_path({str(DATA / 'recorded_training.py')!r}, run_name='__main__')"
    said = run([sys.executable, "-c", program, device, precision, tmp_path / "rec"], **variables)
    assert json.loads(said.stdout.splitlines()[-1]) == {"losses": True, "parameters": True, "operators": True}
    process = Operators.read(tmp_path / "rec").rank(0)
    assert process.steps == list(range(12))
    with process.step(4) as step:
        assert step.about["recorder"] == "hook"
        assert step.about["lost"] == 0
        calls = list(step.calls())
        phases = {call.phase for call in calls}
        assert phases == {"forward", "backward", "optimizer", "recompute"}
        measured = [tensor for tensor in step.tensors() if tensor.statistics is not None]
        assert len(measured) > 0.8 * len(list(step.tensors()))
        for tensor in measured:
            assert_is_its_content(tensor)
        forward = next(call for call in calls if call.name == "aten::convolution")
        back = next(call for call in calls if call.name.startswith("aten::convolution_backward"))
        assert forward.sequence == back.sequence >= 0
        assert (forward.module, back.module) == ("conv", "conv")
        assert back.node == "ConvolutionBackward0"
        assert forward.function == "Net.forward"
        assert "recorded_training.py:" in forward.source == back.source
        # Under autocast the weight is cast first, and that call has its name.
        named = [one.name for call in calls for one in call.inputs if one is not None and call.module == "conv"]
        assert "conv.weight" in named
        assert precision != "float32" or "conv.weight" in [one.name for one in forward.inputs if one is not None]
        assert any(call.module.startswith("attention.") for call in calls if call.phase == "recompute")


@pytest.mark.recorded
@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_a_step_that_a_scaler_leaves_out(tmp_path: Path, device: str) -> None:
    """Its operators come with those of the next step that is made, among them who found the infinity."""
    variables = {} if device == "npu" else {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    program = "import torchport.vnpu; torchport.vnpu.activate(); " if device == "npu" else ""
    program += f"import runpy; runpy.run_path({str(DATA / 'recorded_scaler.py')!r}, run_name='__main__')"
    said = run([sys.executable, "-c", program, device, tmp_path / "rec"], **variables)
    assert json.loads(said.stdout.splitlines()[-1]) == {
        "losses": True,
        "scales": True,
        "parameters": True,
        "left out": True,
        "steps": 10,
    }
    process = Operators.read(tmp_path / "rec").rank(0)
    assert process.steps == [0, 1, 2, 3, 4]
    passes = {}
    for number in process.steps:
        with process.step(number) as step:
            passes[number] = sum(call.name == "aten::mean" for call in step.calls())
            assert any(call.phase == "optimizer" for call in step.calls())
    assert passes == {0: 1, 1: 1, 2: 2, 3: 1, 4: 1}
    with process.step(2) as step:
        checks = [call for call in step.calls() if "_amp_foreach_non_finite_check" in call.name]
        found = [call.written[-1].statistics.maximum for call in checks]
    assert found == [1.0, 0.0], "the first has found one"


def assert_is_its_content(tensor) -> None:
    values = tensor.values()
    found = tensor.statistics
    if values.size == 0 or values.dtype.kind not in "fiub":
        return
    values = values.astype(numpy.float64)
    assert found.minimum == values.min()
    assert found.maximum == values.max()
    assert found.zeros == (values == 0).sum()
    assert abs(found.mean - values.mean()) <= 1e-9 * max(1, abs(values).max())
    assert abs(found.l2 - numpy.sqrt((values * values).sum())) <= 1e-6 * max(1, found.l2)


SCRIPT = """
import torch
from torch import nn
device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).to(device)
optimizer = torch.optim.AdamW(net.parameters(), 0.1)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(6, 4).to(device)), torch.randint(0, 3, (6,)).to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def calls_of(process: ProcessOperators, number: int) -> list[tuple[object, ...]]:
    with process.step(number) as step:
        return [
            (
                call.name,
                call.overload,
                call.phase,
                call.module,
                call.arguments,
                call.results,
                *(
                    (t.shape, t.dtype, t.statistics and t.statistics.checksum)
                    for t in (*call.inputs, *call.outputs)
                    if t
                ),
            )
            for call in step.calls()
        ]


@pytest.mark.recorded
def test_python_notes_what_the_library_notes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    processes = []
    for recorder in ("hook", "mode"):
        run(
            torchport(
                "run", "--record", tmp_path / recorder, "--on", "cpu", "--level", "tensor", tmp_path / "train.py"
            ),
            TORCHPORT_RECORDER=recorder,
        )
        processes.append(Operators.read(tmp_path / recorder).rank(0))
    hook, mode = processes
    assert hook.steps == mode.steps == [0, 1, 2]

    def essential(process: ProcessOperators) -> list[tuple[object, ...]]:
        plain = [call for call in calls_of(process, 1) if call[2] != "optimizer"]
        wanted = ("addmm", "gelu", "gelu_backward", "_log_softmax", "nll_loss_forward", "mm", "nll_loss_backward")
        return [(*call[:4], *call[6:]) for call in plain if str(call[0]).removeprefix("aten::") in wanted]

    assert len(essential(hook)) >= 9
    assert essential(hook) == essential(mode)


def test_levels_and_filters(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    asked = torchport(
        "run", "--record", tmp_path / "rec", "--on", "cpu", "--filter", "module=2", "--filter", "step=1-2"
    )
    said = run([*asked, "--filter", "module=nothing.like", tmp_path / "train.py"]).stderr
    assert "warning: no module of the first step matches module=nothing.like" in said
    process = Operators.read(tmp_path / "rec").rank(0)
    assert process.steps == [1, 2]
    found = calls_of(process, 1)
    assert found
    assert {call[3] for call in found} == {"2"}
    assert {call[2] for call in found} == {"forward", "backward"}
    asked = torchport(
        "run", "--record", tmp_path / "modules", "--on", "cpu", "--level", "module", tmp_path / "train.py"
    )
    run(asked)
    names = [(call[0], call[3]) for call in calls_of(Operators.read(tmp_path / "modules").rank(0), 1)]
    assert names == [
        ("module::Linear", "0"),
        ("module::GELU", "1"),
        ("module::Linear", "2"),
        ("module::Sequential", "."),
    ]


def test_what_kernels_call_is_not_the_program_s(tmp_path: Path) -> None:
    """A trace of the virtual NPU shows its kernels' own calls of ATen to whoever listens."""
    (tmp_path / "train.py").write_text(SCRIPT)
    found = []
    for name, trace in (("plain", ""), ("traced", str(tmp_path / "trace.txt"))):
        asked = torchport("run", "--record", tmp_path / name, "--on", "npu", tmp_path / "train.py")
        run(asked, VNPU_TRACE=trace)
        found.append([call[:5] for call in calls_of(Operators.read(tmp_path / name).rank(0), 1)])
    assert "aclnnAddmm" in (tmp_path / "trace.txt").read_text()
    assert "aten::addmm" in {call[0] for call in found[0]}
    assert found[1] == found[0]


@pytest.mark.recorded
def test_a_device_without_a_pass_is_measured_by_reductions(tmp_path: Path) -> None:
    """As CUDA and a real NPU are: here with the CPU's tensors, whose numbers are known."""
    (tmp_path / "train.py").write_text(SCRIPT)
    found = []
    for recorder in ("hook", "reductions"):
        run(
            torchport("run", "--record", tmp_path / recorder, "--on", "cpu", tmp_path / "train.py"),
            TORCHPORT_RECORDER=recorder,
        )
        with Operators.read(tmp_path / recorder).rank(0).step(1) as step:
            found.append([tensor.statistics for tensor in step.tensors()])
    both = [(a, b) for a, b in zip(*found, strict=True) if a is not None and b is not None]
    assert len(both) > 30
    for exact, reduced in both:
        assert (reduced.minimum, reduced.maximum, reduced.zeros, reduced.nans) == (
            numpy.float32(exact.minimum),
            numpy.float32(exact.maximum),
            exact.zeros,
            exact.nans,
        )
        assert abs(reduced.l2 - exact.l2) <= 1e-5 * max(1, exact.l2)
        assert reduced.checksum == 0


WORKERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.randn(4, generator=torch.Generator().manual_seed(i)), i % 3
net = nn.Linear(4, 3).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x, y in DataLoader(Images(), 4, num_workers=1, multiprocessing_context="fork"):
    nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""


def test_forked_workers_may_seed_generators(tmp_path: Path) -> None:
    """Whose is it, was asked of torch.cuda, which initialises the NPU: no forked process can."""
    (tmp_path / "workers.py").write_text(WORKERS)
    run(torchport("run", "--record", tmp_path / "rec", "--on", "npu", tmp_path / "workers.py"))
    assert Operators.read(tmp_path / "rec").rank(0).steps == [0, 1]


RANKS = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 3))
net = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(net.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
data = TensorDataset(torch.randn(48, 4), torch.randint(0, 3, (48,)))
losses = []
for x, y in DataLoader(data, 4, num_workers=1, multiprocessing_context="fork"):
    with torch.autocast("cpu", torch.bfloat16, enabled=os.environ["PRECISION"] == "bfloat16"):
        loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())
with open(os.environ["OUT"] + os.environ["RANK"], "wb") as file:
    file.write("".join(losses).encode() + b"".join(one.numpy().tobytes() for one in net.state_dict().values()))
dist.destroy_process_group()
"""


@pytest.mark.recorded
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_ranks_have_files_of_their_own_and_workers_none(tmp_path: Path, precision: str) -> None:
    """And are the same: losses, parameters and buffers after twelve steps."""
    (tmp_path / "ranks.py").write_text(RANKS)
    for name, options in (("plain", ["--level", "none"]), ("rec", [])):
        asked = torchport(
            "run", "--record", tmp_path / name, *options, "--on", "cpu", "--nproc", "2", tmp_path / "ranks.py"
        )
        run(asked, OUT=str(tmp_path / f"{name}-"), PRECISION=precision)
    for rank in "01":
        assert (tmp_path / f"plain-{rank}").read_bytes() == (tmp_path / f"rec-{rank}").read_bytes()
    assert (tmp_path / "plain-0").read_bytes() != (tmp_path / "plain-1").read_bytes(), "losses are their own"
    recorded = Operators.read(tmp_path / "rec")
    assert [process.rank for process in recorded.processes] == [0, 1]
    for process in recorded.processes:
        assert process.steps == list(range(12))
        names = [call[0] for call in calls_of(process, 1)]
        assert "c10d::allreduce_" in names
        assert names.count("aten::addmm") == 2
        assert ("aten::_to_copy" in names) is (precision == "bfloat16")
    assert sorted(path.name for path in (tmp_path / "rec" / "operators").iterdir()) == ["rank0", "rank1"]


RANKS_NPU = """
import os, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(dist.get_rank())
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(144, 3))
net = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[int(os.environ["LOCAL_RANK"])])
optimizer = torch.optim.AdamW(net.parameters(), 0.01)
losses = []
for step in range(12):
    x, y = torch.randn(4, 3, 8, 8).cuda(), torch.randint(0, 3, (4,)).cuda()
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item().hex())
with open(os.environ["OUT"] + os.environ["RANK"], "wb") as file:
    file.write("".join(losses).encode() + b"".join(one.cpu().numpy().tobytes() for one in net.state_dict().values()))
dist.destroy_process_group()
"""


@pytest.mark.recorded
def test_ranks_on_the_npu_are_the_same(tmp_path: Path) -> None:
    """Losses, parameters, buffers and launched operators of each of twelve steps, in both ranks."""
    (tmp_path / "ranks.py").write_text(RANKS_NPU)
    launches = {}
    for level in ("none", "statistics", "tensor"):
        asked = torchport("run", "--record", tmp_path / level, "--level", level, "--on", "npu", "--nproc", "2")
        run([*asked, tmp_path / "ranks.py"], OUT=str(tmp_path / f"{level}-"))
        processes = [one for one in Recording.from_directory(tmp_path / level).processes if one.of_kind("step")]
        counted = {one.rank: [event["launches"] for event in one.of_kind("step")] for one in processes}
        launches[level] = {rank: numpy.diff(counts).tolist() for rank, counts in sorted(counted.items())}
        for rank in "01":
            assert (tmp_path / f"{level}-{rank}").read_bytes() == (tmp_path / f"none-{rank}").read_bytes()
    assert list(launches["none"]) == [0, 1]
    assert all(len(counts) == 11 and min(counts) > 20 for counts in launches["none"].values())
    assert launches["statistics"] == launches["tensor"] == launches["none"]
    assert (tmp_path / "none-0").read_bytes() != (tmp_path / "none-1").read_bytes(), "their losses are their own"
    for process in Operators.read(tmp_path / "tensor").processes:
        assert process.steps == list(range(12))
        names = [call[0] for call in calls_of(process, 5)]
        assert "c10d::allreduce_" in names
        assert "aten::convolution" in names or "aten::convolution_overrideable" in names


FUNCTIONAL = """
import os, torch, torch.distributed as dist
from torch.distributed import _functional_collectives as functional
on = os.environ["ON"]
dist.init_process_group("hccl" if on == "npu" else "gloo")
if on == "npu":
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
sent = torch.full((4096,), 1.0 + dist.get_rank(), device=on)
plain = sent.clone()
dist.all_reduce(plain)
plain.cos()
begun = functional.all_reduce(sent, "sum", dist.group.WORLD)
weight = torch.nn.Parameter(torch.ones(4096, device=on))
(functional.wait_tensor(begun).tan() * weight).sum().backward()
torch.optim.SGD([weight], 0.1).step()
dist.destroy_process_group()
"""


@pytest.mark.recorded
@pytest.mark.parametrize("on", ["cpu", "npu"])
def test_what_a_functional_collective_gives_is_seen_when_it_was_waited_for(tmp_path: Path, on: str) -> None:
    """Before that another thread writes it: FSDP2 clips gradients so, and what was seen early accused `pow`."""
    (tmp_path / "sum.py").write_text(FUNCTIONAL)
    asked = torchport("run", "--record", tmp_path / "rec", "--level", "tensor", "--on", on, "--nproc", "2")
    run([*asked, tmp_path / "sum.py"], ON=on)
    for process in Operators.read(tmp_path / "rec").processes:
        with process.step(process.steps[0]) as step:
            calls = list(step.calls())
            (begun,) = [call.outputs[0] for call in calls if call.name == "_c10d_functional::all_reduce"]
            (read,) = [call.inputs[0] for call in calls if call.name == "aten::tan"]
            assert begun is not None and begun.reason == "it is written by another thread"
            assert read is not None and read.storage == begun.storage and set(read.values().tolist()) == {3.0}
            (reduced,) = [call.inputs[0] for call in calls if call.name == "aten::cos"]
            assert reduced is not None and set(reduced.values().tolist()) == {3.0}


@pytest.mark.recorded
@pytest.mark.parametrize(
    "end",
    [
        "raise ValueError('enough')",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(9)",
    ],
)
def test_what_an_exception_leaves(tmp_path: Path, end: str) -> None:
    (tmp_path / "train.py").write_text(f"{SCRIPT}{end}\n")
    asked = torchport("run", "--record", tmp_path / "rec", "--on", "cpu", tmp_path / "train.py")
    ended = subprocess.run(list(map(str, asked)), capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert Operators.read(tmp_path / "rec").rank(0).steps == [0, 1, 2]
    assert Recording.from_directory(tmp_path / "rec").steps == 3


def test_the_last_steps_before_the_first_nan_are_kept(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(4, 1).to('cuda')\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(9):\n"
        "    x = torch.ones(2, 4, device='cuda') * (float('nan') if step == 5 else 1.0)\n"
        "    loss = (model(x) / (0.0 if step == 4 else 1.0)).sum()\n"
        "    optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
    )
    words = ["--record", tmp_path / "rec", "--on", "cpu", "--keep-last", "2", script]
    said = run(torchport("run", *words), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    process = Operators.read(tmp_path / "rec").rank(0)
    assert process.steps == [3, 4]
    assert process.missing == ()
    (event,) = Recording.from_directory(tmp_path / "rec").of_kind("overflow")
    assert event["step"] == 4
    assert "aten::div (forward) makes 2 elements of float32[2, 1] infinite" in event["text"]
    assert "the last 2 steps are kept" in said.stderr
