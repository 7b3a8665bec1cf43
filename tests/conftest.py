"""For all tests: the timers of their processes, and how `pytest -n`, as `make check` calls it, shares tests out."""

from __future__ import annotations

import ctypes
import gc
import os

import pytest

# Before anything imports torch. Threads of one computation that share the cores with other tests wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# From its first use of the device on, torch_npu 2.13 polls in a thread, `select` with 1 µs: a tenth of a core in every
# process, also where a test only waits for a program. Coarse timers, which programs started here inherit, keep it asleep.
PR_SET_TIMERSLACK, SLACK = 29, 5_000_000  # ns; <linux/prctl.h>
ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, SLACK, 0, 0, 0)

# The modules of torch are 300,000 objects that stay: nothing looks for garbage among them, as in a recorded run.
gc.disable()

# Long files go first and files of seconds last, so that the processes end together.
ORDER = (
    "tests/vnpu/port/test_sabotaged.py",
    "tests/vnpu/port/",
    "tests/unit/",
    "tests/vnpu/distributed/",
    "tests/vnpu/models/",
)
# A test here is a program of half a minute that shares nothing with the next one, but in the first of all files.
APART = "tests/vnpu/port/"


def share(nodeid: str) -> str:
    """What is given to a process in one piece: most often a file, as its tests may share what they prepare."""
    path = nodeid.partition("::")[0]
    return nodeid if path.startswith(APART) and path != ORDER[0] else path


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((n for n, folder in enumerate(ORDER) if item.nodeid.startswith(folder)), len(ORDER))

    if hasattr(config, "workerinput"):
        items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    if config.getoption("dist") != "load":  # another division was asked for
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share(nodeid)

    # Files of many tests would go first, which are not those that take long.
    config.option.loadscopereorder = False
    return Scheduling(config, log)
