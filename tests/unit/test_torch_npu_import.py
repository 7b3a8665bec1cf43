"""Which files of a project import torch_npu: those that are started, and those that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import convert_tree
from torchport.source.definitions import definitions

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
        ({"one.py": CUDA, "two.py": CUDA + "D = torch.device('cuda')\n"}, {"two.py"}),
        ({"one.py": CUDA, "test_two.py": CUDA}, {"test_two.py"}),
        ({"one.py": CUDA, "two.py": CUDA + "ok = torch.cuda.is_available()\n"}, {"two.py"}),
        ({"train.py": "import b\n", "b.py": "import torch\nfrom torch import cuda\n"}, {"b.py"}),
    ],
)  # fmt: skip
def test_who_imports_torch_npu(tmp_path: Path, files: dict[str, str], expected: set[str]) -> None:
    assert imports(tmp_path, files) == expected


def test_a_project_says_what_it_imports() -> None:
    project = definitions([b"import a.b, c as d\nfrom .e import f\n  from . import g, h\n# import i\n"])
    assert project.imported >= {"a", "b", "c", "e", "g", "h"}
    assert not {"f", "i"} & project.imported
    assert project.is_imported("x/e.py")
    assert project.is_imported("x/a/__init__.py")
    assert not project.is_imported("e/x.py")
