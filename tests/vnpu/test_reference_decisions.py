"""A CUDA script and its port decide alike: the reference answers what scripts ask as the NPU answers the port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from torchport.record import port_side, reference

DATA = Path(__file__).with_name("data")
QUERIES = DATA / "device_queries.py"

# Where the two cannot be alike, with the reference's answer and the port's.
GPU_ONLY = {
    # The original finds them, the NPU has none: a port that branches on them takes another branch on hardware too.
    "backends cudnn": (True, False),
    "backends cuda": (True, False),
    # torch_npu 2.13 says None; the converter reports the call.
    "cuda capability": (True, "TypeError"),
    "cuda capability of 0": (True, "TypeError"),
    "cuda major": (True, "TypeError"),
    # Tensors of the reference are the CPU's, and say so.
    "tensor is cuda": (False, True),
    "tensor is cpu": (True, False),
    "tensor type on device": (False, True),
}

RUN_REFERENCE = """
import runpy, sys
from torchport.on_import import after_import
from torchport.record import reference
reference.hide_npu()
after_import("torch", reference.apply_reference_patches)
runpy.run_path(sys.argv[1], run_name="__main__")
assert reference.describe_npu_use() == "", reference.describe_npu_use()
"""


def answers(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout[run.stdout.index("{") :])
    return found


def execute(*words: object, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def original() -> dict[str, Any]:
    return answers(execute("-c", RUN_REFERENCE, QUERIES, environment=reference.make_reference_environment(os.environ)))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("port") / "out"
    converted = execute("-m", "torchport", "convert", QUERIES, "-o", folder, environment=os.environ)
    assert (folder / QUERIES.name).exists(), converted.stderr
    return answers(execute(folder / QUERIES.name, environment=port_side.make_port_environment(os.environ)))


def test_decisions_are_equal(original: dict[str, Any], port: dict[str, Any]) -> None:
    assert original.keys() == port.keys()
    different = {name: (original[name], port[name]) for name in original if original[name] != port[name]}
    assert different == GPU_ONLY


def test_questions_are_answered(original: dict[str, Any]) -> None:
    assert len(original) > 60
    assert {name for name, answer in original.items() if str(answer).endswith("Error")} == {"capability"}
    assert original["cuda is available"] is original["accelerator is available"] is True


def test_without_the_pretence_they_are_not(port: dict[str, Any]) -> None:
    plain = answers(execute(QUERIES, environment=reference.make_reference_environment(os.environ)))
    different = {name for name in port if plain[name] != port[name]}
    assert len(different - GPU_ONLY.keys()) > 20


@pytest.mark.ports
def test_accelerator_script_trains_alike(tmp_path: Path) -> None:
    """A script in the style of PyTorch's examples: its data order hangs on `torch.accelerator`."""
    script = DATA / "accelerator_script.py"
    ours = answers(execute("-c", RUN_REFERENCE, script, environment=reference.make_reference_environment(os.environ)))
    theirs = answers(execute(script, environment=os.environ))  # it names no CUDA: there is nothing to convert
    plain = answers(execute(script, environment=reference.make_reference_environment(os.environ)))
    assert ours["shuffled"] is theirs["shuffled"] is True
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-5)
    assert plain["losses"] != pytest.approx(theirs["losses"], rel=1e-2)


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.ports), 3])
def test_there_are_as_many_devices_as_processes(processes: int) -> None:
    code = "import torch; print({'devices': torch.accelerator.device_count()})"
    local = {"LOCAL_WORLD_SIZE": str(processes)}
    theirs = execute("-c", code, environment={**port_side.make_port_environment(os.environ, processes), **local})
    pretend = (
        "import torch\nfrom torchport.record import reference\npatches = reference.apply_reference_patches(torch)\n"
    )
    ours = execute("-c", pretend + code, environment={**reference.make_reference_environment(os.environ), **local})
    assert ours.stdout.strip() == f"{{'devices': {processes}}}", ours.stderr
    assert theirs.stdout.strip().endswith(ours.stdout.strip()), theirs.stderr


def test_visible_devices_are_kept() -> None:
    def visible(given: str, processes: int) -> str:
        return port_side.make_port_environment({"ASCEND_RT_VISIBLE_DEVICES": given}, processes)[
            "ASCEND_RT_VISIBLE_DEVICES"
        ]

    assert visible("5,2,7", 2) == "5,2"
    assert visible("5", 2) == "5"
    assert visible("", 2) == "0,1"


def test_reference_that_imports_torch_npu_is_told() -> None:
    code = (
        "from torchport.record import reference\nassert reference.describe_npu_use() == ''\nimport torch_npu\n"
        "print(reference.describe_npu_use())"
    )
    run = execute("-c", code, environment=os.environ)
    assert run.stdout.strip().endswith("it imported torch_npu"), run.stderr


def test_hidden_torch_npu_is_not_installed() -> None:
    code = (
        "from torchport.record import reference\nreference.hide_npu()\n"
        "import importlib.metadata as metadata, importlib.util as util\n"
        "assert util.find_spec('torch_npu') is None\n"
        "try: metadata.version('torch_npu')\nexcept metadata.PackageNotFoundError: pass\nelse: raise SystemExit(1)\n"
        "import torch\n"  # its autoload finds no backend, though it may look
        "try: import torch_npu\nexcept ModuleNotFoundError: print('absent', reference.describe_npu_use())"
    )
    run = execute("-c", code, environment={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"})
    assert (run.returncode, run.stdout) == (0, "absent \n"), run.stderr
