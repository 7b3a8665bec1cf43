"""A name that says CUDA is left with a proof of the same scope, or it is a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import convert_tree
from torchport.findings import Result, Severity


def project(folder: Path, files: dict[str, str]) -> Result:
    for name, text in files.items():
        path = folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return convert_tree(folder / "in", folder / "out")


def said(result: Result, code: str, *, asks: bool = True) -> list[tuple[str, int]]:
    """The places of the findings with a code; of those only that ask a person."""
    return [
        (one.location.path, one.location.line)
        for one in result.findings
        if one.code == code and one.location is not None and (not asks or one.severity is not Severity.INFO)
    ]


def proofs(result: Result) -> dict[tuple[str, int, str], str]:
    mentions = result.data["residue"]["mentions"]
    return {(one["path"], one["line"], one["word"]): one.get("proof", "") for one in mentions if one["is"] == "name"}


INITS = {"p/__init__.py": "", "p/ops/__init__.py": "use_cuda = False\n", "p/ops/k_cuda.py": "x = 1\n"}


@pytest.mark.parametrize(
    "line",
    [
        "from ..ops import iou3d_nms_cuda",
        "from p.ops import iou3d_nms_cuda",
        "from ..ops.roi_cuda import f",
        "import p.ops.roi_cuda",
    ],
)
def test_compiled_extension_of_the_project(tmp_path: Path, line: str) -> None:
    result = project(tmp_path, {**INITS, "p/u/__init__.py": "", "p/u/a.py": f"{line}\n"})
    assert said(result, "TP195") == [("p/u/a.py", 1)]


@pytest.mark.parametrize(
    "line",
    [
        "from ..ops import use_cuda",
        "from ..ops import k_cuda",
        "from ..ops.k_cuda import x",
        "import p.ops.k_cuda",
        "try:\n    from ..ops import iou3d_nms_cuda\nexcept ImportError:\n    iou3d_nms_cuda = None",
    ],
)
def test_module_of_the_project_is_no_extension(tmp_path: Path, line: str) -> None:
    result = project(tmp_path, {**INITS, "p/u/__init__.py": "", "p/u/a.py": f"{line}\n"})
    assert not said(result, "TP195")


def test_star_import_may_bring_the_name(tmp_path: Path) -> None:
    files = {"p/__init__.py": "from .x import *\n", "p/x.py": "k_cuda = 1\n", "p/a.py": "from . import k_cuda\n"}
    assert not said(project(tmp_path, files), "TP195")


def test_key_of_json_is_no_proof(tmp_path: Path) -> None:
    files = {
        ".devcontainer/devcontainer.json": '{"use_cuda": true, "cuda": 1}\n',
        "a.py": "import torch\nFabric(with_cuda='cuda')\nif cfg['use_cuda']:\n    pass\n",
    }
    result = project(tmp_path, files)
    assert not any("devcontainer" in proof for proof in proofs(result).values())
    assert ("a.py", 3) in said(result, "TP195", asks=False)


def test_key_of_a_configuration_is_one(tmp_path: Path) -> None:
    files = {"c.yaml": "use_cuda: true\n", "a.py": "if cfg.use_cuda:\n    pass\n"}
    assert proofs(project(tmp_path, files))["a.py", 1, "cfg.use_cuda"] == "defined in c.yaml:1"


def test_proof_is_that_of_the_place(tmp_path: Path) -> None:
    files = {"a.py": "import scan_cuda\nprint('scan_cuda is fast')\nscan_cuda.fwd(1)\n"}
    known = proofs(project(tmp_path, files))
    assert known["a.py", 3, "scan_cuda.fwd"].startswith("imported from scan_cuda")


SCRIPT = """WITH_CUDA=1
if [ $WITH_CUDA = 1 ]; then
  echo built with CUDA
fi
make -C csrc/cuda
export NCCL_SOME_SWITCH=1
python -c "import torch; print('CUDA:', torch.npu.is_available())"
run --mark only_cuda_here
"""


def test_words_of_a_script_have_a_proof_or_a_finding(tmp_path: Path) -> None:
    result = project(tmp_path, {"run.sh": SCRIPT})
    assert said(result, "TP610", asks=False) == [("run.sh", 6), ("run.sh", 8)]
    assert not said(result, "TP610")
    known = proofs(result)
    assert known["run.sh", 2, "WITH_CUDA"] == "defined in line 1"
    assert known["run.sh", 3, "CUDA"] == "a part of a message"
    assert known["run.sh", 5, "cuda"] == "a path"
    assert "Python" in known["run.sh", 7, "CUDA"]
    assert all(known.values())


def test_a_line_with_another_finding_has_no_second(tmp_path: Path) -> None:
    result = project(tmp_path, {"run.sh": "nvidia-smi\nexport CUDA_VISIBLE_DEVICES=0 MARK=only_cuda\n"})
    assert not said(result, "TP610", asks=False)
