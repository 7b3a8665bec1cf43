"""Scripts that use other people's libraries, each run by `torchport run` in a process of its own.

`make libraries` installs the libraries into build/libraries, where nothing else sees them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.convert import convert_source

SITE = Path(__file__).with_name("site")
LIBRARIES = Path(__file__).parents[2] / "build" / "libraries"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run(text, *options)`: the script `text` under `torchport run`; it must end well."""

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "train.py"
        script.write_text(text)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{SITE}{os.pathsep}{LIBRARIES}",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "HCCL_CONNECT_TIMEOUT": "120",
        }
        command = [sys.executable, "-m", "torchport", "run", *options, str(script)]
        ended = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    return run


@pytest.fixture
def plain(tmp_path: Path) -> Callable[[str, bool], subprocess.CompletedProcess[str]]:
    """`plain(text, converted)`: the script, converted or as it is, under plain Python with the virtual NPU's
    environment; it must end well."""

    def run(text: str, converted: bool) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "train.py"
        script.write_bytes(convert_source(text.encode(), script.name).output if converted else text.encode())
        environment = {
            **os.environ,
            **vnpu.environment({**os.environ, "TORCHPORT_BACKEND": "vnpu"}),
            "PYTHONPATH": f"{SITE}{os.pathsep}{LIBRARIES}",
            "OMP_NUM_THREADS": "1",
        }
        ended = subprocess.run(
            [sys.executable, str(script)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    return run
