"""How fast `torchport convert` is, and how much memory all its processes take together.

    python benchmarks/convert.py                 the named set of the corpus, or torch.distributed where there is none
    python benchmarks/convert.py PROJECT --json

Starts the command as a user does (`torchport convert PROJECT --diff`) `--repeat` times and takes the fastest run: other
work on the machine can only make a run slower. Beside the time on the clock stands the CPU time, half of which a run
takes on two idle cores. The ratio is to `ast.parse` of the same files in one process, measured in the same run: the
least that any tool needs that understands Python.

Without PROJECT two more things are measured, once: seconds per 1,000 files of generated projects of 100, 1,000 and
10,000 files, which have to stay the same, and one line of 1 MB with 50,000 calls of `.cuda()`. --small leaves them out.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from generated_projects import write_long_line, write_project

SIZES = (100, 1_000, 10_000)
CORPUS = Path(__file__).parents[1] / "build" / "corpus" / "trees"
# 106 files and 11,293 lines of people's own torch code, a third of the files with CUDA.
NAMED = ("facexlib", "torch_fidelity")


def project(folder: Path) -> Path:
    """The named set as one folder of links to files below `folder`; what is installed where it was not downloaded."""
    if all((CORPUS / name).is_dir() for name in NAMED):
        for name in NAMED:
            for path in (CORPUS / name).rglob("*.py"):
                target = folder / name / path.relative_to(CORPUS / name)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, target)
        return folder
    print("`make corpus` downloads the named set; this is torch.distributed", file=sys.stderr)
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("torch is not installed: give a folder with Python files")
    return Path(spec.origin).parent / "distributed"


def run(path: Path) -> tuple[float, float, float, int]:
    """Seconds on the clock, seconds of CPU, MiB of all processes at their peak, and files that would change."""
    command = [sys.executable, "-m", "torchport", "convert", str(path), "--diff", "--json", "-q"]
    before, begin = os.times(), time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            time.sleep(0.01)
        seconds, after = time.perf_counter() - begin, os.times()
        output.seek(0)
        changed = len(json.loads(output.read())["data"]["changed"])
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu, peak, changed


def growth(folder: Path) -> dict[str, float]:
    """Seconds, on the clock and of CPU, per 1,000 files of projects of several sizes, and for one long line."""
    figures = {}
    for size in SIZES:
        write_project(folder / str(size), size)
        seconds, cpu, _, _ = run(folder / str(size))
        figures[f"seconds_per_1000_at_{size}"] = round(seconds * 1000 / size, 2)
        figures[f"cpu_seconds_per_1000_at_{size}"] = round(cpu * 1000 / size, 2)
    write_long_line(folder / "line.py")
    seconds, cpu, _, changed = run(folder / "line.py")
    figures |= {
        "long_line_seconds": round(seconds, 2),
        "long_line_cpu_seconds": round(cpu, 2),
        "long_line_changed": changed,
    }
    return figures


def memory(pid: int) -> float:
    """MiB that a process and its children hold together; pages that they share count once (PSS)."""
    total = 0
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        try:
            waiting += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def parse(files: list[Path]) -> float:
    """Seconds of CPU that `ast.parse` takes."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in files:
            ast.parse(path.read_bytes())
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path, nargs="?")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--small", action="store_true", help="leave generated projects out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=CORPUS.parent if CORPUS.is_dir() else None) as folder:
        path = arguments.project or project(Path(folder))
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        runs = [run(path) for _ in range(arguments.repeat)]
        reference = min(parse(files) for _ in range(arguments.repeat))
        lines = sum(file.read_bytes().count(b"\n") for file in files)
    seconds, cpu = min(one[0] for one in runs), min(one[1] for one in runs)
    figures = {
        "project": " and ".join(NAMED) if str(path) == folder else str(path),
        "python_files": len(files),
        "lines": lines,
        "changed": runs[0][3],
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "files_per_second": round(len(files) / seconds, 1),
        "times_ast_parse": round(cpu / reference, 1),
        "all_processes_mib": round(max(one[2] for one in runs), 1),
    }
    if not arguments.project and not arguments.small:
        with tempfile.TemporaryDirectory() as generated:
            figures |= growth(Path(generated))
    if arguments.json:
        json.dump(figures, sys.stdout)
        print()
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):>32}  {value}")


if __name__ == "__main__":
    main()
