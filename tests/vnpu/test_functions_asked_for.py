"""What torch_npu looks up in CANN's libraries: there, or known to be absent. csrc/opapi accounts for the aclnn names."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

from torchport import vnpu

# What torch_npu 2.13 looks up and does not find, and why that is meant (csrc/ascendcl/unsupported.cpp).
ABSENT = {
    "aclRfft1D": "without it torch.fft.rfft takes a way that works",
    "aclRfft1DGetWorkspaceSize": "of aclRfft1D",
    "aclStressDetect": "a test of the hardware; torch_npu says that it was not made",
    "aclQueryEventRecordedStatus": "the name that aclrtQueryEventStatus had before CANN 5",
    "aclQueryEventWaitStatus": "the name that aclrtQueryEventWaitStatus had before CANN 5",
    **dict.fromkeys(
        (f"aclProfiling{name}" for name in ("Init", "Start", "Stop", "CreateConfig", "DestroyConfig")),
        "the names that aclprof* had before CANN 5",
    ),
}


def test_every_function_that_torch_npu_looks_up_is_there_or_meant_to_be_absent() -> None:
    wheel = importlib.util.find_spec("torch_npu")
    assert wheel is not None
    assert wheel.submodule_search_locations is not None
    library = Path(wheel.submodule_search_locations[0], "lib", "libtorch_npu.so").read_bytes()
    asked = re.findall(rb"(?<=\0)(?:acl(?:rt|mdl|op|prof|sys)?|Msprof|rt)[A-Z]\w{3,}(?=\0)", library)
    libraries = sorted(vnpu.library_directory().glob("*.so"))
    command = ["nm", "-D", "--defined-only", "--no-sort", *libraries]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    missing = {name.decode() for name in asked} - {line.rpartition(" ")[2] for line in listing.splitlines()}
    assert len(asked) > 200
    assert missing == set(ABSENT)
