"""What torch_npu does with torch's operators and functions, as `analyze` reports it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from torchport.analyze import analyze_tree
from torchport.convert import convert_source
from torchport.knowledge import support
from torchport.knowledge.support import How
from torchport.vnpu import wheels


def found(tmp_path: Path, text: str) -> list[tuple[str, int]]:
    (tmp_path / "a.py").write_text(text)
    result = analyze_tree(tmp_path)
    return [(one.code, one.location.line) for one in result.findings if one.code.startswith("TP70") and one.location]


def test_data_is_of_the_pinned_versions() -> None:
    assert support.read_measured_versions() == (wheels.SUPPORTED, wheels.SUPPORTED)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("add.Tensor", How.NATIVE),
        ("convolution_backward", How.NATIVE),
        ("aten::native_layer_norm", How.NATIVE),
        ("scaled_dot_product_attention", How.NATIVE),
        ("einsum", How.COMPOSITE),
        ("linalg_eigh", How.COMPOSITE),
        ("geqrf", How.FALLBACK),
        ("_linalg_eigh", How.FALLBACK),
        ("torchvision::nms", How.FALLBACK),
        ("no_such_operator", How.UNKNOWN),
    ],
)
def test_operators(name: str, how: How) -> None:
    assert support.judge_operator(name).how is how


def test_dtype_limits() -> None:
    matmul = support.judge_operator("mm")
    assert matmul.with_dtype("float32") is matmul.with_dtype("bfloat16") is How.NATIVE
    assert matmul.with_dtype("float64") is How.REFUSED


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("torch.add", How.NATIVE),
        ("torch.Tensor.add_", How.NATIVE),
        ("torch.nn.Conv2d", How.NATIVE),
        ("torch.nn.LSTM", How.NATIVE),
        ("torch.optim.AdamW", How.NATIVE),
        ("torch.optim.Adam(fused=True)", How.FALLBACK),
        ("torch.linalg.eigh", How.FALLBACK),
        ("torch.linalg.cholesky_ex", How.FALLBACK),
        ("torch.logdet", How.FALLBACK),
    ],
)
def test_apis(name: str, how: How) -> None:
    api = support.find_measured_api(name)
    assert api is not None and api.how is how
    assert bool(api.on_cpu) == (how is How.FALLBACK)


def test_most_is_native() -> None:
    counts = Counter(api.how for name in support.list_measured_apis() if (api := support.find_measured_api(name)))
    assert counts.total() > 650
    assert counts[How.NATIVE] > 500
    assert counts[How.FALLBACK] > 50
    assert counts[How.UNKNOWN] + counts[How.REFUSED] < 25


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\nw = torch.linalg.eigh(x)\n", [("TP701", 2)]),
        ("from torch import linalg as la\nw = la.eigh(x)\n", [("TP701", 2)]),
        ("from torch.linalg import eigh\n", [("TP701", 1)]),
        ("import torch\ne = torch.symeig(x)\n", [("TP704", 2)]),
        ("import torch\nx = torch.load(f)\n", [("TP706", 2)]),
        ("import torch\ne = torch.no_such_thing(x)\n", [("TP703", 2)]),
        ("from torch.nn import NoSuchLayer\n", [("TP703", 1)]),
    ],
)
def test_reported(tmp_path: Path, text: str, expected: list[tuple[str, int]]) -> None:
    assert found(tmp_path, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nopt = torch.optim.Adam(p)\nopt.step()\nx.add_(1).eigh()\n",
        "import torch.nn as nn, torch.nn.functional as F\nm = nn.Conv2d(1, 1, 1)\ny = F.relu(m(x))\n",
        "import torch\ny = torch.compile(m) if hasattr(torch, 'compile_it') else m\ntorch.compile_it\n",
        "import torch\ntry:\n    torch.old_name()\nexcept AttributeError:\n    pass\n",
        "import torch\nif torch.__version__ < '1.9':\n    torch.old_name()\n",
        "import torch\ntorch.Tensor.mine = f\ntorch.flag = 1\n",
        "from torch.utils.tensorboard import SummaryWriter\nfrom torch.distributed.fsdp import FullyShardedDataParallel\n",
        "import torch\ntorch.float32, torch.Size, torch.no_grad(), torch.long, torch.pi, torch._C._x, torch.ops.a.b\n",
        "class torch:\n    linalg = None\ntorch.linalg.eigh\n",
        "import numpy as torch\ntorch.linalg.eigh(x)\n",
        "import torch\na = torch.load(f, weights_only=True), torch.load(f, weights_only=False), torch.load(f, **options)\n",
        "import torch\ntorch.cuda.no_such_thing\n",
    ],
)
def test_no_noise(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


def test_ignore_comment(tmp_path: Path) -> None:
    assert found(tmp_path, "import torch\ntorch.linalg.eigh(x)  # torchport: ignore[TP701]\n") == []


def test_convert_does_not_report_it() -> None:
    text = b"import torch\ntorch.linalg.eigh(x.cuda())\n"
    assert not [one for one in convert_source(text, "a.py").findings if one.code.startswith("TP7")]


def test_message_says_what_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.linalg.eigh(x)\ntorch.symeig(x)\n")
    cpu, removed = analyze_tree(tmp_path).findings
    assert (
        cpu.message == f"torch.linalg.eigh is computed on the CPU by torch_npu {wheels.SUPPORTED} (aten::_linalg_eigh)"
    )
    assert "torch.linalg.eigh" in removed.hint
    json.dumps(cpu.to_json())
