"""torch.accelerator: the CUDA device that the script would find, as the port's script finds the NPU."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record import cpu_streams
from torchport.record.reference import queries
from torchport.record.reference.tables import replace_functions

NO_EFFECT = (
    "synchronize",
    "empty_cache",
    "empty_host_cache",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
)
NO_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


def patch_accelerator(torch: Any, patches: Patches) -> None:
    """Patch torch.accelerator, its memory functions, what needs an accelerator (torch.Stream, torch.Event), and the
    constructor of torch.device, which takes a number for the accelerator's device, as does what reads the arguments of
    `to` for classes outside of torch (tensordict)."""
    accelerator = torch.accelerator
    context = cpu_streams.StreamContext

    def set_stream(stream: Any) -> None:
        context.current = stream

    def memory() -> tuple[int, int]:
        return queries.physical_memory(), queries.physical_memory()

    functions: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        # As on a GPU it has no index.
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "device_count": queries.device_count,
        "current_device_index": queries.current_device,
        "current_device_idx": queries.current_device,
        "set_device_index": queries.choose_device,
        "set_device_idx": queries.choose_device,
        "current_stream": lambda device=None: context.current,
        "set_stream": set_stream,
        "get_memory_info": lambda device=None: memory(),
        "memory_stats": lambda device=None: OrderedDict(),
        **{name: lambda device=None: None for name in NO_EFFECT},
        **{name: lambda device=None: 0 for name in NO_MEMORY},
    }
    for owner in (accelerator, accelerator.memory):
        replace_functions(patches, owner, functions)
    if hasattr(accelerator, "device_index"):
        patches.set(accelerator, "device_index", queries.Device)
    for name, stand_in in (("Stream", cpu_streams.Stream), ("Event", cpu_streams.Event)):
        patches.set(torch, name, _pretends(getattr(torch, name), stand_in))
    patches.wrap_new(torch.device, _name_numbers)
    patches.wrap(torch._C._nn, "_parse_to", lambda parse: _name_number_in_to(torch, parse))


def _name_numbers(create: Callable[[type, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        number = args[0] if args else kwargs.get("device")
        if isinstance(number, int):
            args, kwargs = ("cuda", number), {}
        return create(cls, args, kwargs)

    return staticmethod(new)


def _name_number_in_to(torch: Any, parse: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], int):
            args = (torch.device(args[0]), *args[1:])
        elif isinstance(kwargs.get("device"), int):
            kwargs["device"] = torch.device(kwargs["device"])
        return parse(*args, **kwargs)

    return call


def _pretends(real: Any, stand_in: Any) -> Any:
    """A class that makes `stand_in`s, and whose instances, to isinstance, are those and `real`'s."""

    class Pretends(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return stand_in(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, (real, stand_in))

    return Pretends(real.__name__, (), {"__doc__": real.__doc__, "__module__": real.__module__})
