"""Rates of the commands that need no torch: `diagnose`, `doctor`, `checkpoint`, imports, and conversion by length.

    python benchmarks/static.py
    python benchmarks/static.py --rounds 20 --json

Each figure is the least of `--rounds` in processor time, which other work on the machine can only make longer. Imports
and commands run in a process each; the start of Python without either is subtracted. A growth is the ratio of times if
the text is four times as long: 4 where work grows with the length, 16 where it grows with the square. The tests in
tests/unit count work in place of time; this file shows what the counts leave out. It judges nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torchport.compare.printed import printed_metrics
from torchport.convert import convert_source
from torchport.diagnose.matching import Matcher

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

from log_texts import texts

MIB = 1 << 20
IMPORTS = ("torchport.vnpu", "torchport.auto", "torchport.cuda_builds", "torchport.record.recorder", "asyncio")
CUDA_LINE = b"; ".join(b"x%d = y.cuda()" % number for number in range(1_000))


def matched(text: bytes) -> None:
    matcher = Matcher()
    for at in range(0, len(text), MIB):
        block = text[at : at + MIB]
        list(matcher.find_hits(block, block.split(b"\n")))


def here(work: Callable[[], object], rounds: int) -> float:
    """Seconds of this process."""
    work()
    least = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        work()
        least = min(least, time.process_time() - begin)
    return least


def of_a_process(words: list[str], rounds: int) -> float:
    """Seconds of Python with these arguments, and of its children."""
    least = float("inf")
    for _ in range(rounds):
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
        least = min(least, spent)
    return least


def growths() -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """The same work for a text, and for one that is four times as long."""

    def converted(count: int) -> Callable[[], object]:
        data = b"import torch\n" + b"; ".join([CUDA_LINE] * count)
        return lambda: convert_source(data, "a.py")

    def patterns(count: int) -> Callable[[], object]:
        lines = [f"P{i} = re.compile(r'cuda:{i}')\nP{i}.match(str(x.device))" for i in range(count)]
        data = "\n".join(["import re", *lines]).encode()
        return lambda: convert_source(data, "a.py")

    def printed(count: int) -> Callable[[], object]:
        text = "Epoch 3 step 17: loss 0.5 (0.6) acc 97.2 (97.1) 3.4 it/s\n" * count
        return lambda: printed_metrics(text)

    return {
        "convert, one line": (converted(1), converted(4)),
        "convert, patterns": (patterns(300), patterns(1_200)),
        "metrics of output": (printed(5_000), printed(20_000)),
    }


def measured(rounds: int) -> dict[str, float]:
    start = of_a_process(["-c", "pass"], rounds)
    figures = {}
    for name, text in texts().items():
        figures[f"diagnose, {name}: MiB/s"] = len(text) / MIB / here(lambda text=text: matched(text), rounds)
    for module in IMPORTS:
        figures[f"import {module}: ms"] = 1000 * (of_a_process(["-c", f"import {module}"], rounds) - start)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.txt")
        log.write_bytes(texts()["training"] * 8)
        command = ["-m", "torchport", "diagnose", str(log)]
        figures["diagnose, a file: MiB/s"] = log.stat().st_size / MIB / (of_a_process(command, rounds) - start)
    doctor = ["-m", "torchport", "doctor", "--no-probe", "--json"]
    figures["doctor --no-probe: s"] = of_a_process(doctor, rounds) - start
    for name, (one, four) in growths().items():
        figures[f"{name}: growth"] = here(four, rounds) / here(one, rounds)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measured(arguments.rounds)
    if arguments.json:
        print(json.dumps(figures, indent=1))
        return
    for name, figure in figures.items():
        print(f"{name:40} {figure:8.2f}")


if __name__ == "__main__":
    main()
