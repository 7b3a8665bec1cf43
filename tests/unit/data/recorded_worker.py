"""Runs scripts as recorded processes, each in a fork of this one, which has imported torch already: a line of JSON with
`folder` and `variable` (of TORCHPORT_RECORD) comes in for each, its exit status goes out."""

import gc
import json
import os
import runpy
import sys

import torch

from torchport.record import session


def main() -> None:
    assert torch.get_num_threads() == 1  # threads do not live in a fork
    torch.optim.SGD([torch.zeros(1)], lr=0.1).step()  # imports dynamo, which takes most of a script's time
    gc.freeze()  # a fork that ends looks at no object of ours: a second less
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            os.chdir(job["folder"])
            with open("stderr.txt", "w", encoding="utf-8") as stream:
                os.dup2(stream.fileno(), 2)
            with open("stdout.txt", "w", encoding="utf-8") as stream:
                os.dup2(stream.fileno(), 1)
            os.environ[session.VARIABLE] = job["variable"]
            session.start_recording()
            runpy.run_path("script.py", run_name="__main__")
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


main()
