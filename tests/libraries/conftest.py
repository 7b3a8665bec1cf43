"""Scripts that use other people's libraries, each under torchport in a process of its own.

`make libraries` installs the libraries into build/libraries, where nothing else sees them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.convert import convert_source

LIBRARIES = Path(__file__).parents[2] / "build" / "libraries"


def environment(folder: Path, *before: Path, virtual_npu: bool = False) -> dict[str, str]:
    """The variables of a process: the libraries behind the folders `before`, no network, a place in `folder` for the settings
    they keep, and the virtual NPU where plain Python is to find it."""
    return {
        **os.environ,
        **(vnpu.environment({**os.environ, "TORCHPORT_BACKEND": "vnpu"}) if virtual_npu else {}),
        "PYTHONPATH": os.pathsep.join(map(str, (*before, LIBRARIES))),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "YOLO_CONFIG_DIR": str(folder / "settings"),
        "MPLCONFIGDIR": str(folder / "settings"),
        "HCCL_CONNECT_TIMEOUT": "120",
    }


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run(text, *options)`: the script `text` under `torchport run`; it must end well."""

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "train.py"
        script.write_text(text)
        command = [sys.executable, "-m", "torchport", "run", *options, str(script)]
        ended = torchport(command, tmp_path)
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
        ended = subprocess.run(
            [sys.executable, str(script)],
            env=environment(tmp_path, virtual_npu=True),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    return run


@pytest.fixture
def port(tmp_path: Path) -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """`port(script)`: a copy of it under `torchport port --json`."""

    def port(script: Path) -> subprocess.CompletedProcess[str]:
        shutil.copy(script, tmp_path)
        return torchport([sys.executable, "-m", "torchport", "port", "--json", script.name], tmp_path)

    return port


def torchport(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment(folder), cwd=folder, capture_output=True, text=True, check=False, timeout=500
    )
