"""torch.npu.init_dump, set_dump and finalize_dump on the virtual NPU, which has no CANN to write dumps.

On hardware torch_npu's own functions are left alone. Here, operators between `set_dump` and `finalize_dump` leave numpy
files, what msaccucmp makes of CANN's, named by the same rule:

    <dump_path>/<time>/<device>/<operator>.<operator>_<n>.<task>.<stream>.<microseconds>.<input|output>.<i>.npy

Operators are aten's, not CANN's kernels; `<task>` counts them.
"""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchport.legacy.tensors import copies, storable
from torchport.patches import Patches

MODES = {"input": ("input",), "output": ("output",), "all": ("input", "output")}


class OperatorDump(TorchDispatchMode):  # type: ignore[misc]
    """Writes the tensors of operators that touch an NPU into `folder`; `kinds` are "input", "output" or both."""

    def __init__(self, folder: pathlib.Path, kinds: tuple[str, ...]) -> None:
        super().__init__()
        self._folder = folder
        self._kinds = kinds
        self._task = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        before = copies((args, kwargs)) if "input" in self._kinds else {}
        result = func(*args, **kwargs)
        tensors = [value for value in (*args, *kwargs.values(), result) if isinstance(value, torch.Tensor)]
        device = next((value.device for value in tensors if value.device.type == "npu"), None)
        if device is not None:
            self._write(
                func.overloadpacket.__name__, device.index, {"input": before, "output": copies(result)}
            )
        return result

    def _write(self, name: str, device: int, tensors: dict[str, dict[int, torch.Tensor]]) -> None:
        folder = self._folder / str(device)
        folder.mkdir(parents=True, exist_ok=True)
        stream = torch.npu.current_stream(device).stream_id
        stem = f"{name}.{name}_{self._task}.{self._task}.{stream}.{time.time_ns() // 1000}"
        self._task += 1
        for kind in self._kinds:
            for index, tensor in tensors[kind].items():
                numpy.save(folder / f"{stem}.{kind}.{index}.npy", storable(tensor))


class _Session:
    initialized = False
    dump: OperatorDump | None = None


def init_dump() -> None:
    """Allow dumps; `set_dump` begins one."""
    _Session.initialized = True


def set_dump(cfg_file: str) -> None:
    """Begin as the file says: keys dump_path, dump_mode (input, output, all) and dump_op_switch (on, off).

    Raises AssertionError if there is no such file, RuntimeError before `init_dump`, ValueError for another value.
    """
    path = pathlib.Path(cfg_file)
    if not path.is_file():
        raise AssertionError(f"cfg_file {cfg_file} path does not exists.")
    if not _Session.initialized or _Session.dump is not None:
        raise RuntimeError("torch.npu.set_dump comes after init_dump, and once until finalize_dump.")
    wanted = json.loads(path.read_text(encoding="utf-8"))["dump"]
    mode, switch = wanted.get("dump_mode", "output"), wanted.get("dump_op_switch", "off")
    if mode not in MODES or switch not in ("on", "off"):
        raise ValueError(f"{cfg_file}: dump_mode is {mode!r}, dump_op_switch is {switch!r}.")
    if switch == "on":
        _Session.dump = OperatorDump(
            pathlib.Path(wanted["dump_path"], time.strftime("%Y%m%d%H%M%S")), MODES[mode]
        )
        _Session.dump.__enter__()


def finalize_dump() -> None:
    """End the dump."""
    dump, _Session.dump, _Session.initialized = _Session.dump, None, False
    if dump is not None:
        dump.__exit__(None, None, None)


def patch(npu: Any, patches: Patches) -> None:
    """Serve the three functions of torch.npu from here."""
    for function in (init_dump, set_dump, finalize_dump):
        patches.set(npu, function.__name__, function)
    patches.on_undo(finalize_dump)
