"""CUDA in places that are easily overlooked: each is changed, or a finding stands at its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchport.analyze import analyze_tree
from torchport.convert import convert_source
from torchport.findings import Finding, Severity
from torchport.rules import Style


def said(text: str, name: str = "a.py", style: Style = Style.NPU) -> list[tuple[str, str]]:
    """Code and text at the place of each finding without an edit that asks for a person."""
    found = convert_source(text.encode(), name, style).findings
    return [(one.code, _at(text, one)) for one in found if not one.fix and one.severity is not Severity.INFO]


def _at(text: str, finding: Finding) -> str:
    where = finding.location
    assert where is not None
    line = text.splitlines()[where.line - 1]
    return line[where.column - 1 : where.end_column - 1 if where.end_line == where.line else None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # code in strings, with the place in the string
        ("exec('import torch\\nx.cuda()')\n", [("TP180", "'import torch\\nx.cuda()'")]),
        (
            "import torch\nu = torch.jit.CompilationUnit('''\n    def f(x):\n        return x.cuda()\n''')\n",
            [("TP180", "x.cuda()")],
        ),
        ("exec('cuda = (')\n", [("TP180", "cuda")]),
        # lines for a shell
        ("import os\nos.system('cd a && nvcc -c k.cu')\n", [("TP171", "nvcc")]),
        ("import os\nos.system(f'python t.py --device=cuda:{i}')\n", [("TP171", "cuda:{i}")]),
        (
            "import os\nos.system('CUDA_VISIBLE_DEVICES=0 python \\'a b\\'')\n",
            [("TP171", "'CUDA_VISIBLE_DEVICES=0 python \\'a b\\''")],
        ),
        ("line = 'export A=1 CUDA_VISIBLE_DEVICES=0 && x'\n", [("TP171", "'export A=1 CUDA_VISIBLE_DEVICES=0 && x'")]),
        ("lines = ['CUDA_VISIBLE_DEVICES=0 python a.py']\n", [("TP171", "'CUDA_VISIBLE_DEVICES=0 python a.py'")]),
        # names in strings
        ("names = ['torch.cuda.is_available']\n", [("TP181", "'torch.cuda.is_available'")]),
        ("@mock.patch('torch.cuda.get_arch_list')\ndef t(m):\n    pass\n", [("TP181", "'torch.cuda.get_arch_list'")]),
        ("import re\nP = re.compile(r'cuda:(\\d+)')\n", [("TP111", "r'cuda:(\\d+)'")]),
        # what asks for a GPU by its name
        ("import torch\nif 'A100' in torch.cuda.get_device_name():\n    pass\n", [("TP183", "'A100'")]),
        (
            "import torch\nname = torch.cuda.get_device_name(0).lower()\nbig = name.startswith('nvidia h100')\n",
            [("TP183", "'nvidia h100'")],
        ),
        (
            "import torch\nPEAK = {'A100': 312, 'cpu': 1}\npeak = PEAK.get(torch.cuda.get_device_name())\n",
            [("TP183", "'A100'")],
        ),
        ("import torch, re\nre.search('RTX', torch.cuda.get_device_name())\n", [("TP183", "'RTX'")]),
        # other libraries
        (
            "import onnxruntime as ort\ns = ort.InferenceSession(p, providers=['CUDAExecutionProvider'])\n",
            [("TP404", "'CUDAExecutionProvider'")],
        ),
        ("import cv2\ng = cv2.cuda.GpuMat()\n", [("TP404", "cv2.cuda.GpuMat")]),
        ("import cv2\nnet.setPreferableTarget(cv2.dnn.DNN_TARGET_CUDA)\n", [("TP404", "cv2.dnn.DNN_TARGET_CUDA")]),
        ("import torch\ntorch.ops.load_library('x.so')\n", [("TP402", "torch.ops.load_library('x.so')")]),
        (
            "from accelerate import DistributedType\nok = kind == DistributedType.MULTI_GPU\n",
            [("TP404", "DistributedType.MULTI_GPU")],
        ),
        ("from torch.nn.parallel import replicate\nr = replicate(m, ids)\n", [("TP202", "replicate(m, ids)")]),
    ],
)
def test_a_finding_at_its_place(text: str, expected: list[tuple[str, str]]) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "exec('x = 1')\n# cuda\n",
        "PEAK = {'A100': 312}\npeak = PEAK.get(name)  # cuda\n",
        "TEXT = '''\nimport torch\nprint(torch.npu.is_available())\n'''\nfile.write(TEXT)  # cuda\n",
        "TEXT = '''\nTo use cuda,\ninstall it.\n'''\nfile.write(TEXT)\n",
        "print('''\nx.cuda()\n''')\n",
        "send('import torch; torch.npu.init()')  # cuda\n",
        "eval('torch.npu.is_available()')  # cuda\n",
        "print('run it with CUDA_VISIBLE_DEVICES=0 python a.py')\n",
        "text = 'For debugging consider passing CUDA_LAUNCH_BLOCKING=1'\n",
        "raise ValueError('set CUDA_VISIBLE_DEVICES=0')\n",
        "p.add_argument('--x', help='CUDA_VISIBLE_DEVICES=0 chooses')\n",
        "print('torch.cuda.is_available')\n",
        "import re\nm = re.match(r'cuda-(\\d+)', 'cuda-12')\n",
        "import torch\nprint('A100', torch.npu.get_device_name())  # cuda\n",
        "if 'A100' in config:  # cuda\n    pass\n",
        "import torch\nif 'Ascend910' in torch.npu.get_device_name():  # cuda\n    pass\n",
        "import onnxruntime as ort\ns = ort.InferenceSession(p, providers=['CPUExecutionProvider'])  # cuda\n",
        "import cv2\nx = cv2.resize(x, (2, 2))  # cuda\n",
        "lib.impl('op', f, 'CPU')  # cuda\n",
        "from torch.nn.parallel import DistributedDataParallel\nm = DistributedDataParallel(m)  # cuda\n",
    ],
)
def test_nothing_is_said(text: str) -> None:
    assert said(text) == []
    assert convert_source(text.encode(), "a.py").output == text.encode()


def test_the_agnostic_style_leaves_a_word() -> None:
    assert said("lib.impl('op', f, 'CUDA')\n", style=Style.AGNOSTIC) == [("TP182", "'CUDA'")]
    pattern = "import re\nm = re.match(r'cuda:(\\d+)', str(x.device))\n"
    assert said(pattern, style=Style.AGNOSTIC) == [("TP111", "r'cuda:(\\d+)'")]
    shell = "import os\nos.system('CUDA_VISIBLE_DEVICES=0 python w.py')\n"
    assert said(shell, style=Style.AGNOSTIC) == [("TP171", "CUDA_VISIBLE_DEVICES")]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("Makefile", "ops: k.cu\n\tnvcc -c k.cu\n", [("TP603", "nvcc")]),
        ("docker-compose.yml", "    runtime: nvidia\n", [("TP603", "runtime: nvidia")]),
        ("docker-compose.yml", "  - driver: nvidia\n", [("TP603", "driver: nvidia")]),
        (
            "ci.yml",
            "  image: nvcr.io/nvidia/pytorch:24.01-py3\n",
            [("TP603", "image: nvcr.io/nvidia/pytorch:24.01-py3")],
        ),
        ("ci.yml", "    container: nvidia/cuda:12.1.0-devel\n", [("TP603", "container: nvidia/cuda:12.1.0-devel")]),
        ("daemon.json", '{"default-runtime": "nvidia"}\n', [("TP603", 'default-runtime": "nvidia')]),
        ("t.yaml", "trainer:\n  accelerator: gpu\n", [("TP607", "gpu")]),
        ("t.yaml", "trainer: {gpus: 1}\n", [("TP607", "gpus")]),
        ("c.gin", "Trainer.accelerator = 'gpu'\n", [("TP607", "gpu")]),
        ("ds.json", '{"enable_cuda_graph": true}\n', [("TP607", "enable_cuda_graph")]),
    ],
)
def test_files_that_are_not_python(name: str, text: str, expected: list[tuple[str, str]]) -> None:
    assert said(text, name) == expected
    commented = "".join(f"# {line}\n" for line in text.splitlines())
    if not name.endswith(".json"):
        assert said(commented, name) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ci.yml", "  image: python:3.11\n"),
        ("docker-compose.yml", "    runtime: runc\n"),
        ("t.yaml", "trainer:\n  accelerator: cpu\n  gpus: 0\n"),
        ("t.yaml", "accelerator: gpu_name\n"),
        ("Makefile", "all:\n\tpython t.py\n"),
        ("c.gin", "Trainer.lr = 1\n"),
    ],
)
def test_files_without_it(name: str, text: str) -> None:
    assert convert_source(text.encode(), name).findings == ()


def notebook(source: str) -> bytes:
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("%env CUDA_VISIBLE_DEVICES=0\n", "%env ASCEND_RT_VISIBLE_DEVICES=0\n"),
        ("%set_env CUDA_VISIBLE_DEVICES 0\n", "%set_env ASCEND_RT_VISIBLE_DEVICES 0\n"),
        ("%run t.py --device cuda\n", "%run t.py --device npu\n"),
        ("%time y = x.cuda()\n", "%time y = x.npu()\n"),
        ("%timeit -n 10 -r 3 x.cuda()\n", "%timeit -n 10 -r 3 x.npu()\n"),
    ],
)
def test_magic_of_notebooks(before: str, after: str) -> None:
    output = convert_source(notebook(before), "n.ipynb").output
    assert json.loads(output)["cells"][0]["source"] == after


@pytest.mark.parametrize("source", ["%matplotlib inline\n", "%env\n", "%time\n", "%load cuda.py\n", "x?\n"])
def test_other_magic_stays(source: str) -> None:
    assert convert_source(notebook(source), "n.ipynb").output == notebook(source)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16(encoding: str) -> None:
    mark = "\ufeff".encode(encoding)
    text = "name: ä\ndevice: cuda\n"
    output = convert_source(mark + text.encode(encoding), "c.yaml").output
    assert output == mark + text.replace("cuda", "npu").encode(encoding)
    (finding,) = convert_source(mark + "x.cuda()\n".encode(encoding), "a.py").findings
    assert finding.code == "TP902"
    for harmless, name in (("import os\n", "a.py"), ("lr: 1\n", "c.yaml")):
        assert convert_source(mark + harmless.encode(encoding), name).findings == ()


def test_a_makefile_is_a_part_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("train:\n\tCUDA_VISIBLE_DEVICES=0 python t.py\n")
    (finding,) = analyze_tree(tmp_path).findings
    assert (finding.code, bool(finding.fix)) == ("TP601", True)


def test_a_number_of_gpus_is_lightning_s_where_there_is_a_trainer() -> None:
    assert said("trainer:\n  gpus: 8\n", "t.yaml") == [("TP607", "gpus")]
    (note,) = convert_source(b"cluster:\n  gpus: 8\n", "t.yaml").findings
    assert (note.code, note.severity) == ("TP607", Severity.INFO)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exec('''\nx = torch.ones(1)\ny = x.cuda()\n''')\n", "exec('''\nx = torch.ones(1)\ny = x.npu()\n''')\n"),
        (
            "import timeit\ntimeit.timeit('f()', setup='torch.cuda.synchronize()')\n",
            "import timeit\ntimeit.timeit('f()', setup='torch.npu.synchronize()')\n",
        ),
        ("CODE = 'x.to(\"cuda\")'\nexec(CODE)\n", "CODE = 'x.to(\"npu\")'\nexec(CODE)\n"),
        (
            "TEXT = '''\n  import torch\n  print(torch.cuda.is_available())\n'''\nfile.write(TEXT)\n",
            "TEXT = '''\n  import torch\n  import torch_npu\n  print(torch.npu.is_available())\n'''\nfile.write(TEXT)\n",
        ),
        (  # lines of a block
            "out.writeline('import torch')\nout.writeline('with torch.cuda.device(0):')\nout.writeline('    x.cuda()')\n",
            "out.writeline('import torch')\nout.writeline('with torch.npu.device(0):')\nout.writeline('    x.npu()')\n",
        ),
    ],
)
def test_code_in_strings_is_edited_in_its_place(text: str, expected: str) -> None:
    once = convert_source(text.encode(), "x.py").output
    assert once.decode() == expected
    assert convert_source(once, "x.py").output == once


def test_code_in_strings_stays_in_the_portable_style() -> None:
    text = b"import torch\nexec('x = torch.ones(1).cuda()')\n"
    conversion = convert_source(text, "x.py", Style.AGNOSTIC)
    assert conversion.output == text
    assert [one.code for one in conversion.findings if one.severity is Severity.WARNING] == ["TP180"]


def test_the_limits_of_a_card_are_a_note() -> None:
    """A branch for a card that cannot do something is rightly left out; one for a card that can do more is missed."""
    text = "import torch\nif '{}' in torch.cuda.get_device_name():\n    half = False\n"
    for card, expected in (("GeForce GTX 1660", Severity.INFO), ("P40", Severity.INFO), ("A100", Severity.WARNING)):
        found = convert_source(text.format(card).encode(), "x.py").findings
        assert [one.severity for one in found if one.code == "TP183"] == [expected], card
