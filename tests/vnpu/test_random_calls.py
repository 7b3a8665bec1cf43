"""Random calls with random arguments: every exported function answers or refuses, none crashes, hangs or leaks."""

from __future__ import annotations

import json
import os
import re
import subprocess

import compiled
import pytest

from torchport import vnpu

SECONDS = float(os.environ.get("TORCHPORT_RANDOM_SECONDS", "3"))
SEED = int(os.environ.get("TORCHPORT_RANDOM_SEED", "1"))
THREAD_SANITIZER = "libtsan" in os.environ.get("LD_PRELOAD", "")
# A leak counts where the sanitizer sees one, and a size that cannot be had is an error, not the end.
ASAN = "detect_leaks=1:allocator_may_return_null=1:max_allocation_size_mb=512:quarantine_size_mb=16"


pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(
        THREAD_SANITIZER, reason="random calls race for the same bytes, as they may; test_threads is for this"
    ),
]


def run(seconds: float, threads: int, *words: str) -> subprocess.CompletedProcess[str]:
    options = os.environ.get("ASAN_OPTIONS", "")
    return compiled.run(
        "random_calls",
        str(SEED),
        str(seconds),
        str(threads),
        *words,
        ASAN_OPTIONS=f"{options}:{ASAN}",
        VNPU_HOST_LIMIT="256MiB",
        VNPU_DEVICES="2",
        HCCL_EXEC_TIMEOUT="1",
        HCCL_CONNECT_TIMEOUT="1",
    )


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("threads", [1, 4])
def test_random_calls(threads: int) -> None:
    result = run(SECONDS / 2, threads)
    assert result.returncode == 0, result.stderr[-6000:]
    outcome = json.loads(result.stdout.splitlines()[-1])
    # Most draws are wrong on purpose; far fewer right ones would mean that nothing is reached any more.
    assert outcome["calls"] > 100 * SECONDS
    assert 0.15 < outcome["succeeded"] / outcome["calls"] < 0.9


PLANTED = {
    "hang": "hang, has not returned",
    "silence": "silence answered 1 without a message",
    "memory": "MiB resident",
    "file": "files",
    "thread": "threads",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_is_noticed(fault: str) -> None:
    # What grows shows soon, but for memory; the others end a run as soon as they are drawn.
    result = run(0.5 if fault in ("file", "thread") else 8, 1, fault)
    assert result.returncode != 0
    assert PLANTED[fault] in result.stderr


def test_every_exported_function_is_called() -> None:
    names = subprocess.run(
        [compiled.program("random_calls"), "names"], capture_output=True, text=True, check=True
    ).stdout.split()
    exported = set()
    for library in ("libascendcl.so", "libhccl.so"):
        symbols = subprocess.run(
            ["nm", "-D", "--defined-only", vnpu.library_directory() / library],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        exported |= set(re.findall(r" T ((?:acl|rt|Hccl|Msprof)\w+)$", symbols, re.MULTILINE))
    assert len(exported) > 250
    assert set(names) == exported
