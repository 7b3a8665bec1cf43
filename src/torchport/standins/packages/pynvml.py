"""Stand-in for pynvml: what the NPU's driver tells of devices, under NVML's names.

Known: the number of devices, names, memory, utilization. Whatever else scripts ask of NVML raises
NVMLError_NotSupported, as NVML does for what a device lacks. `npu-smi info` shows more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

import torch

__version__ = "12.0.0"  # the release whose API this is

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_DRIVER_NOT_LOADED = 9
# Selectors that scripts hand to functions which are not supported here.
NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1


class NVMLError(Exception):
    """An NVML error; `value` is NVML's code."""

    value = 999  # NVML_ERROR_UNKNOWN

    def __init__(self, message: str = "") -> None:
        super().__init__(message or type(self).__name__)


class NVMLError_Uninitialized(NVMLError):  # noqa: N801, N818  NVML's names
    """nvmlInit has not been called."""

    value = NVML_ERROR_UNINITIALIZED


class NVMLError_InvalidArgument(NVMLError):  # noqa: N801, N818
    """There is no such device."""

    value = NVML_ERROR_INVALID_ARGUMENT


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818
    """An NPU does not tell this."""

    value = NVML_ERROR_NOT_SUPPORTED


class NVMLError_NotFound(NVMLError):  # noqa: N801, N818
    """There is nothing of that name."""

    value = NVML_ERROR_NOT_FOUND


class NVMLError_DriverNotLoaded(NVMLError):  # noqa: N801, N818
    """There is no NPU."""

    value = NVML_ERROR_DRIVER_NOT_LOADED


@dataclasses.dataclass(frozen=True)
class Handle:
    """A device."""

    index: int


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of device memory."""

    total: int
    free: int
    used: int


class Utilization:
    """Percent of time in which the device was busy."""

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu

    @property
    def memory(self) -> NoReturn:
        """NVML's share of time in which memory was accessed: an NPU does not tell it."""
        raise NVMLError_NotSupported("an NPU does not tell how busy its memory is; nvmlDeviceGetMemoryInfo is known")


_users = 0  # calls of nvmlInit without nvmlShutdown


def nvmlInit() -> None:  # noqa: N802
    """Begin. Raises NVMLError_DriverNotLoaded where there is no NPU."""
    nvmlInitWithFlags(0)


def nvmlInitWithFlags(flags: int) -> None:  # noqa: N802
    """Begin; flags are ignored."""
    global _users
    npu = getattr(torch, "npu", None)
    if npu is None or not npu.is_available():
        raise NVMLError_DriverNotLoaded("there is no NPU; `torchport doctor` says what is missing")
    _users += 1


def nvmlShutdown() -> None:  # noqa: N802
    """End, once for each nvmlInit."""
    global _users
    _check()
    _users -= 1


def nvmlDeviceGetCount() -> int:  # noqa: N802
    """The number of visible NPUs."""
    _check()
    return int(torch.npu.device_count())


def nvmlDeviceGetHandleByIndex(index: int) -> Handle:  # noqa: N802
    """The device `npu:index`."""
    count = nvmlDeviceGetCount()
    if not 0 <= int(index) < count:
        raise NVMLError_InvalidArgument(f"there is no device {index}: {count} NPUs are visible")
    return Handle(int(index))


def nvmlDeviceGetIndex(handle: Handle) -> int:  # noqa: N802
    """The index of a device."""
    _check()
    return handle.index


def nvmlDeviceGetName(handle: Handle) -> str:  # noqa: N802
    """The chip's name, such as "Ascend910B1"."""
    _check()
    return str(torch.npu.get_device_name(handle.index))


def nvmlDeviceGetMemoryInfo(handle: Handle, version: Any = None) -> Memory:  # noqa: N802
    """Total, free and used memory in bytes, over all processes."""
    _check()
    with torch.npu.device(handle.index):  # the driver answers for the thread's current device only
        torch.npu.current_stream()
        free, total = torch.npu.mem_get_info(handle.index)
    return Memory(total, free, total - free)


def nvmlDeviceGetUtilizationRates(handle: Handle) -> Utilization:  # noqa: N802
    """`gpu`: percent of time in which the device's cores were busy. `memory` is not known."""
    _check()
    return Utilization(int(torch.npu.utilization(handle.index)))


def _check() -> None:
    if _users == 0:
        raise NVMLError_Uninitialized("call nvmlInit() first")


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if not name.startswith(("nvmlDevice", "nvmlSystem", "nvmlUnit", "nvmlEvent", "nvmlVgpu", "nvmlGpu")):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def not_supported(*args: Any, **kwargs: Any) -> NoReturn:
        raise NVMLError_NotSupported(f"{name}: an NPU does not tell this through torch; see `npu-smi info`")

    not_supported.__name__ = name
    return not_supported
