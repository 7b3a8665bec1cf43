"""Stand-ins are found at import time, leave no trace when uninstalled, and explain what has none."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from torchport import standins
from torchport.knowledge.libraries import Support, load_libraries
from torchport.standins import finder


@pytest.fixture
def installed() -> Iterator[None]:
    before = list(sys.meta_path)
    standins.install()
    yield
    standins.uninstall()
    assert sys.meta_path == before


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path for packages that are `installed`."""
    monkeypatch.syspath_prepend(tmp_path)
    finder._is_ascend_build.cache_clear()
    yield tmp_path
    finder._is_ascend_build.cache_clear()


def test_names_are_those_of_the_folder() -> None:
    assert {"amp_C", "apex", "apex_C", "flash_attn", "nvtx", "pynvml", "xformers"} <= standins.names()


def test_knowledge_says_which_there_are() -> None:
    served = {name: library for name, library in load_libraries().items() if library.stand_in}
    assert served.keys() == standins.names()
    assert all("`torchport run` brings a stand-in" in library.note for library in served.values())


@pytest.mark.usefixtures("installed")
def test_installing_twice_is_installing_once() -> None:
    before = list(sys.meta_path)
    standins.install()
    assert sys.meta_path == before


def test_stand_in_goes_before_an_installed_package_and_leaves(folder: Path) -> None:
    (folder / "apex_C.py").write_text("REAL = True")
    standins.install()
    spec = importlib.util.find_spec("apex_C")
    assert spec is not None and spec.origin == str(finder.PACKAGES / "apex_C.py")
    standins.uninstall()
    assert importlib.import_module("apex_C").REAL
    standins.uninstall()
    assert "apex_C" in sys.modules, "an installed package is not ours to forget"
    del sys.modules["apex_C"]


@pytest.mark.usefixtures("installed")
def test_who_probes_for_a_library_learns_that_it_is_not_installed() -> None:
    """transformers looks up the distribution of a package that it finds: `packages_distributions()["flash_attn"]`."""
    for name in standins.names():
        known = importlib.util.find_spec(name) is None or PathFinder.find_spec(name) is not None
        assert known or name in sys.modules, name
    assert importlib.import_module("xformers").__path__ == [str(finder.PACKAGES / "xformers")]
    assert importlib.util.find_spec("xformers") is not None, "what is imported is there"


@pytest.mark.usefixtures("installed")
def test_an_ascend_build_is_used_as_it_is(folder: Path) -> None:
    package = folder / "apex"
    (package / "optimizers").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    spec = importlib.util.find_spec("apex")
    assert spec is not None and finder.PACKAGES in Path(str(spec.origin)).parents
    finder._is_ascend_build.cache_clear()
    (package / "optimizers/npu_fused_sgd.py").write_text("")
    spec = importlib.util.find_spec("apex")
    assert spec is not None and spec.origin == str(package / "__init__.py")


@pytest.mark.processes
@pytest.mark.usefixtures("installed")
def test_submodule_that_a_stand_in_lacks_is_not_found() -> None:
    code = "from torchport import standins; standins.install(); import apex_C.kernels"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr.endswith("ModuleNotFoundError: No module named 'apex_C.kernels'; 'apex_C' is not a package\n")


ABSENT = ("bitsandbytes", "colossalai", "bmtrain", "grouped_gemm", "mmcv")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ABSENT)
def test_absent_package_says_what_to_use_instead(name: str) -> None:
    row = load_libraries()[name]
    with pytest.raises(ModuleNotFoundError) as raised:
        importlib.import_module(name)
    assert str(raised.value).startswith(f"No module named {name!r}. On an NPU: {row.note}")
    assert raised.value.name == name
    assert importlib.util.find_spec(name) is None, "who probes for a package must find it absent, not broken"


@pytest.mark.usefixtures("installed")
def test_package_that_works_or_is_unknown_is_simply_absent() -> None:
    known = next(name for name, row in load_libraries().items() if row.status is Support.WORKS and name == "mmengine")
    for name in (known, "no_such_package"):
        with pytest.raises(ModuleNotFoundError, match=f"^No module named '{name}'$"):
            importlib.import_module(name)


@pytest.mark.usefixtures("installed")
def test_explained_package_is_imported_where_it_is_installed(folder: Path) -> None:
    (folder / "bmtrain.py").write_text("REAL = True")
    assert importlib.import_module("bmtrain").REAL
    del sys.modules["bmtrain"]


@pytest.mark.parametrize("module", ["torchport.standins", "torchport.amp"])
def test_rooms_are_light(module: str) -> None:
    code = f"import sys, {module}; print([name for name in ('torch', 'numpy', 'apex') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_stand_ins_without_torch_are_not_imported_by_installing() -> None:
    code = "from torchport import standins; import sys; standins.install(); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
