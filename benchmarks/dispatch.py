"""What one small operator costs on the virtual NPU above the CPU device.

    python benchmarks/dispatch.py
    python benchmarks/dispatch.py --queue 1 --json

Rounds of `torch.add` on 64 float32 are run on the CPU and on npu:0 in turn, the npu ones up to and including the
synchronisation at their end; each pair of rounds gives one difference, of which the median and the 90th percentile
count. One process per value of TASK_QUEUE_ENABLE, one thread of computation on both sides; the last one runs beside a
process that keeps a core busy, as a DataLoader's does. Exit status 0 when all limits hold, 1 when one does not.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and the microseconds above the CPU that it may take."""

    queue: str  # TASK_QUEUE_ENABLE; 1 is torch_npu's default
    busy: bool
    limit_us: float | None
    limit_p90_us: float | None

    def holds(self, row: dict[str, Any]) -> bool:
        """Whether the figures of a measurement keep to the limits."""
        return (self.limit_us is None or row["difference_us"] <= self.limit_us) and (
            self.limit_p90_us is None or row["difference_p90_us"] <= self.limit_p90_us
        )


CASES = (Case("0", False, 3.0, None), Case("1", False, 5.5, 6.0), Case("1", True, None, 6.5))


def measure(rounds: int, operators: int) -> dict[str, float]:
    """Microseconds per operator on both devices, and the median of the paired differences."""
    import torchport.vnpu

    torchport.vnpu.activate()
    import torch

    torch.set_num_threads(1)
    inputs = {device: torch.ones(64, device=device) for device in ("cpu", "npu")}

    def run(device: str) -> float:
        x, add = inputs[device], torch.add
        start = time.perf_counter()
        for _ in range(operators):
            add(x, x)
        if device == "npu":
            torch.npu.synchronize()  # type: ignore[attr-defined]
        return (time.perf_counter() - start) / operators * 1e6

    for device in inputs:  # first calls load kernels and start the worker
        run(device)
    pairs = [(run("cpu"), run("npu")) for _ in range(rounds)]
    differences = sorted(npu - cpu for cpu, npu in pairs)
    return {
        "cpu_us": statistics.median(cpu for cpu, _ in pairs),
        "npu_us": statistics.median(npu for _, npu in pairs),
        "difference_us": statistics.median(differences),
        "difference_p10_us": differences[len(differences) // 10],
        "difference_p90_us": differences[len(differences) * 9 // 10],
    }


@contextlib.contextmanager
def busy_process(wanted: bool) -> Iterator[None]:
    """A process that computes all the time beside the block."""
    if not wanted:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            yield
        finally:
            other.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="pairs of rounds (default %(default)s)")
    parser.add_argument("--operators", type=int, default=2000, help="operators in a round (default %(default)s)")
    parser.add_argument("--queue", choices=["0", "1"], help="only this value of TASK_QUEUE_ENABLE")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.rounds, args.operators)))
        return 0
    command = [*(sys.executable, __file__, "--measure", f"--rounds={args.rounds}", f"--operators={args.operators}")]
    results: list[dict[str, Any]] = []
    for case in CASES:
        if args.queue not in (None, case.queue):
            continue
        with busy_process(case.busy):
            environment = {**os.environ, "TASK_QUEUE_ENABLE": case.queue}
            child = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        row = json.loads(child.stdout.splitlines()[-1])
        results.append({**dataclasses.asdict(case), **row, "holds": case.holds(row)})
        if not args.json:
            print(line(case, row), flush=True)
    if args.json:
        print(json.dumps({"benchmark": "dispatch", "cases": results}))
    return int(not all(row["holds"] for row in results))


def line(case: Case, row: dict[str, Any]) -> str:
    """A measurement for people."""
    limits = [
        f"{name} {limit:.1f}" for name, limit in (("limit", case.limit_us), ("p90 limit", case.limit_p90_us)) if limit
    ]
    return (
        f"TASK_QUEUE_ENABLE={case.queue}{' beside a busy process' if case.busy else ''}: npu {row['npu_us']:.2f} us, "
        f"cpu {row['cpu_us']:.2f} us, difference {row['difference_us']:.2f} us (p10 {row['difference_p10_us']:.2f}, "
        f"p90 {row['difference_p90_us']:.2f}), {', '.join(limits)}{'' if case.holds(row) else ': NOT KEPT'}"
    )


if __name__ == "__main__":
    sys.exit(main())
