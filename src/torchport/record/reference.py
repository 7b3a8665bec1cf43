"""CUDA scripts on the CPU, unmodified: the reference side of a port.

`apply(torch)` makes the names of `torch.cuda` answer for one device that is the CPU, and sends everything
that is asked for on a CUDA device to the CPU. Numbers are fp32: autocast and GradScaler for CUDA do nothing,
so the reference is the more precise side. A `torch.device("cuda")` keeps its name, so that a script takes the
same branches as on a GPU; tensors say that they are on the CPU.

Moving to the device and back copies, as on a GPU: a script that changes the copy in place leaves the original
alone. Tensors that require grad stay what they are.

Random numbers asked for on the device (`torch.rand(..., device="cuda")`, dropout) come from a generator of
their own, as on a GPU. They leave the CPU's generator alone, and with it the order of the data.

Not emulated: CUDA graphs, custom CUDA kernels, NCCL calls other than through torch.distributed (which gets
gloo).
"""

from __future__ import annotations

import contextlib
import functools
import os
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from torchport.knowledge.arguments import role
from torchport.patches import Patches
from torchport.record import cpu_streams

DEVICE_NAME = "CPU (reference for CUDA)"

# torch.cuda functions that have one fixed answer.
ANSWERS: dict[str, Any] = {
    "is_available": True,
    "is_initialized": True,
    "is_bf16_supported": True,
    "is_tf32_supported": False,
    "is_current_stream_capturing": False,
    "can_device_access_peer": False,
    "device_count": 1,
    "current_device": 0,
    "get_device_name": DEVICE_NAME,
    "get_device_capability": (8, 0),  # the least that scripts which ask for bf16 accept
    "get_arch_list": [],
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
    "init", "synchronize", "set_device", "empty_cache", "ipc_collect", "set_stream", "set_sync_debug_mode",
    "set_per_process_memory_fraction", "reset_peak_memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached",
)  # fmt: skip

# Factories that draw random numbers; on a CUDA device they draw from the device's generator.
RANDOM_FACTORIES = ("rand", "randn", "randint", "randperm", "normal")

# What takes a device beside the factories of the table, which the patches for the NPU use too.
TAKE_DEVICE = {
    "torch": ("set_default_device", "set_default_tensor_type"),
    "torch.Tensor": ("type",),
    "torch.nn.Module": ("to_empty", "type"),
    "torch.utils._device.DeviceContext": ("__init__",),
    "torch.jit": ("load",),
}

# Functions that draw random numbers inside a model, where a CUDA script has its tensors on the device.
RANDOM_LAYERS = {
    "torch.nn.functional": (
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
        "scaled_dot_product_attention", "rrelu", "gumbel_softmax",
    ),
    **{f"torch.nn.{layer}": ("forward",) for layer in ("RNN", "LSTM", "GRU")},  # between their layers
}  # fmt: skip

# Methods whose first argument may be a device, also as a plain number.
MOVE_TO = {"torch.Tensor": ("to",), "torch.nn.Module": ("to",), "torch.nn.utils.rnn.PackedSequence": ("to",)}

# Functions that give back their first argument. TorchScript cannot see through patched functions, and the
# reference has no need of it.
STAY = {
    "torch.Tensor": ("pin_memory",),
    "torch.nn.Module": ("cuda",),
    "torch.jit": ("script",),
    "torch.nn.utils.rnn.PackedSequence": ("cuda", "pin_memory"),
    "torch.UntypedStorage": ("cuda", "pin_memory"),
    "torch.TypedStorage": ("cuda", "pin_memory"),
}

TENSOR_TYPES = tuple(
    f"{kind}Tensor"
    for kind in ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
)


def apply(torch: ModuleType) -> Patches:
    """Patch the imported `torch`; `undo()` of what is returned takes everything back.

    Raises RuntimeError where CUDA is available: the script needs no help there.
    """
    if torch.cuda.is_available():
        raise RuntimeError("CUDA is available on this machine: run the script as it is")
    patches = Patches()
    try:
        _Reference(torch, patches).patch()
    except BaseException:
        patches.undo()
        raise
    return patches


def to_cpu(torch: ModuleType, value: Any) -> Any:
    """`value` with the CUDA device that it names, if it names one, replaced by the CPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str):
        if value == "cuda" or value.startswith("cuda:"):
            return "cpu"
        return value.replace("torch.cuda.", "torch.") if value.startswith("torch.cuda.") else value
    return value


class _Reference:
    """The patches of one process and the generator that stands for the device's."""

    def __init__(self, torch: Any, patches: Patches) -> None:
        self._torch = torch
        self._patches = patches
        self._to_cpu: Callable[[Any], Any] = functools.partial(to_cpu, torch)
        self._generator = torch.Generator()
        self._generator.manual_seed(torch.initial_seed())

    def patch(self) -> None:
        torch, cuda, patches = self._torch, self._torch.cuda, self._patches
        for name, answer in ANSWERS.items():
            self._wrap(cuda, name, functools.partial(_always, answer))
        for name in NO_EFFECT:
            self._wrap(cuda, name, functools.partial(_always, None))
        for table, make in (
            (STAY, lambda _: lambda this, *args, **kwargs: this),
            (TAKE_DEVICE, self._on_cpu),
            (_factories(), self._on_cpu),
            (RANDOM_LAYERS, self._random_layer),
            (MOVE_TO, self._move),
            ({"torch": RANDOM_FACTORIES}, self._random_factory),
        ):
            for owner, names in table.items():
                for name in names:
                    self._wrap(pkgutil.resolve_name(owner), name, make)
        patches.wrap(torch.Tensor, "cuda", lambda _: lambda this, *args, **kwargs: self._copy(this, this))
        patches.wrap(
            torch.Tensor, "cpu", lambda cpu: lambda this, *args, **kwargs: self._copy(this, cpu(this))
        )
        patches.wrap(torch.Tensor, "record_stream", lambda _: lambda this, stream: None)
        for name in TENSOR_TYPES:
            self._patches.set(cuda, name, getattr(torch, name))
        self._patch_device_queries()
        self._patch_generators()
        self._patch_streams()
        self._patch_precision()
        self._patch_loading()
        self._patch_parallel()

    def _wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        if hasattr(owner, name):  # the tables name what any supported torch has; no release has all of it
            self._patches.wrap(owner, name, make)

    def _on_cpu(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if "device" in kwargs:
                kwargs["device"] = self._device(kwargs["device"])
            return original(*map(self._to_cpu, args), **kwargs)

        return call

    def _move(self, original: Any) -> Any:
        def to(this: Any, *args: Any, **kwargs: Any) -> Any:
            if "device" in kwargs:
                wanted = kwargs["device"] = self._device(kwargs["device"])
            else:
                wanted, args = (
                    (self._device(args[0]), (self._device(args[0]), *args[1:])) if args else (None, ())
                )
            moved = original(this, *args, **kwargs)
            return self._copy(this, moved) if isinstance(wanted, (str, self._torch.device)) else moved

        return to

    def _copy(self, before: Any, after: Any) -> Any:
        """What a move to another device gives: never an alias of the original's data."""
        same = after is before and isinstance(after, self._torch.Tensor)
        return after.clone() if same and not after.requires_grad else after

    def _device(self, value: Any) -> Any:
        # An integer names the device with that number, which is a CUDA device to this script.
        return "cpu" if isinstance(value, int) and not isinstance(value, bool) else self._to_cpu(value)

    def _random_factory(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            wanted = kwargs.get("device")
            if wanted is not None:
                kwargs["device"] = self._device(wanted)
                if str(wanted) != str(kwargs["device"]) and kwargs.get("generator") is None:
                    kwargs["generator"] = self._generator
            return original(*args, **kwargs)

        return call

    def _random_layer(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._device_generator():
                return original(*args, **kwargs)

        return call

    @contextlib.contextmanager
    def _device_generator(self) -> Iterator[None]:
        """Make the device's random stream the current one: these functions take no generator."""
        default = self._torch.default_generator
        state = default.get_state()
        default.set_state(self._generator.get_state())
        try:
            yield
        finally:
            self._generator.set_state(default.get_state())
            default.set_state(state)

    def _patch_device_queries(self) -> None:
        cuda = self._torch.cuda
        self._wrap(cuda, "get_device_properties", lambda _: lambda *args: _Properties())
        self._wrap(cuda, "mem_get_info", lambda _: lambda *args: (_physical_memory(), _physical_memory()))
        self._patches.set(cuda, "device", _Nothing)
        self._patches.set(cuda, "device_of", _Nothing)

    def _patch_generators(self) -> None:
        cuda, generator = self._torch.cuda, self._generator

        def set_state(state: Any, device: Any = "cuda") -> None:
            generator.set_state(state)

        def set_state_all(states: Any) -> None:
            generator.set_state(next(iter(states)))

        def seed(value: Any) -> None:
            generator.manual_seed(int(value))

        def seed_from_clock() -> None:
            generator.seed()

        functions: dict[str, Callable[..., Any]] = {
            "manual_seed": seed,
            "manual_seed_all": seed,
            "seed": seed_from_clock,
            "seed_all": seed_from_clock,
            "initial_seed": generator.initial_seed,
            "get_rng_state": lambda device="cuda": generator.get_state(),
            "get_rng_state_all": lambda: [generator.get_state()],
            "set_rng_state": set_state,
            "set_rng_state_all": set_state_all,
        }
        for name, function in functions.items():
            for owner in (cuda, cuda.random):
                if hasattr(owner, name):
                    self._patches.set(owner, name, function)
        self._patches.set(cuda, "default_generators", (generator,))
        real = self._torch.Generator

        class Generator(type):
            """Makes `torch.Generator(device="cuda")` a CPU generator and keeps isinstance checks true."""

            def __call__(cls, device: Any = "cpu") -> Any:
                return real(device=to_cpu(self._torch, device))

            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, real)

        self._patches.set(self._torch, "Generator", Generator("Generator", (), {"__doc__": real.__doc__}))

    def _patch_streams(self) -> None:
        cuda, context = self._torch.cuda, cpu_streams.StreamContext
        self._patches.set(cuda, "Stream", cpu_streams.Stream)
        self._patches.set(cuda, "ExternalStream", cpu_streams.Stream)
        self._patches.set(cuda, "Event", cpu_streams.Event)
        self._patches.set(cuda, "stream", context)
        self._patches.set(cuda, "StreamContext", context)
        self._wrap(cuda, "current_stream", lambda _: lambda device=None: context.current)
        self._wrap(cuda, "default_stream", lambda _: lambda device=None: context.default)
        for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
            self._wrap(cuda.nvtx, name, lambda _: lambda *args, **kwargs: 0)

    def _patch_precision(self) -> None:
        def autocast(original: Any) -> Any:
            def init(
                this: Any,
                device_type: str,
                dtype: Any = None,
                enabled: bool = True,
                *args: Any,
                **kwargs: Any,
            ) -> None:
                if to_cpu(self._torch, device_type) != device_type:
                    device_type, dtype, enabled = "cpu", None, False
                original(this, device_type, dtype, enabled, *args, **kwargs)

            return init

        def scaler(original: Any) -> Any:
            def init(this: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
                original(this, "cpu", enabled=False)

            return init

        self._patches.wrap(self._torch.amp.autocast_mode.autocast, "__init__", autocast)
        self._patches.wrap(self._torch.amp.grad_scaler.GradScaler, "__init__", scaler)

    def _patch_loading(self) -> None:
        def load(original: Any) -> Any:
            def call(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
                if map_location is None:
                    map_location = "cpu"  # what was saved on cuda:0 would look for it
                elif isinstance(map_location, dict):
                    map_location = {key: self._to_cpu(value) for key, value in map_location.items()}
                else:
                    map_location = self._device(map_location)
                return original(f, map_location, *args, **kwargs)

            return call

        self._patches.wrap(self._torch, "load", load)
        self._patches.wrap(self._torch.serialization, "load", load)

    def _patch_parallel(self) -> None:
        def backend(original: Any) -> Any:
            def call(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
                kwargs.pop("device_id", None)
                return original("gloo", *args, **kwargs)

            return call

        def replicas(original: Any) -> Any:
            def init(
                this: Any,
                module: Any,
                device_ids: Any = None,
                output_device: Any = None,
                *args: Any,
                **kwargs: Any,
            ) -> None:
                original(this, module, None, None, *args, **kwargs)

            return init

        parallel = self._torch.nn.parallel
        self._patches.wrap(
            parallel.DataParallel,
            "forward",
            lambda _: lambda this, *args, **kwargs: this.module(*args, **kwargs),
        )
        if self._torch.distributed.is_available():
            self._patches.wrap(self._torch.distributed, "init_process_group", backend)
            self._patches.wrap(parallel.DistributedDataParallel, "__init__", replicas)


def _factories() -> dict[str, tuple[str, ...]]:
    """The callables with the keyword `device` that draw no random numbers from a generator of their own."""
    return {
        owner: tuple(name for name in names if owner != "torch" or name not in RANDOM_FACTORIES)
        for owner, names in role("device").factories.items()
    }


def _always(answer: Any, original: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer


class _Nothing:
    """A context manager that takes anything and does nothing: `with torch.cuda.device(0):`."""

    def __init__(self, *args: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *args: Any) -> None:
        return None


class _Properties:
    """What `torch.cuda.get_device_properties` says of the CPU."""

    name = DEVICE_NAME
    major, minor = ANSWERS["get_device_capability"]
    multi_processor_count = 1
    is_integrated = True
    is_multi_gpu_board = False
    warp_size = 32

    @property
    def total_memory(self) -> int:
        return _physical_memory()


def _physical_memory() -> int:
    """This machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
