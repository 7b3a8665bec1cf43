"""Processes that tests start by "spawn", from a server that has loaded torch and torch_npu.

Each would load them again, for 5 s of processor time; tests of several ranks do little else. The server forks instead,
as judge.py does for each file; what Python does in a spawned process is done in the fork: variables, working directory,
the file as `__mp_main__`. Where a variable is another that may be read when torch_npu is loaded, a process is spawned.

The server is itself a fork of judge.py's process, made before the file is loaded, which has to be without threads then.
Where the file has set a variable since, another server is started, which imports this module (forkserver's preload).
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from multiprocessing import (
    connection,
    context,
    forkserver,
    popen_forkserver,
    popen_spawn_posix,
    process,
    resource_sharer,
    spawn,
    util,
)
from typing import Any

# They tell a process its place in its job; nothing reads them at load.
OF_A_JOB = re.compile("(MASTER_|RANK|WORLD_SIZE|LOCAL_|GROUP_|HCCL_|TEMP_DIR|BACKEND|INIT_METHOD|TEST_)")
# The server says so to those that it forks, and its parent to it.
SERVER = "UPSTREAM_SPAWNED"


def others() -> dict[str, str]:
    """The variables that have to be the server's."""
    return {name: value for name, value in os.environ.items() if not OF_A_JOB.match(name) and name != SERVER}


class Process(context.SpawnProcess):
    started_with: dict[str, str] | None = None  # the server's variables
    first = True

    @staticmethod
    def _Popen(process_obj: process.BaseProcess) -> Any:  # noqa: N802 -- multiprocessing chose the name
        if Process.first and others() != Process.started_with:
            forget_forked()
            Process.started_with = others()
            os.environ[SERVER] = "1"
            forkserver.ensure_running()
            del os.environ[SERVER]
        Process.first = False
        if others() != Process.started_with:
            return popen_spawn_posix.Popen(process_obj)
        return popen_forkserver.Popen(process_obj)


class Context(context.SpawnContext):
    Process = Process


def from_a_server() -> None:
    """From now on, in this process and those that it spawns."""
    fork_server()
    Process.started_with = others()
    prepared = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**prepared(name), "environ": dict(os.environ)}

    spawn.get_preparation_data = get_preparation_data
    spawn.prepare = _prepare
    forkserver.set_forkserver_preload([__name__])
    context._concrete_contexts["spawn"] = Context()  # type: ignore[attr-defined]


def fork_server() -> None:
    """What forkserver.ensure_running does, without a new Python."""
    server = forkserver._forkserver  # type: ignore[attr-defined]
    with socket.socket(socket.AF_UNIX) as listener:
        address = connection.arbitrary_address("AF_UNIX")
        listener.bind(address)
        listener.listen()
        alive_r, alive_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(alive_w)
            spawn.prepare = _prepare
            try:
                forkserver.main(listener.fileno(), alive_r, [])  # ends with its parent, by SystemExit
            finally:
                os._exit(0)
        os.close(alive_r)
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = address, alive_w, pid


def forget_forked() -> None:
    server = forkserver._forkserver  # type: ignore[attr-defined]
    os.close(server._forkserver_alive_fd)  # at which it ends
    os.waitpid(server._forkserver_pid, 0)
    server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None


_as_python = spawn.prepare


def _prepare(data: dict[str, Any]) -> None:
    """In the new process, before anything of its own."""
    environment = data.pop("environ", None)
    if environment is not None:
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)
    util.Finalize(None, _fetched, exitpriority=5)  # queues are closed (10), the place to fetch from is not (0)
    _as_python(data)


def _fetched() -> None:
    """Tests put tensors into a queue and end, and their parent fetches what is shared while they do: an end is longer
    where torch is unloaded. Waits until all is fetched, or for 60 s."""
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":  # it pickles, and so shares
            thread.join()
    sharer = resource_sharer._resource_sharer  # type: ignore[attr-defined]
    until = time.monotonic() + 60
    while sharer._cache and time.monotonic() < until:
        time.sleep(0.01)


if SERVER in os.environ:
    import judge

    judge.prepare("--bare" in sys.argv)
    spawn.prepare = _prepare
