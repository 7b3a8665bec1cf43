"""Two ranks on one device: refused when the communicator is made, in the words of HCCL, however the ranks meet."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from ascendcl import acl
from hccl import PARAMETER, HcclError, hccl, root_info

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
SAYS = (
    "Ranktable_Detect_Failed(EI0015)",
    "Failed to collect cluster information of the communicator based on rootInfo detection. Reason:",
    " has the same physical device ID 1 as the rank 2",
    'torch.npu.set_device(int(os.environ["LOCAL_RANK"]))',
)


def join_on(devices: tuple[int, ...], join: Callable[[int, ctypes.c_void_p], None]) -> list[HcclError | None]:
    """The error of each rank, which joins on the device of its place; None for a rank that got in."""
    found: list[HcclError | None] = [None] * len(devices)
    comms = [ctypes.c_void_p() for _ in devices]
    all_in = threading.Barrier(len(devices))

    def run(rank: int) -> None:
        acl("aclrtSetDevice", devices[rank])
        try:
            join(rank, comms[rank])
        except HcclError as error:
            found[rank] = error
        all_in.wait()
        if comms[rank].value:
            hccl("HcclCommDestroy", comms[rank])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(devices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def by_root(ranks: int) -> Callable[[int, ctypes.c_void_p], None]:
    info = root_info()
    return lambda rank, comm: hccl("HcclCommInitRootInfo", ranks, ctypes.byref(info), rank, ctypes.byref(comm))


def by_table(folder: Path, ranks: int) -> Callable[[int, ctypes.c_void_p], None]:
    devices = [{"device_id": str(one), "device_ip": "10.0.0.1", "rank_id": str(one)} for one in range(ranks)]
    path = folder / "ranks.json"
    path.write_text(json.dumps({"server_list": [{"server_id": "127.0.0.1", "device": devices}]}))
    return lambda rank, comm: hccl("HcclCommInitClusterInfo", os.fsencode(path), rank, ctypes.byref(comm))


@pytest.fixture(params=["root info", "rank table", "between machines"])
def joining(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    if request.param == "rank table":
        return by_table(tmp_path, 3)
    if request.param == "between machines":
        for name, value in {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "1", "HCCL_IF_IP": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
    return by_root(3)


def test_ranks_on_one_device_are_refused(joining: Callable[[int, ctypes.c_void_p], None]) -> None:
    found = join_on((0, 1, 1), joining)
    for error in found:
        assert error is not None and error.code == PARAMETER
        assert [words for words in SAYS if words not in error.message] == []


def test_ranks_on_devices_of_their_own_meet(joining: Callable[[int, ctypes.c_void_p], None]) -> None:
    assert join_on((2, 0, 1), joining) == [None] * 3


def test_devices_of_one_process() -> None:
    comms = (ctypes.c_void_p * 3)()
    with pytest.raises(HcclError) as caught:
        hccl("HcclCommInitAll", 3, (ctypes.c_int32 * 3)(0, 1, 1), comms)
    assert caught.value.code == PARAMETER
    assert [words for words in SAYS if words not in caught.value.message] == []
