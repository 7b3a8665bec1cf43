"""A case of one operator as a folder, which pytest runs. From a recorded call, or from a spec."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy

from torchport.compare.scores import MULTIPLE
from torchport.errors import TorchportError
from torchport.findings import write_atomically
from torchport.record import oracles
from torchport.record.operators import layout
from torchport.record.operators.cases import CALL, extract_call

# Files that are copied, by the name that pytest knows it by.
FILES = {"test_case.py": "case_test.py", "conftest.py": "case_conftest.py"}
SEED = 0
NUMPY = {"bool": "?", **{name: kind.bits for name, kind in layout.DTYPES.items() if kind.kind == "integer"}}
FLOATS = ("float64", "float32", "float16", "bfloat16")


def of_call(recording: Path, step: int, rank: int, word: str, out: Path) -> dict[str, Any]:
    """Write the case of a recorded call (`name:index`) to the folder `out`; gives what call.json has. Raises as
    `extract_call` does."""
    described = extract_call(recording, step, rank, word, out)
    devices = {one["device"] for kind in ("inputs", "outputs") for one in described[kind] if one is not None}
    on_npu = any(str(device).startswith("npu") for device in devices)
    computes = described["about"].get("computes") or {}
    return _finish(described, out, on_npu=on_npu, hardware=computes.get("npu") == "hardware")


def of_spec(spec: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """Write the case that `spec` describes, with random tensors, the same for the same spec.

    `operator` ("aten::gelu", or "aten::add.Tensor" with its overload), `inputs` (a list of `shape`, `dtype` and perhaps
    `range`, two numbers), perhaps `arguments` (values in the schema's order, {"t": i} for the i-th input; by default
    the inputs). Raises TorchportError for what it cannot make, or a folder that is not empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TorchportError(f"{out} is not empty", hint="Give -o a folder that is new or empty.")
    name, _, overload = str(spec.get("operator", "")).partition(".")
    space, colons, _ = name.partition("::")
    given = spec.get("inputs")
    if not colons or not space or not isinstance(given, list):
        raise TorchportError(
            "a spec has an operator with its namespace, and a list of inputs",
            hint='{"operator": "aten::gelu", "inputs": [{"shape": [4, 32], "dtype": "float16", "range": [-5, 5]}]}',
        )
    draws = numpy.random.default_rng(SEED)
    made = [_drawn(one, draws) for one in given]
    out.mkdir(parents=True, exist_ok=True)
    for place, (_, bits) in enumerate(made):
        numpy.save(out / f"input{place}.npy", bits)
    described: dict[str, Any] = {
        "name": name,
        "overload": overload,
        "phase": "forward",
        "module": "",
        "source": "",
        "step": -1,
        "rank": 0,
        "inputs": [about for about, _ in made],
        "outputs": [],
        "written": [],
        "arguments": spec.get("arguments", [{"t": place} for place in range(len(made))]),
    }
    # The device is that of whoever runs it: what it may do is what an NPU declares.
    return _finish(described, out, on_npu=True, hardware=True)


def _finish(described: dict[str, Any], out: Path, *, on_npu: bool, hardware: bool) -> dict[str, Any]:
    found = oracles.find_reference(described["name"], on_npu=on_npu, tanh=False)
    reference = "" if found is None else f"{found.__module__}:{found.__name__}"
    single = on_npu and described["name"] in oracles.SINGLE_NUMBERS
    described |= {"reference": reference, "multiple": MULTIPLE, "declares": hardware, "single": single}
    write_atomically(out / CALL, json.dumps(described, indent=1).encode())
    for name, source in FILES.items():
        text = resources.files("torchport.compare").joinpath(source).read_text("utf-8")
        write_atomically(out / name, text.encode())
    return described


def _drawn(spec: Any, draws: numpy.random.Generator) -> tuple[dict[str, Any], Any]:
    """What call.json says of a tensor, and its bits."""
    shape, dtype = (spec.get(name) for name in ("shape", "dtype")) if isinstance(spec, dict) else (None, None)
    if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise TorchportError(f"an input of a spec needs a shape, a list of sizes: {spec!r:.80}")
    if dtype not in (*FLOATS, *NUMPY):
        raise TorchportError(
            f"an input of a spec needs a dtype: {dtype!r:.40} is none that can be drawn",
            hint=f"There are {', '.join((*FLOATS, *NUMPY))}.",
        )
    low, high = _range(spec, dtype)
    if dtype in FLOATS:
        values = draws.uniform(low, high, shape)
        bits = _bfloat16(values) if dtype == "bfloat16" else values.astype(layout.DTYPES[dtype].bits)
    else:
        bits = draws.integers(int(low), int(high) + 1, shape).astype(NUMPY[dtype])
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    return {"shape": shape, "stride": strides, "dtype": dtype, "device": "cpu"}, bits


def _range(spec: Mapping[str, Any], dtype: str) -> Sequence[float]:
    found = spec.get("range", [0, 1] if dtype == "bool" else [0, 9] if dtype in NUMPY else [-1, 1])
    if (
        not isinstance(found, list)
        or len(found) != 2
        or not all(isinstance(value, (int, float)) and math.isfinite(value) for value in found)
        or found[0] > found[1]
    ):
        raise TorchportError(f"the range of an input is two numbers in order, not {found!r:.60}")
    return found


def _bfloat16(values: Any) -> Any:
    """The upper halves of float32, rounded to the nearest."""
    bits = values.astype("<f4").view("<u4").astype("<u8")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
