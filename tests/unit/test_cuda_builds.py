"""torchvision beside a CPU build of torch: a CUDA build is mended, and only that."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from torchport import cuda_builds

SOURCE = Path(__file__).parents[2] / "src"


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python without the .pth files of this environment, one of which may mend what is looked at."""
    packages = sysconfig.get_path("purelib")
    path = os.pathsep.join([str(SOURCE), packages])
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": path, **variables}
    command = [sys.executable, "-S", "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def package(folder: Path, name: str, file: str, content: bytes) -> None:
    library = folder / name / file
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(content)
    (folder / name / "__init__.py").touch()


def test_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", *cuda_builds.PACKAGES):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert cuda_builds.find_broken_library("torchvision") is None, "nothing is installed"
    package(tmp_path, "torchvision", "_C.so", b"..libc10_cuda.so..")
    package(tmp_path, "torchaudio", "lib/libtorchaudio.abi3.so", b"..libc10.so..")
    assert cuda_builds.find_broken_library("torchvision") is None, "there is no torch"
    package(tmp_path, "torch", "lib/libc10.so", b"")
    assert cuda_builds.find_broken_library("torchvision") == tmp_path / "torchvision" / "_C.so"
    assert cuda_builds.find_broken_library("torchaudio") is None, "a CPU build"
    package(tmp_path, "torch", "lib/libc10_cuda.so", b"")
    assert cuda_builds.find_broken_library("torchvision") is None, "a torch for CUDA"


@pytest.mark.processes
def test_a_cuda_build_fails_by_itself() -> None:
    """Else the tests below show nothing."""
    if cuda_builds.find_broken_library("torchvision") is None:
        pytest.skip("the torchvision of this environment goes with its torch")
    run = python("import torchvision")
    assert run.returncode == 1
    assert "operator torchvision::nms does not exist" in run.stderr


MENDED = """
import sys
import torchport.cuda_builds as cuda_builds
from pathlib import Path
LIBRARIES
for again in range(2):
    cuda_builds.mend_when_imported()
from importlib.util import find_spec
assert find_spec("torchvision") is not None
assert "torch" not in sys.modules, "asking whether it is installed imports nothing"
import torchvision
print(torchvision.models.resnet18().fc.out_features)
"""


@pytest.mark.processes
def test_it_can_be_imported_without_the_stand_ins() -> None:
    code = MENDED.replace("LIBRARIES", "cuda_builds.LIBRARIES = Path('nowhere')")
    run = python(code + "import torch\ntorchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)")
    assert run.stdout == "1000\n", run.stderr
    if cuda_builds.find_broken_library("torchvision") is not None:
        assert run.returncode == 1
        assert "Couldn't load custom C++ ops" in run.stderr


def test_there_is_one_wait_and_it_can_be_cancelled() -> None:
    cuda_builds.mend_when_imported()()  # what a .pth file of this environment has begun
    before = list(sys.meta_path)
    cuda_builds.mend_when_imported()
    cancel = cuda_builds.mend_when_imported()
    assert len(sys.meta_path) == len(before) + len(cuda_builds.PACKAGES)
    cancel()
    assert sys.meta_path == before


def test_mended_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / cuda_builds.FILE_NAME
    monkeypatch.setattr(cuda_builds, "pth_file", lambda: file)
    monkeypatch.setattr(cuda_builds, "find_broken_library", lambda name: None)
    assert cuda_builds.main() == 0
    assert not file.exists()
    monkeypatch.setattr(
        cuda_builds, "find_broken_library", lambda name: Path("_C.so") if name == "torchvision" else None
    )
    assert cuda_builds.main() == 0
    assert capsys.readouterr().out.startswith("torchvision can be imported")
    line = file.read_text()
    assert line.startswith("import sys; ") and line.count("\n") == 1
    waits = line + "; print(sum(type(f).__name__ == 'BeforeImport' for f in sys.meta_path))"
    run = python(waits.replace("\n", ""))
    assert run.stdout == f"{len(cuda_builds.PACKAGES)}\n", run.stderr
    run = python(line, PYTHONPATH=str(tmp_path))
    assert (run.returncode, run.stderr) == (0, ""), "torchport has been removed"


def test_waiting_costs_little(imports_little) -> None:
    assert imports_little("torchport.cuda_builds")
