"""`torch.cuda` and its submodules, answered by `torch.npu` as the interface table says (`knowledge/api.toml`)."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torchport.auto.log import Log
from torchport.auto.views import is_script, sees_cuda
from torchport.errors import TorchportError
from torchport.knowledge.api import Api, Status, load_apis
from torchport.on_import import after_import
from torchport.patches import Patches, disguise

# Functions that ask whether there is CUDA. torch itself asks too, and means it.
QUESTIONS = ("is_available", "device_count", "is_initialized")
# Ranges for a profiler: see profiling, and cudart() below.
MARKERS = ("torch.cuda.nvtx", "torch.cuda.profiler")
# What a GPU says of itself with compute capability 8.0; scripts divide by these numbers, no result depends on them.
WARP_SIZE, THREADS, REGISTERS = 32, 2048, 65536
# The toolkit and the libraries that go with torch 2.13: what scripts test with `>=`.
NO_CONTEXT = "107002"  # ACL_ERROR_RT_CONTEXT_NULL
CUDA_VERSION, CUDNN_VERSION, NCCL_VERSION = "12.6", 91002, (2, 27, 5)


class UnsupportedError(NotImplementedError):
    """A call of torch.cuda that has no counterpart on the NPU."""


def get_compute_capability(torch: Any) -> tuple[int, int]:
    """The compute capability that a script is told.

    TORCHPORT_CUDA_CAPABILITY or TORCH_NPU_DEVICE_CAPABILITY where set; else (8, 0) for chips with bfloat16 and (7, 0)
    for others, as scripts ask to learn just that. Raises TorchportError for a setting that is no number like 8.0.
    """
    for variable in ("TORCHPORT_CUDA_CAPABILITY", "TORCH_NPU_DEVICE_CAPABILITY"):
        text = os.environ.get(variable)
        if text:
            match = re.fullmatch(r"(\d+)\.(\d+)", text)
            if match is None:
                raise TorchportError(f"{variable}={text} is no compute capability", hint="Write it as 8.0.")
            return int(match[1]), int(match[2])
    return (8, 0) if torch.npu.is_bf16_supported() else (7, 0)


class Properties:
    """`torch.cuda.get_device_properties`: those of the NPU, and of a GPU what an NPU has not."""

    def __init__(self, torch: Any, npu: Any) -> None:
        self._npu = npu
        self.name = npu.name
        self.total_memory = npu.total_memory
        self.major, self.minor = get_compute_capability(torch)
        self.multi_processor_count = npu.cube_core_num
        self.max_threads_per_multi_processor = THREADS
        self.regs_per_multiprocessor = REGISTERS
        self.warp_size = WARP_SIZE
        self.is_integrated = self.is_multi_gpu_board = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._npu, name)

    def __repr__(self) -> str:
        return repr(self._npu)


class Cuda:
    """The patches of torch.cuda. Functions become functions that count themselves; classes are the NPU's own."""

    def __init__(self, torch: Any, patches: Patches, log: Log) -> None:
        self._torch = torch
        self._patches = patches
        self._log = log
        # Served by __getattr__, which sees each use.
        self._computed: dict[ModuleType, dict[str, Callable[[], Any]]] = {torch.cuda: {}}

    def apply_patches(self) -> None:
        """Apply them."""
        own = self._own_answers()
        for name, row in load_apis().items():
            if not name.startswith("torch.cuda.") or row.module or name.startswith(MARKERS):
                continue
            owner, _, last = name.rpartition(".")
            place = self._resolve(owner)
            if place is None or (row.status is Status.KEEP):
                continue
            short = name.removeprefix("torch.cuda.")
            if short in own:
                self._replace(place, last, self._function(name, row.npu, own[short]))
            elif row.status is Status.MISSING:
                self._refuse(place, row)
            else:
                self._serve(place, last, row)
        for module, getters in self._computed.items():
            self._patches.set_computed(module, getters)
        self._patches.set_computed(self._torch.version, {"cuda": self._version})
        backends = self._torch.backends
        self._answer(backends.cuda, "is_built", True)
        self._answer(backends.cudnn, "is_available", True)
        self._answer(backends.cudnn, "version", CUDNN_VERSION)
        self._answer(self._torch.cuda.amp.common, "amp_definitely_not_available", False)

    def _version(self) -> str | None:
        # _getframe: this, compute's __getattr__, whoever reads the attribute
        return os.environ.get("TORCHPORT_CUDA_VERSION", CUDA_VERSION) if sees_cuda(3) else None

    def _answer(self, owner: Any, name: str, answer: Any) -> None:
        """A function that says `answer` to a script and the truth to torch."""
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return answer if sees_cuda() else original(*args, **kwargs)

        self._patches.set(owner, name, disguise(call, original))

    def _resolve(self, name: str) -> Any:
        # torch_npu's modules are attributes of torch, not imported by these names: importing `torch.npu.amp` would run
        # them once more, for classes that are not the ones in use.
        where, *path = name.split(".")
        try:
            return functools.reduce(getattr, path, {"torch": self._torch}[where])
        except (KeyError, AttributeError):
            pass
        try:
            return pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            return None

    def _serve(self, place: Any, last: str, row: Api) -> None:
        target = self._resolve(row.npu)
        if target is None:
            return
        short = row.name.removeprefix("torch.cuda.")
        if callable(target) and not isinstance(target, type):
            original = vars(place).get(last) if short in QUESTIONS else None  # torch would call CUDA next
            self._replace(place, last, self._function(row.name, row.npu, _named(row, target), original))
        elif isinstance(target, type) and isinstance(place, ModuleType):
            self._computed.setdefault(place, {})[last] = self._class(row, target)
            if place is self._torch.cuda:
                self._spread(last, vars(place).get(last), target)
            if row.arguments and "__init__" in vars(target):  # the class stays, for isinstance
                self._patches.wrap(target, "__init__", functools.partial(_named, row))

    def _class(self, row: Api, target: Any) -> Callable[[], Any]:
        def get() -> Any:
            # _getframe: this, compute's __getattr__, whoever looks. torch looks for isinstance, Python to import.
            if sees_cuda(3) and is_script(sys._getframe(2)):
                self._log.count_redirected_call(row.name, row.npu)
            return target

        return get

    def _function(self, name: str, npu: str, target: Any, original: Any = None) -> Any:
        """`target`, counted where a script calls it. With `original` that is what torch itself gets."""
        log, compiling = self._log, self._torch.compiler.is_compiling

        def call(*args: Any, **kwargs: Any) -> Any:
            if not compiling():
                if sees_cuda():
                    log.count_redirected_call(name, npu)
                elif original is not None:
                    return original(*args, **kwargs)
            return target(*args, **kwargs)

        return disguise(call, target)

    def _refuse(self, place: Any, row: Api) -> None:
        """Let a script's calls say what to do instead: of a function, or of all functions of a submodule."""
        last = row.name.rpartition(".")[2]
        original = vars(place).get(last)
        if isinstance(original, ModuleType):
            self._refuse_all(row, original)
            return
        if original is None and hasattr(place, "__path__") and importlib.util.find_spec(row.name):
            wait = after_import(row.name, functools.partial(self._refuse_all, row))  # torch.cuda.comm
            self._patches.on_undo(wait)
            return
        if original is None or isinstance(original, type) or not callable(original):
            return  # classes only matter once they are used

        def call(*args: Any, **kwargs: Any) -> Any:
            if not sees_cuda():
                return original(*args, **kwargs)
            self._log.count_unsupported_call(row.name, row.note)
            raise UnsupportedError(f"{row.name} does not exist on the NPU: {row.note}")

        self._replace(place, last, disguise(call, original))

    def _refuse_all(self, row: Api, module: ModuleType) -> None:
        for name in getattr(module, "__all__", ()):
            full = f"{row.name}.{name}"
            if full not in load_apis():  # those with a row are gone through by it
                self._refuse(module, dataclasses.replace(row, name=full))

    def _replace(self, place: Any, last: str, value: Any) -> None:
        original = vars(place).get(last)
        self._patches.set(place, last, value)
        if place is self._torch.cuda:
            self._spread(last, original, value)

    def _spread(self, last: str, original: Any, value: Any) -> None:
        """Submodules define what torch.cuda exports (`torch.cuda.memory.empty_cache`)."""
        if original is None:
            return
        for name, module in list(sys.modules.items()):
            if name.startswith("torch.cuda.") and vars(module).get(last) is original:
                self._patches.set(module, last, value)

    def _own_answers(self) -> dict[str, Callable[..., Any]]:
        """What is neither the NPU's function nor refused."""
        torch = self._torch

        def default_generators() -> Any:
            torch.npu.init()  # a GPU's list is empty before that as well, but fills up under the same name
            return torch.npu.default_generators

        self._computed[torch.cuda].update(
            default_generators=default_generators, has_half=lambda: True, has_magma=lambda: False
        )

        def properties(device: Any = None) -> Properties:
            return Properties(torch, _in_context(torch, torch.npu.get_device_properties, device))

        return {
            "mem_get_info": lambda device=None: _in_context(torch, torch.npu.mem_get_info, device),
            "get_device_properties": properties,
            "get_device_capability": lambda device=None: get_compute_capability(torch),
            "get_arch_list": lambda: ["sm_{}{}".format(*get_compute_capability(torch))],
            "get_gencode_flags": lambda: "",
            "is_tf32_supported": lambda: False,
            "nccl.version": lambda: NCCL_VERSION,
            "check_error": lambda result: None,
            "cudart": _Runtime,
        }


def _named(row: Api, target: Callable[..., Any]) -> Callable[..., Any]:
    """`target`, called with the names that CUDA's function has for its arguments (`knowledge/api.toml`).

    One that the NPU's has not is left out where it asks for nothing; otherwise the call raises UnsupportedError.
    """
    if not row.arguments:
        return target

    def call(*args: Any, **kwargs: Any) -> Any:
        for name, new in row.arguments.items():
            if name not in kwargs:
                continue
            value = kwargs.pop(name)
            if new:
                kwargs[new] = value
            elif value:
                raise UnsupportedError(f"{row.name} takes no {name} on the NPU")
        return target(*args, **kwargs)

    named: Callable[..., Any] = disguise(call, target)
    return named


def _in_context(torch: Any, function: Callable[[Any], Any], device: Any) -> Any:
    """`function(device)`. torch_npu 2.13 has the driver answer for the device that this thread uses, and fails where it
    uses none yet; CUDA answers then, too.
    """
    try:
        return function(device)
    except RuntimeError as error:
        if NO_CONTEXT not in str(error):
            raise
    torch.npu.set_device(torch.npu.current_device())
    return function(device)


class _Runtime:
    """`torch.cuda.cudart()`: profiling ranges are for a profiler that is not there; the rest does not exist."""

    cudaError = type("cudaError", (), {"success": 0})  # noqa: N815  names of the CUDA runtime

    def __getattr__(self, name: str) -> Any:
        if name in ("cudaProfilerStart", "cudaProfilerStop", "cudaProfilerInitialize"):
            return functools.partial(_success)
        raise UnsupportedError(f"torch.cuda.cudart().{name} does not exist on the NPU: there is no CUDA runtime")


def _success(*args: Any) -> int:
    return 0
