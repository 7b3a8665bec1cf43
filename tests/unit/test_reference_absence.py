"""A reference process has no NPU: its environment, what it can find, and what gives it away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.record import reference
from torchport.vnpu.variables import VARIABLES

FINDS = """
import importlib.metadata, importlib.util, json, sys
def importable(name):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        return error.name
    return ""
def version():
    try:
        return importlib.metadata.version("torch-npu")
    except importlib.metadata.PackageNotFoundError:
        return None
def seen():
    return {
        "import": importable("torch_npu"),
        "submodule": importable("torch_npu.npu"),
        "spec": importlib.util.find_spec("torch_npu") is not None,
        "version": version(),
        "distributions": [d.metadata["Name"] for d in importlib.metadata.distributions() if "npu" in d.metadata["Name"]],
        "backends": [e.name for e in importlib.metadata.entry_points(group="torch.backends") if "npu" in e.name],
        "packages": "torch_npu" in importlib.metadata.packages_distributions(),
    }
"""
HIDDEN = {
    "import": "torch_npu",
    "submodule": "torch_npu",
    "spec": False,
    "version": None,
    "distributions": [],
    "backends": [],
    "packages": False,
}
FOUND = {
    "import": "",
    "submodule": "",
    "spec": True,
    "version": "9.9",
    "distributions": ["torch-npu"],
    "backends": ["torch_npu"],
    "packages": True,
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a package and a distribution that look like torch_npu's."""
    package, meta = tmp_path / "torch_npu", tmp_path / "torch_npu-9.9.dist-info"
    package.mkdir()
    meta.mkdir()
    (package / "__init__.py").write_text("")
    (package / "npu.py").write_text("")
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-npu\nVersion: 9.9\n")
    (meta / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    (meta / "top_level.txt").write_text("torch_npu\n")
    (meta / "RECORD").write_text("torch_npu/__init__.py,,\n")
    return tmp_path


def python(code: str, *folders: Path) -> object:
    """What `code` prints as JSON in a process of its own that finds torchport and `folders`, and no site-packages."""
    import torchport

    path = os.pathsep.join(map(str, (*folders, Path(torchport.__file__).parents[1])))
    run = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_torch_npu_is_found_where_it_is_not_hidden(site: Path) -> None:
    assert python(FINDS + "print(json.dumps(seen()))", site) == FOUND


def test_hidden_torch_npu_is_found_by_nothing(site: Path) -> None:
    code = FINDS + (
        "from torchport.record import reference\n"
        "patches = reference.hide_npu()\nhidden = seen()\npatches.undo()\nprint(json.dumps([hidden, seen()]))"
    )
    assert python(code, site) == [HIDDEN, FOUND]


def test_other_packages_are_found(site: Path) -> None:
    (site / "torch_npuzzle.py").write_text("x = 3")
    code = (
        "import json\nfrom torchport.record import reference\nreference.hide_npu()\n"
        "import torch_npuzzle, importlib.metadata as m, sqlite3\n"
        "print(json.dumps([torch_npuzzle.x, len(list(m.distributions()))]))"
    )
    assert python(code, site) == [3, 0]


def test_an_enabled_environment_does_not_activate(site: Path) -> None:
    """`torchport vnpu enable` makes each process wait for torch, to change its environment."""
    (site / "torch.py").write_text("")
    code = (
        "import json, os\nfrom torchport.startup import activate_with_torch\nactivate_with_torch()\n"
        "{hide}import torch\nprint(json.dumps('ASCEND_HOME_PATH' in os.environ))"
    )
    hide = "from torchport.record import reference\nreference.hide_npu()\n"
    assert python(code.format(hide=hide), site) is False
    if vnpu.detect().kind is not vnpu.Kind.NONE:
        assert python(code.format(hide=""), site) is True


def test_importing_torch_npu_is_told(site: Path) -> None:
    code = (
        "import json\nfrom torchport.record import reference\nbefore = reference.describe_npu_use()\nimport torch_npu\n"
        "print(json.dumps([before, reference.describe_npu_use()]))"
    )
    assert python(code, site) == ["", "it imported torch_npu"]


def test_a_loaded_library_is_told(tmp_path: Path) -> None:
    library = tmp_path / "libascendcl.so"
    maps = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    any_library = next(path for path in maps if path.rpartition("/")[2].startswith(("libz.", "libm.")))
    library.write_bytes(Path(any_library).read_bytes())
    code = (
        f"import ctypes, json\nctypes.CDLL({str(library)!r})\nfrom torchport.record import reference\n"
        "print(json.dumps(reference.describe_npu_use()))"
    )
    assert python(code) == f"it loaded {library}"


@pytest.mark.processes
def test_another_backend_in_torch_is_told() -> None:
    code = (
        "import json, torch\nfrom torchport.record import reference\nbefore = reference.describe_npu_use()\n"
        "torch.utils.rename_privateuse1_backend('toy')\nprint(json.dumps([before, reference.describe_npu_use()]))"
    )
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == ["", "it gave torch the backend toy"]


def test_environment_has_nothing_of_an_npu(tmp_path: Path) -> None:
    cann, mine = tmp_path / "cann", tmp_path / "mine"
    for folder in (cann / "lib64", cann / "python/site-packages", mine):
        folder.mkdir(parents=True)
    other = tmp_path / "other"  # a second CANN, known by its library only
    other.mkdir()
    (other / "libascendcl.so").touch()
    given = {
        "ASCEND_HOME_PATH": str(cann),
        "ASCEND_OPP_PATH": f"{cann}/opp",
        "ASCEND_RT_VISIBLE_DEVICES": "0",
        "TOOLCHAIN_HOME": f"{cann}/toolkit",
        "LD_LIBRARY_PATH": f"{vnpu.library_directory()}:{mine}:{cann}/lib64:{other}",
        "PYTHONPATH": f"{cann}/python/site-packages:{mine}",
        "PATH": "/usr/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        **{row.name: "1" for row in VARIABLES if row.name.startswith("VNPU_")},
        "TORCHPORT_BACKEND": "vnpu",
    }
    kept = dict(given)
    assert reference.make_reference_environment(given) == {
        "LD_LIBRARY_PATH": str(mine),
        "PYTHONPATH": str(mine),
        "PATH": "/usr/bin",
        "CUDA_VISIBLE_DEVICES": "",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    assert given == kept


def test_search_path_that_had_nothing_else_is_gone() -> None:
    assert "LD_LIBRARY_PATH" not in reference.make_reference_environment(
        {"LD_LIBRARY_PATH": str(vnpu.library_directory())}
    )


def test_a_launcher_sees_a_device_for_each_process() -> None:
    assert reference.make_reference_environment({}, 2)["TORCHPORT_REFERENCE_DEVICES"] == "2"
    assert "TORCHPORT_REFERENCE_DEVICES" not in reference.make_reference_environment({}, 1)


def test_environment_of_the_backend_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `vnpu env` gives a shell leaves nothing in a reference that is started from it."""
    before = {"PATH": "/usr/bin", "HOME": "/root"}
    after = {**before, **vnpu.environment(before)}
    assert after != before
    gone = {"TORCH_DEVICE_BACKEND_AUTOLOAD", "CUDA_VISIBLE_DEVICES"}
    assert {k: v for k, v in reference.make_reference_environment(after).items() if k not in gone} == before
