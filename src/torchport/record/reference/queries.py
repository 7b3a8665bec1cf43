"""What torch.cuda says of the CPU: as many devices as there are processes on this machine, all alike.

What scripts decide by (is there a device, how many, which, can it do bfloat16) is answered as the port's NPU answers;
what only describes a device (names, sizes, utilisation) need not be.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record import cpu_streams
from torchport.record.reference.tables import replace_functions, set_fixed_answers, wrap_if_present

DEVICES = "TORCHPORT_REFERENCE_DEVICES"  # how many there are for a launcher; set by who starts the reference
DEVICE_NAME = "CPU (reference for CUDA)"
CAPABILITY = (8, 0)  # the least that scripts which ask for bf16 accept
# The libraries that go with torch 2.13: what scripts test with `>=`.
CUDNN_VERSION, NCCL_VERSION = 91002, (2, 27, 5)

# torch.cuda functions that have one fixed answer.
ANSWERS: dict[str, Any] = {
    "is_available": True,
    "is_initialized": True,
    "is_bf16_supported": True,
    "is_tf32_supported": False,
    "is_current_stream_capturing": False,
    "can_device_access_peer": False,
    "get_device_name": DEVICE_NAME,
    "get_device_capability": CAPABILITY,
    "get_arch_list": ["sm_80"],
    "get_gencode_flags": "",
    "get_sync_debug_mode": 0,
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "memory_cached": 0,
    "max_memory_cached": 0,
    "memory_stats": {},
    "memory_snapshot": [],
    "memory_summary": "no CUDA memory: the reference runs on the CPU",
    "utilization": 0,
    "memory_usage": 0,
}

# torch.cuda functions that ask for an effect which the CPU has no need of.
NO_EFFECT = (
    "init",
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "set_stream",
    "set_sync_debug_mode",
    "set_per_process_memory_fraction",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
)


class Properties:
    """What `torch.cuda.get_device_properties` says of the CPU."""

    name = DEVICE_NAME
    major, minor = CAPABILITY
    multi_processor_count = 1
    max_threads_per_multi_processor = 2048
    regs_per_multiprocessor = 65536
    warp_size = 32
    L2_cache_size = 1 << 20
    gcnArchName = ""  # noqa: N815  the name of an AMD chip, which torch asks every device for
    is_integrated = True
    is_multi_gpu_board = False

    @property
    def total_memory(self) -> int:
        """This machine's memory in bytes."""
        return physical_memory()

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor})"


class _Selected:
    """The device that the script has selected, which is only a number, and those that it has named or used."""

    index = 0
    used: set[int] = set()  # noqa: RUF012  of the process, as the index is


def current_device() -> int:
    """The index of the selected device."""
    return _Selected.index


def select_device(device: Any) -> None:
    """Select a device by index or name ("cuda:1"); one without an index, or a negative index, changes nothing."""
    index = index_of(device)
    if index is not None and index >= 0:
        _Selected.index = index


def choose_device(device: Any) -> None:
    """`select_device` by the script: the device counts as used."""
    select_device(device)
    if index_of(device) is not None:
        use_device(device)


def use_device(device: Any) -> None:
    """Note that something is put on a device, or that it is named: by number, by name, or by a `torch.device`."""
    index = index_of(device)
    _Selected.used.add(_Selected.index if index is None or index < 0 else index)


def list_used() -> frozenset[int]:
    """The devices that the script has named or used so far."""
    return frozenset(_Selected.used)


def index_of(device: Any) -> int | None:
    """The index in a device, given as number, name or torch.device; None for one that has none."""
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return device
    if isinstance(device, str):
        last = device.partition(":")[2]
        return int(last) if last.isdecimal() else None
    index = getattr(device, "index", None)
    return index if isinstance(index, int) else None


def device_count() -> int:
    """One device for each of the run's processes on this machine: those that a launcher has started (torchrun says how
    many), or is about to start (DEVICES), or a shell loop (WORLD_SIZE)."""
    counts = (os.environ.get(name, "") for name in ("LOCAL_WORLD_SIZE", DEVICES, "WORLD_SIZE"))
    return next((max(1, int(count)) for count in counts if count.isdecimal()), 1)


def physical_memory() -> int:
    """This machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Device:
    """Stands for `torch.cuda.device`: `with torch.cuda.device(1):` selects a device for the length of a block."""

    def __init__(self, device: Any = None) -> None:
        self.idx = index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = current_device()
        choose_device(self.idx)

    def __exit__(self, *error: Any) -> None:
        select_device(self.prev_idx)


class DeviceOf(Device):
    """Stands for `torch.cuda.device_of`: tensors have no CUDA device here, so the selection stays."""

    def __init__(self, tensor: Any) -> None:
        super().__init__(None)


def patch_cuda_queries(torch: Any, patches: Patches) -> None:
    """Patch torch.cuda and what torch.backends tells of it. The first device is selected, as in a new process."""
    cuda, backends = torch.cuda, torch.backends
    _forget()
    patches.on_undo(_forget)
    set_fixed_answers(patches, cuda, ANSWERS)
    set_fixed_answers(patches, cuda, dict.fromkeys(NO_EFFECT))
    functions: dict[str, Callable[..., Any]] = {
        "device_count": device_count,
        "current_device": current_device,
        "set_device": choose_device,
        "get_device_properties": lambda device=None: Properties(),
        "mem_get_info": lambda device=None: (physical_memory(), physical_memory()),
    }
    replace_functions(patches, cuda, functions)
    patches.set(cuda, "device", Device)
    patches.set(cuda, "device_of", DeviceOf)
    set_fixed_answers(patches, backends.cuda, {"is_built": True})
    set_fixed_answers(patches, backends.cudnn, {"is_available": True, "version": CUDNN_VERSION})
    set_fixed_answers(patches, cuda.nccl, {"version": NCCL_VERSION, "is_available": True})
    _patch_streams(cuda, patches)


def _forget() -> None:
    _Selected.index = 0
    _Selected.used.clear()


def _patch_streams(cuda: Any, patches: Patches) -> None:
    context = cpu_streams.StreamContext
    patches.set(cuda, "Stream", cpu_streams.Stream)
    patches.set(cuda, "ExternalStream", cpu_streams.Stream)
    patches.set(cuda, "Event", cpu_streams.Event)
    patches.set(cuda, "stream", context)
    patches.set(cuda, "StreamContext", context)
    wrap_if_present(patches, cuda, "current_stream", lambda _: lambda device=None: context.current)
    wrap_if_present(patches, cuda, "default_stream", lambda _: lambda device=None: context.default)
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        wrap_if_present(patches, cuda.nvtx, name, lambda _: lambda *args, **kwargs: 0)
