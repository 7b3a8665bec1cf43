"""torchport in an environment of one's own, as README's lines put it there; the checkout is not seen from it.

torch and what else pip would download come from the environment that runs the tests. `make install-check` compiles the
virtual NPU as a user's `pip install` does, which takes minutes; else what is built in the checkout is put in its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from torchport import vnpu

ROOT = Path(__file__).parents[2]
OTHERS = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", "__pycache__", "build", "shared", "*.so*", ".hypothesis", "torchport-out"
)
TRAIN = """
import torch
from layers import build

torch.manual_seed(0)
net = build()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    x = torch.randn(8, 4)
    loss = net(x.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("device", next(net.parameters()).device.type)
"""
LAYERS = "import torch\ndef build():\n    return torch.nn.Linear(4, 1).cuda()\n"


class Environment:
    """A virtual environment in `folder` that holds torchport, installed by pip from a copy of the checkout."""

    def __init__(self, folder: Path, compiled: bool, without: str | None = None) -> None:
        self.folder = folder
        source, environment = folder / "my checkout", folder / "my environment"
        shutil.copytree(ROOT, source, ignore=OTHERS)
        venv.create(environment, with_pip=True)
        self.programs = environment / "bin"
        (site,) = environment.glob("lib/python*/site-packages")
        # Behind its own: only these packages, not the .pth files beside them, which lead to the checkout.
        downloaded = Path(sysconfig.get_path("purelib"))
        if without is not None:
            there, downloaded = downloaded, folder / "downloaded"
            downloaded.mkdir()
            for package in there.iterdir():
                if not package.name.startswith((without, "torchport")) and package.suffix != ".pth":
                    (downloaded / package.name).symlink_to(package)
        (site / "downloaded.pth").write_text(f"{downloaded}\n")
        settings = [] if compiled else ["--config-settings=wheel.cmake=false"]
        pip = ["python", "-m", "pip", "install", "--no-build-isolation", "--no-deps", *settings, str(source)]
        installed = self.run(*pip)
        assert installed.returncode == 0, installed.stdout + installed.stderr
        self.package = site / "torchport"
        if not compiled:
            shutil.copytree(vnpu.library_directory(), self.package / "vnpu" / "lib")

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A program of the environment, seen from a shell in which nothing else was set."""
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "LANG") if name in os.environ}
        path = os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.defpath])
        return subprocess.run(
            [self.programs / program, *words],
            cwd=self.folder,
            env={**kept, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(False, id="built"),
        pytest.param(True, id="compiled", marks=[pytest.mark.install, pytest.mark.timeout(2400)]),
    ],
)
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("own place"), request.param)


def test_it_is_the_installed_one(environment: Environment) -> None:
    shown = environment.run("python", "-c", "import torchport; print(torchport.__file__)")
    assert shown.stdout == f"{environment.package / '__init__.py'}\n", shown.stderr
    assert (environment.package / "vnpu" / "lib" / "libopapi.so").exists()
    assert list((environment.package / "vnpu" / "lib" / "nocuda").glob("*.so"))


@pytest.mark.install
def test_doctor_mends_what_is_missing(environment: Environment) -> None:
    vision = ("python", "-c", "import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'; import torchvision")
    before = environment.run(*vision)
    fixed = environment.run("torchport", "doctor", "--fix")
    assert fixed.returncode == 0, fixed.stdout
    assert str(environment.package) in fixed.stdout
    after = environment.run(*vision)
    assert after.returncode == 0, after.stderr
    if before.returncode:
        assert "operator torchvision::nms does not exist" in before.stderr
        assert (environment.package.parent / "torchport_cuda_builds.pth").exists()


def test_it_runs_and_ports_a_script(environment: Environment) -> None:
    (environment.folder / "train.py").write_text(TRAIN)
    (environment.folder / "layers.py").write_text(LAYERS)
    ran = environment.run("torchport", "run", "-q", "train.py")
    assert (ran.returncode, ran.stdout) == (0, "device cuda\n"), ran.stderr
    ported = environment.run("torchport", "port", "train.py")
    assert ported.returncode == 0, ported.stdout + ported.stderr
    assert "holds" in ported.stdout
    shown = (environment.folder / "torchport-out" / "train" / "npu" / "stdout.txt").read_text()
    assert shown == "device npu\n"


PROFILED = """
import torch, torch_npu
P = torch_npu.profiler
a = torch.randn(16, 16).npu()
config = P._ExperimentalConfig(export_type=[P.ExportType.Text, P.ExportType.Db])
with P.profile(experimental_config=config, on_trace_ready=P.tensorboard_trace_handler("profile")):
    (a @ a).sum().item()
"""


@pytest.mark.install
def test_a_profile_is_taken(environment: Environment) -> None:
    """Finds the libraries that torch_npu opens by name, and the program msprof."""
    home = environment.package / "vnpu" / "home"
    if not list((home / "lib64").glob("libmspti.so")):
        pytest.skip("only an environment that was compiled has the files of the profilers")
    (environment.folder / "profiled.py").write_text(PROFILED)
    ran = environment.run("torchport", "run", "-q", "profiled.py")
    assert ran.returncode == 0, ran.stderr
    made = {path.name for path in environment.folder.glob("profile/*_ascend_pt/ASCEND_PROFILER_OUTPUT/*")}
    assert {"trace_view.json", "kernel_details.csv", "ascend_pytorch_profiler.db"} <= made, ran.stdout + ran.stderr
    assert (home / "tools" / "profiler" / "bin" / "msprof").exists()


RECORDED = """
import torch, torchport
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with torchport.record("recording", level="tensor"):
    for _ in range(2):
        net(torch.randn(8, 4)).sum().backward()
        optimizer.step()
"""


@pytest.mark.install
@pytest.mark.timeout(900)
def test_without_torch_npu_the_recorder_is_compiled(tmp_path: Path) -> None:
    """As on a machine with a GPU, whose torch is built for CUDA."""
    environment = Environment(tmp_path, compiled=True, without="torch_npu")
    libraries = environment.package / "vnpu" / "lib"
    assert [path.name for path in libraries.rglob("*.so")] == ["libtorchport_record.so"]
    (environment.folder / "train.py").write_text(RECORDED)
    ran = environment.run("python", "train.py")
    assert ran.returncode == 0, ran.stderr
    shown = environment.run("torchport", "record", "show", "recording")
    assert "noted by the library" in shown.stdout, shown.stdout + shown.stderr
