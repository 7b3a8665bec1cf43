"""What collectives cost on the virtual NPU, relative to gloo on the CPU in the same processes.

    python benchmarks/collectives.py
    python benchmarks/collectives.py --ranks 4 --mebibytes 16 --rounds 15 --json

Starts the ranks under torchrun. In each round every rank runs the collective on npu tensors (HCCL of the virtual NPU)
and on CPU tensors (gloo), in turn, each between barriers; a rank's time is from the barrier to the end of the
synchronisation behind it, a round's that of its slowest rank. Each round gives one ratio; the median counts, p10 and
p90 show the spread. `latency` is the time of one all_reduce of 40 bytes, 50 in a row. Limit: 1.0 of gloo for
all_reduce of 64 MiB on 2 ranks. Exit status 0 when it holds, 1 when not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LIMIT = 1.0
LATENCIES = 50  # small collectives in a row


def run_rank(mebibytes: int, rounds: int) -> list[dict[str, object]]:
    """Measure in this rank; what all ranks took together, the slowest counting."""
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.npu.set_device(rank)
    dist.init_process_group("cpu:gloo,npu:hccl")
    count = mebibytes * 2**20 // 4 // size * size

    def broadcast(device: str) -> Callable[[], object]:
        tensor = torch.zeros(count, device=device)
        return lambda: dist.broadcast(tensor, 0)

    def all_reduce(device: str, of: int = count) -> Callable[[], object]:
        tensor = torch.zeros(of, device=device)
        return lambda: dist.all_reduce(tensor)

    def all_gather(device: str) -> Callable[[], object]:
        part, whole = torch.zeros(count // size, device=device), torch.zeros(count, device=device)
        return lambda: dist.all_gather_into_tensor(whole, part)

    def latency(device: str) -> Callable[[], object]:
        call = all_reduce(device, 10)
        return lambda: [call() for _ in range(LATENCIES)]

    def seconds(call: Callable[[], object]) -> float:
        dist.barrier()
        start = time.perf_counter()
        call()
        torch.npu.synchronize()
        return time.perf_counter() - start

    measured = []
    for make in (all_reduce, all_gather, broadcast, latency):
        sides = [make("cpu"), make("npu")]
        for call in sides:  # the first call of a group connects it and touches its memory
            seconds(call)
        mine = torch.tensor([[seconds(call) for call in sides] for _ in range(rounds)])
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        measured.append(row(make.__name__, size, 0 if make is latency else mebibytes, mine))
    dist.destroy_process_group()
    return measured if rank == 0 else []


def row(name: str, ranks: int, mebibytes: int, pairs: Tensor) -> dict[str, object]:
    """One line of the result; `pairs` has a round's seconds of gloo and of the virtual NPU."""
    gloo, npu = pairs.unbind(1)
    ratios = sorted((npu / gloo).tolist())
    calls = LATENCIES if mebibytes == 0 else 1
    return {
        "collective": name,
        "ranks": ranks,
        "mebibytes": mebibytes,
        "gloo_ms": statistics.median(gloo.tolist()) * 1e3 / calls,
        "npu_ms": statistics.median(npu.tolist()) * 1e3 / calls,
        "ratio": statistics.median(ratios),
        "ratio_p10": ratios[len(ratios) // 10],
        "ratio_p90": ratios[len(ratios) * 9 // 10],
        "limit": LIMIT if (name, ranks, mebibytes) == ("all_reduce", 2, 64) else None,
    }


def measure(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Run this file under torchrun."""
    from torchport import vnpu

    environ = os.environ | vnpu.environment() | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={arguments.ranks}"]
    options = ["--in-rank", "--mebibytes", str(arguments.mebibytes), "--rounds", str(arguments.rounds)]
    done = subprocess.run(
        [*command, __file__, *options], env=environ, stdout=subprocess.PIPE, text=True, check=True, timeout=900
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mebibytes", type=int, default=64, help="of each collective but latency (default 64)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.in_rank:
        rows = run_rank(arguments.mebibytes, arguments.rounds)
        if rows:
            print(json.dumps(rows))
        return 0
    rows = measure(arguments)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        for each in rows:
            print(
                f"{each['collective']:<11} {each['ranks']} ranks {each['mebibytes']:>4} MiB"
                f"  gloo {each['gloo_ms']:8.2f} ms  npu {each['npu_ms']:8.2f} ms  ratio {each['ratio']:.2f}"
                f" ({each['ratio_p10']:.2f} to {each['ratio_p90']:.2f})"
                + ("" if each["limit"] is None else f"  limit {each['limit']}")
            )
    return int(any(each["limit"] is not None and each["ratio"] > each["limit"] for each in rows))  # type: ignore[operator]


if __name__ == "__main__":
    sys.exit(main())
