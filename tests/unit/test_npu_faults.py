"""Findings for what torch_npu 2.13.0 gets wrong in scripts that are right, and the order of its imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torchport.convert import convert_source

SCALED = """import torch
model = torch.nn.Linear(2, 2).cuda()
scaler = torch.amp.GradScaler("cuda")
"""


def codes(text: str) -> list[str]:
    return [finding.code for finding in convert_source(text.encode(), "train.py").findings]


@pytest.mark.parametrize("name", ["torch.optim.AdamW", "torch.optim.adam.Adam"])
def test_a_fused_optimizer_with_a_scaler_is_found(name: str) -> None:
    assert "TP217" in codes(f"{SCALED}o = {name}(model.parameters(), fused=True)\n")
    assert "TP217" not in codes(f"{SCALED}o = {name}(model.parameters(), fused=False)\n")


def test_a_window_without_a_dtype_is_found() -> None:
    made = convert_source(b"import torch\nw = torch.hann_window(8, device='cuda')\n", "train.py")
    assert (
        made.output
        == b"import torch\nimport torch_npu\nw = torch.hann_window(8, device='npu', dtype=torch.get_default_dtype())\n"
    )
    assert "TP216" in codes("import torch\nw = torch.kaiser_window(8, device='cuda')\n")
    assert "TP216" not in codes("import torch\nw = torch.kaiser_window(8)\nx = w.cuda()\n")


def test_what_waits_for_a_module_that_is_being_imported_comes_at_its_end(tmp_path) -> None:
    """A converted script imports torch_npu first, and that imports torch."""
    (tmp_path / "outer.py").write_text("import inner\nvalue = 1\n")
    (tmp_path / "inner.py").write_text(
        "from torchport.on_import import after_import\n"
        "after_import('outer', lambda module: print('first', module.value))\n"
        "after_import('outer', lambda module: print('second', module.value))\n"
    )
    (tmp_path / "broken.py").write_text(
        "from torchport.on_import import after_import\n"
        "after_import('broken', lambda module: print('never'))\nraise ValueError('broken')\n"
    )
    program = """
import outer
print(type(outer.__spec__).__name__)
try:
    import broken
except ValueError as error:
    print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"src:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.splitlines() == ["first 1", "second 1", "ModuleSpec", "broken"], ended
