"""Stamps of acl_prof.h: the marks and ranges of a program in its profile, and what is refused."""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ascendcl
import pytest

from torchport.vnpu import backend

pytestmark = pytest.mark.device

MARKS, TASK_TIME, L2_CACHE = 0x80, 0x2, 0x10
PROFILING_FAILURE = 500005
MSPROF = backend.HOME / "tools" / "profiler" / "bin" / "msprof"
lib = ascendcl.lib
lib.aclprofCreateConfig.restype = lib.aclprofCreateStamp.restype = ctypes.c_void_p


@pytest.fixture
def config(tmp_path: Path) -> Iterator[int]:
    """The configuration of a session into tmp_path that runs and collects marks."""
    ascendcl.acl("aclrtSetDevice", 0)
    devices = (ctypes.c_uint32 * 1)(0)
    path = str(tmp_path).encode()
    made = lib.aclprofCreateConfig(devices, 1, 1, None, ctypes.c_uint64(MARKS | TASK_TIME))
    ascendcl.acl("aclprofInit", path, len(path))
    ascendcl.acl("aclprofStart", made)
    yield made
    ascendcl.code("aclprofStop", made)
    ascendcl.acl("aclprofFinalize")
    ascendcl.acl("aclprofDestroyConfig", made)


def stamp(message: bytes) -> int:
    made = int(lib.aclprofCreateStamp())
    ascendcl.acl("aclprofSetStampTraceMessage", made, message, len(message))
    return made


def spans(folder: Path) -> dict[str, dict[str, Any]]:
    (profile,) = folder.glob("PROF_*")
    done = subprocess.run([MSPROF, "--export=on", f"--output={profile}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = profile.glob("mindstudio_profiler_output/msprof_*.json")
    return {event["name"]: event for event in json.loads(path.read_text()) if event["ph"] == "X"}


def test_marks_and_ranges_are_in_the_profile(config: int, tmp_path: Path) -> None:
    moment, outer, inner, free = (stamp(name) for name in (b"moment", b"outer", b"inner", b"free"))
    number = ascendcl.ask("aclprofRangeStart", free)
    ascendcl.acl("aclprofPush", outer)
    ascendcl.acl("aclprofPush", inner)
    ascendcl.acl("aclprofMark", moment)
    ascendcl.acl("aclprofPop")
    ascendcl.acl("aclprofPop")
    ascendcl.acl("aclprofRangeStop", number)
    for each in (moment, outer, inner, free):
        lib.aclprofDestroyStamp(ctypes.c_void_p(each))
    ascendcl.acl("aclprofStop", config)
    found = spans(tmp_path)

    def ends(name: str) -> tuple[float, float]:
        start = float(found[name]["ts"].removeprefix(found["free"]["ts"][:6]))
        return round(start, 3), round(start + found[name]["dur"], 3)  # microseconds, told to the nanosecond

    assert found["moment"]["dur"] == 0
    order = [ends(name) for name in ("free", "outer", "inner", "moment")]
    for (start, end), (start_within, end_within) in itertools.pairwise(order):
        assert start <= start_within <= end_within <= end


def test_what_is_no_stamp_or_range_is_refused(config: int) -> None:
    one = stamp(b"one")
    lib.aclprofDestroyStamp(ctypes.c_void_p(one))
    for call in ("aclprofMark", "aclprofPush"):
        for wrong in (0, one, 8):
            assert ascendcl.code(call, wrong) == PROFILING_FAILURE
            assert "stamp is" in ascendcl.message()
    assert ascendcl.code("aclprofPop") == PROFILING_FAILURE
    assert ascendcl.code("aclprofRangeStop", 999) == PROFILING_FAILURE
    two = stamp(b"two")
    assert ascendcl.code("aclprofRangeStart", two, 0) == PROFILING_FAILURE
    assert ascendcl.code("aclprofSetStampTraceMessage", two, 0, 3) == PROFILING_FAILURE
    assert ascendcl.code("aclprofSetStampTraceMessage", two, b"x" * 200, 200) == PROFILING_FAILURE
    number = ascendcl.ask("aclprofRangeStart", two)
    ascendcl.acl("aclprofRangeStop", number)
    assert ascendcl.code("aclprofRangeStop", number) == PROFILING_FAILURE
    lib.aclprofDestroyStamp(ctypes.c_void_p(two))


def test_there_are_no_stamps_without_a_session() -> None:
    assert lib.aclprofCreateStamp() is None
    assert "ACL_PROF_MSPROFTX" in ascendcl.message()
    assert ascendcl.code("aclprofPop") == PROFILING_FAILURE


def test_models_cannot_be_subscribed() -> None:
    size = ctypes.c_size_t(7)
    for call in ("aclprofModelSubscribe", "aclprofModelUnSubscribe", "aclprofGetOpNum", "aclprofRangePushEx"):
        assert ascendcl.code(call, 1, ctypes.byref(size)) == ascendcl.UNSUPPORTED
        assert f"{call} is not offered" in ascendcl.message()
    assert ascendcl.code("aclprofGetOpDuration", 0, 0, 0) == 0 and size.value == 7


def test_what_is_switched_on_and_not_modelled_is_said_once(tmp_path: Path) -> None:
    done = ascendcl.python(
        f"""
import ctypes, ascendcl
lib = ascendcl.lib
lib.aclprofCreateConfig.restype = ctypes.c_void_p
ascendcl.acl("aclrtSetDevice", 0)
path = {str(tmp_path).encode()!r}
made = lib.aclprofCreateConfig((ctypes.c_uint32 * 1)(0), 1, 1, None, ctypes.c_uint64({L2_CACHE | TASK_TIME}))
for _ in range(2):
    ascendcl.acl("aclprofInit", path, len(path))
    assert ascendcl.code("aclprofSetConfig", 5, b"50", 2) == 200007
    ascendcl.acl("aclprofSetConfig", 3, b"50", 2)
    ascendcl.acl("aclprofStart", made)
    ascendcl.acl("aclprofStop", made)
    ascendcl.acl("aclprofFinalize")
"""
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("torchport:")]
    assert len(said) == 2 and "sys_io" in said[0] and "l2_cache.csv will be missing" in said[1]
