"""What is left of CUDA after a conversion is listed, each mention with its meaning."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from unsaid import silent

from torchport.convert import convert_source, convert_tree
from torchport.convert.residue import Meaning, find_residue
from torchport.convert.tree import convert_project
from torchport.rules import Style


def meanings(text: str, path: str = "a.py") -> list[tuple[str, Meaning]]:
    conversion = convert_source(text.encode(), path)
    return [(one.word, one.meaning) for one in find_residue(conversion.output, path, conversion.left)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\ntorch.cuda.init()\n", []),
        ("# needs cuda\nx = 1\n", [("cuda", Meaning.PROSE)]),
        ("'''Runs on\nNVIDIA cards.'''\n", [("NVIDIA", Meaning.PROSE)]),
        ("raise SystemExit('no CUDA here')\n", [("CUDA", Meaning.PROSE)]),
        ("use_cuda = a.no_cuda; a.no_cuda = 1\n", [("use_cuda", Meaning.NAME)] + 2 * [("a.no_cuda", Meaning.NAME)]),
        ("use_cuda = 1\nx = args.no_cuda\n", [("use_cuda", Meaning.NAME), ("args.no_cuda", Meaning.KEPT)]),
        ("f(x.cuda)\n", [("x.cuda", Meaning.DECISION)]),
        ("import cv2\ncv2.cuda.setDevice(0)\n", [("cv2.cuda.setDevice", Meaning.DECISION)]),
        ("import torch\ntorch.cuda.get_arch_list()\n", [("torch.cuda.get_arch_list", Meaning.BLOCKER)]),
        ("x = 'cuda'\n", [("cuda", Meaning.DECISION)]),
        ("x = [f'cuda:{i}' for i in y]\n", [("cuda", Meaning.DECISION)]),
        ("import torch  # cuda\nclass ConvMlp:\n    pass\n", [("cuda", Meaning.PROSE)]),
        ("import torch\ntorch.backends.cudnn.benchmark = True\n", [("torch.backends.cudnn.benchmark", Meaning.KEPT)]),
        ("x = f'''\n a cuda b'''; cuda = 1\n", [("cuda", Meaning.PROSE), ("cuda", Meaning.NAME)]),
    ],
)
def test_meanings(text: str, expected: list[tuple[str, Meaning]]) -> None:
    assert meanings(text) == expected


def test_other_files() -> None:
    assert meanings("# cuda\nname: my_cuda\n", "c.yaml") == [("cuda", Meaning.PROSE), ("my_cuda", Meaning.NAME)]


def test_native_code_is_written_anew() -> None:
    assert meanings("// cuda\ncudaFree(p);\n", "a.cpp") == [("cuda", Meaning.PROSE), ("cudaFree", Meaning.DECISION)]
    assert meanings("#include <cuda.h>\n", "a.cu") == [("cuda.h", Meaning.BLOCKER)]


CODE = {
    "opts.py": "p.add_argument('--use-cuda')\np.add_argument('--cuda_ids', default='cuda:0')\nHOW_CUDA = 1\n",
    "conf.yaml": "train:\n  with_cudnn: true\n",
    "nets/cuda_layers.py": "import torch\nclass CudaNorm(torch.nn.Module):\n    def cuda_name(self, nccl_id):\n"
    "        return nccl_id, self.cuda_x\n",
    "a.py": "import torch, cv2, xcuda, subprocess\nfrom nets.cuda_layers import CudaNorm\nfrom opts import *\n"
    "def use(cuda_ok, *, nvtx=None):\n    return [cuda_ok for cuda_ok in range(HOW_CUDA)]\n"
    "use(cuda_ok=1)\nother(use_cuda=1)\nprint(args.use_cuda, cfg.with_cudnn, cfg['with_cudnn'])\nprint(cfg.cuda_unknown)\n"
    "net = CudaNorm().cuda()\nnet.cuda_name(nccl_id=0)\nxs = [t.cuda for t in ts]\n"
    "cv2.cuda.setDevice(0)\nxcuda.run()\nmove = getattr(x, 'cuda')\nname = 'cuda-11.8'\n"
    "path = 'a/cuda.cu'\ntest = x.type().startswith('torch.cuda')\nd = {'cuda': 0}\nprint(d['cuda'])\n"
    "subprocess.run(['nvcc', path])\nwith torch.x.nvtx_range('a'):\n    pass\nglobal_cuda()\n",
}


def test_nothing_in_code_is_left_unsaid(tmp_path: Path) -> None:
    """What a plain search finds in names and one-word texts is changed, is a finding, or has a proof."""
    for name, text in CODE.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    converted = convert_project(tmp_path / "in", Style.NPU)
    assert [word for one in converted for word in silent(one)] == []
    proofs = {mention.word: mention.proof for one in converted for mention in one.residue}
    assert proofs["args.use_cuda"] == "defined in opts.py:1"
    assert proofs["cfg.with_cudnn"] == "defined in conf.yaml:2"


def test_a_search_finds_what_nobody_speaks_of(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.py").write_text("import xcuda\nxcuda.run(1)\n")
    (one,) = convert_project(tmp_path / "in", Style.NPU)
    assert silent(one) == []
    assert silent(dataclasses.replace(one, residue=())) == ["a.py:1 xcuda", "a.py:2 xcuda"]


def test_the_result_lists_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.py").write_text("import torch  # cuda\ntorch.cuda.init()\n")
    result = convert_tree(tmp_path / "in", tmp_path / "out")
    assert result.data["residue"]["counts"] == {"blocker": 0, "decision": 0, "kept": 0, "name": 0, "prose": 1}
    assert result.data["residue"]["mentions"] == [
        {"path": "a.py", "line": 1, "column": 17, "word": "cuda", "is": "prose"}
    ]
