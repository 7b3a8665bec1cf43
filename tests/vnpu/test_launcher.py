"""Several processes: `torchport run --nproc`, plain torchrun, and the launcher that a conversion writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.convert import Extras, convert_tree
from torchport.convert.launcher import LAUNCHER, plan_launcher
from torchport.results.used_devices import parse_used_devices
from torchport.rules import Style

SCRIPT = Path(__file__).with_name("data") / "ddp_train.py"
START = Path(vnpu.__file__).parents[1] / "start"
SAYS = "total 3.0 1.0 devices 2\n"


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # torchrun
    given = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    return {**given, **vnpu.environment(given), **more}


def finish(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended


def test_run_starts_the_processes() -> None:
    command = [sys.executable, "-m", "torchport", "run", "--nproc", "auto", "--device-list", "3,1", str(SCRIPT)]
    ended = finish(command)
    assert ended.stdout == SAYS
    assert ended.stderr.count('torch.distributed.init_process_group("nccl") -> "hccl"') == 1  # rank 0 speaks
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("torchport: NPUs used: "))
    uses = parse_used_devices(line) or ()
    names = [(use.rank, [(one.device, one.number) for one in use.devices or ()]) for use in uses]
    assert names == [(0, [("npu:0", "1")]), (1, [("npu:1", "3")])]
    assert " holds " not in ended.stderr


def test_run_warns_of_memory_on_the_first_card(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nimport torch\ntorch.ones(1).cuda()\ntorch.cuda.set_device(int(os.environ['RANK']))\n"
        "for _ in range(2): x = torch.ones(2).cuda()\n"
    )
    ended = finish([sys.executable, "-m", "torchport", "run", "--nproc", "2", str(script)])
    # Copies are no operators.
    idle = "rank 0: npu:0 opened, nothing computed; rank 1: npu:0 opened, nothing computed and npu:1 opened, nothing"
    assert f"torchport: no NPU was used: everything ran on the CPU; {idle} computed\n" in ended.stderr
    assert ended.stderr.count("warning: rank 1 works on npu:1 and holds 2 MiB of npu:0 as well. Call") == 1
    assert "warning: rank 0" not in ended.stderr


def test_torchrun_works_under_activation() -> None:
    variables = {"TORCHPORT_AUTO": "1", "PYTHONPATH": str(START), "ASCEND_RT_VISIBLE_DEVICES": "0,1"}
    ended = finish(["torchrun", "--standalone", "--nproc-per-node=2", str(SCRIPT)], **variables)
    assert ended.stdout == SAYS


@pytest.mark.ports
def test_the_generated_launcher_runs_as_written(tmp_path: Path) -> None:
    result = convert_tree(SCRIPT, tmp_path / "out", Style.NPU, Extras(SCRIPT.name))
    assert result.data["changed"] == [SCRIPT.name]
    place = tmp_path / "out" / LAUNCHER
    plan_launcher(SCRIPT.name).write(place)
    # What the script compares with "nccl" and "cuda" is converted as well.
    ended = finish([str(place)], ASCEND_RT_VISIBLE_DEVICES="0,1", MASTER_PORT=str(_free_port()))
    assert ended.stdout == SAYS


def test_the_generated_launcher_finds_the_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `vnpu env` alone: the devices are no files in /dev."""
    for name in ("NPROC_PER_NODE", "ASCEND_RT_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['WORLD_SIZE'], end='')\n")
    plan_launcher("train.py").write(place := tmp_path / LAUNCHER)
    ended = finish([str(place)], VNPU_DEVICES="3", MASTER_PORT=str(_free_port()))
    assert ended.stdout == "333"


@pytest.mark.ports
def test_a_script_for_one_gpu_runs_on_two_npus(tmp_path: Path) -> None:
    """Only the loader that is trained on is shared out, and each process trains on its own device."""
    script = SCRIPT.with_name("single_card.py")
    convert_tree(script, tmp_path / "out", Style.NPU, Extras(script.name, "net"))
    place = tmp_path / "out" / LAUNCHER
    plan_launcher(script.name).write(place)
    ended = finish([str(place)], NPROC_PER_NODE="2", MASTER_PORT=str(_free_port()))
    # torch_npu's scaler prints text and end of line one by one: two ranks' can come in between each other.
    lines = filter(None, ended.stdout.splitlines())
    said = [line for line in lines if not line.startswith(("Gradient", "Loss scaler"))]
    assert said == ["0 3 6", "1 3 6", "on npu:0 finite True"]


def test_a_failing_rank_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, sys\nsys.exit(3 if os.environ['RANK'] == '1' else 0)\n")
    command = [sys.executable, "-m", "torchport", "run", "--nproc", "2", str(script)]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "exitcode  : 3" in ended.stderr


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
