"""Every entry of the guide's FAQ: the line that its user sees is given the row that answers it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchport.diagnose import diagnose_text
from torchport.knowledge.errors import load_error_rows

# What only this entry's title has; the row; a line as it is printed, after the guide, its screenshots being absent.
ENTRIES = {
    "Pillow==": ("environment.pillow", "The headers or library files could not be found for jpeg,"),
    "ExchangeDevice": ("device.exchange", "RuntimeError: ExchangeDevice: device changed"),
    "_run_exitfuncs": ("process.atexit", ""),
    "what(): HelpACLExecute": ("operator.legacy-execute", "terminate called\n what(): HelpACLExecute: NPU error"),
    "what(): 0 INTERNAL ASSERT": ("process.left-over", "what(): 0 INTERNAL ASSERT FAILED at NPUStream.cpp"),
    "libhccl.so": ("environment.libraries", "ImportError: libhccl.so: cannot open shared object file"),
    "RuntimeError: Initialize.": ("device.initialize", "RuntimeError: Initialize."),
    "TVM/te/cce error": ("environment.te-wheels", "RuntimeError: TVM/te/cce error."),
    "MemCopySync:drvMemcpy failed": (
        "kernel.device-cpu",
        "RuntimeError: Run:OpParamMaker.h:280 NPU error,NPU error code is:500002\n"
        "[ERROR] RUNTIME(16)kernel task happen error, retCode=0x28, [aicpu timeout].\n"
        "[ERROR] RUNTIME(16)aicpu kernel execute failed, device_id=0, stream_id=512, task_id=24\n"
        "[ERROR] RUNTIME(17,python3.7):2021-02-02-22:23:56.475.679 MemCopySync:drvMemcpy failed: dst=0x108040288000",
    ),
    "TASK_QUEUE_ENABLE=0": (
        "operator.store-mismatch",
        "RuntimeError: HelpACLExecute: NPU error\n"
        "[ERROR] FE: The number of attrs in op desc and op store does not match. op type TopKD",
    ),
    "GetInputConstDataOut": ("", "[ERROR] GE(1,python3.7): 55056 GetInputConstDataOut: ErrorNo: -1(failed)"),
    "NPUCachingAllocator": (
        "memory.old-allocator",
        "RuntimeError: malloc:/c10/npu/NPUCachingAllocator.cpp:293 NPU error, error code is 500000.",
    ),
    "aten::trunc.out": (
        "operator.no-backend",
        "RuntimeError: Could not run 'aten::trunc.out' with arguments from the 'NPUTensorId' backend.",
    ),
    "MaxPoolGradWithArgmaxV1": ("operator.pooling", "RuntimeError: MaxPoolGradWithArgmaxV1: compile failed"),
    "torch._C": ("environment.inside-torch-source", "ModuleNotFoundError: No module named 'torch._C'"),
    "cuda流": ("script.cuda", "AssertionError: Torch not compiled with CUDA enabled"),
    "libpt_kernels.so": ("environment.aicpu-kernels", "open /opp/aicpu_kernels/libpt_kernels.so failed"),
    "npu-smi info": ("memory.outside-allocator", "EL0004: Failed to allocate memory."),
    "match op inputs failed": ("operator.dynamic-shape", "MatchOpModel: Match op inputs failed. opType = PTIndexPut"),
    "SigmoidCrossEntropyWithLogitsV2": (
        "operator.unsupported-input",
        "[ERROR] GE(24836,python3.7):2021-01-27-18:27:51.562.111 GetDNNEngineName:Op type SigmoidCrossEntropyWithLogitsV2 "
        "of ops kernel AIcoreEngine is unsupported, reason: not found in op store",
    ),
    "Hook": (
        "script.hook",
        'Traceback (most recent call last):\n  File "/env/lib/python3.7/site-packages/torch/nn/modules/module.py", line 660, '
        "in __call__\n    var = next(iter(()))\nStopIteration",
    ),
    "load state_dict error": ("checkpoint.keys", "RuntimeError: load state_dict error."),
    "host not found": ("launch.master", "RuntimeError: host not found."),
    "timed out": ("launch.master-unreachable", "RuntimeError: connect() timed out. Original timeout was 1800000 ms."),
}
ALONE = ("process.atexit",)  # what it says without the error before it is in its row, and no cause


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_has_its_row(entry: str) -> None:
    name, line = ENTRIES[entry]
    if name in ALONE:
        assert "torch.npu.set_device" in load_error_rows()[name].fix
        return
    result = diagnose_text(f"step 1\n{line}\n")
    assert result.data["row"] == name
    assert result.findings[0].hint, "what to do"


def test_processes_that_are_left_are_spoken_of() -> None:
    """Of no line of a log: they hold memory that a job then lacks."""
    assert "npu-smi" in load_error_rows()["memory.outside-allocator"].fix
    assert "npu-smi" in load_error_rows()["memory.device-full"].fix


@pytest.mark.skipif("TORCHPORT_GUIDE" not in os.environ, reason="TORCHPORT_GUIDE, the guide's folder, is not set")
def test_every_entry_of_the_guide_is_listed() -> None:
    """A title stands above the line `现象描述`, "what is seen"."""
    titles = []
    for path in sorted(Path(os.environ["TORCHPORT_GUIDE"]).glob("*.txt")):
        lines = [words for line in path.read_text("utf-8").splitlines() if (words := line.strip())]
        titles += [lines[at - 1].replace("\\", "") for at, line in enumerate(lines) if line == "现象描述"]
    assert len(titles) > 20
    assert [title for title in titles if not any(entry in title for entry in ENTRIES)] == []
    assert [entry for entry in ENTRIES if not any(entry in title for title in titles)] == []
