"""Run a script with the NPU of this machine, real or virtual.

examples:
  torchport run train_npu.py -- --epochs 1
  torchport run examples/digits/train_npu.py

The script finds `torch.npu`; it is run as it is. CUDA calls in it are not redirected to the NPU: convert it
first (`torchport convert`, `torchport port`). Ends with the script's own exit status.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from torchport import vnpu
from torchport.errors import TorchportError

PASSES_ARGUMENTS = True


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torchport run [options] SCRIPT [-- ARGS]"
    parser.add_argument("script", type=Path, metavar="SCRIPT", help="the Python file to run")


def run(arguments: argparse.Namespace) -> NoReturn:
    if not arguments.script.is_file():
        raise TorchportError(
            f"there is no script {arguments.script}", hint="The script's own arguments follow after `--`."
        )
    environment = {**os.environ, **vnpu.environment()}
    sys.stdout.flush()
    # This process becomes the script: its exit status, signals and standard streams are the script's own.
    os.execve(sys.executable, [sys.executable, str(arguments.script), *arguments.passed], environment)  # noqa: S606
