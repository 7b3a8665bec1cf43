"""Evaluation on the NPU, and weights that move between devices and files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from models import FAMILIES
from models.family import to
from models.measure import relative_error


def trained(name: str, device: str = "cpu") -> nn.Module:
    """The family's model after two training steps, so that running statistics are not their start."""
    family = FAMILIES[name]
    model = family.initial().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2):
        optimizer.zero_grad()
        family.loss(model, to(family.batch_of(step), device)).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_evaluation_gives_the_cpu_s_output(name: str) -> None:
    family = FAMILIES[name]
    model = trained(name).eval()
    batch = family.batch_of(7)
    with torch.no_grad():
        expected = model(*batch[:-1])
        actual = model.to("npu")(*to(batch[:-1], "npu"))
    assert actual.device.type == "npu"
    assert not actual.requires_grad
    assert relative_error(actual.cpu().double(), expected.double()) < 1e-5


@pytest.mark.parametrize("name", ["resnet18", "bert", "lstm.stacked_bidirectional", "unet.transposed"])
def test_weights_trained_on_the_npu_load_on_the_cpu(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    model = trained(name, "npu").eval()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    loaded = family.initial().eval()
    loaded.load_state_dict(torch.load(tmp_path / "weights.pt", map_location="cpu"))
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[key], tensor.cpu(), rtol=0, atol=0)
    batch = family.batch_of(7)
    with torch.no_grad():
        expected = loaded(*batch[:-1])
        actual = model(*to(batch[:-1], "npu")).cpu()
    assert relative_error(actual.double(), expected.double()) < 1e-5


def test_weights_saved_on_the_npu_come_back_to_the_npu(tmp_path: Path) -> None:
    model = FAMILIES["bert"].initial().to("npu:1")
    optimizer = torch.optim.AdamW(model.parameters())
    batch = to(FAMILIES["bert"].batch_of(0), "npu:1")
    FAMILIES["bert"].loss(model, batch).backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "all.pt")
    loaded = torch.load(tmp_path / "all.pt")
    assert {tensor.device for tensor in loaded["model"].values()} == {torch.device("npu:1")}
    again = FAMILIES["bert"].initial().to("npu:1")
    again.load_state_dict(loaded["model"])
    resumed = torch.optim.AdamW(again.parameters())
    resumed.load_state_dict(loaded["optimizer"])
    for one, other in ((model, optimizer), (again, resumed)):
        other.zero_grad()
        FAMILIES["bert"].loss(one, batch).backward()
        other.step()
    for mine, theirs in zip(model.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
