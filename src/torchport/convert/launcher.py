"""The script that starts a distributed conversion: one process per NPU, with torchrun."""

from __future__ import annotations

import shlex
from pathlib import Path

from torchport.convert.output import Planned
from torchport.errors import TorchportError
from torchport.source.project import display_name, is_python, iter_files

LAUNCHER = "run_distributed_npu.sh"
_TEXT = """\
#!/usr/bin/env bash
# Starts one process per NPU of this machine; arguments go to the script.
#   ./{launcher} --epochs 90
# Fewer NPUs: ASCEND_RT_VISIBLE_DEVICES=0,1 or NPROC_PER_NODE=2. Several machines: set NNODES and MASTER_ADDR on each,
# and NODE_RANK to 0, 1, ...
set -euo pipefail
cd "$(dirname "${{BASH_SOURCE[0]}}")"

if [[ -z "${{NPROC_PER_NODE:-}}" ]]; then
  if [[ -n "${{ASCEND_RT_VISIBLE_DEVICES:-}}" ]]; then
    IFS=, read -ra devices <<< "$ASCEND_RT_VISIBLE_DEVICES"
  else
    shopt -s nullglob
    devices=(/dev/davinci[0-9]*)
  fi
  NPROC_PER_NODE=${{#devices[@]}}
  if (( NPROC_PER_NODE == 0 )); then  # a device that is no file: torch_npu knows
    ask='import torch, torch_npu; print(torch.npu.device_count())'
    NPROC_PER_NODE=$(python -c "$ask" 2>/dev/null | tail -n 1) || NPROC_PER_NODE=0
  fi
fi
if ! [[ "$NPROC_PER_NODE" =~ ^[1-9][0-9]*$ ]]; then
  echo "no NPU found, neither in /dev nor by torch_npu; set NPROC_PER_NODE to the number of processes" >&2
  exit 2
fi

exec torchrun \\
  --nnodes="${{NNODES:-1}}" \\
  --node_rank="${{NODE_RANK:-0}}" \\
  --nproc_per_node="$NPROC_PER_NODE" \\
  --master_addr="${{MASTER_ADDR:-127.0.0.1}}" \\
  --master_port="${{MASTER_PORT:-29500}}" \\
  {main} "$@"
"""


def main_file(project: Path, main: Path) -> str:
    """The name in findings of the file that `main` means: inside the project's folder, or from where the user is.

    Raises TorchportError where the project has no such Python file.
    """
    root = project.resolve()
    for candidate in ((project if project.is_dir() else project.parent) / main, main):
        path = candidate.resolve()
        if is_python(path) and path.is_file() and (path == root or root in path.parents):
            return display_name(path, root)
    known = [display_name(path, project) for path in iter_files(project) if is_python(path)]
    raise TorchportError(
        f"{main} is no Python file of {project}",
        hint=f"--main is one of {', '.join(known[:8])}" + (" ..." if len(known) > 8 else "") if known else "",
    )


def plan_launcher(main: str) -> Planned:
    """The executable launcher for the script `main`, to be written into a converted project as `LAUNCHER`."""
    text = _TEXT.format(launcher=LAUNCHER, main=shlex.quote(f"./{main}"))
    return Planned(content=text.encode("utf-8", "surrogateescape"), mode=0o755)
