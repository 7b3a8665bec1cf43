"""Jobs of several ranks under torchrun, with the torch_npu wheel as it is: a worker runs named sections in every rank
and writes how each went; the tests look at one section each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from torchport import vnpu

HERE = Path(__file__).parent
Section = Callable[[], None]


def torchrun(script: Path, size: int, *arguments: str, **variables: str) -> str:
    """Run the script in `size` ranks; return what all wrote to stdout and stderr, whatever the exit status."""
    environ = os.environ | vnpu.environment() | {"OMP_NUM_THREADS": "1"} | variables
    environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
    # A rendezvous on a free port, chosen by torchrun: two jobs at once do not meet.
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}", str(script)]
    done = subprocess.run(
        [*command, *arguments], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


def run_sections(sections: dict[str, Section], directory: Path) -> None:
    """In a rank: run all sections, then write {section: "" or its traceback} for the test."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.npu.set_device(rank)
    dist.init_process_group("hccl")
    outcomes = dict.fromkeys(sections, "not run: a section before it failed on a rank")
    for name, section in sections.items():
        try:
            torch.manual_seed(0)
            section()
            torch.npu.synchronize()
            outcomes[name] = ""
        except Exception:  # reported by the test
            outcomes[name] = traceback.format_exc()
        (directory / f"{rank}.json").write_text(json.dumps(outcomes))
        if outcomes[name]:
            break  # the others wait for this rank or are ahead of it: nothing after this means anything
    dist.destroy_process_group()


def section_outcomes(worker: str, size: int, directory: Path, **variables: str) -> dict[str, list[str]]:
    """Run a worker's sections in `size` ranks; {section: [what each rank says of it]}."""
    # More than the ranks will need: what is free is then what the device has free.
    variables |= {"HCCL_EXEC_TIMEOUT": "300", "VNPU_HOST_LIMIT": "1TiB"}
    output = torchrun(HERE / worker, size, str(directory), **variables)
    ranks = [directory / f"{rank}.json" for rank in range(size)]
    assert all(path.exists() for path in ranks), output
    outcomes = [json.loads(path.read_text()) for path in ranks]
    return {name: [outcome[name] for outcome in outcomes] for name in outcomes[0]}
