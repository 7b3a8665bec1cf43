"""Why an original fails on the CPU of this machine: what its last words say, and what would help.

These are the reasons of a machine without a GPU; what goes wrong on an NPU is in knowledge/errors.
"""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """A pattern of the last words, the cause in words, and what to do; `\\1` is the first group."""

    pattern: str
    words: str
    remedy: str


# First match wins: the special before the general.
ORIGINAL = (
    Cause(
        r"Inappropriate ioctl for device|not a tty|standard input: Inappropriate",
        "it asks for a terminal, and there is none",
        "Run torchport port in a terminal: the runs then have one, too.",
    ),
    Cause(
        r"(?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK)(?: expected, but not set|')",
        "it needs to be started as several processes",
        "torchport port --nproc 2 SCRIPT, or torchport port -- torchrun ... as you start it on a GPU",
    ),
    Cause(
        r"You requested gpu: \[\d+(?:, \d+)+\]",
        "it asks for several devices, and is shown as many as it is started with ranks",
        "Start it with as many as it asks for: torchport port --nproc 2 SCRIPT.",
    ),
    Cause(
        r"Duplicate GPU detected",
        "it puts two ranks on one GPU, which NCCL refuses",
        'Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before init_process_group, or give that device_id=.',
    ),
    Cause(
        r"device type at start of device string: npu|Expected one of cpu, cuda,[^\n]*: npu",
        "it was told the NPU's device, and the original is a program for CUDA",
        "Tell it the GPU's device, such as --device cuda: the port is given the NPU's for it.",
    ),
    Cause(
        r"CUDA_HOME|nvcc|\.cu\b|Ninja is required|cuda_runtime|CUDAExtension|Torch not compiled with CUDA",
        "it needs a CUDA compiler or a CUDA kernel",
        "Replace the kernel by torch operators or one of the NPU, or record the original on a machine with a GPU.",
    ),
    Cause(
        r"CUDAGraph|dummy base class|CUDA-capable device|cudart",
        "it uses a part of CUDA that only a GPU has",
        "Leave that part out with the script's own options, or record the original on a machine with a GPU.",
    ),
    Cause(
        r"No module named '(triton|cupy|pycuda|tensorrt|nvidia[\w.]*|apex|flash_attn)'",
        "it needs \\1, which is made for CUDA",
        "torchport explain \\1",
    ),
    Cause(
        r"(?:No module named|cannot import name) '([\w.]+)'",
        "the package \\1 is missing here",
        "Install it in this environment, as the script's own instructions say.",
    ),
    Cause(
        r"URLError|ConnectionError|Max retries|NameResolutionError|gaierror|Temporary failure in name|"
        r"OfflineModeIsEnabled|LocalEntryNotFound|HTTPError|ConnectTimeout|Network is unreachable|"
        r"couldn't connect to|Connection refused",
        "it needs the network",
        "Run it where there is one, or give it data and weights that lie on this machine.",
    ),
    Cause(
        r"FileNotFoundError|No such file or directory: '?([^'\n]*)",
        "a file that it reads is missing here",
        "Put the file where the script looks for it, or give it another with its arguments.",
    ),
    Cause(
        r"MemoryError|can't allocate memory|Cannot allocate memory|std::bad_alloc|No space left on device",
        "this machine is too small",
        "Give arguments for a smaller batch or model, or run it on a larger machine.",
    ),
)
# Words of the virtual NPU where it, and not the hardware, has a gap.
VIRTUAL_GAP = re.compile(
    r"(?<![^\n.])[^\n.]*\b[Tt]he virtual NPU (?:does not|lacks|has no)[^\n]*"
    r"|(?<![^\n])[^\n]*virtual NPU[^\n]*(?:not implement|lacks)[^\n]*"
)


def explain_failure(text: str) -> tuple[str, str]:
    """The cause and the remedy for the last words `text` of a run; empty where they say nothing known."""
    for row in ORIGINAL:
        match = re.search(row.pattern, text)
        if match is not None:
            return (
                match.expand(row.words) if match.re.groups and match.group(1) else row.words.replace("\\1", "it"),
                match.expand(row.remedy) if match.re.groups and match.group(1) else row.remedy.replace("\\1", ""),
            )
    return "", ""


def virtual_gap(text: str) -> str:
    """The sentence in which the virtual NPU says that it lacks something; "" where it does not."""
    match = VIRTUAL_GAP.search(text)
    return match.group().strip() if match else ""
