"""Programs that use torch on the virtual NPU, each in a fork of one process that has imported torch and torch_npu.

The imports take seconds, and most programs less than one. Such a process is as a fresh one: it has one thread and has not
touched the device, which makes its machine, and reads its variables, at the first use. What an import decides, and what
starts Python again (multiprocessing's spawn), needs `ascendcl.python`.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import types
from pathlib import Path

from torchport import vnpu

SECONDS = 500  # after which a program that hangs is ended: below the limit that pytest has for a test


def python(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `program` with these environment variables, beside those of this process."""
    worker = _worker()
    assert worker.stdin is not None and worker.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "program": program,
            "environment": os.environ | vnpu.environment() | variables,
            "folder": os.getcwd(),
            "output": folder,
        }
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()
        status = worker.stdout.readline()
        assert status, "the process that forks has ended: see what it says above"
        stdout, stderr = ((Path(folder) / name).read_text() for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(["python", "-c", program], int(status), stdout, stderr)


@functools.cache
def _worker() -> subprocess.Popen[str]:
    environment = os.environ | vnpu.environment() | {"OMP_NUM_THREADS": "1"}
    # In a session of its own: what is typed at a terminal is for pytest.
    worker = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    )
    assert worker.stdin is not None
    atexit.register(worker.stdin.close)  # its loop ends
    return worker


def main() -> None:
    vnpu.activate(force=True)
    import torch

    assert not torch.npu.is_initialized()
    assert os.listdir("/proc/self/task") == [str(os.getpid())]  # threads do not live in a fork
    gc.freeze()  # a fork that ends looks at no object of ours: half of its time
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(**job)
            return  # and ends as a program does
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(program: str, environment: dict[str, str], folder: str, output: str) -> None:
    signal.alarm(SECONDS)
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        with open(os.path.join(output, name), "w", encoding="utf-8") as stream:
            os.dup2(stream.fileno(), number)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.environ.clear()
    os.environ.update(environment)
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), module.__dict__)


if __name__ == "__main__":
    main()
