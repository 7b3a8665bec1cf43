"""What a recording shows of single calls: what they write in place, storages without memory, steps that other threads
are in, blocks that are never left. In this process, on the CPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchport
from torchport.record.operators import hook
from torchport.record.operators.listing import build_overview, call_lines, overview_lines, plain_call
from torchport.record.operators.reading import Call, Operators


def calls(folder: Path, name: str, step: int = 0) -> list[Call]:
    with Operators.read(folder).rank(0).step(step) as opened:
        found = [call for call in opened.calls() if call.name == name]
        for call in found:  # while the file is open
            for one in (*call.inputs, *call.outputs, *call.written):
                if one is not None:
                    one.kept = one.values()  # type: ignore[attr-defined]
    return found


@pytest.fixture(params=["hook", "mode"])
def recorder(request, monkeypatch):
    monkeypatch.setenv("TORCHPORT_RECORDER", request.param)
    return request.param


def test_what_a_call_writes_and_does_not_give_back_is_shown(tmp_path, recorder):
    many = [torch.ones(3), torch.full((2, 2), 2.0)]
    norm = nn.BatchNorm1d(4)
    x = torch.randn(8, 4)
    with torchport.record(tmp_path / "rec", level="tensor") as block:
        torch._foreach_add_(many, 1.0)
        norm(x)
        many[0].add_(1.0)
        block.step()
    (added,) = calls(tmp_path / "rec", "aten::_foreach_add_")
    assert (added.outputs, added.results) == ((), [])
    assert [one.kept.tolist() for one in added.written] == [[2.0] * 3, [[3.0, 3.0], [3.0, 3.0]]]
    assert [one.kept.tolist() for one in added.inputs] == [[1.0] * 3, [[2.0, 2.0], [2.0, 2.0]]], "as before"
    (normed,) = calls(tmp_path / "rec", "aten::native_batch_norm")
    assert [tuple(one.shape) for one in normed.written] == [(4,), (4,)]
    numpy.testing.assert_array_equal(normed.written[0].kept, norm.running_mean.numpy())
    numpy.testing.assert_array_equal(normed.written[1].kept, norm.running_var.numpy())
    # The control: what a result shows is not shown twice, and who writes nothing has nothing.
    counted, in_place = calls(tmp_path / "rec", "aten::add_")
    assert [(one.written, len(one.outputs)) for one in (counted, in_place)] == [((), 1), ((), 1)]
    assert any("written 1: float32[2, 2]" in line for line in call_lines(plain_call(added), numbers=True))


def test_a_storage_without_memory_is_not_read(tmp_path):
    """As FSDP leaves the parameters that it has given away: sizes stay, memory goes."""
    gone, whole = torch.ones(1000), torch.ones(1000)
    gone.untyped_storage().resize_(0)
    half = torch.ones(1000)
    half.untyped_storage().resize_(400)
    zeros = torch._efficientzerotensor(1000)
    with torchport.record(tmp_path / "rec", level="tensor") as block:
        for one in (gone, half, zeros, whole):
            one.detach()
        block.step()
    rows = [call.inputs[0] for call in calls(tmp_path / "rec", "aten::detach")]
    assert [one.statistics is None for one in rows] == [True, True, True, False]
    assert {one.reason for one in rows[:3]} == {"its storage has no memory, or less than it needs"}
    assert rows[3].reason == ""


def test_steps_end_while_other_threads_are_within_operators(tmp_path):
    over, done, steps = threading.Event(), [], 0

    def compute() -> None:
        mine = torch.randn(50)
        while not over.is_set():
            mine = torch.sin(mine)
            done.append(1)
            time.sleep(0.0002)

    threads = [threading.Thread(target=compute) for _ in range(3)]
    with torchport.record(tmp_path / "rec", level="tensor") as block:
        for one in threads:
            one.start()
        while steps < 30 or len(done) < 100:  # a busy machine lets others come late
            torch.ones(10).cos()
            block.step()
            steps += 1
        over.set()
        for one in threads:
            one.join()
    shown = build_overview(tmp_path / "rec")
    assert (shown["damaged"], shown["processes"][0]["steps"]) == ([], list(range(steps)))
    seen = 0
    process = Operators.read(tmp_path / "rec").rank(0)
    for number in process.steps:
        with process.step(number) as step:
            for tensor in step.tensors():
                assert tensor.statistics is None or tensor.values() is not None
            seen += sum(call.name == "aten::sin" for call in step.calls())
    assert seen > 50, "the other threads were there"


@pytest.mark.parametrize("library", ["record/nothing.so", hook.LIBRARY])
def test_without_the_library_python_does_it_and_says_so(tmp_path, monkeypatch, capsys, library):
    monkeypatch.setattr(hook, "LIBRARY", library)
    without = library != "record/libtorchport_record.so"
    with torchport.record(tmp_path / "rec", filters=["operator=sin"]) as block:
        torch.ones(3).sin()
        block.step()
    assert len(calls(tmp_path / "rec", "aten::sin")) == 1
    said = capsys.readouterr().err
    assert ("operators are noted in Python, slower than by the library, which cannot be used: " in said) is without
    assert ("nothing.so" in said) is without
    lines = overview_lines(build_overview(tmp_path / "rec"))
    how = "  level statistics, noted in Python, as the library could not be used: " if without else None
    assert any(line.startswith(how or "  level statistics, noted by the library, only operator=sin") for line in lines)


NEVER_LEFT = """
import sys, torch, torchport
block = torchport.record(sys.argv[1])
block.__enter__()
for _ in range(3):
    torch.ones(3).sin()
    block.step()
torch.ones(3).cos()
if sys.argv[2] == "raise":
    raise ValueError("enough")
"""


@pytest.mark.parametrize("end", ["return", pytest.param("raise", marks=pytest.mark.recorded)])
def test_a_block_that_is_never_left_ends_with_the_process(tmp_path, end):
    ended = subprocess.run(
        [sys.executable, "-c", NEVER_LEFT, str(tmp_path / "rec"), end], capture_output=True, text=True, check=False
    )
    assert ended.returncode == (1 if end == "raise" else 0), ended.stderr
    assert "Fatal" not in ended.stderr
    process = Operators.read(tmp_path / "rec").rank(0)
    assert process.steps == [0, 1, 2]
    assert process.rest is not None
    assert not list((tmp_path / "rec").rglob("*.unfinished"))


class Raising(nn.Module):
    """Its layer is repeated within the backward pass, and left by torch's exception as soon as nothing is missing."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.1))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(checkpoint(self.layer, x, use_reentrant=False))


@pytest.mark.parametrize("level", ["statistics", "module"])
@pytest.mark.filterwarnings("error")
def test_a_module_that_raises_has_ended(tmp_path, recorder, level):
    net, x = Raising(), torch.randn(3, 4)
    with torchport.record(tmp_path / "rec", level=level) as block:
        for _ in range(2):
            net(x).sum().backward()
            with contextlib.suppress(RuntimeError):
                net(torch.randn(3, 5))
            x.cos()
            block.step()
    with Operators.read(tmp_path / "rec").rank(0).step(1) as step:
        found = list(step.calls())
    if level == "module":
        names = [(call.name, call.module) for call in found]
        # The calls that were left by an exception have given nothing: they are not there.
        assert names == [
            ("module::Linear", "layer.0"),
            ("module::GELU", "layer.1"),
            ("module::Dropout", "layer.2"),
            ("module::Sequential", "layer"),
            ("module::Linear", "head"),
            ("module::Raising", "."),
            ("module::Linear", "layer.0"),
            ("module::GELU", "layer.1"),
        ]
        return
    (outside,) = (call for call in found if call.name == "aten::cos")
    assert (outside.module, outside.phase) == ("", "forward")
    products = [(call.phase, call.module) for call in found if call.name == "aten::addmm"]
    assert products[:3] == [("forward", "layer.0"), ("forward", "head"), ("recompute", "layer.0")]
    backs = [(call.phase, call.module) for call in found if call.name == "aten::gelu_backward"]
    assert backs == [("backward", "layer.1")], "no operator of the backward pass is part of what was repeated"
