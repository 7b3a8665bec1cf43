"""What one small operator costs on the virtual NPU above the CPU device.

    python benchmarks/dispatch.py
    python benchmarks/dispatch.py --json

Rounds of `torch.add` on 64 float32 are run on the CPU and on npu:0 in turn, the npu ones up to and including the
synchronisation at their end; each pair of rounds gives one difference, of which the median counts. One process
per value of TASK_QUEUE_ENABLE, one thread of computation on both sides. Limits: 3 us at 0, 5 us at 1.
Exit status 0 when both limits hold, 1 when one does not.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

LIMIT_US = {"0": 3.0, "1": 5.0}


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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60, help="pairs of rounds (default %(default)s)")
    parser.add_argument(
        "--operators", type=int, default=2000, help="operators in a round (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.rounds, args.operators)))
        return 0
    results: dict[str, Any] = {}
    for queue, limit in LIMIT_US.items():
        command = [
            sys.executable,
            __file__,
            "--measure",
            f"--rounds={args.rounds}",
            f"--operators={args.operators}",
        ]
        environment = {**os.environ, "TASK_QUEUE_ENABLE": queue}
        child = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        results[queue] = {**json.loads(child.stdout.splitlines()[-1]), "limit_us": limit}
    if args.json:
        print(json.dumps({"benchmark": "dispatch", "task_queue_enable": results}))
    else:
        for queue, row in results.items():
            print(
                f"TASK_QUEUE_ENABLE={queue}: npu {row['npu_us']:.2f} us, cpu {row['cpu_us']:.2f} us, "
                f"difference {row['difference_us']:.2f} us (p10 {row['difference_p10_us']:.2f}, "
                f"p90 {row['difference_p90_us']:.2f}), limit {row['limit_us']:.0f}"
            )
    return int(any(row["difference_us"] > row["limit_us"] for row in results.values()))


if __name__ == "__main__":
    sys.exit(main())
