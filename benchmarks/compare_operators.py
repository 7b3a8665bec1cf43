"""What it costs to name the operator that is wrong first, and to compare two recordings tensor by tensor.

    python benchmarks/compare_operators.py
    python benchmarks/compare_operators.py --model resnet18 --json
    python benchmarks/compare_operators.py --peer VENV        msprobe's comparison of as many bytes, in the same run
    python benchmarks/compare_operators.py --large            two recordings of 5 GB, in the folder --folder

One step is recorded with tensors (ResNet-18 at 64 x 64 and the encoder, in batches of 16) and judged as `torchport
compare` does; `wall`, `processor` and `memory` (the largest of the process and its children) are those of the verdict.
`metrics` are of two recordings of 240 MB. The peer gets the same tensors as files, in the layout of its own dumps.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEGABYTES, LARGE = 240, 5_000
BLOCK = 4 << 20  # bytes of a tensor
MODELS = ("resnet18", "bert")


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=MODELS, help="default: both")
    parser.add_argument("--peer", type=Path, metavar="VENV", help="an environment with mindstudio-probe")
    parser.add_argument("--large", action="store_true", help="two recordings of 5 GB too")
    parser.add_argument("--folder", type=Path, help="where recordings are made (default: a temporary one)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--do", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.do:
        what, *words = arguments.do
        print(json.dumps(DO[what](*words)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        rows = [
            {"what": f"verdict, {name}", **verdict(Path(temporary, name), name)} for name in arguments.model or MODELS
        ]
        sizes = [MEGABYTES, *([LARGE] if arguments.large else [])]
        for size in sizes:
            rows.append({"what": f"metrics, 2 x {size} MB", **metrics(Path(temporary, str(size)), size)})
        if arguments.peer:
            rows.append({"what": f"msprobe, 2 x {MEGABYTES} MB", **peer(Path(temporary, "peer"), arguments.peer)})
    if arguments.json:
        print(json.dumps({"benchmark": "compare_operators", "rows": rows}))
        return
    for row in rows:
        print(
            f"{row['what']:24} {row['wall']:6.2f} s wall {row['processor']:6.2f} s processor "
            f"{row['memory'] / 2**20:6.0f} MiB  {row['said']}"
        )


def child(python: Path | str, *words: str, **variables: str) -> dict[str, Any]:
    """Run this file's part of that name, and what it cost."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **variables}
    started = time.perf_counter()
    ended = subprocess.run(
        [str(python), __file__, "--do", *words], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    wall = time.perf_counter() - started
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return {"wall": found.pop("wall", wall), **found}


def spent() -> dict[str, Any]:
    """Of this process and its children until now: seconds of processor, and the memory of the larger."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "processor": sum(one.ru_utime + one.ru_stime for one in both),
        "memory": max(one.ru_maxrss for one in both) * 1024,
    }


def verdict(folder: Path, name: str) -> dict[str, Any]:
    """Two recordings of one step on the CPU: which operator is wrong first?"""
    for side in ("a", "b"):
        child(sys.executable, "record", str(folder / side), name)
    return child(sys.executable, "judge", str(folder / "a"), str(folder / "b"))


def record(folder: str, name: str) -> dict[str, Any]:
    """One step of a model."""
    sys.path[:0] = [str(HERE.parent / "tests" / place) for place in ("accuracy", "vnpu")]
    import torch
    from models import FAMILIES
    from recording_run import recorded

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = FAMILIES[name].initial()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with recorded(Path(folder), "cpu") as made:
        FAMILIES[name].loss(model, FAMILIES[name].batch_of(0)).backward()
        made.on_step_begin(optimizer, 0, 0, False)
        optimizer.step()
        made.on_step_end(optimizer, 0, 0)
        made.step_done()
    return {}


def judge(one: str, other: str) -> dict[str, Any]:
    """The verdict of two recordings."""
    from torchport.compare.culprit import find_culprit

    found = find_culprit(Path(one), Path(other))
    assert found is not None
    assert found.replay is not None
    assert not found.replay.wrong
    return {**spent(), "said": f"{len(found.replay.rows)} calls, {found.replay.share:.1%} judged"}


def metrics(folder: Path, size: int) -> dict[str, Any]:
    """All metrics of two recordings with so many MB of tensors each."""
    for number, side in enumerate(("a", "b")):
        child(sys.executable, "write", str(folder / side), str(size), str(number))
    return child(sys.executable, "pair", str(folder / "a"), str(folder / "b"))


class Source:
    """Tensors of a step, drawn when the writer wants them: they need not fit in memory."""

    def __init__(self, size: int, seed: int) -> None:
        import numpy

        from torchport.record.operators.tables import Tables

        self._numpy = numpy
        self._left: list[tuple[str, Any]] = []
        self._tables = Tables(lambda block: self._left.append(("block", block)))
        self._numbers = iter(range(size * 1_000_000 // BLOCK))
        self._values = numpy.random.default_rng(0).standard_normal((1024, BLOCK // 4096)).astype("f4")
        self._draw = numpy.random.default_rng(seed + 1)
        self._done = False
        self._rows = 0
        self._row()

    def _row(self) -> int:
        from torchport.record.operators import measure
        from torchport.record.operators.tables import Row

        values = self._values * self._numpy.float32(1.5)
        values[:8] += self._draw.standard_normal(values[:8].shape).astype("f4") * self._numpy.float32(1e-4)
        self._rows += 1
        dims = [*values.shape, values.shape[1], 1]
        bits = values.reshape(-1).view("u1")
        row = Row(dims, "float32", "cpu", storage=self._rows, elements=values.size)
        return self._tables.add_tensor(row, measure.of_bytes("float32", bits, 1), bits)

    def take_item(self) -> tuple[str, Any] | None:
        """The next block; the step behind the last."""
        while not self._left and not self._done:
            number = next(self._numbers, None)
            if number is None:
                self._done = True
                finished = self._tables.finish_tables()  # which gives the last block
                self._left.append(("step", ("000000", finished)))
            else:
                made = self._row()
                self._tables.add_call("aten::relu", "", 0, [0], [made], module=f"layer{number}")
        return self._left.pop(0) if self._left else None


def write(path: str, size: str, seed: str) -> dict[str, Any]:
    """A recording of calls whose results have so many MB."""
    from torchport.findings import Result
    from torchport.record import recording
    from torchport.record.operators.writing import Writer

    folder = Path(path)
    folder.mkdir(parents=True)
    Result(recording.COMMAND, data={"recording": recording.VERSION}).write(folder / recording.HEAD)
    journal = recording.Journal(folder)
    journal.write_event("process", pid=1, name="MainProcess", rank=0, world=1)
    written: list[Any] = []
    writer = Writer(
        Source(int(size), int(seed)),
        folder / "operators",
        "process-1.h5",
        lambda: folder / "operators/rank0",
        lambda: {"level": "tensor"},
        lambda *step: written.append(step),
    )
    writer.join()
    assert not writer.failure, writer.failure
    for name, file, finished, stored in written:
        journal.write_event(
            "operators",
            step=int(name),
            file=str(file.relative_to(folder)),
            bytes=stored,
            lost=finished.lost,
            calls=len(finished.arrays["calls"]),
        )
    return {}


def pair(one: str, other: str) -> dict[str, Any]:
    """Their metrics; reading and computing alone, without the start of Python."""
    from torchport.compare.pairs import pair_results
    from torchport.record.operators.reading import Operators

    started = time.perf_counter()
    found = pair_results(Operators.read(one), Operators.read(other))
    wall = time.perf_counter() - started
    assert all(row.metrics is not None for row in found.pairs)
    return {**spent(), "wall": wall, "said": f"{len(found.pairs)} results"}


# With msprobe's own dump of as many bytes: each call has one input and one result.
DUMP = """
import json, sys
import torch
from msprobe.pytorch import PrecisionDebugger

out, count, factor = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
settings = {"task": "tensor", "dump_path": out, "rank": [], "step": [], "level": "L1"}
settings["tensor"] = {"scope": [], "list": [], "data_mode": ["all"]}
with open(out + ".json", "w") as file:
    json.dump(settings, file)
debugger = PrecisionDebugger(config_path=out + ".json")
draw = torch.Generator().manual_seed(0)
values = [torch.randn(1024, 1024, generator=draw) * factor for _ in range(count)]
debugger.start()
for one in values:
    torch.relu(one)
debugger.stop()
debugger.step()
"""


def peer(folder: Path, environment: Path) -> dict[str, Any]:
    """msprobe's metrics of two dumps: `wall` is that of its command, the start of Python included."""
    folder.mkdir()
    programs = environment.absolute() / "bin"
    variables = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    count = str(MEGABYTES * 1_000_000 // (2 * BLOCK))
    for side, factor in (("a", "1"), ("b", "1.00001")):
        command = [str(programs / "python"), "-c", DUMP, str(folder / side), count, factor]
        subprocess.run(command, check=True, env=variables, capture_output=True, cwd=folder)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    paths = ["--target_path", str(folder / "b" / "step0"), "--golden_path", str(folder / "a" / "step0")]
    command = [str(programs / "msprobe"), "compare", *paths, "--output_path", str(folder / "out")]
    subprocess.run(command, check=True, env=variables, capture_output=True, cwd=folder)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (found,) = (folder / "out").glob("*.csv")
    return {
        "wall": wall,
        "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "memory": after.ru_maxrss * 1024,  # the largest of all children until now
        "said": f"{len(found.read_text().splitlines()) - 1} rows",
    }


DO = {"record": record, "judge": judge, "write": write, "pair": pair}


if __name__ == "__main__":
    main()
