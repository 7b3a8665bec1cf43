"""Code that already has a branch for the NPU keeps its other branches; what stands outside of them is converted."""

from __future__ import annotations

import pytest

from torchport.convert import convert_source
from torchport.findings import Severity

HANDLED = [
    "import torch\nif is_npu_available():\n    d = 'npu'\nelif torch.cuda.is_available():\n    d = 'cuda'\nx.to(d)\n",
    "import torch\nif torch.cuda.is_available():\n    torch.cuda.init()\nelif torch.npu.is_available():\n    pass\n",
    "import torch\nif is_npu_available():\n    pass\nelse:\n    x.cuda()\n",
    "import torch\nif not is_npu_available():\n    x.cuda()\nelse:\n    x.npu()\n",
    "import torch\nd = torch.device('cuda' if torch.cuda.is_available() else 'npu' if has_npu() else 'cpu')\n",
    "import torch\nd = torch.device('npu' if has_npu() else 'cuda')\n",
    "import torch\nbackend = {'cuda': 'nccl', 'npu': 'hccl'}[kind]\ntorch.distributed.init_process_group(backend)\n",
    "import torch\nsync = {'cuda': torch.cuda.synchronize, 'npu': torch.npu.synchronize, 'cpu': None}\n",
    "import torch\nif x.device.type in ('cuda', 'npu'):\n    pass\n",
    "import torch\nif x.device.type == 'cuda' or x.device.type == 'npu':\n    pass\n",
    "import torch\nclass Device:\n    CUDA = 'cuda'\n    NPU = 'npu'\nx.to(device=Device.CUDA)\n",
    "p.add_argument('--device', choices=['cuda', 'npu', 'cpu'])\nimport torch\nx.to(p.parse_args().device)\n",
]


@pytest.mark.parametrize("text", HANDLED)
def test_stays(text: str) -> None:
    conversion = convert_source(text.encode(), "a.py")
    assert conversion.output.decode() == text
    said = [finding for finding in conversion.findings if "branch of its own" in finding.message]
    assert said
    assert all(finding.severity is Severity.INFO for finding in said)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("import torch\nif has_npu():\n    pass\nelse:\n    x.cuda()\ny.cuda()\n", "y.npu()"),
        ("import torch\nif not has_npu():\n    raise SystemExit\nelse:\n    x.cuda()\n", "x.npu()"),
        ("import torch\nif x.device.type in ('cuda', 'cpu'):\n    npu = 1\n", "('npu', 'cpu')"),
        ("import torch\nif torch.cuda.is_available():\n    x.cuda()\nelse:\n    x.cpu()\n# npu\n", "x.npu()"),
        ("import torch\nnpus = 1\nx.cuda()\n", "x.npu()"),
    ],
)
def test_the_rest_is_converted(text: str, word: str) -> None:
    assert word in convert_source(text.encode(), "a.py").output.decode()


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ndef f():\n    if HAS_NPU:\n        return 'npu'\n    if torch.cuda.is_available():\n"
        "        return 'cuda'\n    return 'cpu'\n",
        "import torch\ndef f(x):\n    if is_npu_available():\n        return x.to('npu')\n    return x.cuda()\n",
    ],
)
def test_what_follows_a_return_for_the_npu_is_for_other_devices(text: str) -> None:
    assert convert_source(text.encode(), "a.py").output.decode() == text


@pytest.mark.parametrize(
    "text",
    [
        "def f(x, ascending):\n    if ascending:\n        return x\n    return x.cuda()\n",
        "def f(x):\n    if not is_npu_available():\n        return x\n    return x.cuda()\n",
        "def f(x):\n    if is_npu_available():\n        print(x)\n    return x.cuda()\n",
    ],
)
def test_what_follows_another_return_is_for_the_npu_too(text: str) -> None:
    assert "return x.npu()" in convert_source(text.encode(), "a.py").output.decode()
