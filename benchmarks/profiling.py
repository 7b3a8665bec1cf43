"""What a profile costs: an operator of the program, and what is made of it afterwards.

    python benchmarks/profiling.py [--operators 20000] [--json]

Microseconds of `torch.add` on 64 float32, the queue at its default: without a profiler, with torch_npu's own part
of it (activities=[CPU]), and with the NPU's part; the least of three rounds each, taken in turn. Then seconds of
our msprof for all of them, the least of three. Exit status 0 when what the NPU's part adds leaves an operator at
most 1.6 times what it takes without a profiler (torch_npu's own share, which no CANN changes, apart) and msprof
takes at most 2 s, 1 otherwise.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT, LIMIT_PARSE_S = 1.6, 2.0
PROGRAM = """
import json, sys, time, torch, torch_npu
P = torch_npu.profiler
count, folder = int(sys.argv[1]), sys.argv[2]
a = torch.randn(64).npu()
def rounds(n):
    start = time.perf_counter()
    for _ in range(n):
        torch.add(a, a)
    torch.npu.synchronize()
    return (time.perf_counter() - start) / n * 1e6
rounds(2000)
found = {}
host, device = P.ProfilerActivity.CPU, P.ProfilerActivity.NPU
for turn in range(3):
    times = {"off": rounds(count)}
    for name, activities in (("torch_npu's part", [host]), ("on", [host, device])):
        handler = P.tensorboard_trace_handler(folder + "/" + name, analyse_flag=False)
        with P.profile(activities=activities, on_trace_ready=handler):
            times[name] = rounds(count)
    found = {name: min(found.get(name, time), time) for name, time in times.items()}
print(json.dumps(found))
"""


def main() -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    from torchport import vnpu

    environment = os.environ | vnpu.environment() | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PROGRAM, str(arguments.operators), folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        took = []
        for profile in Path(folder, "on").glob("*_ascend_pt/PROF_*"):
            start = time.perf_counter()
            subprocess.run(["msprof", "--export=on", f"--output={profile}"], env=environment, check=True)
            took.append(time.perf_counter() - start)
        found["msprof s"] = min(took)
    found["ratio"] = found["on"] / found["off"]
    found["ratio, ours alone"] = 1 + max(found["on"] - found["torch_npu's part"], 0) / found["off"]
    if arguments.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:20} {value:8.2f}")
    return int(found["ratio, ours alone"] > LIMIT or found["msprof s"] > LIMIT_PARSE_S)


if __name__ == "__main__":
    sys.exit(main())
