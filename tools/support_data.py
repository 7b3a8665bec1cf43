"""Write src/torchport/knowledge/support.json: what the installed torch_npu does with every operator and API of torch.

  python tools/support_data.py               write the file (about five minutes)
  python tools/support_data.py --keep        write again what needs no measuring, keep the rest
  python tools/support_data.py --check       compare what needs no measuring; exit code 1 where it differs

Needs torch, torch_npu, the virtual NPU, and `expecttest`, which torch's own table of samples imports. Three sources:

- the dispatch table that torch_npu leaves in torch: an operator has a kernel for the NPU, is made of other operators,
  or takes torch_npu's fallback, which copies to the CPU and computes there;
- torch's own samples for functions, modules and optimizers (`op_db`, `module_db`, `optim_db`), each run once per dtype
  on the virtual NPU: which operators are called there, forward and backward, what is computed on the CPU, what is
  refused. Only dtypes that the CPU takes are tried. What the virtual NPU lacks is not counted: nothing is known then;
- the public names of torch's modules.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import multiprocessing
import os
import pkgutil
import re
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch_samples import Calls, cases, names_of, resolve

from torchport import vnpu

FILE = Path(__file__).resolve().parent.parent / "src/torchport/knowledge/support.json"
SECONDS = 60  # for one case
# The modules whose public names users write.
NAMESPACES = (
    *("torch", "torch.Tensor", "torch.amp", "torch.autograd", "torch.autograd.functional", "torch.backends"),
    *("torch.distributed", "torch.distributions", "torch.fft", "torch.func", "torch.jit", "torch.linalg"),
    *("torch.multiprocessing", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.parallel"),
    *("torch.nn.utils", "torch.nn.utils.rnn", "torch.onnx", "torch.optim", "torch.optim.lr_scheduler"),
    *("torch.profiler", "torch.random", "torch.sparse", "torch.special", "torch.utils", "torch.utils.checkpoint"),
    *("torch.utils.data", "torch.utils.data.distributed"),
)
# What torch_npu writes where one of its own kernels computes on the CPU.
ON_CPU = re.compile(r"fall ?back to (?:run on )?the CPU|running on CPU|fallback to run on the CPU", re.IGNORECASE)
# What the virtual NPU answers where it, and not the hardware, lacks something; and how a refusal by torch_npu looks.
LACKS = re.compile(r"virtual NPU (?:does not|offers|takes|has no)|not in libopapi\.so|507015|507018|507035")
REFUSES = re.compile(r"ERR0\d{4}|Could not run 'aten::|error code is 161002")
NATIVE, FALLBACK, REFUSED, UNKNOWN = "native", "fallback", "refused", "unknown"


def operators() -> dict[str, list[str]]:
    """Every operator of aten by what the dispatch table has for the NPU."""
    import torch

    found: dict[str, list[str]] = {"native": [], "composite": [], "fallback": []}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith("aten::"):
            continue
        line = re.search(r"^PrivateUse1: (.*)$", torch._C._dispatch_dump_table(name), re.MULTILINE)
        if line is None:
            continue  # no tensor goes in: never asked for on a device
        kind = "native" if line[1].endswith("[kernel]") and "torch_npu" in line[1] else "composite"
        found["fallback" if "backend fallback" in line[1] else kind].append(name.removeprefix("aten::"))
    return found


def names() -> dict[str, list[str]]:
    """The public names of each namespace, modules that are not imported yet among them."""
    found = {}
    for space in NAMESPACES:
        value = resolve(space)
        modules = {module.name for module in pkgutil.iter_modules(getattr(value, "__path__", ()))}
        found[space] = sorted(name for name in {*dir(value), *modules} if not name.startswith("_"))
    return found


def removed() -> dict[str, list[str]]:
    """Names that are still there and only raise, with the names that torch's message gives instead."""
    import torch

    found = {}
    for name in sorted(vars(torch)):
        value = getattr(torch, name)
        source = (
            inspect.getsource(value) if inspect.isfunction(value) and value.__module__ == "torch._linalg_utils" else ""
        )
        if "is now removed" in source:
            found[f"torch.{name}"] = list(dict.fromkeys(re.findall(r"torch\.linalg\.\w+", source)))
    return found


# -- measuring -------------------------------------------------------------------------------------------------------


class Stderr:
    """This process's standard error as a file that can be read while it grows: torch_npu warns from C++."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the process lives
        os.dup2(self._file.fileno(), 2)

    def since(self, offset: int) -> str:
        """What was written after `offset` bytes."""
        return os.pread(self._file.fileno(), 1 << 16, offset).decode(errors="replace")

    def size(self) -> int:
        """Bytes written so far."""
        return os.fstat(self._file.fileno()).st_size


def watcher(stderr: Stderr) -> Any:
    """A dispatch mode that notes which operators run, and which of them say that they compute on the CPU."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watcher(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[tuple[str, str]] = set()  # operator and dtype
            self.on_cpu: set[str] = set()
            self.failed: tuple[str, str] | None = None

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = str(function).removeprefix("aten.").removesuffix(".default")
            first = next((x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)), None)
            # Operators return early for tensors without elements: that says nothing about their dtype.
            dtype = "" if first is None or first.numel() == 0 else str(first.dtype).removeprefix("torch.")
            before = stderr.size()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    result = function(*args, **(kwargs or {}))
                except Exception:
                    self.failed = self.failed or (name, dtype)
                    raise
            text = stderr.since(before) + "".join(str(one.message) for one in said)
            self.seen.add((name, dtype))
            if ON_CPU.search(text):
                self.on_cpu.add(name)
            return result

    return Watcher()


def _run(call: Callable[[], Any]) -> None:
    import torch

    leaves = torch.utils._pytree.tree_leaves(call())
    outputs = [leave for leave in leaves if isinstance(leave, torch.Tensor) and leave.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


def measure(calls: Calls, stderr: Stderr) -> list[dict[str, Any]]:
    """For each sample that the CPU takes: the outcome, operators with dtypes, and what was computed on the CPU."""
    results = []
    with contextlib.suppress(Exception):  # a sample that cannot be made measures nothing
        for on_cpu, on_npu in zip(calls("cpu"), calls("npu"), strict=False):
            try:
                _run(on_cpu)
            except Exception:  # noqa: S112  the CPU says no: it is not the NPU that refuses
                continue
            results.append(_measured(on_npu, stderr))
            if results[-1]["lost"]:
                break
    return results


def _measured(call: Callable[[], Any], stderr: Stderr) -> dict[str, Any]:
    import torch

    watch = watcher(stderr)
    before = stderr.size()
    word, text = NATIVE, ""
    try:
        with watch:
            _run(call)
        torch.npu.synchronize()
    except Exception as error:  # the outcome that is measured
        text = f"{error} {stderr.since(before)}"
        word = REFUSED if REFUSES.search(text) and not LACKS.search(text) else UNKNOWN
    return {
        **_seen(watch),
        "is": word,
        "failed": watch.failed if word is REFUSED else None,
        "why": text.split("\n[ERROR]")[0].strip()[:200],
        "lost": re.search("507015|507018|507035", text) is not None,
    }


def _seen(watch: Any) -> dict[str, Any]:
    return {"ops": sorted(watch.seen), "cpu": sorted(watch.on_cpu)}


def _serve(pipe: Connection, start: int) -> None:
    """Measure from the case `start` on, until the device is lost or all is done."""
    stderr = Stderr()
    vnpu.activate()
    import torch
    import torch_npu  # noqa: F401

    torch.set_warn_always(True)
    warnings.simplefilter("ignore")
    found = cases()
    for index, (name, dtype, calls) in enumerate(found):
        if index >= start:
            pipe.send((index, len(found), name, dtype, []))  # the parent has to know which one never answered
            results = measure(calls, stderr)
            pipe.send((index, len(found), name, dtype, results))
            if any(result["lost"] for result in results):
                break
    pipe.close()


def measurements() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """All cases; a process that loses its device, crashes or hangs is followed by another."""
    spawn = multiprocessing.get_context("spawn")
    start, total = 0, 1
    while start < total:
        ours, theirs = spawn.Pipe(duplex=False)
        child = spawn.Process(target=_serve, args=(theirs, start))
        child.start()
        theirs.close()
        name = dtype = ""
        with contextlib.suppress(EOFError):
            while ours.poll(SECONDS):
                index, total, name, dtype, results = ours.recv()
                start = index + 1
                yield from ((name, dtype, result) for result in results)
            print(f"no answer within {SECONDS} s: {name} {dtype}", file=sys.stderr)
        child.kill()
        child.join()
        print(f"{start} of {total}: {name} {dtype}", file=sys.stderr)


def apis(fallback: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """For each API its dtypes by outcome and its operators on the NPU; for operators what only measuring shows.

    The second: `inside`, the operators whose own kernel computes on the CPU, and `refused`, the dtypes that an
    operator refused every time.
    """
    outcomes: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    inside: set[str] = set()
    taken: dict[str, set[str]] = defaultdict(set)
    refused: dict[str, set[str]] = defaultdict(set)
    why = Counter[str]()
    for name, dtype, result in measurements():
        outcomes[name][dtype].append(result)
        inside |= set(result["cpu"]) - fallback
        for operator, of in result["ops"]:
            taken[operator].add(of)
        if result["failed"]:
            refused[result["failed"][0]].add(result["failed"][1])
        if result["is"] == UNKNOWN:
            why[f"{name} {dtype}: {result['why']}"] += 1
    for text, count in why.most_common():
        print(f"{count:4} {text!r}", file=sys.stderr)
    table: dict[str, Any] = {}
    for name, of_dtype in sorted(outcomes.items()):
        row: dict[str, Any] = {}
        for dtype, results in of_dtype.items():
            row.setdefault(_outcome(results, fallback | inside), []).append(dtype)
        row["operators"] = sorted({one for results in of_dtype.values() for run in results for one, _ in run["ops"]})
        table[name] = row
    limits = {name: sorted(of - taken[name] - {""}) for name, of in sorted(refused.items())}
    return table, {"inside": sorted(inside), "refused": {name: of for name, of in limits.items() if of}}


def _outcome(results: list[dict[str, Any]], on_cpu: set[str]) -> str:
    """What holds for a dtype: the worst of the samples that were computed; refused where none was and one was refused.

    A single refused sample says something about its other arguments, not about the dtype.
    """
    done = [run for run in results if run["is"] == NATIVE]
    if done:
        return FALLBACK if any(one in on_cpu for run in done for one, _ in run["ops"]) else NATIVE
    return REFUSED if any(run["is"] == REFUSED for run in results) else UNKNOWN


def aliases(measured: dict[str, Any]) -> dict[str, str]:
    """Other names of measured functions: methods, and what torch lists as aliases."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        other: first
        for info in op_db
        for first, *others in [names_of(info) or [""]]
        for other in others
        if first in measured and other not in measured
    }


def main() -> int:
    """Write or check the file; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--keep", action="store_true", help="keep what was measured")
    arguments = parser.parse_args()
    vnpu.activate()
    import torch
    import torch_npu

    data: dict[str, Any] = {
        "torch": torch.__version__.partition("+")[0],
        "torch_npu": torch_npu.__version__.partition("+")[0],
        "operators": operators(),
        "removed": removed(),
        "names": names(),
    }
    if arguments.check:
        kept = json.loads(FILE.read_text(encoding="utf-8"))
        stale = [key for key in data if data[key] != kept[key]]
        print(f"out of date: {', '.join(stale)}" if stale else "up to date")
        return 1 if stale else 0
    if arguments.keep:
        kept = json.loads(FILE.read_text(encoding="utf-8"))
        data["apis"], data["measured"] = kept["apis"], kept["measured"]
    else:
        data["apis"], data["measured"] = apis(set(data["operators"]["fallback"]))
    data["aliases"] = aliases(data["apis"])
    FILE.write_text(json.dumps(data, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
