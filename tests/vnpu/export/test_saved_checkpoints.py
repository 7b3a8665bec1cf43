"""What torch itself saves, on the CPU and on an NPU, is read as torch has it: names, dtypes, devices and every element."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from forked import python

from torchport.checkpoints import guarded, names
from torchport.checkpoints.contents import read_tensor_bytes

SAVE = """
import warnings; warnings.simplefilter("ignore")
import torch
from torch import nn
import torch.distributed.checkpoint as dcp

def model():
    torch.manual_seed(4)
    made = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Linear(4, 4), nn.Linear(4, 4, bias=False))
    made[3].weight = made[2].weight
    return made.to(memory_format=torch.channels_last)

plain = model().state_dict()
torch.save(plain, "plain.pth")
torch.save(plain, "old.pth", _use_new_zipfile_serialization=False)
torch.save(model().npu().state_dict(), "npu.pth")
torch.save(model().npu().state_dict(), "npu_old.pth", _use_new_zipfile_serialization=False)
net = model()
optimizer = torch.optim.AdamW(net.parameters())
net(torch.randn(2, 3, 6, 6))[..., :1].sum().backward()
optimizer.step()
average = torch.optim.swa_utils.AveragedModel(model())
torch.save({"epoch": 7, "state_dict": {"module." + k: v for k, v in plain.items()}, "optimizer": optimizer.state_dict(),
            "ema": average.state_dict()}, "whole.pth.tar")
rows = torch.arange(24.0).reshape(4, 6)
odd = {"column": rows[:, 2], "turned": rows.t(), "corner": rows[2:, 3:], "half": rows.half(), "bfloat": rows.bfloat16(),
       "small": rows.to(torch.float8_e4m3fn), "nothing": torch.empty(0, 3), "number": torch.tensor(3), "truth": rows > 3,
       "complex": rows.to(torch.complex64), "parameter": nn.Parameter(rows)}
torch.save(odd, "odd.pth")
dcp.save(plain, checkpoint_id="folder")
torch.save(nn.Sequential(nn.Linear(2, 2)), "module.pth")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("saved")
    done = python(f"import os; os.chdir({str(made)!r})\n{SAVE}")
    assert done.returncode == 0, done.stderr[-2000:]
    return made


def elements(path: Path, part: str | None = None) -> dict[str, torch.Tensor]:
    found = {}
    for name, stored in names.find_weights(guarded.read_in_subprocess(path), part)[1].items():
        data, dtype = read_tensor_bytes(stored), getattr(torch, stored.dtype)
        assert len(data) == math.prod(stored.shape) * dtype.itemsize
        made = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        found[name] = made.reshape(stored.shape)
    return found


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        one, other = found[name], tensor.detach()
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.contiguous().view(-1).view(torch.uint8).equal(other.contiguous().view(-1).view(torch.uint8)), name


def loaded(path: Path) -> dict:
    return torch.load(path, weights_only=True, map_location="cpu")


@pytest.mark.parametrize("name", ["plain.pth", "old.pth", "npu.pth", "npu_old.pth", "odd.pth"])
def test_every_element_is_torchs(folder: Path, name: str) -> None:
    same(elements(folder / name), loaded(folder / name))


def test_where_it_was_saved_is_told(folder: Path) -> None:
    for name, device in (("plain.pth", "cpu"), ("npu.pth", "npu:0"), ("npu_old.pth", "npu:0")):
        (part,) = guarded.read_in_subprocess(folder / name).parts.values()
        assert {stored.device for stored in part.values()} == {device}


def test_parts_of_a_training(folder: Path) -> None:
    contents = guarded.read_in_subprocess(folder / "whole.pth.tar")
    assert contents.values["epoch"] == 7
    assert {"state_dict", "ema", "optimizer.state.0"} <= set(contents.parts)
    way, part = names.find_weights(contents)
    stripped = names.strip_prefixes(part)
    assert (way, stripped.removed) == ("state_dict", ("module.",))
    plain = loaded(folder / "plain.pth")
    assert list(stripped.names) == list(plain)
    same(elements(folder / "whole.pth.tar"), loaded(folder / "whole.pth.tar")["state_dict"])
    assert list(names.match_names(plain, names.find_weights(contents, "ema")[1]).names) == list(plain)


def test_a_distributed_checkpoint(folder: Path) -> None:
    found, plain = elements(folder / "folder"), loaded(folder / "plain.pth")
    same({name: found[name] for name in plain}, plain)


def test_a_module_is_refused(folder: Path) -> None:
    with pytest.raises(Exception, match=r"pickled object of the class torch\.nn\.modules\.container\.Sequential"):
        names.find_weights(guarded.read_in_subprocess(folder / "module.pth"))
