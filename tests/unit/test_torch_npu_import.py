"""Which files of a project import torch_npu: those that are started, and those that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import convert_tree
from torchport.source.definitions import collect_definitions
from torchport.source.imports import Imports

CUDA = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"


def imports(folder: Path, files: dict[str, str]) -> set[str]:
    for name, text in files.items():
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / name).write_text(text)
    convert_tree(folder / "in", folder / "out")
    converted = {name: (folder / "out" / name).read_text() for name in files}
    assert all(".cuda" not in text for text in converted.values())
    return {name for name, text in converted.items() if "import torch_npu\n" in text}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.py": CUDA}, {"a.py"}),
        ({"train.py": "import torch\nimport model\nx.cuda()\n", "model.py": CUDA}, {"train.py"}),
        ({"train.py": "from pkg.model import f\n", "pkg/__init__.py": "", "pkg/model.py": CUDA}, set()),
        ({"train.py": "from pkg import f\n", "pkg/__init__.py": "from . import (a,\n  b)\n", "pkg/b.py": CUDA}, set()),
        ({"train.py": "from pkg import f\n", "pkg/__init__.py": CUDA}, set()),
        ({"a.py": "import b\n", "b.py": CUDA + "if __name__ == '__main__':\n    f(x)\n"}, {"b.py"}),
        ({"a.py": "import b\n", "b.py": "#!/usr/bin/env python\n" + CUDA}, {"b.py"}),
        ({"a.py": "import b\n", "b.py": "from torch.cuda import Event\n"}, set()),
        ({"a.py": "import b\n", "b.py": "import torch\nx = torch.profiler.ProfilerActivity.CUDA\n"}, {"b.py"}),
        ({"a.py": "# import b\n", "b.py": CUDA + "x.cuda()\n"}, {"b.py"}),
        ({"one.py": CUDA, "two.py": CUDA + "D = torch.device('cuda')\n"}, {"one.py", "two.py"}),
        ({"one.py": CUDA, "test_two.py": CUDA}, {"one.py", "test_two.py"}),
        ({"one.py": CUDA, "two.py": CUDA + "ok = torch.cuda.is_available()\n"}, {"one.py", "two.py"}),
        ({"train.py": "import b\n", "b.py": "import torch\nfrom torch import cuda\n"}, {"b.py"}),
    ],
)
def test_who_imports_torch_npu(tmp_path: Path, files: dict[str, str], expected: set[str]) -> None:
    assert imports(tmp_path, files) == expected


def test_a_project_says_what_it_imports() -> None:
    project = collect_definitions([b"import a.b, c as d\nfrom .e import f\n  from . import g, h\n# import i\n"])
    assert project.imported >= {"a", "b", "c", "e", "g", "h"}
    assert not {"f", "i"} & project.imported
    assert project.is_imported("x/e.py")
    assert project.is_imported("x/a/__init__.py")
    assert not project.is_imported("e/x.py")


LIBRARY = {"lib/__init__.py": "", "lib/net.py": CUDA, "lib/trainer.py": "from lib.net import f\n"}
MAIN = "if __name__ == '__main__':\n    go()\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Started, and names no CUDA itself.
        (
            f"import torch\nfrom lib.trainer import f\n{MAIN}",
            f"import torch\nimport torch_npu\nfrom lib.trainer import f\n{MAIN}",
        ),
        (
            f"import json\nfrom lib import trainer\n{MAIN}",
            f"import json\nimport torch_npu\nfrom lib import trainer\n{MAIN}",
        ),
        (f"import lib.net as n\nimport torch\n{MAIN}", f"import torch_npu\nimport lib.net as n\nimport torch\n{MAIN}"),
        (
            f"try:\n    from lib import net\nexcept ImportError:\n    net = None\n{MAIN}",
            f"import torch_npu\ntry:\n    from lib import net\nexcept ImportError:\n    net = None\n{MAIN}",
        ),
        (f"def go():\n    import lib.net\n{MAIN}", f"import torch_npu\ndef go():\n    import lib.net\n{MAIN}"),
        (
            "from lib.net import f\nfor x in y:\n    f(x)\n",
            "import torch_npu\nfrom lib.net import f\nfor x in y:\n    f(x)\n",
        ),
        ("import lib.net\nlib.net.f(1)\n", "import torch_npu\nimport lib.net\nlib.net.f(1)\n"),
        # Not started, has it already, or uses nothing that needs it.
        ("from lib.trainer import f\n", None),
        (f"import torch_npu\nfrom lib.trainer import f\n{MAIN}", None),
        (f"import lib\n{MAIN}", None),
        (f"import torch\n{MAIN}", None),
        (f"from other.lib import net\n{MAIN}", None),
    ],
)
def test_a_script_whose_library_uses_the_npu(tmp_path: Path, text: str, expected: str | None) -> None:
    for name, content in {**LIBRARY, "projects/adder/main.py": text}.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(content)
    convert_tree(tmp_path / "in", tmp_path / "out")
    out = tmp_path / "out" / "projects" / "adder" / "main.py"
    assert out.read_text() == (text if expected is None else expected)
    convert_tree(tmp_path / "out", tmp_path / "again")
    assert (tmp_path / "again" / "projects" / "adder" / "main.py").read_text() == out.read_text()


def test_a_script_without_a_guard_that_is_no_module_of_others(tmp_path: Path) -> None:
    script = "import torch\nprint(1)\ndef f(x):\n    return x.is_cuda\n"
    files = {"dcgan/main.py": script, "other/main.py": CUDA, "other/run.py": "from main import f\n"}
    assert imports_in(tmp_path, files) == {"dcgan/main.py"}


def imports_in(folder: Path, files: dict[str, str]) -> set[str]:
    for name, text in files.items():
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / name).write_text(text)
    convert_tree(folder / "in", folder / "out")
    return {name for name in files if "import torch_npu\n" in (folder / "out" / name).read_text()}


def test_who_imports_whom() -> None:
    imports = Imports()
    for name, text in {
        "a/b/__init__.py": "",
        "a/b/c.py": "from . import d\nfrom .. import e  # x\nimport json, b.f as g\n",
        "a/b/d.py": "# torch.cuda\n",
        "a/b/f.py": "",
        "a/e.py": "import torch\nx.cuda()\n",
        "a/json.py": "",
        "z/json.py": "",
        "top.py": "from b.c import (\n    thing,  # b.d\n)\nimport a.e\n",
    }.items():
        imports.add_file(name, text.encode())
    edges = imports.find_imports()
    assert edges["a/b/c.py"] == {"a/b/__init__.py", "a/b/d.py", "a/e.py", "a/b/f.py", "a/json.py", "z/json.py"}
    assert edges["top.py"] == {"a/b/__init__.py", "a/b/c.py", "a/e.py"}
    assert imports.find_cuda_importers() == {"a/b/c.py", "top.py"}
    assert "a/b/d.py" in imports.list_imported_files() and "top.py" not in imports.list_imported_files()
