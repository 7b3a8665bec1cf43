"""Operators that exchange data with other ranks, by their C names: each device of this process is a rank, as
HcclCommInitAll makes them. What is between them is what processes have between them.

    with group(2) as name:
        run_ranks("aclnnMatmulAllReduce", [[x1, x2, None, name, "sum", 0, 1, out] for each rank])
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from aclnn import first_phase, planned

from torchport import vnpu


@contextlib.contextmanager
def members(devices: Sequence[int]) -> Iterator[str]:
    """The name of a communicator of these devices, in their order."""
    library = ctypes.CDLL(str(vnpu.library_directory() / "libhccl.so"))
    torch.ones(1, device="npu")  # the device is there
    for device in devices:
        torch.ones(1, device=f"npu:{device}")
    size = len(devices)
    numbers, comms = (ctypes.c_int32 * size)(*devices), (ctypes.c_void_p * size)()
    assert library.HcclCommInitAll(ctypes.c_uint32(size), numbers, comms) == 0
    name = ctypes.create_string_buffer(128)
    assert library.HcclGetCommName(ctypes.c_void_p(comms[0]), name) == 0
    try:
        yield name.value.decode()
    finally:
        for comm in comms:
            assert library.HcclCommDestroy(ctypes.c_void_p(comm)) == 0


def group(size: int) -> contextlib.AbstractContextManager[str]:
    """The name of a communicator of the first devices."""
    return members(range(size))


def run_ranks(name: str, arguments: Sequence[Sequence[Any]]) -> None:
    """Run the operator on every rank, rank r with arguments[r], whose tensors are on device r, and wait for all."""
    launches = []
    for device, mine in enumerate(arguments):
        with torch.npu.device(device):
            launches.append((planned(name, *mine), torch.npu.current_stream().npu_stream))
    for device, (launch, stream) in enumerate(launches):
        with torch.npu.device(device):
            launch(stream)
    for device in range(len(arguments)):
        torch.npu.synchronize(device)


def refusal(name: str, *arguments: Any) -> tuple[int, str]:
    """What the first phase of rank 0 says."""
    with torch.npu.device(0):
        return first_phase(name, *arguments)
