"""`make profiles`: whole programs under the profilers, many times, and what the analysis tools of others make of it.

    python tests/profiles/run.py --runs 20 [--tools PYTHON]

PYTHON has msprof-analyze, HolisticTraceAnalysis and torch-tb-profiler-ascend installed; without it their part is left out.
Exit code 1 where a file was missing in any run, or a tool has failed.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from torchport import vnpu

HERE = Path(__file__).parent
COMMON = {"trace_view.json", "kernel_details.csv", "operator_details.csv", "step_trace_time.csv", "task_time.csv"}
LEVEL1 = COMMON | {"op_statistic.csv", "api_statistic.csv", "ascend_pytorch_profiler.db", "analysis.db"}
EXPECTED = {
    "resnet": LEVEL1 | {"memory_record.csv", "operator_memory.csv", "npu_module_mem.csv"},
    "gpt": COMMON,
    "ddp": LEVEL1 | {"communication.json", "communication_matrix.json"},
}
RANKS = {"ddp": 2}
UNDECIDED = 4  # of picture.py: there is no browser
# A loader of another's, on a folder of profiles or a trace.
HTA = """
import sys
from hta.common.trace_parser import parse_trace_dict
trace = parse_trace_dict(sys.argv[1])
print(len(trace["traceEvents"]), "events read by HolisticTraceAnalysis")
"""
TENSORBOARD = """
import sys
from torch_tb_profiler.profiler.loader import RunLoader
from torch_tb_profiler import io
profiles = RunLoader("run", sys.argv[1], io.Cache(), "Ascend").load().profiles
views = sorted({view.display_name for profile in profiles.values() for view in profile.views})
print(len(profiles), "profiles read by the TensorBoard plug-in:", ", ".join(views))
sys.exit(not {"Operator", "Kernel", "Memory", "Trace"} <= set(views))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--tools", help="a Python that has the analysis tools")
    parser.add_argument("--programs", nargs="+", choices=sorted(EXPECTED), default=sorted(EXPECTED))
    parser.add_argument("--keep", type=Path, help="leave the profiles of the last run here")
    arguments = parser.parse_args()
    bad: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        place = arguments.keep or Path(scratch)
        for program in arguments.programs:
            for number in range(arguments.runs):
                folder = place / program / str(number)
                problem = _run(program, folder)
                bad[program] += bool(problem)
                if problem:
                    print(f"{program} {number}: {problem}")
            print(f"{program}: {arguments.runs - bad[program]} of {arguments.runs} runs have every file", flush=True)
        if arguments.tools:
            for name, command in _tools(arguments.tools, place, arguments.programs):
                bad[name] += _tool(name, command)
    return 1 if +bad else 0


def _run(program: str, folder: Path) -> str:
    folder.mkdir(parents=True)
    script = [str(HERE / "programs" / f"{program}.py"), str(folder)]
    ranks = RANKS.get(program, 1)
    start = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone"]
    command = [*(start if ranks > 1 else [sys.executable]), *script]
    environment = os.environ | vnpu.environment() | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        return f"exit status {done.returncode}: {done.stderr[-2000:]}"
    outputs = list(folder.glob("*_ascend_pt/ASCEND_PROFILER_OUTPUT"))
    if len(outputs) != ranks:
        return f"{len(outputs)} profiles instead of {ranks}: {(done.stdout + done.stderr)[-2000:]}"
    for output in outputs:
        # A database of a rank has its number in its name.
        there = {re.sub(r"_\d+(?=\.db$)", "", path.name) for path in output.iterdir()}
        if missing := EXPECTED[program] - there:
            return f"{', '.join(sorted(missing))} missing"
    return ""


def _tools(python: str, place: Path, programs: list[str]) -> list[tuple[str, list[str]]]:
    analyze = str(Path(python).parent / "msprof-analyze")
    tools = []
    out = place / "analyzed"
    if "resnet" in programs:
        (first,) = (place / "resnet" / "0").glob("*_ascend_pt")
        tools += [
            ("advisor", [analyze, "advisor", "all", "-d", str(first), "-o", str(out)]),
            ("compare", [analyze, "compare", "-d", str(first), "-bp", str(first), "-o", str(out)]),
            ("tensorboard", [python, "-c", TENSORBOARD, str(first.parent)]),
        ]
        (trace,) = first.glob("ASCEND_PROFILER_OUTPUT/trace_view.json")
        tools.append(("browser, torch_npu.profiler", _picture(python, trace, "trace_view.png")))
    if "gpt" in programs:
        trace = place / "gpt" / "0" / "kineto.json"
        tools.append(("hta", [python, "-c", HTA, str(trace)]))
        tools.append(("browser, torch.profiler", _picture(python, trace, "kineto.png")))
    if "ddp" in programs:
        tools.append(("cluster", [analyze, "cluster", "-m", "all", "-d", str(place / "ddp" / "0"), "-o", str(out)]))
    return tools


def _picture(python: str, trace: Path, name: str) -> list[str]:
    (viewer,) = Path(python).parent.parent.glob("lib/python3*/site-packages/torch_tb_profiler/static")
    picture = HERE.parents[1] / "build" / "profile_pictures" / name
    return [sys.executable, str(HERE / "picture.py"), str(trace), str(picture), "--viewer", str(viewer)]


def _tool(name: str, command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    said = done.stdout + done.stderr
    # msprof-analyze wants SQLite 3.44 for one of its queries.
    if done.returncode == UNDECIDED:
        print(f"{name}: left out; {said.strip()}", flush=True)
        return False
    failed = done.returncode != 0 or ("[ERROR]" in said and 'near "ORDER": syntax error' not in said)
    words = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    print(f"{name}: {'FAILED' if failed else 'ok'}; {words[-1] if words else 'nothing said'}", flush=True)
    if failed:
        print((done.stdout + done.stderr)[-3000:])
    return failed


if __name__ == "__main__":
    sys.exit(main())
