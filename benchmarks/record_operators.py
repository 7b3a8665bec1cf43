"""What recording every operator costs: processor time of a recorded training step relative to a plain one.

    python benchmarks/record_operators.py
    python benchmarks/record_operators.py encoder --on npu --rounds 30 --json
    python benchmarks/record_operators.py --model-only        # steps without an optimizer
    python benchmarks/record_operators.py --kernel            # the pass over 256 KiB against memcpy of the same

ResNet-18 (batch 8, 64x64, SGD with momentum) and an encoder of 4 layers (width 256, 64 tokens, batch 8, AdamW), one
thread, on the CPU device and on npu:0. Each form is a process of its own: plain, calls alone (the hook without a look
at any tensor), statistics, tensor, the Python recorder, and msprobe's where it is installed. They take turns, a round
of steps each; each round gives a ratio to its plain steps, the median counts, with the interval in which it lies with
95 % (bootstrap). Processor time is that of all threads, the writer's and the streams' too.

`floor` is calls alone + one pass of the same kernel over as many bytes in tensors of the same sizes, in the same run.
Limits: statistics 1.5 x the floor's added time, so 1 + 1.5 (floor - 1), and where memcpy of 64 MB gives 10 GB/s also
1.25, without an optimizer 1.15; tensor 3; contents 60 % of what the calls show.
Exit status 0 when all hold, 1 when one does not.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from step import ROOT
from turns import answer, asked

DEVICES = ("cpu", "npu")
FORMS = ("plain", "alone", "statistics", "tensor", "python", "msprobe")
STEPS = 3  # in a round
WARM = 2  # rounds that do not count
FAST_MEMORY, CEILING, CEILING_OF_MODEL = 10.0, 1.25, 1.15  # GB/s, ratios
STATISTICS_LIMIT, TENSOR_LIMIT, BYTES_LIMIT, KERNEL_LIMIT = 1.5, 3.0, 0.6, 2.5


def resnet18(torch: Any) -> tuple[Any, Any, Any]:
    sys.path.insert(0, str(ROOT / "tests" / "vnpu"))  # the model families of the tests
    from models import FAMILIES

    torch.manual_seed(0)
    model = FAMILIES["resnet18"].initial()
    batch = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
    return model, batch, lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9)


def encoder(torch: Any) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(1000, 256),
        torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
        torch.nn.Linear(256, 1000),
    )
    batch = torch.randint(0, 1000, (8, 64)), torch.randint(0, 1000, (8, 64))
    return model, batch, lambda parameters: torch.optim.AdamW(parameters, 1e-4)


MODELS = {"resnet18": resnet18, "encoder": encoder}


def recorded(form: str, folder: str) -> Any:
    """What is entered around the steps of one form."""
    if form == "plain":
        return contextlib.nullcontext()
    if form == "msprobe":
        return Msprobe(folder)
    os.environ["TORCHPORT_RECORDER"] = {"alone": "alone", "python": "mode"}.get(form, "hook")
    import torchport

    return torchport.record(folder, level="tensor" if form == "tensor" else "statistics", force=True)


class Msprobe:
    """msprobe's statistics of every Python API (L1); its step ends with `step()`."""

    def __init__(self, folder: str) -> None:
        from msprobe.pytorch import PrecisionDebugger

        path = Path(folder) / "config.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        plan = {"task": "statistics", "dump_path": folder, "level": "L1", "rank": [], "step": []}
        path.write_text(json.dumps({**plan, "statistics": {"scope": [], "list": [], "data_mode": ["all"]}}))
        self._debugger = PrecisionDebugger(config_path=str(path))

    def __enter__(self) -> Msprobe:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self) -> None:
        self._debugger.start()

    def end(self) -> None:
        self._debugger.stop()
        self._debugger.step()


def serve(name: str, device: str, form: str, folder: str, model_only: bool) -> None:
    """Train; print the processor seconds of a step of one round for each line that comes in."""
    if device == "npu":
        from torchport import vnpu

        vnpu.activate()
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    model, (inputs, target), optimizer_of = MODELS[name](torch)
    model = model.to(device).train()
    optimizer = optimizer_of(model.parameters())
    inputs, target = inputs.to(device), target.to(device).flatten()
    wait: Callable[[], None] = torch.npu.synchronize if device == "npu" else lambda: None
    with recorded(form, folder) as recording:
        begin, end, step = (getattr(recording, word, lambda: None) for word in ("begin", "end", "step"))

        def a_round() -> float:
            start = time.process_time()
            for _ in range(STEPS):
                begin()
                loss = functional.cross_entropy(model(inputs).flatten(0, -2), target)
                optimizer.zero_grad()
                loss.backward()
                (step if model_only else optimizer.step)()
                end()
            wait()
            return (time.process_time() - start) / STEPS

        answer(a_round)


def training(
    name: str, device: str, form: str, folder: str, model_only: bool
) -> contextlib.AbstractContextManager[Callable[[], float]]:
    """A process that trains in one form; each call runs a round and gives the processor seconds of a step."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if device == "cpu":
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    words = [sys.executable, __file__, name, "--on", device, "--serve", form, "--folder", folder]
    words += ["--model-only"] * model_only
    return asked(words, environment, subprocess.DEVNULL)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with 95 %."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(1000))
    return medians[25], medians[974]


def compare(
    name: str, device: str, forms: Sequence[str], rounds: int, model_only: bool, fast_memory: bool
) -> list[dict[str, Any]]:
    """All forms in turn; a row each, with its ratio to plain."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        rows = {
            form: stack.enter_context(training(name, device, form, f"{place}/{form}", model_only)) for form in forms
        }
        for _ in range(WARM):
            for seconds in rows.values():
                seconds()
        measured: dict[str, list[float]] = {form: [] for form in forms}
        passes = Passes(Path(place, "statistics")) if "statistics" in forms else None
        one_pass = []
        for turn in range(rounds):
            # Whoever comes second finds a warmer machine: they change places.
            for form in forms if turn % 2 else reversed(forms):
                measured[form].append(rows[form]())
            if passes is not None:
                one_pass.append(passes.seconds())
        looked = passes.bytes if passes is not None else 0
        kept, shown = contents(Path(place, "tensor")) if "tensor" in forms else (0, 1)
    plain = measured["plain"]
    found = []
    for form in forms[1:]:
        ratios = [one / base for one, base in zip(measured[form], plain, strict=True)]
        low, high = interval(ratios)
        row: dict[str, Any] = {"model": name, "device": device, "form": form, "optimizer": not model_only}
        row |= {"ratio": statistics.median(ratios), "low": low, "high": high}
        row |= {"base_ms": statistics.median(plain) * 1e3, "ms": statistics.median(measured[form]) * 1e3}
        found.append(row)
    by_form = {row["form"]: row for row in found}
    if passes is not None and "alone" in by_form:
        ceiling = CEILING_OF_MODEL if model_only else CEILING
        floor = by_form["alone"]["ratio"] + statistics.median(one_pass) / statistics.median(plain)
        by_form["statistics"] |= {
            "floor": floor,
            "pass_ms": statistics.median(one_pass) * 1e3,
            "megabytes": looked / 1e6,
            "limit": min(1 + STATISTICS_LIMIT * (max(floor, 1.0) - 1), ceiling if fast_memory else math.inf),
        }
    if "tensor" in by_form:
        by_form["tensor"] |= {"limit": TENSOR_LIMIT, "kept": kept / shown, "kept_limit": BYTES_LIMIT}
    return found


class Passes:
    """The kernel over tensors of the sizes that a recorded step has, each one's bytes of its own."""

    def __init__(self, folder: Path) -> None:
        import numpy
        import torch

        from torchport.record.operators import hook, layout
        from torchport.record.operators.reading import Operators

        self._library = hook.load_record_library(torch)
        with Operators.read(folder).rank(0).step(1) as step:
            # Views of the same bytes are looked at once.
            places = {
                (tensor.storage, tensor.version, tensor.offset, tensor.elements): tensor
                for tensor in step.tensors()
                if tensor.statistics is not None and tensor.dtype == "float32"
            }
        sizes = [one.elements * layout.DTYPES[one.dtype].size for one in places.values()]
        self.bytes = sum(sizes)
        self._hook = hook
        room = numpy.ones(self.bytes // 4, numpy.float32)
        self._arrays, place = [], 0
        for size in sizes:
            self._arrays.append(room[place : place + size // 4])
            place += size // 4

    def seconds(self) -> float:
        """Processor seconds of one pass over all."""
        start = time.process_time()
        for array in self._arrays:
            self._hook.measure_array(self._library, "float32", array)
        return time.process_time() - start


def contents(folder: Path) -> tuple[int, int]:
    """Bytes that a step keeps, and bytes of all tensors that its calls show."""
    from torchport.record.operators import layout
    from torchport.record.operators.reading import Operators

    with Operators.read(folder).rank(0).step(1) as step:
        kept = int(step.file.tables["contents"]["size"].sum())
        shown = sum(
            one.elements * layout.DTYPES[one.dtype].size
            for call in step.calls()
            for one in (*call.inputs, *call.outputs, *call.written)
            if one is not None
        )
    return kept, shown


def kernel(rounds: int) -> dict[str, Any]:
    """The pass over 65,536 floats against memcpy of the same bytes, in turn; and memory's rate over 64 MB."""
    import numpy
    import torch

    from torchport.record.operators import hook

    library = hook.load_record_library(torch)
    source = torch.randn(65_536).numpy()
    target = numpy.empty_like(source)
    large = numpy.ones(16 << 20, numpy.float32)
    other = numpy.empty_like(large)
    copy = ctypes.CDLL(None).memcpy
    numbers, check = (ctypes.c_double * 7)(), ctypes.c_uint64()
    data, to = ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(target.ctypes.data)
    count = ctypes.c_int64(source.size)

    def measure() -> None:
        library.torchportRecordMeasure(6, data, count, numbers, ctypes.byref(check))

    def copied() -> None:
        copy(to, data, ctypes.c_size_t(source.nbytes))

    def microseconds(call: Callable[[], None]) -> float:
        start = time.perf_counter()
        for _ in range(50):
            call()
        return (time.perf_counter() - start) / 50 * 1e6

    pairs = [(microseconds(copied), microseconds(measure)) for _ in range(rounds)]
    took = []
    for _ in range(5):  # the first brings the pages
        start = time.perf_counter()
        copy(ctypes.c_void_p(other.ctypes.data), ctypes.c_void_p(large.ctypes.data), ctypes.c_size_t(large.nbytes))
        took.append(time.perf_counter() - start)
    rate = large.nbytes / min(took) / 1e9
    ratios = [ours / theirs for theirs, ours in pairs]
    low, high = interval(ratios)
    return {
        "instructions": library.torchportRecordInstructions().decode(),
        "memcpy_us": statistics.median(p[0] for p in pairs),
        "pass_us": statistics.median(p[1] for p in pairs),
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "limit": KERNEL_LIMIT,
        "memory_gb_s": rate,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default all)")
    parser.add_argument("--on", choices=DEVICES, help="one device only")
    parser.add_argument("--rounds", type=int, default=15, help="rounds (default %(default)s)")
    parser.add_argument("--forms", nargs="+", choices=FORMS[1:], help="default: all that are there, but python")
    parser.add_argument("--model-only", action="store_true", help="steps without an optimizer")
    parser.add_argument("--kernel", action="store_true", help="the kernel alone")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--serve", choices=FORMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.models) - MODELS.keys():
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    if args.serve:
        serve(args.models[0], args.on, args.serve, args.folder, args.model_only)
        return 0
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # of this process: it has no NPU of its own
    pass_alone = kernel(200)
    rows = [] if args.kernel else compared(args, pass_alone["memory_gb_s"] >= FAST_MEMORY)
    if args.json:
        print(json.dumps({"benchmark": "record_operators", "kernel": pass_alone, "rows": rows}))
    else:
        print(
            "kernel ({instructions}): {pass_us:.1f} us / memcpy {memcpy_us:.1f} us: ratio {ratio:.2f} "
            "({low:.2f} to {high:.2f}), limit {limit}; memory {memory_gb_s:.1f} GB/s".format(**pass_alone)
        )
    over = pass_alone["ratio"] > KERNEL_LIMIT
    over |= any(row["ratio"] > row.get("limit", row["ratio"]) for row in rows)
    over |= any(row["kept"] > row["kept_limit"] for row in rows if "kept" in row)
    return int(over)


def msprobe_is_there() -> bool:
    """Whether msprobe can be used; stderr says why not, be it one of the many packages that it needs."""
    tried = subprocess.run(
        [sys.executable, "-c", "from msprobe.pytorch import PrecisionDebugger"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        why = (tried.stderr.strip().splitlines() or ["it ends at once"])[-1]
        print(f"msprobe is left out (pip install mindstudio-probe): {why}", file=sys.stderr)
    return tried.returncode == 0


def compared(args: argparse.Namespace, fast_memory: bool) -> list[dict[str, Any]]:
    forms = args.forms or ["alone", "statistics", "tensor", *(["msprobe"] if msprobe_is_there() else [])]
    rows = []
    for name in args.models or MODELS:
        for device in [args.on] if args.on else DEVICES:
            environment = {key: os.environ.pop(key) for key in ("TORCH_DEVICE_BACKEND_AUTOLOAD",)}
            found = compare(name, device, ["plain", *forms], args.rounds, args.model_only, fast_memory)
            os.environ.update(environment)
            rows += found
            for row in [] if args.json else found:
                more = f", floor {row['floor']:.3f} ({row['megabytes']:.0f} MB)" if "floor" in row else ""
                more += f", limit {row['limit']:.3f}" if "limit" in row else ""
                more += f", contents {row['kept']:.0%} of what is shown" if "kept" in row else ""
                print(
                    f"{row['model']:9} {row['device']:4} {row['form']:10} {row['ms']:8.2f} ms / "
                    f"{row['base_ms']:8.2f} ms: ratio {row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f}){more}",
                    flush=True,
                )
    return rows


if __name__ == "__main__":
    sys.exit(main())
