"""Which of the files that lead to CUDA through others have to be looked at: those that may be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import inspection
from torchport.convert.inspection import inspect_source
from torchport.convert.tree import convert_project
from torchport.rules import Style
from torchport.source.definitions import Definitions

MODEL = "import torch\n\ndef make():\n    return torch.ones(1).cuda()\n"
STARTED = [
    "from model import make\nmake()\n",
    "import model\nx = model.make()\n",
    "import model; model.make()\n",
    "import model\nmakers = [model.make]\nmakers[0]()\n",
    "from model import make\nfor _ in range(3):\n    make()\n",
    "#!/usr/bin/env python\nfrom model import make\ndef main():\n    make()\n",
    "from model import make\ndef main():\n    make()\nif __name__ == '__main__':\n    main()\n",
    "from model import make\ndef main():\n    make()\nif (\n    __name__\n    == '__main__'\n):\n    main()\n",
]
OF_OTHERS = [
    "from model import make\ndef more():\n    return make()\n",
    "import logging\nfrom model import make\nlogger = logging.getLogger(__name__)\nclass A:\n    x = make\n",
    "'''Prose = with (calls).'''\nfrom model import make\n\n@make\ndef f():\n    for _ in (1, 2):\n        make()\n",
]


@pytest.mark.parametrize("text", STARTED)
def test_what_may_be_started_gets_the_import(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "start.py").write_text(text)
    (start,) = (one for one in convert_project(tmp_path, Style.NPU) if one.name == "start.py")
    assert b"import torch_npu" in start.output


@pytest.mark.parametrize("text", OF_OTHERS)
def test_what_is_a_module_of_others_is_not_parsed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Definitions(leading=frozenset({"other.py"}))
    parsed: list[str] = []
    monkeypatch.setattr(inspection, "parse_module", lambda path, *more: parsed.append(path))
    assert inspect_source(text.encode(), "other.py", Style.NPU, project) == () and not parsed


def test_a_file_with_relative_imports_is_not_started_by_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "package/model.py").write_text(MODEL)
    for relative in (True, False):
        origin = ".model" if relative else "package.model"
        (tmp_path / "package/part.py").write_text(f"#!/usr/bin/env python\nfrom {origin} import make\n")
        (part,) = (one for one in convert_project(tmp_path, Style.NPU) if one.name == "package/part.py")
        assert part.changed != relative


def test_a_module_of_python_is_not_taken_for_a_folder_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "package/logging").mkdir(parents=True)
    for name in ("package/__init__.py", "package/logging/__init__.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "package/model.py").write_text(MODEL)
    (tmp_path / "start.py").write_text("import logging\nimport os\nfrom package.model import make\nmake()\n")
    (start,) = (one for one in convert_project(tmp_path, Style.NPU) if one.name == "start.py")
    assert start.output == b"import logging\nimport os\nimport torch_npu\nfrom package.model import make\nmake()\n"
