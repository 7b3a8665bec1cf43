"""Write the logs of failures that VNPU_FAULTS provokes: python tests/vnpu/diagnose/inject.py FOLDER [NAME ...]

Each case of injected/cases.toml becomes FOLDER/NAME.txt, both streams as one, or FOLDER/NAME/rank_N.log. What is printed
is kept as it is but for folders: those of this checkout and of Python become /job and /env. Every process is a fork of
one that has imported torch (`forked`), whose frames a traceback leaves out.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import sysconfig
import tomllib
import traceback
import types
from pathlib import Path
from typing import Any

from torchport import vnpu

HERE = Path(__file__).parent / "injected"
SECONDS = 500  # for a script that hangs


def cases() -> dict[str, dict[str, Any]]:
    """All cases by name, see the head of cases.toml."""
    return tomllib.loads((HERE / "cases.toml").read_text("utf-8"))


def run(case: dict[str, Any], files: list[Path]) -> list[int]:
    """Run all ranks of a case at once, each into its file of `files`, or all into the only one; their exit statuses."""
    ranks = case.get("ranks", 1)
    variables = {"VNPU_FAULTS": case["faults"], "HCCL_EXEC_TIMEOUT": "30", **case.get("variables", {})}
    if ranks > 1:
        variables |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"")
    children = []
    for rank in range(ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)} if ranks > 1 else {}
        child = os.fork()
        if child == 0:
            _become(HERE / f"{case['script']}.py", variables | own, files[rank % len(files)])
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for file in files:
        text = file.read_text("utf-8", "replace")
        for path, name in ((str(HERE), "/job"), (sysconfig.get_paths()["purelib"], "/env"), (sys.prefix, "/env")):
            text = text.replace(path, name)
        file.write_text(text, "utf-8")
    return statuses


def _become(script: Path, variables: dict[str, str], output: Path) -> None:
    """Be the script, as `python script > output 2>&1`; SystemExit of the interpreter's end."""
    signal.alarm(SECONDS)
    stream = os.open(output, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(stream, number)
    os.environ.update(variables)
    sys.excepthook = _without_us
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = str(script)
    exec(compile(script.read_text("utf-8"), str(script), "exec"), module.__dict__)
    sys.exit()


def _without_us(kind: type[BaseException], error: BaseException, frames: types.TracebackType | None) -> None:
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    traceback.print_exception(kind, error, frames)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main(folder: str, *names: str) -> None:
    os.environ.update(vnpu.environment() | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"})
    vnpu.activate(force=True)
    import torch

    assert not torch.npu.is_initialized()
    gc.freeze()
    found = cases()
    for name in names or found:
        case, target = found[name], Path(folder)
        ranks = range(case.get("ranks", 1))
        files = [target / name / f"rank_{rank}.log" for rank in ranks] if case.get("apart") else []
        print(name, run(case, files or [target / f"{name}.txt"]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
