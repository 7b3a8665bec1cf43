"""More than eight dimensions: refused where CANN's first phase refuses them (checks.json), and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, SIGNATURES, first_phase
from oracle import DEVICE

from torchport import vnpu

F = torch.nn.functional
CHECKS: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "csrc/opapi/aclnn/checks.json").read_text(encoding="utf-8")
)
IMPLEMENTED = {row["name"] for row in vnpu.operators() if row["status"] == "implemented"}
WORDS = "tensor cannot be larger than"


def limits() -> Iterator[tuple[str, str, int]]:
    for name, check in CHECKS.items():
        for parameter, row in check["parameters"].items():
            if name in IMPLEMENTED and row.get("max_rank") == 8:
                yield name, parameter, row["max_rank"]


def ones(rank: int) -> torch.Tensor:
    return torch.ones([1] * rank).to(DEVICE)


def only(name: str, parameter: str, tensor: torch.Tensor) -> list[Any]:
    """The arguments of the operator: the tensor for that parameter, nothing and 0 for the others."""
    arguments: list[Any] = []
    for kind, each, _ in SIGNATURES[name]["params"]:
        if each == parameter:
            arguments.append([tensor] if "List" in kind else tensor)
        else:
            arguments.append(None if "*" in kind else torch.float32 if kind == "aclDataType" else 0)
    return arguments


def test_every_limit_of_the_table_is_kept() -> None:
    """Asked before anything else is, so that the other arguments do not matter. One dimension less is no matter of
    rank."""
    table = list(limits())
    assert len(table) > 500
    wrong = []
    for name, parameter, limit in table:
        status, message = first_phase(name, *only(name, parameter, ones(limit + 1)))
        said = f"The {parameter} {WORDS} {limit} dimensions; it has {limit + 1}"
        if status != INVALID_ARGUMENT or said not in message:
            wrong.append((name, parameter, limit, status, message))
        _, message = first_phase(name, *only(name, parameter, ones(limit)))
        if WORDS in message:
            wrong.append((name, parameter, limit, "refused", message))
    assert not wrong, f"{len(wrong)} of {len(table)}: {wrong[:5]}"


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
    assert f"{WORDS} 8 dimensions; it has 9" in str(error.value)
    assert (ones(2) + 1).tolist() == [[2]]  # and the device lives


def test_what_computes_nothing_takes_any_number_of_dimensions() -> None:
    """Copies of whole tensors between host and device, and views."""
    x = torch.arange(512.0).reshape([2] * 9)
    there = x.to(DEVICE)
    torch.testing.assert_close(there.cpu(), x)
    assert there.permute(8, 7, 6, 5, 4, 3, 2, 1, 0)[0, 0].shape == (2,) * 7
