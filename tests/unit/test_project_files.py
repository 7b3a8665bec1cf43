"""Files that are not Python: every rule does what its own examples say, and the rest of the file stays."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest
from counting import grows_with

from torchport.convert import convert_source, convert_tree
from torchport.convert.workers import convert_file
from torchport.findings import Safety, Severity
from torchport.rules import Style
from torchport.rules.files import FileRule, file_rules
from torchport.source.kinds import Kind, kind_of

CASES = [(rule, *case) for rule in file_rules() for case in rule.rewrites]
REPORTS = [(rule, *case) for rule in file_rules() for case in rule.reports]
IGNORES = [(rule, *case) for rule in file_rules() for case in rule.ignores]


@pytest.mark.parametrize(("rule", "name", "before", "after"), CASES)
def test_rewrites(rule: FileRule, name: str, before: str, after: str) -> None:
    conversion = convert_source(before.encode(), name)
    assert conversion.output.decode() == after
    assert rule.code in {finding.code for finding in conversion.findings}


@pytest.mark.parametrize(("rule", "name", "text"), REPORTS)
def test_reports(rule: FileRule, name: str, text: str) -> None:
    conversion = convert_source(text.encode(), name)
    assert conversion.output == text.encode()
    assert rule.code in {finding.code for finding in conversion.findings}


@pytest.mark.parametrize(("rule", "name", "text"), IGNORES)
def test_ignores(rule: FileRule, name: str, text: str) -> None:
    conversion = convert_source(text.encode(), name)
    assert conversion.output == text.encode()
    assert rule.code not in {finding.code for finding in conversion.findings}


@pytest.mark.parametrize("rule", file_rules(), ids=lambda rule: rule.code)
def test_has_as_many_noops_as_rewrites(rule: FileRule) -> None:
    assert len(rule.reports) + len(rule.ignores) >= max(len(rule.rewrites), 1)
    assert bool(rule.rewrites) == (rule.safety is not Safety.REPORT)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.py", Kind.PYTHON),
        ("n.ipynb", Kind.NOTEBOOK),
        ("run.sbatch", Kind.SHELL),
        ("Dockerfile.gpu", Kind.DOCKER),
        ("requirements-dev.txt", Kind.PACKAGES),
        ("environment.yml", Kind.PACKAGES),
        ("requirements/gpu.txt", Kind.PACKAGES),
        ("requirements/ci/base.in", Kind.PACKAGES),
        ("gpu_requirements.txt", Kind.PACKAGES),
        ("reqs.txt", Kind.PACKAGES),
        ("requirements/README.md", None),
        ("requirements/check.py", Kind.PYTHON),
        ("requests.txt", None),
        ("Pipfile", Kind.SETTINGS),
        ("config.yml", Kind.YAML),
        ("k.cu", Kind.CUDA_SOURCE),
        ("notes.txt", None),
        ("README.md", None),
        ("data.bin", None),
    ],
)
def test_kinds(name: str, kind: Kind | None) -> None:
    assert kind_of(f"some/folder/{name}") is kind


def test_folder_of_requirements_is_read(tmp_path: Path) -> None:
    lists = tmp_path / "in" / "requirements"
    lists.mkdir(parents=True)
    (lists / "gpu.txt").write_text("torch==2.4.0+cu121\n")
    convert_tree(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out" / "requirements" / "gpu.txt").read_text() == "torch==2.4.0\n"


def test_magic_of_a_notebook_installs() -> None:
    url = "https://download.pytorch.org/whl"
    source = [f"%pip install torch --index-url {url}/cu124\n", "import torch"]
    data = json.dumps({"cells": [{"cell_type": "code", "source": source, "outputs": []}]}).encode()
    cell = json.loads(convert_source(data, "a.ipynb").output)["cells"][0]["source"]
    assert cell == [f"%pip install torch --index-url {url}/cpu\n", "import torch"]


def test_descending_devices_are_said() -> None:
    (finding,) = convert_source(b"CUDA_VISIBLE_DEVICES=3,1 python t.py\n", "run.sh").findings
    assert finding.safety is Safety.REVIEW
    assert "do not ascend" in finding.hint


@pytest.mark.parametrize(
    ("text", "safety"),
    [
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0,2'", Safety.SAFE),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '3,1'", Safety.REVIEW),
        ("os.environ.setdefault('CUDA_VISIBLE_DEVICES', '1,1')", Safety.REVIEW),
        ("env = {'CUDA_VISIBLE_DEVICES': '0'}", Safety.SAFE),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = devices", Safety.REVIEW),
    ],
)
def test_the_order_of_devices_in_python(text: str, safety: Safety) -> None:
    (finding,) = convert_source(f"import os\n{text}\n".encode(), "a.py").findings
    assert finding.safety is safety
    assert ("do not ascend" in finding.hint) is ("'3,1'" in text or "'1,1'" in text)


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("requirements.txt", "flash-attn==2.5\n", "flash-attn"),
        ("requirements.txt", "bitsandbytes\ntriton>=2\n", "triton"),
        ("Dockerfile", "FROM nvidia/cuda:12.1-devel\n", "image"),
        ("run.slurm", "#SBATCH --gres=gpu:8\n", "Slurm"),
        ("run.sh", "docker run --gpus all x\n", "docker"),
        ("k.cu", "template <int N>\n__global__ void scan_kernel(float* x) {\n", "scan_kernel"),
        ("environment.yml", "  - pytorch-cuda=12.1\n", "pytorch-cuda"),
        ("pyproject.toml", 'dependencies = [\n  "flash-attn>=2",\n]\n', "flash-attn"),
        ("pyproject.toml", '[tool.poetry.dependencies]\nxformers = "^0.0.20"\n', "xformers"),
        ("Dockerfile", "RUN pip install flash-attn\n", "flash-attn"),
        ("setup.cfg", "install_requires =\n    nvidia-dali\n", "nvidia-dali"),
    ],
)
def test_what_is_only_said(name: str, text: str, word: str) -> None:
    conversion = convert_source(text.encode(), name)
    assert conversion.output == text.encode()
    said = [finding for finding in conversion.findings if finding.severity is not Severity.INFO]
    assert any(word in finding.message for finding in said)
    assert all(finding.hint for finding in said)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "device: cuda\n"),
        ("run.sh", "export CUDA_VISIBLE_DEVICES=0\n"),
        ("a.py", "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"),
    ],
)
def test_the_agnostic_style_says_what_it_leaves(name: str, text: str) -> None:
    conversion = convert_source(text.encode(), name, Style.AGNOSTIC)
    assert conversion.output == text.encode()
    assert [(one.severity, bool(one.hint)) for one in conversion.findings] == [(Severity.WARNING, True)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cupy-cuda12x\n", "CuPy is CUDA only"),
        ("nvidia-ml-py>=12\n", "npu-smi info"),
        ("nvidia-dali-cuda120\n", "DALI pipelines"),
        ("nvidia-cudnn-cu12\n", "Drop it."),
    ],
)
def test_packages_with_the_cuda_version_in_their_name(text: str, says: str) -> None:
    (finding,) = convert_source(text.encode(), "requirements.txt").findings
    assert says in finding.hint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[project]\nname = "composer"\n'),
        ("pyproject.toml", "[tool.apex]\n"),
        ("settings.toml", 'dependencies = ["flash-attn"]\n'),
    ],
)
def test_names_that_are_no_dependencies(name: str, text: str) -> None:
    assert convert_source(text.encode(), name).findings == ()


def test_a_whole_project(tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    (root / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0 python t.py --device cuda\n")
    (root / "c.yaml").write_text("device: cuda\nname: mein cuda\n")
    (root / "data.json").write_bytes(b"\xff\xfe not text: cuda")
    (root / "t.py").write_text("import torch\ntorch.cuda.init()\n")
    result = convert_tree(root, tmp_path / "out")
    assert (tmp_path / "out" / "run.sh").read_text() == "ASCEND_RT_VISIBLE_DEVICES=0 python t.py --device npu\n"
    assert (tmp_path / "out" / "c.yaml").read_text() == "device: npu\nname: mein cuda\n"
    assert (tmp_path / "out" / "data.json").read_bytes() == b"\xff\xfe not text: cuda"
    assert [one.code for one in result.findings if one.location and one.location.path == "data.json"] == ["TP902"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"device": "cuda", "x": "' + "A" * 1_000_000 + '"}'),
        ("a.yaml", "cuda: " + "a.b-" * 100_000 + "\n" + ("x" * 4_900 + " cuda\n") * 50),
        ("a.sh", ("nvidia-smi " + "FROM " * 900 + "\n" + "a b " * 1_200 + "\n") * 20),
        ("requirements.txt", ("a" * 4_900 + "\n" + "torch " * 800 + "\n") * 20),
        ("a.py", "# cuda\nx = '" + "-" * 1_000_000 + "'\n"),
    ],
)
def test_long_lines_end(tmp_path: Path, name: str, text: str) -> None:
    """In less than a second: the square of a million characters, or the cube of 5,000 in each of 20 lines, would take
    longer than pytest's `timeout`."""
    (tmp_path / name).write_text(text)
    done = convert_file(tmp_path / name, name, Style.NPU)
    assert not {"TP903", "TP904"} & {finding.code for finding in done.findings}


@pytest.mark.parametrize("name", ["a.json", "a.yaml", "a.sh", "requirements.txt", "a.py"])
@pytest.mark.parametrize("piece", ["# cuda:0 torch\n", "# device: cuda ", "nvidia-smi -q; FROM cuda\n"])
def test_the_work_for_a_file_grows_with_its_length(tmp_path: Path, name: str, piece: str) -> None:
    folders = []
    for count in (100, 400):
        folders.append(tmp_path / str(count))
        folders[-1].mkdir()
        (folders[-1] / name).write_text(piece * count)
    one, many = (partial(convert_file, folder / name, name, Style.NPU) for folder in folders)
    assert grows_with(one, many, 4)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("c.yaml", "device: cuda  # torchport: ignore"),
        ("c.yaml", "backend: nccl  # torchport: ignore[TP602]"),
        ("r.sh", "export CUDA_VISIBLE_DEVICES=0  # torchport: ignore[TP601, TP602]"),
        ("k.cu", "__global__ void f() {}  // torchport: ignore"),
        ("s.ini", "device = cuda ; torchport: ignore"),
    ],
)
def test_ignore_comments(name: str, line: str) -> None:
    assert convert_source(f"{line}\n".encode(), name).findings == ()
    other = re.sub(r"ignore.*", "ignore[TP999]", line)
    assert convert_source(f"{other}\n".encode(), name).findings != ()


def test_notes_that_are_the_same_everywhere_are_said_once(tmp_path: Path) -> None:
    from torchport.convert import preview_tree
    from torchport.convert.project import for_people

    script = "import torch\nx = torch.ones(1).cuda()\nm = torch.nn.DataParallel(m)\n"
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.py").write_text(script)
        (tmp_path / name / "requirements.txt").write_text("torchvision\n")
    (tmp_path / "Dockerfile").write_text("FROM nvidia/cuda:12.1.0-devel-ubuntu22.04\n")
    result = preview_tree(tmp_path)
    every, once = [one.code for one in result.findings], [one.code for one in for_people(result.findings)]
    assert (every.count("TP001"), every.count("TP604")) == (3, 3)
    assert (once.count("TP001"), once.count("TP604"), once.count("TP202")) == (1, 1, 3)
    (note,) = [one for one in for_people(result.findings) if one.code == "TP604"]
    assert note.message.endswith("(and in 2 more files)")
    # Neither an image nor DataParallel is in the way of a run on one NPU.
    assert result.data["summary"].blockers == 0
    assert result.data["summary"].decisions == 4


def test_what_needs_a_person_is_said_everywhere(tmp_path: Path) -> None:
    from torchport.convert import preview_tree
    from torchport.convert.project import for_people

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text("flash-attn\ntorch==2.1.0+cu121\n")
    found = preview_tree(tmp_path).findings
    assert len(found) >= 4
    assert for_people(found) == found
