"""The process that a recorded script runs in: `python -m torchport.record --out DIR [options] -- SCRIPT
[ARGS]`.

Made for `torchport port`, which starts it. The script sees what it would see under `python SCRIPT ARGS`; it
ends with the script's own exit status.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import faulthandler
import signal
import sys
from pathlib import Path
from typing import Any

from torchport import standins
from torchport.findings import Result, hash_bytes
from torchport.patches import Patches
from torchport.record import recording, script
from torchport.record.equal import EqualStart
from torchport.record.recorder import Recorder

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> int:
    """Run the script that the command line names; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m torchport.record", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of the recording; must exist")
    parser.add_argument("--device", default="", help="what the recording says it ran on")
    parser.add_argument("--reference", action="store_true", help="run a CUDA script on the CPU")
    parser.add_argument("--save", type=Path, help="save initial weights to this directory")
    parser.add_argument("--load", type=Path, help="load initial weights from this directory")
    parser.add_argument(
        "--seed", type=int, default=0, help="for random streams that the script does not seed"
    )
    parser.add_argument("--stack", type=Path, help="where SIGUSR1 writes the stacks of all threads")
    parser.add_argument(
        "--die-with-parent", action="store_true", help="leave no process when the parent is killed"
    )
    parser.add_argument("words", nargs="+", metavar="SCRIPT [ARGS]")
    options = parser.parse_args()
    path, *arguments = options.words

    if options.die_with_parent:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if options.stack is not None:
        # Open for the whole run: the signal handler writes through the descriptor.
        stack = open(  # noqa: SIM115
            options.stack, "w", encoding="utf-8"
        )
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    Result(
        command=recording.COMMAND,
        data={
            "recording": recording.VERSION,
            "script": path,
            "arguments": arguments,
            "device": options.device,
            "seed": options.seed,
            "python": sys.version.split()[0],
        },
        inputs={path: hash_bytes(Path(path).read_bytes())},
    ).write(options.out / recording.HEAD)

    journal = recording.Journal(options.out)
    folder = options.save or options.load

    def equal(torch: Any) -> EqualStart:
        return EqualStart(torch, folder, journal, load=options.load is not None)

    prepare = _reference if options.reference else None
    recorder = Recorder(journal, options.seed, prepare, equal if folder else None)
    recorder.install()
    standins.install()  # both runs import apex and the like
    outcome = script.Outcome(-signal.SIGINT, "interrupted")

    def finish() -> None:
        journal.write(
            "end",
            status=outcome.status,
            error=outcome.error,
            path=outcome.path,
            line=outcome.line,
            timeout=0,
        )

    atexit.register(finish)  # first registered, so it runs after the script's own exit handlers
    outcome = script.run(path, arguments)
    return outcome.status


def _reference(torch: Any) -> Patches:
    from torchport.record import reference

    return reference.apply(torch)


if __name__ == "__main__":
    sys.exit(main())
