"""Every row of the interface table by signature: what a call says in torch.cuda's words, it says in torch.npu's."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping

import pytest
import torch
import torch_npu

from torchport.knowledge.api import Api, Status, load_apis

_ROOTS = {"torch": torch, "torch_npu": torch_npu}
# Without a signature that can be asked for, on one of both sides: constructors in C, whose arguments are the tensors' own.
_IN_C = ("Tensor", "Error", "ProfilerActivity")
ROWS = [row for row in load_apis().values() if row.status not in (Status.MISSING, Status.KEEP)]
Parameters = Mapping[str, inspect.Parameter]


def meaning(name: str) -> object:
    """The object of a dotted name."""
    root, *words = name.split(".")
    found: object = _ROOTS[root]
    for index, word in enumerate(words, 1):
        if not hasattr(found, word):
            return importlib.import_module(".".join([root, *words[:index]]))
        found = getattr(found, word)
    return found


def parameters(value: object) -> Parameters | None:
    """The parameters of what can be called; None for what has none that can be asked for."""
    if not callable(value):
        return None
    try:
        return inspect.signature(value).parameters
    except ValueError:
        return None


def problems(row: Api, cuda: Parameters, npu: Parameters) -> list[str]:
    """What a call of CUDA's function would say wrongly on the NPU, if only the row's words were changed."""
    anything = any(one.kind is one.VAR_KEYWORD for one in npu.values())
    found = []
    for name, one in cuda.items():
        new = row.arguments.get(name, name)
        named = one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if named and new and new not in npu and not anything:
            found.append(f"{row.npu} has no argument {new}")
    found += [f"{row.npu} has no argument {new}" for new in row.arguments.values() if new and new not in npu]
    order = [one for one in cuda.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    theirs = [one for one in npu.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    for index, one in enumerate(order[: row.positions]):
        if not any(other.kind is other.VAR_POSITIONAL for other in npu.values()):
            same = index < len(theirs) and theirs[index].name == row.arguments.get(one.name, one.name)
            if not same:
                found.append(f"argument {index} of {row.npu} is not {one.name}")
    further = [any(one.kind is one.VAR_POSITIONAL for one in parameters.values()) for parameters in (cuda, npu)]
    if row.positions is None and further == [True, False]:
        found.append(f"{row.npu} takes no further arguments")
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_arguments_mean_the_same(row: Api) -> None:
    cuda, npu = parameters(meaning(row.name)), parameters(meaning(row.npu))
    if cuda is None or npu is None:
        callable_ = callable(meaning(row.name)) and not inspect.ismodule(meaning(row.name))
        assert not row.arguments, "a row with arguments can be asked for them"
        assert not callable_ or row.npu == row.name or row.name.endswith(_IN_C) or row.name == "torch.Tensor.cuda"
        return
    assert problems(row, cuda, npu) == []


def test_a_wrong_row_is_noticed() -> None:
    row = load_apis()["torch.cuda.get_device_name"]
    cuda, npu = parameters(meaning(row.name)), parameters(meaning(row.npu))
    assert cuda is not None and npu is not None
    bare = functools.partial(Api, row.name, row.npu, row.agnostic, row.status, row.note)
    assert problems(bare(), cuda, npu) == [
        "torch.npu.get_device_name has no argument device",
        "argument 0 of torch.npu.get_device_name is not device",
    ]
    assert problems(bare(arguments={"device": "name"}), cuda, npu)
    assert problems(bare(arguments={"device": "device_name"}), cuda, npu) == []
