"""What activation does to a process, each time in a process of its own; needs no torch and no device."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


def python(code: str, executable: str = sys.executable, **variables: str) -> str:
    """Run `code` in a fresh Python that sees only `variables`; return its stdout (stderr must be empty)."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **variables}
    result = subprocess.run([executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A folder that passes for the built virtual NPU until something loads its library."""
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libascendcl.so").write_bytes(b"not a library")
    return folder


@pytest.fixture
def fake_torch_npu(tmp_path: Path) -> Path:
    """A torch_npu whose extension is a Python file: enough to see when the libraries are loaded."""
    package = tmp_path / "site" / "torch_npu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from torch_npu import _C\n")
    (package / "_C.py").write_text("")
    return package.parent


# What a program imports in place of apex and its like defines torch modules and optimizers; the process that exports
# a model has nothing else to do, and what computes recorded tensors again is imported for them.
ON_TORCH = (
    "torchport.amp",
    *(
        f"torchport.compare.{name}"
        for name in (
            "aftermath",
            "align",
            "batches",
            "case",
            "classes",
            "collectives",
            "culprit",
            "dumper_files",
            "overwritten",
            "pairs",
            "repeated",
            "replay",
            "tensors",
        )
    ),
    *(f"torchport.export.{name}" for name in ("cases", "checking", "exporting", "external", "frozen", "loading")),
    *(f"torchport.export.{name}" for name in ("npu_", "older_opsets", "places")),
    "torchport.legacy.",
    "torchport.record.on_cpu",  # imported by a script that bisect runs, behind torch
    "torchport.record.operators.",
    "torchport.record.oracles.",
    "torchport.standins.attention",
    "torchport.standins.packages",
)


def test_importing_every_room_is_light() -> None:
    """No package imports torch or loads a library by being imported: packages also run in the user's process."""
    output = python(
        f"""
import sys
from pathlib import Path
import torchport
root = Path(torchport.__file__).parent
for file in sorted(root.rglob("*.py")):
    name = ".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")
    if not all(part.isidentifier() for part in name.split(".")):
        continue  # what lies in a folder of CANN's for MindSpore alone
    if not name.endswith("__main__") and not name.startswith({ON_TORCH}):
        __import__(name)
print([name for name in ("torch", "torch_npu", "numpy", "h5py") if name in sys.modules])
"""
    )
    assert output == "[]\n"


def test_the_activation_imports_little(imports_little: Callable[[str], bool]) -> None:
    assert imports_little("torchport.vnpu")


def test_activate_loads_nothing_before_the_extension(libraries: Path, fake_torch_npu: Path) -> None:
    output = python(
        """
import sys; sys.path.insert(0, sys.argv[1])
import torchport.vnpu
print(torchport.vnpu.activate().kind)
try:
    import torch_npu
except ImportError as error:
    print("libascendcl.so" in str(error), "torchport doctor" in str(error))
""".replace("sys.argv[1]", repr(str(fake_torch_npu))),
        VNPU_LIBRARIES=str(libraries),
    )
    assert output == "vnpu\nTrue True\n"


def test_late_activation_is_refused_with_the_reason(libraries: Path, fake_torch_npu: Path) -> None:
    output = python(
        """
import sys; sys.path.insert(0, sys.argv[1])
import torch_npu, torchport.vnpu
try:
    torchport.vnpu.activate()
except torchport.errors.TorchportError as error:
    print(error.hint)
""".replace("sys.argv[1]", repr(str(fake_torch_npu))),
        VNPU_LIBRARIES=str(libraries),
    )
    assert "before the first `import torch`" in output


def test_children_inherit(libraries: Path) -> None:
    output = python(
        """
import os, subprocess, sys, torchport.vnpu
torchport.vnpu.activate()
child = "import os; print(os.environ['LD_LIBRARY_PATH'])"
print(subprocess.check_output([sys.executable, "-c", child]).decode())
""",
        VNPU_LIBRARIES=str(libraries),
    )
    assert output.strip() == str(libraries)


def test_before_import_acts_once_and_right_before() -> None:
    output = python(
        """
import sys
from torchport.on_import import before_import
others = list(sys.meta_path)  # a .pth file of this environment may wait for something, too
before_import(("wave",), lambda: print("acts", "wave" in sys.modules))
import json
print("json")
import wave
del sys.modules["wave"]
import wave
print(sys.meta_path == others)
"""
    )
    assert output == "json\nacts False\nTrue\n"


@pytest.fixture
def bare_environment(tmp_path: Path) -> Path:
    """A virtual environment that sees torchport through a .pth file, as an editable install makes it."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "__editable__.torchport.pth").write_text(f"{SOURCE}\n")
    return folder


def test_enable_activates_at_torch_disable_removes(bare_environment: Path, libraries: Path) -> None:
    executable = str(bare_environment / "bin/python")
    (site,) = bare_environment.glob("lib/python*/site-packages")
    (site / "torch.py").write_text("")
    show = "import os; before = dict(os.environ); import torch; print(before == dict(os.environ))"

    def run(code: str) -> str:
        return python(code, executable, PYTHONPATH="", VNPU_LIBRARIES=str(libraries))

    assert run(show) == "True\n"
    run("from torchport.vnpu import persistence; persistence.enable(); persistence.enable()")
    assert run(show) == "False\n"
    assert run("import sys; print('torchport.vnpu' in sys.modules)") == "False\n", "nothing before torch"
    assert run("from torchport.vnpu import persistence as p; print(p.disable(), p.disable())") == "True False\n"
    assert run(show) == "True\n"


def test_enabled_environment_survives_the_removal_of_torchport(bare_environment: Path) -> None:
    executable = str(bare_environment / "bin/python")
    (site,) = bare_environment.glob("lib/python*/site-packages")
    python("from torchport.vnpu import persistence; persistence.enable()", executable, PYTHONPATH="")
    (site / "__editable__.torchport.pth").unlink()
    assert python("print('fine')", executable, PYTHONPATH="") == "fine\n"
