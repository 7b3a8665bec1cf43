"""The wheel asks CANN for the names of needed.toml, and no others: another release shows here what it adds."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

from torchport.vnpu.mindspore import home

ROOT = Path(__file__).parents[2]


def test_it_asks_for_the_written_names() -> None:
    spec = importlib.util.find_spec("mindspore")
    assert spec is not None and spec.origin is not None
    command = [sys.executable, str(ROOT / "tools/mindspore_symbols.py"), str(Path(spec.origin).parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


def test_each_linked_name_is_in_its_library() -> None:
    needed = tomllib.loads((ROOT / "csrc/mindspore/needed.toml").read_text(encoding="utf-8"))
    program = "import sys, torchport.vnpu; torchport.vnpu.activate(mindspore=True); import mindspore"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    folder = home.complete_lib64()
    for library, table in needed.items():
        if "symbols" not in table:
            continue
        listing = subprocess.run(
            ["nm", "--dynamic", "--defined-only", "--format=just-symbols", str(folder / f"lib{library}.so")],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert [name for name in table["symbols"] if name not in listing] == [], library
    assert ctypes.sizeof(ctypes.c_void_p) == 8  # their ABI is that of 64 bits


def both(order: str) -> str:
    return f"""
import torchport.vnpu
torchport.vnpu.activate(mindspore=True)
{order}
import numpy as np
ms.set_device("Ascend")
x = torch.randn(4, 4)
y = ms.Tensor.from_numpy(x.numpy())
assert float(np.abs(ms.mint.matmul(y, y).asnumpy() - (x @ x).numpy()).max()) == 0
layer = torch.nn.Linear(4, 4)
layer(x).sum().backward()
copies = {{line.split()[-1] for line in open("/proc/self/maps") if "libtorch_cpu" in line}}
print(len(copies), layer.weight.grad is not None)
"""


def test_either_is_imported_first_and_there_is_one_libtorch() -> None:
    for order in ("import torch; import mindspore as ms", "import mindspore as ms; import torch"):
        result = subprocess.run([sys.executable, "-c", both(order)], capture_output=True, text=True, check=False)
        assert result.stdout.split() == ["1", "True"], result.stderr[-2000:]
