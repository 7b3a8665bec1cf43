"""In each rank: every converted script of `shapes`, one after the other, each in a fork of a process that has imported
torch. Arguments: the folder that holds them, and a port for each."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path


def main() -> None:
    folder, *ports = sys.argv[1:]
    import torch
    import torch_npu  # noqa: F401

    assert not torch.npu.is_initialized()
    for name, port in zip(sorted(os.listdir(folder)), ports, strict=True):
        where = Path(folder) / name
        child = os.fork()
        if child == 0:
            os.environ |= {"MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "False"}
            os.chdir(where)
            sys.path.insert(0, str(where))
            sys.argv = ["train.py"]
            with open(f"said-{os.environ['RANK']}.txt", "w") as stream:
                for number in (1, 2):
                    os.dup2(stream.fileno(), number)
            runpy.run_path("train.py", run_name="__main__")
            return  # and ends as a program does
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        (where / f"status-{os.environ['RANK']}").write_text(str(status))


if __name__ == "__main__":
    main()
