"""Measure what a script under `torchport run` gets for each public name of torch.cuda, and write docs/torch_cuda.md.

    python tools/cuda_names.py             write tests/vnpu/cuda_names.json, and the page
    python tools/cuda_names.py --check     only say which names have changed; exit status 1 if any
    python tools/cuda_names.py --page      print the page of what is stored

Needs the virtual NPU or an NPU, but for the page.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STORED, PAGE = ROOT / "tests" / "vnpu" / "cuda_names.json", ROOT / "docs" / "torch_cuda.md"
# What each answer means, for the page.
MEANINGS = {
    "npu": "the NPU's function or class, which the table names",
    "answered": "an answer of torchport's own: a constant, or what the NPU says of itself",
    "same": "torch's own, which works with what is redirected, or needs no device",
    "refused": "NotImplementedError with what to do instead",
    "open": "torch's own, which finds no CUDA: not covered",
}


def _use_range(kind: Any) -> None:
    with kind("range"):
        pass


def _use_forward(decorate: Any) -> None:
    assert decorate(lambda context, x: x + 1)(types.SimpleNamespace(), 1) == 2


def _use_autocast(kind: Any) -> None:
    import torch

    with kind():
        assert torch.mm(*[torch.ones(2, 2, device="cuda")] * 2).dtype == torch.float16


def _use_scaler(kind: Any) -> None:
    import torch

    assert kind(init_scale=2.0).scale(torch.ones((), device="cuda")).item() == 2


# What is not replaced itself, and has to work all the same.
USES: dict[str, Callable[[Any], object]] = {
    "torch.cuda.amp.autocast_mode.autocast": _use_autocast,
    "torch.cuda.amp.autocast_mode.custom_bwd": lambda decorate: decorate(lambda context, x: x),
    "torch.cuda.amp.autocast_mode.custom_fwd": _use_forward,
    "torch.cuda.amp.grad_scaler.GradScaler": _use_scaler,
    "torch.cuda.nvtx.range": _use_range,
    "torch.cuda.profiler.profile": lambda kind: kind().__enter__(),
    "torch.cuda.profiler.start": lambda start: start(),
    "torch.cuda.profiler.stop": lambda stop: stop(),
}


def modules(torch: Any) -> Iterator[ModuleType]:
    """torch.cuda and its public submodules, imported."""
    yield torch.cuda
    for found in pkgutil.walk_packages(torch.cuda.__path__, "torch.cuda."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            yield importlib.import_module(found.name)


def names(module: ModuleType) -> Iterator[str]:
    """What the module offers: `__all__`, or where it has none what is defined in it."""
    for name in sorted(getattr(module, "__all__", None) or vars(module)):
        value = getattr(module, name)
        own = getattr(value, "__module__", "").startswith("torch.cuda")
        if not name.startswith("_") and not isinstance(value, ModuleType) and (getattr(module, "__all__", None) or own):
            yield name


def measure() -> dict[str, list[str]]:
    """Per full name: how it is answered, and the NPU's name or what to do instead."""
    from torchport import vnpu

    vnpu.activate(force=True)
    import torch

    before = {
        f"{module.__name__}.{name}": (module, name, getattr(module, name))
        for module in modules(torch)
        for name in names(module)
    }
    import torchport.auto  # noqa: F401  patches torch

    return {full: _answer(full, *place) for full, place in before.items()}


def _answer(full: str, module: ModuleType, name: str, original: Any) -> list[str]:
    from torchport.auto.cuda import UnsupportedError
    from torchport.knowledge.api import Status, find_api

    row = (find_api(full) or (None,))[0]
    now = getattr(module, name)
    if now is original:
        if full in USES:
            USES[full](now)  # what it raises is a gap that has to be closed
        constant = not callable(original) or (isinstance(original, type) and issubclass(original, Exception))
        kept = row is not None and (row.status is Status.KEEP or row.npu == full)
        same = full in USES or constant or kept
        return ["same", ""] if same else ["open", row.note if row is not None else ""]
    if row is None or row.status is not Status.MISSING:
        return ["npu", row.npu if row is not None else ""]
    try:
        now()
    except UnsupportedError:
        return ["refused", row.note]
    except (TypeError, RuntimeError):
        pass  # it is ours all the same
    return ["answered", ""]


def stored() -> dict[str, list[str]]:
    """What was measured last."""
    return json.loads(STORED.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def page() -> str:
    """The page of what is stored."""
    rows = stored()
    counts = Counter(kind for kind, _ in rows.values())
    text = [
        "# torch.cuda under `torchport run`",
        "Generated by `python tools/cuda_names.py`, which measures it; do not edit. What a script that is redirected "
        "gets for each public name of torch.cuda and its submodules. What `torchport convert` writes for them is in "
        "[Interfaces](reference/interfaces.md).",
        "\n".join(
            ["| is | means | names |", "| --- | --- | --- |"]
            + [f"| *{kind}* | {meaning} | {counts[kind]} |" for kind, meaning in MEANINGS.items()]
        ),
    ]
    for module in dict.fromkeys(name.rpartition(".")[0] for name in rows):
        text += [f"## {module}", "| name | is | on the NPU, or instead |\n| --- | --- | --- |"]
        text[-1] += "".join(
            f"\n| `{name.rpartition('.')[2]}` | {kind} | {f'`{more}`' if kind == 'npu' else more} |"
            for name, (kind, more) in rows.items()
            if name.rpartition(".")[0] == module
        )
    return "\n\n".join(text) + "\n"


def main() -> int:
    if "--page" in sys.argv[1:]:
        print(page(), end="")
        return 0
    measured = measure()
    if "--check" not in sys.argv[1:]:
        lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in measured.items())
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    before = stored()
    different = [name for name in measured.keys() | before.keys() if measured.get(name) != before.get(name)]
    for name in sorted(different):
        print(f"{name}: {before.get(name)} is now {measured.get(name)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
