"""The word that `torchport port` gives for scripts whose library looks for the NPU by itself.

With torch_npu installed, transformers, diffusers and accelerate import it and choose the NPU, in the reference, too, if
nothing keeps them from it; lightning knows no NPU at all.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCRIPTS = sorted(Path(__file__).with_name("data").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_port_holds(script: Path, port) -> None:
    ended = port(script)
    assert ended.stdout.startswith("{"), ended.stderr
    data = json.loads(ended.stdout)["data"]
    assert data["verdict"] == "holds", data["reason"]
    assert ended.returncode == 0


def test_every_library_has_a_script() -> None:
    assert {script.stem for script in SCRIPTS} == {"acc", "lit", "sd_train", "trainer", "trainer2"}
