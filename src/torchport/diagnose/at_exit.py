"""What is said at the end of a script that `torchport run` has started and that an exception has ended.

The script's own output and exit status stay what they are: this is written to stderr behind them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback

from torchport.findings import Result


def say_at_exit() -> None:
    """Let this process say at its end, in three lines on stderr, why it fails, if an exception ends it that is known.

    Python keeps the exception that nobody has caught in `sys.last_value`. To be called before torch is imported: what
    is registered first is called last, behind what torch_npu still says.
    """
    atexit.register(_say)


def _say() -> None:
    error = getattr(sys, "last_value", None)
    if error is None or isinstance(error, KeyboardInterrupt):
        return
    from torchport.diagnose.results import diagnose_text  # here: a healthy script must not pay for it

    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):  # nobody reads stderr any more
        for line in in_short(diagnose_text(text)):
            print(line, file=sys.stderr)


def in_short(result: Result) -> list[str]:
    """The cause in three lines; none where no row knows it: Python has said what was raised and where."""
    row = result.data["row"]
    if result.data["answer"] != "cause" or row == "script.exception":
        return []
    first = result.findings[0]
    place = first.evidence["at"]
    rank = os.environ.get("RANK", "")
    who = f"torchport: rank {rank}" if rank and os.environ.get("WORLD_SIZE", "1") != "1" else "torchport"
    return [f"{who}: {first.message}{f' ({place})' if place else ''}", f"  {first.hint}", f"  torchport explain {row}"]
