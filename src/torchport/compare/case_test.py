"""One operator's call on this machine's device, against float64: `torchport case` copies this file beside it.

call.json says which call it was, the .npy files have what it was given and gave. Each result is held against float64,
computed from the same inputs; it is wrong where it is further from it than ten times the CPU's own result, and than the
device declares of its dtype:

    pytest test_case.py                 what was recorded, and what the device gives, forward and backward
    DEVICE=cpu pytest test_case.py      npu (where there is one), cuda or cpu

Needs torch, numpy and pytest; torchport where call.json names a reference, for an operator that the CPU lacks.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

torch_npu = None
if os.environ.get("DEVICE") != "cpu":
    with contextlib.suppress(ImportError):
        torch_npu = importlib.import_module("torch_npu")

FOLDER = Path(__file__).parent
CASE: dict[str, Any] = json.loads((FOLDER / "call.json").read_text())
DEVICE = os.environ.get("DEVICE") or ("npu" if torch_npu is not None else "cpu")
# What an NPU declares of an operator (CANN's bounds); a CPU and the virtual NPU nothing but the CPU's error.
BOUND = {"float64": 2.0**-40, "float32": 2.0**-13, "float16": 2.0**-10, "bfloat16": 2.0**-7}
WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}


def load_tensor(kind: str, place: int) -> Any:
    """A tensor of the case with its dtype and strides; None for one that was undefined, or not kept."""
    about = CASE[kind if kind == "written" else f"{kind}s"][place]
    path = FOLDER / f"{kind}{place}.npy"
    if about is None or not path.exists():
        return None
    array = numpy.load(path)
    value = torch.from_numpy(array.view(SIGNED.get(str(array.dtype), array.dtype)))
    dtype = getattr(torch, about["dtype"])
    value = value if value.dtype == dtype else value.view(dtype)
    if not value.numel() or 0 in about["stride"]:
        return value
    return torch.empty_strided(about["shape"], about["stride"], dtype=dtype).copy_(value)


def load_inputs(device: str, *, wide: bool = False, grad: bool = False) -> list[Any]:
    """What the call was given; `wide` in float64, `grad` followed by autograd."""
    made = []
    for place in range(len(CASE["inputs"])):
        one = load_tensor("input", place)
        if one is not None:
            one = one.to(WIDE.get(one.dtype, one.dtype) if wide else one.dtype).to(device)
            one = one.requires_grad_() if grad and one.is_floating_point() else one
        made.append(one)
    return made


def decode_argument(value: Any, given: Sequence[Any], device: str) -> Any:
    """An argument as torch takes it."""
    if isinstance(value, list):
        return [decode_argument(one, given, device) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, what),) = value.items()
    if kind == "t":
        return given[what]
    if kind in ("dtype", "layout", "memory_format"):
        return getattr(torch, what)
    if kind == "device":
        return torch.device(device)
    if kind == "generator":
        return None
    return complex(*(decode_argument(one, given, device) for one in what)) if kind == "complex" else float(what)


def run_operator(given: Sequence[Any], device: str, *, wide: bool = False) -> list[Any]:
    """What the call gives, flat, then what it writes and gives back in no result."""
    args = [decode_argument(one, given, device) for one in CASE["arguments"]]
    if CASE.get("single"):  # CANN takes these numbers as a float of C
        args = tree_map(lambda one: torch.tensor(one).float().item() if isinstance(one, float) else one, args)
    if wide:
        args = tree_map(lambda one: WIDE.get(one, one) if isinstance(one, torch.dtype) else one, args)
    if CASE["reference"] and device == "cpu":
        module, _, name = CASE["reference"].partition(":")
        return list(getattr(importlib.import_module(module), name)(torch, *args))
    space, _, name = CASE["name"].partition("::")
    operator = getattr(getattr(getattr(torch.ops, space), name), CASE["overload"] or "default")
    schema = operator._schema.arguments[: len(args)]
    plain = [value for one, value in zip(schema, args, strict=True) if not one.kwarg_only]
    named = {one.name: value for one, value in zip(schema, args, strict=True) if one.kwarg_only}
    made = operator(*plain, **named)
    flat = tree_leaves(list(made) if isinstance(made, (list, tuple)) else [made])
    written = [
        tensor
        for one, value in zip(schema, args, strict=True)
        if one.alias_info is not None and one.alias_info.is_write
        for tensor in (value if isinstance(value, list) else [value])
    ]
    return [*flat, *(one for one in written if not any(one is known for known in flat))]


def select_floating(values: Sequence[Any]) -> dict[int, Any]:
    """Those that have numbers, on the host, by their places."""
    return {
        place: one.detach().cpu()
        for place, one in enumerate(values)
        if isinstance(one, torch.Tensor) and (one.is_floating_point() or one.is_complex()) and one.numel()
    }


def compute_rms(value: Any) -> float:
    return float(value.abs().square().mean().sqrt()) if value.numel() else 0.0


def assert_within_rounding(made: dict[int, Any], cpu: dict[int, Any], exact: dict[int, Any], what: str) -> None:
    """Fails where one is further from float64 than rounding explains."""
    places = sorted(made.keys() & cpu.keys() & exact.keys())
    if not places:
        pytest.skip("there are no floating-point numbers to judge")
    for place in places:
        got, own, right = made[place], cpu[place], exact[place]
        said = f"{what} {place}"
        assert got.shape == right.shape, f"{said} has the shape {tuple(got.shape)}, {tuple(right.shape)} is right"
        finite = torch.isfinite(right) & torch.isfinite(own)
        assert bool(torch.isfinite(got)[finite].all()), f"{said} has no number where there are numbers"
        off, mine = (compute_rms((one.to(right.dtype) - right)[finite]) for one in (got, own))
        size = compute_rms(right[finite])
        about = torch.finfo(got.dtype)
        least = max(mine, 0.1 * about.eps * size, about.tiny * about.eps)
        declared = BOUND.get(str(got.dtype).removeprefix("torch."), 0.125) * size if CASE["declares"] else 0.0
        assert off <= max(CASE["multiple"] * least, declared), (
            f"{said} is {off / max(size, about.tiny):.2g} off, {off / least:.3g} times the CPU's error"
        )


def run_on_cpu(*, wide: bool) -> dict[int, Any]:
    return select_floating(run_operator(load_inputs("cpu", wide=wide), "cpu", wide=wide))


def test_recorded() -> None:
    """What the recording says that it gave."""
    count = len(CASE["outputs"])
    made = {place: load_tensor("output", place) for place in range(count)}
    made |= {count + place: load_tensor("written", place) for place in range(len(CASE["written"]))}
    given = [made[place] for place in range(len(made))]
    assert_within_rounding(select_floating(given), run_on_cpu(wide=False), run_on_cpu(wide=True), "recorded result")


def test_forward() -> None:
    """What the device gives."""
    assert_within_rounding(
        select_floating(run_operator(load_inputs(DEVICE), DEVICE)),
        run_on_cpu(wide=False),
        run_on_cpu(wide=True),
        "result",
    )


def compute_gradients(device: str, *, wide: bool = False) -> dict[int, Any]:
    given = load_inputs(device, wide=wide, grad=True)
    followed = [one for one in run_operator(given, device, wide=wide) if isinstance(one, torch.Tensor) and one.grad_fn]
    leaves = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    if not followed or not leaves:
        pytest.skip("autograd does not follow this operator")
    seed = torch.randn(followed[0].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return select_floating(torch.autograd.grad(followed[:1], leaves, [seed.to(followed[0])], allow_unused=True))


@pytest.mark.skipif(CASE["phase"] != "forward", reason="it is no forward call")
def test_backward() -> None:
    """The gradients by what it is given."""
    try:
        cpu, exact = compute_gradients("cpu"), compute_gradients("cpu", wide=True)
    except RuntimeError as error:
        pytest.skip(f"the CPU has no gradient of it: {error}"[:200])
    assert_within_rounding(compute_gradients(DEVICE), cpu, exact, "gradient")
