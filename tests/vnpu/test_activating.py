"""Each way to switch the virtual NPU on, with the real torch_npu, each in processes of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from torchport import startup, vnpu

SOURCE = Path(vnpu.__file__).parents[2]
ADD = "(torch.ones(2, 2).npu() + 1).cpu().sum().item()"


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in a clean environment: nothing of this process's activation reaches it."""
    keep = ("PATH", "HOME", "VNPU_LIBRARIES", "LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    environ = {name: os.environ[name] for name in keep if name in os.environ}
    # torch_npu 2.13 warns at the first allocation on every chip older than Ascend950 ("32 padding size").
    environ |= {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1", "TORCH_NPU_WARNING_DISABLE": "1", **variables}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


# torch_npu 2.13's queue thread may wake up for the process's end when the logger whose level it asks for is destroyed
# (NPUQueue.cpp, Repository::Dequeue): once in some thousand processes, on a busy machine.
QUEUE_END = re.compile(r"I\d{4} .*NPUQueue\.cpp:\d+\] Dequeue: taskqueue is empty, wait for efd_read end, .*\n")


def python(code: str, **variables: str) -> str:
    """Run `code` in a fresh Python; return its stdout. It must print nothing on stderr."""
    result = run([sys.executable, "-c", code], **variables)
    assert (result.returncode, QUEUE_END.sub("", result.stderr)) == (0, ""), result.stderr
    return result.stdout


def test_in_a_process() -> None:
    assert python(f"import torchport.vnpu; torchport.vnpu.activate(); import torch; print({ADD})") == "8.0\n"


def test_import_prints_nothing() -> None:
    code = "import torchport.vnpu; torchport.vnpu.activate(); import torch; torch.npu.device_count()"
    assert python(code, TORCH_NPU_WARNING_DISABLE="0") == ""


def test_the_garbage_collector_is_kept_off_torch() -> None:
    seen = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 100_000)"
    assert python(f"import torchport.vnpu; torchport.vnpu.activate(); import torch; {seen}") == "True True\n"
    assert python(f"import torch_npu; {seen}", PYTHONPATH=f"{startup.FOLDER}:{SOURCE}") == "True True\n"


def test_activation_again_and_after_the_import_is_harmless() -> None:
    output = python(
        f"""
import torchport.vnpu
first = torchport.vnpu.activate(); torchport.vnpu.activate()
import torch
print(torchport.vnpu.activate().kind == first.kind, {ADD})
"""
    )
    assert output == "True 8.0\n"


def test_in_a_shell() -> None:
    executable = shlex.quote(sys.executable)
    script = f"""
eval "$({executable} -m torchport vnpu env)"
unset PYTHONPATH
{executable} -c 'import torch; print(torch.npu.device_count(), {ADD})'
"""
    result = run(["bash", "-euc", script], VNPU_DEVICES="3")
    assert (result.stdout, QUEUE_END.sub("", result.stderr)) == ("3 8.0\n", "")


def test_enabled_for_plain_python(tmp_path: Path) -> None:
    venv.create(tmp_path / "environment", symlinks=True)
    executable = str(tmp_path / "environment/bin/python")
    (site,) = tmp_path.glob("environment/lib/python*/site-packages")
    (site / "__editable__.torchport.pth").write_text(f"{SOURCE}\n{sysconfig.get_path('purelib')}\n")
    assert run([executable, "-m", "torchport", "vnpu", "enable"], PYTHONPATH="").returncode == 0
    result = run([executable, "-c", f"import torch; print({ADD})"], PYTHONPATH="")
    assert (result.stdout, result.stderr) == ("8.0\n", "")


def test_a_cann_in_the_library_path_is_not_taken_for_a_part_of_the_virtual_npu(tmp_path: Path) -> None:
    """As after `source set_env.sh` on a machine that has the toolkit and no NPU, or where the flag forces ours."""
    for name in ("libascendcl.so", "libhccl.so", "libopapi.so"):
        (tmp_path / name).write_bytes(b"not a library of ours")
    for start in ("activate()", "activate(force=True)"):
        output = python(
            f"import torchport.vnpu; torchport.vnpu.{start}; import torch; print({ADD})", LD_LIBRARY_PATH=str(tmp_path)
        )
        assert output == "8.0\n"


def test_spawned_data_loader_worker_inherits(tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(
        f"""
class Squares:
    def __len__(self):
        return 4
    def __getitem__(self, i):
        import torch
        return (torch.tensor([float(i)]).npu() * 2 + {ADD}).cpu()

if __name__ == "__main__":
    import torchport.vnpu
    torchport.vnpu.activate()
    import torch
    loader = torch.utils.data.DataLoader(Squares(), num_workers=1, multiprocessing_context="spawn")
    print([batch.item() for batch in loader], torch.ones(1).npu().item())
"""
    )
    result = run([sys.executable, str(script)])
    assert result.stdout == "[8.0, 10.0, 12.0, 14.0] 1.0\n", result.stderr


def test_forked_child_gets_the_error_of_hardware() -> None:
    output = python(
        f"""
import multiprocessing
import torchport.vnpu
torchport.vnpu.activate()
import torch

def child():
    try:
        print({ADD})
    except RuntimeError as error:
        print("forked" in str(error) and "spawn" in str(error))

torch.ones(1).npu()
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
print(process.exitcode)
"""
    )
    assert output == "True\n0\n"


def test_torchrun_inherits(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(
        f"""
import os, sys, torch
torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
sys.stdout.write(f"rank {{torch.npu.current_device()}} {{{ADD}}}\\n")
"""
    )
    result = run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(script)],
        **vnpu.environment({}),
        OMP_NUM_THREADS="1",
    )
    assert sorted(result.stdout.splitlines()) == ["rank 0 8.0", "rank 1 8.0"], result.stderr


def test_doctor_is_content() -> None:
    result = run([sys.executable, "-m", "torchport", "doctor", "--json"])
    report = json.loads(result.stdout)
    assert (result.returncode, report["healthy"]) == (0, True), report
    assert report["checks"][-1]["detail"] == "1+1 on npu:0 of 8 (Ascend910B1)"


CHIPS = {"Ascend910B4": "32.0", "Ascend910B3": "61.0", "Ascend910_9391": "61.3", "Ascend310P7": "22.4"}


@pytest.mark.parametrize("soc", CHIPS)
def test_chip_is_the_selected_one(soc: str) -> None:
    output = python(
        "import torchport.vnpu; torchport.vnpu.activate(); import torch\n"
        "print(torch.npu.get_device_name(), f'{torch.npu.get_device_properties(0).total_memory / 2**30:.1f}')\n"
        "print((torch.ones(2).npu() + 1).tolist())",
        VNPU_SOC=soc,
    )
    assert output == f"{soc} {CHIPS[soc]}\n[2.0, 2.0]\n"
