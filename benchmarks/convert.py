"""How fast `torchport convert` is: files and lines per second, and the memory of all processes together.

    python benchmarks/convert.py                 the Python files of the installed torch.distributed
    python benchmarks/convert.py PROJECT --json

Converts to nowhere (as `--diff` does) `--repeat` times and prints the fastest run: other work on the machine can only
make a run slower.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import sys
import time
from pathlib import Path

from torchport.convert import preview_tree


def default_project() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("torch is not installed: give a folder with Python files")
    return Path(spec.origin).parent / "distributed"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", type=Path, nargs="?")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    project = arguments.project or default_project()
    seconds = []
    for _ in range(arguments.repeat):
        begin = time.perf_counter()
        result = preview_tree(project)
        seconds.append(time.perf_counter() - begin)
    lines = sum(
        path.read_bytes().count(b"\n")
        for path in (project / name for name in result.inputs)
        if path.is_file()
    )
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    largest_worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    figures = {
        "project": str(project),
        "files": len(result.inputs),
        "lines": lines,
        "changed": len(result.data["changed"]),
        "seconds": round(min(seconds), 3),
        "files_per_second": round(len(result.inputs) / min(seconds), 1),
        "lines_per_second": round(lines / min(seconds)),
        "main_process_mib": round(own, 1),
        "largest_worker_mib": round(largest_worker, 1),
    }
    if arguments.json:
        json.dump(figures, sys.stdout)
        print()
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):>20}  {value}")


if __name__ == "__main__":
    main()
