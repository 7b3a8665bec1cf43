"""Modules that import everything of each other: a name is looked for once in each."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import preview_tree
from torchport.source.outside import Outside


def test_star_imports_in_a_circle_are_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "act" / "torch"  # called as torch is, like BigVGAN's alias_free_activation/torch
    package.mkdir(parents=True)
    parts = [f"part{number}" for number in range(6)]
    (package / "__init__.py").write_text("".join(f"from .{name} import *\n" for name in parts))
    for name in parts:
        others = "".join(f"from .{other} import *\n" for other in parts if other != name)
        (package / f"{name}.py").write_text(
            f"import torch\n{others}def f(x):\n    return torch.nn.functional.relu(x.cuda())\n"
        )
    (tmp_path / "act" / "__init__.py").write_text("")
    (tmp_path / "main.py").write_text("from act.torch import make\nmodel = make().cuda()\n")
    asked: list[str] = []
    before = Outside.locate_name

    def count(self: Outside, importer: str, name: str, *, installed: bool = True) -> object:
        asked.append(name)
        return before(self, importer, name, installed=installed)

    monkeypatch.setattr(Outside, "locate_name", count)
    monkeypatch.setattr("torchport.convert.pool.Pool.run", run_in_this_process)
    assert preview_tree(tmp_path).findings
    assert 0 < len(asked) < 20_000  # millions, when each way was followed


def run_in_this_process(pool, files, task, lost):  # type: ignore[no-untyped-def]
    return [task(path, name, pool._project) for path, name in files]
