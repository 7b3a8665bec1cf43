"""Try the device: one tiny operator in a process of its own."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping

from torchport.vnpu.activation import environment

# 4 elements of 1+1; the soc name shows which device answered. The marker keeps other output apart.
SCRIPT = """
import torch, torch_npu
ones = torch.ones(2, 2, device="npu:0")
total = (ones + ones).cpu().sum().item()
print("probe", total, torch.npu.get_device_name(0), torch.npu.device_count())
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """Outcome of the trial. `output` is what the process printed, stdout and stderr together."""

    works: bool
    device: str
    count: int
    output: str


def probe_device(timeout: float = 120.0) -> Probe:
    """Add two small tensors on npu:0 with this Python and the backend of this machine.

    `timeout` is in seconds; it covers importing torch. A process that takes longer is killed and reported.
    Raises `TorchportError` if there is no backend.
    """
    output, status = run_python(["-c", SCRIPT], {**environment(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, timeout)
    answer = next((line for line in output.splitlines() if line.startswith("probe ")), "").split()
    if status == 0 and len(answer) == 4 and float(answer[1]) == 8.0:
        return Probe(True, answer[2], int(answer[3]), output)
    return Probe(False, "", 0, output if status is None else f"{output}\n(exit status {status})")


def run_python(words: list[str], variables: Mapping[str, str], timeout: float) -> tuple[str, int | None]:
    """What this Python prints for the command line `words`, both streams together, and its exit status.

    `variables` are added to this process's environment, and `python -P` is kept. The status is None, and the text says
    so, where the process was killed after `timeout` seconds.
    """
    try:
        process = subprocess.run(
            [sys.executable, *(["-P"] if sys.flags.safe_path else []), *words],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        text = (expired.stdout or b"").decode(errors="replace")  # bytes even with text=True (CPython 3.11)
        return f"{text}\n(no answer within {timeout:g} s)".strip(), None
    return process.stdout.strip(), process.returncode
