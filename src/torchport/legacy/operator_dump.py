"""torch.npu.init_dump, set_dump and finalize_dump on the virtual NPU, which has no CANN to write dumps.

On hardware torch_npu's own functions are left alone. Here, operators between `set_dump` and `finalize_dump` leave
CANN's files (`dump_file`) under CANN's names, for whatever reads those (msaccucmp, `torchport.legacy.read_dump`):

    <dump_path>/<time>/<device>/<type>.<name>.<task>.<stream>.<microseconds>

Operators are aten's, not CANN's kernels; `<task>` counts them, from 0.
"""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchport.legacy import dump_file
from torchport.legacy.tensors import copies
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
            after = copies(result) if "output" in self._kinds else {}
            self._write(func.overloadpacket.__name__, device.index, {"input": before, "output": after})
        return result

    def _write(self, kind: str, device: int, tensors: dict[str, dict[int, torch.Tensor]]) -> None:
        folder = self._folder / str(device)
        folder.mkdir(parents=True, exist_ok=True)
        stream = torch.npu.current_stream(device).stream_id
        now = time.time_ns() // 1000
        name = f"{kind}_{self._task}"
        path = folder / f"{kind}.{name}.{self._task}.{stream}.{now}"
        dump_file.write(path, name, now, {part: list(found.values()) for part, found in tensors.items()})
        self._task += 1


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
