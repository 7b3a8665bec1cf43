"""Say from the logs of a run that failed what went wrong first, what proves it, and what to do.

examples:
  torchport diagnose train.log
  python train.py 2>&1 | tee train.log; torchport diagnose train.log
  torchport diagnose -                     from a pipe, until it ends or Ctrl-C
  torchport diagnose logs/                 the logs of all ranks: which failed first, and what the others then saw
  torchport diagnose train.log --html cause.html

Reads what Python, torch, torch_npu, CANN (plog), HCCL, MindSpore, launchers and Linux print, in files of any size,
packed ones too. The first in time counts, not the last that was raised; what only follows is folded. A run that
raised nothing is judged by its numbers: a loss that is no number, 0.0 or constant, a scale that falls to the floor.
CANN's own logs (plog) of the processes that the log names are read where they are in --plog.

Exit code 0: the run is seen to have come to a good end. 1: a cause is named, or the run is sick. 4: it failed, and
nothing is known about why; or no line tells how it ended.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torchport.cli import UNDECIDED
from torchport.diagnose import diagnose_logs
from torchport.diagnose.plogs import default_folder
from torchport.diagnose.results import LIMIT
from torchport.findings import write_atomically
from torchport.report import render_diagnosis
from torchport.report.html import render_page

EXIT = {"clean": 0, "cause": 1, "sick": 1, "unknown": UNDECIDED, "open": UNDECIDED}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="FILE|-|DIR", help="a log, - for stdin, or a folder of the ranks' logs")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="store the result as JSON here")
    parser.add_argument("--html", type=Path, metavar="FILE", help="store a report as one HTML file here")
    parser.add_argument(
        "--plog",
        type=Path,
        default=default_folder(),
        metavar="DIR",
        help="CANN's logs, of which the files of the log's processes are read (default: ~/ascend/log)",
    )
    parser.add_argument(
        "--limit",
        type=_size,
        default=LIMIT,
        metavar="SIZE",
        help="read no more than this of a file, such as 500M (default: 1G)",
    )


def run_command(arguments: argparse.Namespace) -> int:
    result = diagnose_logs(arguments.log, getattr(sys.stdin, "buffer", None), arguments.limit, arguments.plog)
    if arguments.output:
        result.write(arguments.output)
    if arguments.html:
        write_atomically(arguments.html, render_page(result).encode("utf-8", "backslashreplace"))
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        print(render_diagnosis(result), end="")
    return EXIT[result.data["answer"]]


def _size(word: str) -> int:
    number, unit = (word[:-1], word[-1:].upper()) if word[-1:].upper() in _UNITS else (word, "")
    if not number.isdecimal() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{word} is no size: a number of bytes, or one with K, M or G")
    return int(number) * _UNITS.get(unit, 1)
