"""The interface table is true for the torch and torch_npu it names."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from torchport.knowledge.api import Status, find_api, load_apis
from torchport.knowledge.arguments import load_role
from torchport.knowledge.libraries import Support, load_libraries


def _source(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed; its sources are what the table is checked against")
    return Path(spec.origin).parent


def _names(path: Path) -> set[str]:
    """The names a module defines or imports, read from its source."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                names.update(alias.asname or alias.name for alias in aliases)
            case ast.Constant(value=str(name)):  # __all__
                names.add(name)
            case _:
                pass
    return names


def test_npu_names_exist() -> None:
    root = _source("torch_npu") / "npu"
    modules = {path.stem for path in root.iterdir() if path.suffix == ".py" or path.is_dir()}
    known = _names(root / "__init__.py") | _names(root / "random.py") | _names(root / "memory.py") | modules
    amp = {path.stem for path in (root / "amp").iterdir()} | _names(root / "amp" / "__init__.py")
    missing = []
    for row in load_apis().values():
        if row.status in (Status.MISSING, Status.KEEP) or not row.npu.startswith("torch.npu."):
            continue
        words = row.npu.split(".")[2:]
        there = words[0] in known and (words[0] != "amp" or len(words) == 1 or words[1] in amp)
        if words[0] == "mstx" and len(words) > 1:
            there = words[1] in _names(root / "mstx.py") | {"annotate"}
        if not there:
            missing.append(row.npu)
    assert missing == []


def test_every_public_name_of_torch_cuda_has_a_row() -> None:
    tree = ast.parse((_source("torch") / "cuda" / "__init__.py").read_text("utf-8"))
    public: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            public = ast.literal_eval(node.value)
    assert len(public) > 100
    assert [name for name in public if find_api(f"torch.cuda.{name}") is None] == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("torch.cuda.Stream.query", "torch.npu.Stream"),
        ("torch.cuda.memory.empty_cache", "torch.npu.memory.empty_cache"),
        ("torch.cuda.amp.grad_scaler.GradScaler", "torch.npu.amp.grad_scaler.GradScaler"),
        ("torch.cuda.CUDAGraph", "torch.npu.NPUGraph"),
        ("torch.cuda.no_such_thing", None),
        ("torch.cuda.memory.no_such_thing", None),
        ("torch.nn.Linear", None),
        ("numba.cuda.jit", None),
    ],
)
def test_find(name: str, target: str | None) -> None:
    found = find_api(name)
    assert (found[0].npu if found else None) == target


# What a user is promised an answer for (amp_C: apex's kernels, nvidia: DALI).
LIBRARIES = (
    "apex",
    "amp_C",
    "flash_attn",
    "xformers",
    "bitsandbytes",
    "deepspeed",
    "colossalai",
    "bmtrain",
    "grouped_gemm",
    "composer",
    "triton",
    "cupy",
    "numba",
    "pycuda",
    "pynvml",
    "nvidia",
    "torchvision",
    "mmcv",
    "detectron2",
    "transformer_engine",
    "megatron",
)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_has_what_a_user_needs(name: str) -> None:
    library = load_libraries()[name]
    assert library.note and library.link.startswith("https://")
    if library.status is Support.PORT:
        assert library.install
    if name in ("apex", "flash_attn", "xformers", "deepspeed", "colossalai", "numba", "torchvision"):
        assert library.uses, "the conditions under which its replacement means the same"


def test_notes_are_half_sentences() -> None:
    for row in load_apis().values():
        assert (row.status is Status.SAME) == (not row.note)
        assert not row.note.endswith(".")


@pytest.mark.parametrize(
    ("name", "is_device"),
    [
        ("device", True),
        ("args_device", True),
        ("map_location", True),
        ("dev", True),
        ("devices", True),
        ("developer", False),
        ("backend", False),
        ("stdev", False),
    ],
)
def test_names_of_devices(name: str, is_device: bool) -> None:
    assert bool(load_role("device").names.match(name)) is is_device
