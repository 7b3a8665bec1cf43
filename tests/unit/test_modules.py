"""Which files belong to a script, and which that it imported were not converted."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from torchport.convert.project import list_convertible_files
from torchport.port.configurations import find_configurations
from torchport.port.modules import find_project_files, find_root
from torchport.port.unconverted import find_unconverted
from torchport.source.project import project_root
from torchport.source.settings import settings_of


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def names(
    folder: Path, script: str, *, module: bool = False, follow: bool = True, path: Sequence[str] = ()
) -> list[str]:
    found = find_project_files(folder / script, module=module, folder=folder, follow=follow, path=path)
    return [file.relative_to(folder).as_posix() for file in found]


@pytest.mark.parametrize(
    ("mark", "script", "root"),
    [
        (".git", "a/b/train.py", ""),
        ("a/pyproject.toml", "a/b/train.py", "a"),
        (None, "a/b/train.py", "a/b"),
        (".git", "a", ""),
        (".git", ".venv/lib/python3.11/site-packages/pkg/train.py", ".venv/lib/python3.11/site-packages/pkg"),
        (".git", "site-packages/pkg/sub/train.py", "site-packages/pkg"),
    ],
)
def test_the_root_of_a_project(tmp_path: Path, mark: str | None, script: str, root: str) -> None:
    write(tmp_path, {f"{script}/x" if script == "a" else script: ""})
    if mark:
        write(tmp_path, {mark: ""})
    assert project_root(tmp_path / script) == tmp_path / root


MINGPT = {
    "projects/adder/adder.py": "from mingpt.model import GPT\nfrom mingpt.trainer import Trainer\nimport local\n",
    "projects/adder/local.py": "",
    "mingpt/__init__.py": "",
    "mingpt/model.py": "from mingpt.utils import Node\nimport json\n",
    "mingpt/trainer.py": "from . import bpe\n",
    "mingpt/utils.py": "",
    "mingpt/bpe.py": "",
    "mingpt/unused.py": "import torch\n",
}
OF_MINGPT = {
    "projects/adder/adder.py",
    "projects/adder/local.py",
    "mingpt/__init__.py",
    "mingpt/model.py",
    "mingpt/trainer.py",
    "mingpt/utils.py",
    "mingpt/bpe.py",
}


def test_a_library_in_the_root_of_the_project(tmp_path: Path) -> None:
    write(tmp_path, {**MINGPT, ".git/HEAD": ""})
    found = names(tmp_path, "projects/adder/adder.py")
    assert found[0] == "projects/adder/adder.py"
    assert set(found) == OF_MINGPT
    assert len(found) == len(set(found))


def test_without_a_project_only_the_folder_of_the_script(tmp_path: Path) -> None:
    write(tmp_path, MINGPT)
    assert set(names(tmp_path, "projects/adder/adder.py")) == {"projects/adder/adder.py", "projects/adder/local.py"}
    # A folder that PYTHONPATH names and that the script lies in is the user's own; another may be a library's.
    assert "mingpt/model.py" in names(tmp_path, "projects/adder/adder.py", path=["."])
    (tmp_path / "other").mkdir()
    (tmp_path / "mingpt").rename(tmp_path / "other" / "mingpt")
    assert "other/mingpt/model.py" not in names(tmp_path, "projects/adder/adder.py", path=["other"])


def test_not_following(tmp_path: Path) -> None:
    write(tmp_path, {**MINGPT, ".git/HEAD": ""})
    assert names(tmp_path, "projects/adder/adder.py", follow=False) == ["projects/adder/adder.py"]


def test_a_library_on_the_path(tmp_path: Path) -> None:
    library = {"app/train.py": "import mylib\n", "lib/mylib/__init__.py": "", "pyproject.toml": ""}
    write(tmp_path, library)
    assert names(tmp_path, "app/train.py") == ["app/train.py"]
    for entry in ("lib", str(tmp_path / "lib")):
        assert names(tmp_path, "app/train.py", path=["", entry]) == ["app/train.py", "lib/mylib/__init__.py"]


def test_what_is_installed_does_not_belong(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"train.py": "import a, b\n", "pyproject.toml": "", "venv/lib/a.py": "", "deps/site-packages/b.py": ""},
    )
    assert names(tmp_path, "train.py", path=["venv/lib", "deps/site-packages"]) == ["train.py"]


@pytest.mark.parametrize("place", ["site-packages", "packages"])
def test_a_module_of_an_installed_package_finds_the_others_of_its_package(tmp_path: Path, place: str) -> None:
    """`python -m open_clip_train.main`: the device is chosen in open_clip_train/distributed.py. torchtitan and pandas in
    one folder of `pip install --target` are two projects."""
    files = {
        f"{place}/pkg/__init__.py": "",
        f"{place}/pkg/sub/__init__.py": "",
        f"{place}/pkg/sub/main.py": "from pkg.distributed import device\nimport other, more\n",
        f"{place}/pkg/distributed.py": "",
    }
    write(
        tmp_path, files | {f"{place}/{name}": "" for name in ("other.py", "more/__init__.py", "pkg-1.dist-info/RECORD")}
    )
    for path in ([], [place]):
        assert set(names(tmp_path, f"{place}/pkg/sub/main.py", module=True, path=path)) == files.keys()


def test_packages_of_a_target_folder_inside_a_project_do_not_belong(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import a\n", "pyproject.toml": "", "deps/a.py": "", "deps/a-1.dist-info/RECORD": ""})
    assert names(tmp_path, "train.py", path=["deps"]) == ["train.py"]


def test_a_package_that_is_started_as_a_module(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/sub/__init__.py": "from .. import setup\n",
        "pkg/sub/train.py": "from ..model import net\nfrom . import other\nimport beside, helper\n",
        "pkg/sub/other.py": "",
        "pkg/sub/beside.py": "",
        "pkg/model.py": "",
        "pkg/setup.py": "",
        "helper.py": "",
        ".git/HEAD": "",
    }
    write(tmp_path, files)
    found = names(tmp_path, "pkg/sub/train.py", module=True)
    assert found[0] == "pkg/sub/train.py"
    assert set(found) == {
        "pkg/__init__.py",
        "pkg/sub/__init__.py",
        "pkg/sub/train.py",
        "pkg/sub/other.py",
        "pkg/model.py",
        "pkg/setup.py",
        "helper.py",
    }


def test_the_script_s_folder_comes_before_the_project(tmp_path: Path) -> None:
    write(tmp_path, {"app/train.py": "import utils\n", "app/utils.py": "", "utils.py": "", "pyproject.toml": ""})
    assert names(tmp_path, "app/train.py") == ["app/train.py", "app/utils.py"]


def test_notebooks_and_names_in_calls(tmp_path: Path) -> None:
    cell = '{"cells": [{"cell_type": "code", "source": ["%matplotlib inline\\n", "import a"]}]}'
    write(tmp_path, {"nb.ipynb": cell, "a.py": "import importlib\nimportlib.import_module('b')\n", "b.py": "("})
    assert set(names(tmp_path, "nb.ipynb")) == {"nb.ipynb", "a.py", "b.py"}


LIBRARY = """'''Chooses cuda where it is there.'''
import torch
# cuda first
def device():
    return "cuda" if torch.cuda.is_available() else "cpu"
"""


def test_a_module_that_was_not_converted_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"lib/choice.py": LIBRARY, "lib/plain.py": "import torch\nx = torch.ones(2)\n"})
    files = [tmp_path / "lib" / "choice.py", tmp_path / "lib" / "plain.py", tmp_path / "gone.py"]
    (mention,) = find_unconverted(files, set())
    assert (mention.path, mention.line, mention.changes) == (str(tmp_path / "lib" / "choice.py"), 5, True)
    assert "cuda" in mention.why
    assert find_unconverted(files, {tmp_path / "lib" / "choice.py"}) == []


def test_what_the_converter_leaves_and_names_cuda(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "'''On cuda only.'''\nimport cupy_cuda\n", "b.py": "# a word on cuda\nx = 1\n"})
    (mention,) = find_unconverted([tmp_path / "a.py", tmp_path / "b.py"], set())
    assert (Path(mention.path).name, mention.line, mention.why, mention.changes) == (
        "a.py",
        2,
        "it names cupy_cuda",
        False,
    )


@pytest.mark.parametrize(
    "place", ["venv/lib/python3.11/site-packages/lib/a.py", "usr/lib/python3/dist-packages/a.py", "target/lib/sub/a.py"]
)
def test_installed_packages_are_not_the_user_s(tmp_path: Path, place: str) -> None:
    write(tmp_path, {place: LIBRARY, "target/lib-1.0.dist-info/METADATA": "", "own/a.py": LIBRARY})
    found = find_unconverted([tmp_path / place, tmp_path / "own" / "a.py"], set())
    assert [Path(mention.path).relative_to(tmp_path).as_posix() for mention in found] == ["own/a.py"]


def test_python_s_and_torchport_s_own_files_are_not_the_user_s() -> None:
    import torchport

    own = Path(torchport.__file__).parent
    library = Path(sysconfig.get_path("stdlib"))
    files = [*own.rglob("*.py"), *library.glob("*.py")]
    assert len(files) > 200
    assert find_unconverted(files, set()) == []


def test_what_earlier_ports_left_is_not_the_projects(tmp_path):
    left = tmp_path / "torchport-out" / "train" / "convert" / "tree"
    left.mkdir(parents=True)
    for folder in (tmp_path, left):
        (folder / "train.py").write_text("import torch\n")
    assert [name for _, name in list_convertible_files(tmp_path, settings_of(tmp_path))] == ["train.py"]
    assert [name for _, name in list_convertible_files(left, settings_of(left))] == ["train.py"]


CONFIGURED = {
    "train.py": "import argparse, os\nimport lib\np = argparse.ArgumentParser()\n"
    "p.add_argument('--config', default='configs/base.yaml')\nopen(os.path.join('settings', 'one.toml'))\n",
    "lib/__init__.py": "DEFAULTS = 'defaults.json'\n",
    "lib/defaults.json": '{"device": "cuda"}\n',
    "configs/base.yaml": "device: cuda:0\n",
    "configs/other.yaml": "device: cuda\n",
    "settings/one.toml": 'backend = "nccl"\n',
    "given.cfg": "device = cuda\n",
    "words.json": '["cuda", "barracuda"]\n',
    ".venv/installed.yaml": "device: cuda\n",
}


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        ([], []),
        (["--config=configs/other.yaml"], ["configs/other.yaml"]),
        (
            ["--config", "given.cfg", "words.json", "absent.yaml", ".venv/installed.yaml", "../beside.yaml"],
            ["given.cfg"],
        ),
    ],
)
def test_the_configurations_that_a_command_names(tmp_path: Path, arguments: list[str], more: list[str]) -> None:
    place = tmp_path / "project"
    write(place, CONFIGURED)
    write(tmp_path, {"beside.yaml": "device: cuda\n"})
    sources = [place / "train.py", place / "lib" / "__init__.py"]
    found = find_configurations(sources, arguments, place, place)
    always = ["configs/base.yaml", "lib/defaults.json", "settings/one.toml"]
    assert sorted(path.relative_to(place).as_posix() for path in found) == sorted([*always, *more])


def test_the_configurations_of_hydra(tmp_path: Path) -> None:
    text = "import hydra\n@hydra.main(config_path='conf', config_name='config')\ndef main(c): ...\n"
    write(tmp_path, {"train.py": text, "conf/config.yaml": "lr: 1\n", "conf/model/big.yaml": "device: cuda\n"})
    found = find_configurations([tmp_path / "train.py"], [], tmp_path, tmp_path)
    assert found == [tmp_path / "conf" / "model" / "big.yaml"]


TCN = {
    "tcn/copy/task.py": "import sys\nsys.path.append('../../')\nfrom tcn.model import TCN\nimport data\n",
    "tcn/copy/data.py": "",
    "tcn/model.py": "import torch\n",
    "other/unused.py": "",
}
ADDITIONS = {
    "sys.path.append('../../')": True,
    "sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', os.pardir))": True,
    "here = Path(__file__).resolve()\nsys.path.insert(0, str(here.parent.parent.parent))": True,
    "sys.path += [str(Path(__file__).resolve().parents[2])]": True,
    "sys.path.extend((os.getcwd() + '/../..', 'nowhere'))": True,
    "sys.path.append(str(Path.cwd().joinpath('..', '..')))": True,
    "sys.path.append('..')": False,  # nothing that is imported lies there
    "sys.path.append(sys.argv[1])": False,
    "sys.path.append(os.environ['ROOT'])": False,
    "a = a\nsys.path.append(a)": False,
    "print('sys.path.append(\"../../\")')": False,
}


@pytest.mark.parametrize(("line", "wider"), ADDITIONS.items())
def test_a_script_that_adds_to_its_path_has_a_wider_project(tmp_path: Path, line: str, wider: bool) -> None:
    write(tmp_path, TCN | {"tcn/copy/task.py": f"import os, sys\n{line}\nfrom tcn.model import TCN\nimport data\n"})
    script, folder = tmp_path / "tcn/copy/task.py", tmp_path / "tcn/copy"
    found = find_project_files(script, module=False, folder=folder, follow=True, path=())
    assert find_root(script, folder) == (tmp_path if wider else folder)
    assert {file.name for file in found} == ({"task.py", "data.py", "model.py"} if wider else {"task.py", "data.py"})


@pytest.mark.parametrize(("module", "path"), [(False, ".."), (False, "ABOVE"), (True, "")])
def test_modules_by_pythonpath_and_of_python_m_are_the_projects(tmp_path: Path, module: bool, path: str) -> None:
    write(
        tmp_path,
        {"p/lib/net.py": "", "p/work/train.py": "from lib.net import Net\nimport data\n", "p/work/data.py": ""},
    )
    script, folder = tmp_path / "p/work/train.py", tmp_path / ("p" if module else "p/work")
    entries = [path.replace("ABOVE", str(tmp_path / "p"))] if path else []
    found = find_project_files(script, module=module, folder=folder, follow=True, path=entries)
    assert {file.name for file in found} == {"train.py", "net.py"} | (set() if module else {"data.py"})


def test_a_marked_project_is_not_widened_but_its_own_folders_are_looked_in(tmp_path: Path) -> None:
    files = {"p/.git/x": "", "p/lib/net.py": "", "outside.py": ""}
    files["p/t/train.py"] = "import sys\nsys.path += ['../lib', '../..']\nimport net, outside\n"
    write(tmp_path, files)
    script = tmp_path / "p/t/train.py"
    found = find_project_files(script, module=False, folder=script.parent, follow=True, path=())
    assert [file.name for file in found] == ["train.py", "net.py"]
    assert find_root(script, script.parent) == tmp_path / "p"


def test_texts_that_no_file_system_takes_as_a_name(tmp_path: Path) -> None:
    """Characters of several bytes, of which a name may have 255; a folder within a file."""
    rules = "─━│┃" * 40
    write(
        tmp_path,
        {"train.py": f"a = '{rules}'\nb = 'train.py/configs'\nc = 'base.yaml'\n", "base.yaml": "device: cuda\n"},
    )
    assert find_configurations([tmp_path / "train.py"], [], tmp_path, tmp_path) == [tmp_path / "base.yaml"]
