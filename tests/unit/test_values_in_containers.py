"""Devices in lists, tables and enumerations of another file, and in the words of command lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting import grows_with

from torchport.convert import convert_source, convert_tree, preview_tree

USE = "import torch\nfrom config import D\n"


def converted(folder: Path, files: dict[str, str]) -> dict[str, str]:
    for name, text in files.items():
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / name).write_text(text)
    convert_tree(folder / "in", folder / "out")
    return {name: (folder / "out" / name).read_text() for name in files}


@pytest.mark.parametrize(
    ("config", "use"),
    [
        ("D = ['resnet', 'cuda:0']\n", "print(D[0], D[1])\n"),
        ("D = ['cuda', 'resnet']\n", "open(D[1])\n"),
        ("D = {'name': 'cuda', 'on': None, 'n': 1}\n", "torch.ones(1, device=D['on'])\n"),
        ("D = [f'cuda:{i}' for i in range(4)]\n", "for name in D:\n    print(name)\n"),
        ("class D:\n    kind = 'cuda'\n    on = 'cpu'\n", "torch.ones(1, device=D.on.value)\n"),
    ],
)
def test_other_parts_of_a_container_stay(tmp_path: Path, config: str, use: str) -> None:
    found = converted(tmp_path, {"config.py": config, "train.py": USE + use})
    quoted = "'cuda'" if "'cuda'" in config else "cuda:"
    assert quoted in found["config.py"]


@pytest.mark.parametrize(
    ("config", "use"),
    [
        ("D = ['cuda:0', 'cuda:1']\n", "torch.ones(1, device=D[0])\ntorch.ones(1, device=D[1])\n"),
        ("D = [f'cuda:{i}' for i in range(4)]\n", "torch.ones(1, device=D[2])\n"),
        ("D = [f'cuda:{i}' for i in range(4)]\n", "xs = [torch.ones(1).to(d) for d in D]\n"),
        ("D = ('cuda:0', 'cuda:1')\n", "for d in D:\n    torch.ones(1, device=d)\n"),
        ("D = {'big': 'cuda', 'small': 'cpu'}\n", "torch.ones(1, device=D['big'])\n"),
        ("D = {'big': 'cuda', 'small': 'cpu'}\n", "torch.ones(1, device=D[size])\n"),
        ("import enum\nclass D(str, enum.Enum):\n    A = 'cpu'\n    B = 'cuda'\n", "torch.ones(1, device=D.B.value)\n"),
        ("import enum\nclass D(str, enum.Enum):\n    A = 'cpu'\n    B = 'cuda'\n", "torch.ones(1, device=D.B)\n"),
    ],
)
def test_parts_that_reach_torch_in_another_file_change(tmp_path: Path, config: str, use: str) -> None:
    found = converted(tmp_path, {"config.py": config, "train.py": USE + use})
    assert found["config.py"] == config.replace("cuda", "npu")


def test_through_a_package(tmp_path: Path) -> None:
    (tmp_path / "in" / "p").mkdir(parents=True)
    files = {
        "p/__init__.py": "from .devices import D\n",
        "p/devices.py": "D = [f'cuda:{i}' for i in range(8)]\n",
        "train.py": "import p\nimport torch\nx = torch.ones(1).to(p.D[0])\n",
    }
    assert "f'npu:{i}'" in converted(tmp_path, files)["p/devices.py"]


@pytest.mark.parametrize(
    "text",
    [
        "names = ['cpu']\nnames.append('cuda')\nprint(names)\n",
        "import torch\nnames = ['cpu']\nnames.append('cuda')\nx = torch.ones(1, device=other[0])\n",
        "cmd = ['t.py']\ncmd.extend(['--name', 'cuda'])\nrun(cmd)\n",
    ],
)
def test_what_is_put_into_other_lists_stays(text: str) -> None:
    assert convert_source(text.encode(), "a.py").output.decode() == text


@pytest.mark.parametrize(
    "put",
    [
        "ds.append(f'cuda:{n}')",
        "ds.insert(0, 'cuda')",
        "ds.extend(['cuda:1'])",
        "ds += ['cuda:1']",
        "ds = ds + ['cuda']",
    ],
)
def test_what_is_put_into_a_list_of_devices_changes(put: str) -> None:
    text = f"import torch\nds = ['cpu', 'cuda:0']\nif n:\n    {put}\nfor d in ds:\n    torch.ones(1, device=d)\n"
    assert "cuda" not in convert_source(text.encode(), "a.py").output.decode()


@pytest.mark.parametrize(
    "text",
    [
        "run(['python', 't.py', '--impl', 'cuda'])\n",
        "run(['python', 't.py', '--name=cuda'])\n",
        "main(['--device', 'cpu', 'cuda'])\n",
    ],
)
def test_other_words_of_a_command_line_stay(text: str) -> None:
    assert convert_source(text.encode(), "a.py").output.decode() == text


def test_what_an_option_of_another_name_is_given_is_asked() -> None:
    (finding,) = convert_source(b"run(['t.py', '--impl', 'cuda'])\n", "a.py").findings
    assert (finding.code, finding.severity) == ("TP110", "warning")


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess, sys\nsubprocess.run([sys.executable, 't.py', '--device', 'cuda:1', '--impl', 'fast'])\n",
        "args = parser.parse_args(['--steps', '3', '--device', 'cuda'])\n",
        "import sys\nsys.argv = ['t.py', '--dist-backend', 'nccl']\n",
        "main(['t.py', '--device=cuda', '--lr=1'])\n",
    ],
)
def test_devices_among_the_words_of_a_command_line_change(text: str) -> None:
    expected = text.replace("cuda", "npu").replace("nccl", "hccl")
    assert convert_source(text.encode(), "a.py").output.decode() == expected


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.set_default_device('cpu')\nx = torch.ones(1).to(memory_format=torch.channels_last)\n",
        "import torch\nx = torch.ones(1, device=d).to(memory_format=torch.channels_last)\n",
        "import torch\nx = load().to(memory_format=torch.channels_last)\n",
        "import torch\nx = torch.ones(1).to(memory_format=torch.channels_last)\nx = x.to(d)\n",
        "import torch\nm = torch.nn.Conv2d(3, 3, 3).to(memory_format=torch.channels_last)\n",
    ],
)
def test_memory_formats_of_what_may_be_on_the_device_change(text: str) -> None:
    assert "contiguous_format" in convert_source(text.encode(), "a.py").output.decode()


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx = torch.ones(1).half().to(memory_format=torch.channels_last)\nprint(x)\n",
        "import torch\ny = torch.ones(1)\nx = y.contiguous(memory_format=torch.channels_last)\nz = z.cuda()\n",
        "import torch\nx = torch.empty(1, 3, 4, 4, memory_format=torch.channels_last)\n",
    ],
)
def test_memory_formats_on_the_cpu_stay(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text)
    assert "torch.channels_last" in convert_source(text.encode(), "a.py").output.decode()
    said = [one for one in preview_tree(tmp_path).findings if one.code == "TP720"]
    assert [one.severity for one in said] == ["info"]


@pytest.mark.parametrize(
    "text",
    [
        "import cupy\na = cupy.Stream(device_name='cuda')\n",
        "p = HParams(dist_frontend='nccl')\n",
        "import matplotlib\nmatplotlib.use(backend_label='nccl')\n",
    ],
)
def test_keywords_that_tell_nothing_stay(text: str) -> None:
    assert convert_source(text.encode(), "a.py").output.decode() == text


@pytest.mark.parametrize(
    "text", ["p = HParams(dist_backend='nccl', lr=1)\n", "c = tf.contrib.Config(train_device='cuda')\n"]
)
def test_keywords_that_tell_are_reviewed(text: str) -> None:
    conversion = convert_source(text.encode(), "a.py")
    assert conversion.output.decode() == text.replace("nccl", "hccl").replace("cuda", "npu")
    assert [one.safety for one in conversion.findings] == ["review"]


def test_the_work_for_many_patterns_grows_with_their_number() -> None:
    def conversion(count: int) -> None:
        lines = [f"P{i} = re.compile(r'cuda:{i}')\nP{i}.match(str(x.device))" for i in range(count)]
        data = "\n".join(["import re", *lines]).encode()
        assert convert_source(data, "a.py").output.count(b"npu:") == count

    assert grows_with(lambda: conversion(100), lambda: conversion(400), 4)
