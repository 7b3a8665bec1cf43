"""Statistics of tensors however they lie, as a recording has them: exact extremes and counts, sums as math.fsum says."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

import torchport
from torchport.record.operators.reading import Operators, Tensor

DRAW = torch.Generator().manual_seed(5)


def floats(*shape: int) -> torch.Tensor:
    values = torch.randn(*shape, generator=DRAW) * 10.0 ** torch.randint(-20, 18, shape, generator=DRAW)
    return values * (torch.rand(*shape, generator=DRAW) > 0.1)


def with_special(values: torch.Tensor) -> torch.Tensor:
    flat = values.view(-1)
    flat[::13], flat[1::17], flat[2::19] = math.nan, math.inf, -math.inf
    return values


def denormals(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 9, shape, generator=DRAW).float() * 2.0**-149


def complexes(*shape: int) -> torch.Tensor:
    return torch.complex(floats(*shape) / 1e9, floats(*shape) / 1e9)


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-(1 << 40), 1 << 40, shape, generator=DRAW)


LAYOUTS = {
    "contiguous": lambda: floats(37, 129),
    "special": lambda: with_special(floats(37, 129)),
    "transposed": lambda: floats(37, 129).t(),
    "transposed special": lambda: with_special(floats(129, 37)).t(),
    "permuted": lambda: floats(5, 7, 11).permute(2, 0, 1),
    "channels last": lambda: floats(3, 8, 9, 5).contiguous(memory_format=torch.channels_last),
    "strided": lambda: floats(40, 130)[::3, 1::2],
    "offset": lambda: floats(1000)[7:],
    "expanded": lambda: floats(1, 65).expand(9, 65),
    "overlapping": lambda: floats(100).as_strided((20, 30), (2, 1)),
    "zero-size": lambda: torch.empty(0, 5),
    "0-dim": lambda: torch.tensor(-2.5),
    "all NaN": lambda: torch.full((33, 65), math.nan),
    "denormal": lambda: denormals(50, 41),
    "bool": lambda: torch.rand(7, 99, generator=DRAW) > 0.3,
    "bool transposed": lambda: (torch.rand(7, 99, generator=DRAW) > 0.3).t(),
    "int64": lambda: integers(31, 67),
    "int64 strided": lambda: integers(62, 67)[::2],
    "float16": lambda: with_special(torch.randn(65, 70, generator=DRAW).half()),
    "float16 denormal": lambda: (torch.randint(-9, 9, (65, 70), generator=DRAW) * 2.0**-24).half(),
    "bfloat16": lambda: with_special(floats(65, 70).bfloat16()),
    "float64": lambda: floats(40, 40).double(),
    "complex": lambda: complexes(19, 55),
    "complex transposed": lambda: complexes(19, 55).t(),
    "complex special": lambda: with_special(complexes(19, 55)),
}


def moduli(values: torch.Tensor) -> list[float]:
    flat = values.detach().reshape(-1)
    if not values.is_complex():
        return [float(one) for one in flat.tolist()]
    parts = ((one.real, one.imag) for one in flat.tolist())
    return [math.nan if math.isnan(a) or math.isnan(b) else math.hypot(a, b) for a, b in parts]


def wrong(seen: Tensor, values: torch.Tensor) -> list[str]:
    """Which numbers of a recorded tensor are not those of `values`, counted one element at a time."""
    found = seen.statistics
    if found is None:
        return ["measured"]
    plain = moduli(values)
    numbers = [one for one in plain if not math.isnan(one)]
    finite = [one for one in numbers if math.isfinite(one)]
    ulp = float(numpy.spacing(numpy.float32(math.fsum(map(abs, finite)))))
    l2 = math.sqrt(math.fsum(one * one for one in finite))
    facts = {
        "extremes": (found.minimum, found.maximum) == (min(numbers), max(numbers))
        if numbers
        else math.isnan(found.minimum) and math.isnan(found.maximum),
        "nans": found.nans == len(plain) - len(numbers),
        "infinities": found.infinities == len(numbers) - len(finite),
        "zeros": found.zeros == sum(one == 0 for one in plain),
        "sum": abs(found.mean * len(finite) - math.fsum(finite)) <= ulp if finite else math.isnan(found.mean),
        "l2": abs(found.l2 - l2) <= float(numpy.spacing(numpy.float32(l2))),
        "shape": (seen.shape, seen.stride) == (tuple(values.shape), tuple(values.stride())),
    }
    return [name for name, holds in facts.items() if not holds]


def recorded(folder: Path, tensors: list[torch.Tensor]) -> dict[int, Tensor]:
    """What a recording has of tensors, by their places."""
    with torchport.record(folder) as block:
        for one in tensors:
            one.detach()
        block.step()
    with Operators.read(folder).rank(0).step(0) as step:
        calls = [call for call in step.calls() if call.name == "aten::detach"]
        assert len(calls) == len(tensors)
        return {place: call.inputs[0] for place, call in enumerate(calls) if call.inputs[0] is not None}


@pytest.mark.parametrize("recorder", ["hook", "mode"])
def test_statistics_are_exact_however_a_tensor_lies(tmp_path, monkeypatch, recorder):
    monkeypatch.setenv("TORCHPORT_RECORDER", recorder)
    tensors = {name: make() for name, make in LAYOUTS.items()}
    found = recorded(tmp_path / "rec", list(tensors.values()))
    assert {
        name: bad for place, (name, tensor) in enumerate(tensors.items()) if (bad := wrong(found[place], tensor))
    } == {}
    # The control: one element more or less is seen in each of them that has one.
    for place, (name, tensor) in enumerate(tensors.items()):
        other = tensor.clone().reshape(-1)
        if other.numel() and name != "all NaN":
            other = torch.cat([other, other[:1] if tensor.dtype != torch.bool else ~other[:1]])
            assert wrong(found[place], other.view(-1)), name


ON_NPU = """
import sys
sys.path.insert(0, sys.argv[1])
import torchport.vnpu
torchport.vnpu.activate()
import test_record_layouts as of
from pathlib import Path
hosts = {name: make() for name, make in of.LAYOUTS.items()}
def there(one):  # the strides too
    whole = one.untyped_storage().nbytes() // one.element_size()
    flat = one.as_strided((whole,), (1,), 0).npu() if whole else one.reshape(-1).npu()
    return flat.as_strided(one.shape, one.stride(), one.storage_offset())
found = of.recorded(Path(sys.argv[2]), [there(one) for one in hosts.values()])
print({name: bad for place, (name, one) in enumerate(hosts.items()) if (bad := of.wrong(found[place], one))})
print(found[0].device, len(found))
"""


@pytest.mark.recorded
def test_the_virtual_npus_streams_measure_the_same(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", ON_NPU, os.path.dirname(__file__), tmp_path / "rec"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.splitlines()[-2:] == ["{}", f"npu:0 {len(LAYOUTS)}"], ended.stderr
