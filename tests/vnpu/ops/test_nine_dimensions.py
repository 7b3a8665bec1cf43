"""More than eight dimensions: refused where CANN's first phase refuses them (test_checks.py asks every row), and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from forked import python
from oracle import DEVICE

F = torch.nn.functional
WORDS = "tensor cannot be larger than"


def ones(rank: int) -> torch.Tensor:
    return torch.ones([1] * rank).to(DEVICE)


CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + 1,
    "add of two": lambda x: x + x,
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: torch.cat([x, x], -1).transpose(0, -1).contiguous(),
    "half": lambda x: x.half(),
    "sum": lambda x: x.sum(3),
    "softmax": lambda x: x.softmax(-1),
    "cat": lambda x: torch.cat([x, x]),
    "where": lambda x: torch.where(x > 0, x, x),
    "gelu": F.gelu,
    "exp": lambda x: x.exp(),
}


@pytest.mark.parametrize("call", CALLS)
def test_nine_dimensions_are_refused_as_on_hardware(call: str) -> None:
    assert CALLS[call](ones(8)).cpu().isfinite().all()
    with pytest.raises(RuntimeError) as error:
        CALLS[call](ones(9)).cpu()
    assert f"{WORDS} 8 dimensions. [" in str(error.value)
    assert (ones(2) + 1).tolist() == [[2]]  # and the device lives


def test_what_computes_nothing_takes_any_number_of_dimensions() -> None:
    """Copies of whole tensors between host and device, and views."""
    x = torch.arange(512.0).reshape([2] * 9)
    there = x.to(DEVICE)
    torch.testing.assert_close(there.cpu(), x)
    assert there.permute(8, 7, 6, 5, 4, 3, 2, 1, 0)[0, 0].shape == (2,) * 7


def test_any_number_of_dimensions_where_the_user_asks_for_it() -> None:
    program = (
        "from torchport import vnpu\nvnpu.activate(force=True)\nimport torch, torch_npu\n"
        "x = torch.arange(512.0).reshape([2] * 9)\nprint(torch.equal((x.npu() + 1).cpu(), x + 1))"
    )
    ended = python(program, VNPU_CHECKS="any")
    assert ended.stdout.splitlines()[-1] == "True", ended.stderr
