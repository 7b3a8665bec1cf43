"""Everything that names a CUDA device, sent to the CPU: factories, moves, contexts, types."""

from __future__ import annotations

import weakref
from typing import Any

from torchport.knowledge.arguments import load_role
from torchport.patches import Patches
from torchport.record.reference import queries
from torchport.record.reference.tables import wrap_all, wrap_if_present

# What takes a device beside the factories of the table, which the patches for the NPU use too.
TAKE_DEVICE = {
    "torch": ("set_default_tensor_type",),
    "torch.Tensor": ("type",),
    "torch.nn.Module": ("to_empty", "type"),
    "torch.jit": ("load",),
}

# Methods whose first argument may be a device, also as a plain number.
MOVE_TO = {"torch.Tensor": ("to",), "torch.nn.Module": ("to",), "torch.nn.utils.rnn.PackedSequence": ("to",)}

# Functions that give back their first argument. TorchScript cannot see through patched functions, and the
# reference has no need of it.
STAY = {
    "torch.jit": ("script",),
    "torch.nn.utils.rnn.PackedSequence": ("cuda", "pin_memory"),
    "torch.UntypedStorage": ("cuda", "pin_memory"),
    "torch.TypedStorage": ("cuda", "pin_memory"),
}

TENSOR_TYPES = tuple(
    f"{kind}Tensor" for kind in ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
)


# Of parameters and buffers: whether their module was moved to a CUDA device last, which their own device does not tell.
_moved: weakref.WeakKeyDictionary[Any, bool] | None = None


def name_device(tensor: Any) -> str:
    """The type of the device that the script has moved the module to which a parameter or buffer belongs: "cuda", or
    that where it is."""
    return "cuda" if _moved is not None and _moved.get(tensor, False) else str(tensor.device.type)


def patch_devices(torch: Any, patches: Patches) -> None:
    """Send to the CPU what is asked for on a CUDA device; `name_device` tells what was asked for."""
    global _moved
    _moved = torch.utils.weak.WeakIdKeyDictionary()
    places = _Places(torch)
    wrap_all(patches, STAY, lambda _: lambda this, *args, **kwargs: this)
    wrap_all(patches, TAKE_DEVICE, places.on_cpu)
    wrap_all(patches, load_role("device").factories, places.on_cpu)
    wrap_all(patches, MOVE_TO, places.wrap_move)
    patches.wrap(torch.nn.Module, "cuda", places.move_to_cuda)
    patches.wrap(torch.nn.Module, "cpu", places.move_to_cpu)
    patches.wrap(torch.Tensor, "cuda", places.copy_to_cuda)
    patches.wrap(torch.Tensor, "cpu", lambda cpu: lambda this, *args, **kwargs: places.copy_if_alias(this, cpu(this)))
    for owner in (torch.Tensor, torch.nn.Parameter):
        patches.wrap(owner, "__deepcopy__", places.keep_place)
    patches.wrap(torch.Tensor, "record_stream", lambda _: lambda this, stream: None)
    for name in TENSOR_TYPES:
        patches.set(torch.cuda, name, getattr(torch, name))
    _patch_default_device(torch, patches)


def to_cpu(torch: Any, value: Any) -> Any:
    """`value` with the CUDA device that it names, if it names one, replaced by the CPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str):
        if value == "cuda" or value.startswith("cuda:"):
            return "cpu"
        return value.replace("torch.cuda.", "torch.") if value.startswith("torch.cuda.") else value
    return value


def device_to_cpu(torch: Any, value: Any) -> Any:
    """`to_cpu` of an argument that is a device if it is an integer: the CUDA device with that number."""
    return "cpu" if isinstance(value, int) and not isinstance(value, bool) else to_cpu(torch, value)


def use_if_cuda(torch: Any, device: Any) -> None:
    """Note a CUDA device that is named as used."""
    if _is_cuda(torch, device):
        queries.use_device(device)


def _note_move(module: Any, to_cuda: bool) -> None:
    if _moved is not None:
        for tensor in (*module.parameters(), *module.buffers()):
            _moved[tensor] = to_cuda


def _is_cuda(torch: Any, device: Any) -> bool:
    named = isinstance(device, str) and (device == "cuda" or device.startswith("cuda:"))
    number = isinstance(device, int) and not isinstance(device, bool)
    return named or number or (isinstance(device, torch.device) and device.type == "cuda")


class _Places:
    """Wrappers that change the devices among the arguments."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def _argument(self, value: Any) -> Any:
        """`to_cpu`; a CUDA device is used by it. A number is none: it may be a size."""
        if not isinstance(value, int):
            use_if_cuda(self._torch, value)
        return to_cpu(self._torch, value)

    def _device(self, value: Any) -> Any:
        """`device_to_cpu`; a CUDA device is used by it."""
        use_if_cuda(self._torch, value)
        return device_to_cpu(self._torch, value)

    def on_cpu(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if "device" in kwargs:
                kwargs["device"] = self._device(kwargs["device"])
            return original(*map(self._argument, args), **kwargs)

        return call

    def wrap_move(self, original: Any) -> Any:
        def to(this: Any, *args: Any, **kwargs: Any) -> Any:
            asked = kwargs.get("device", args[0] if args else None)
            if "device" in kwargs:
                wanted = kwargs["device"] = self._device(kwargs["device"])
            else:
                wanted, args = (self._device(args[0]), (self._device(args[0]), *args[1:])) if args else (None, ())
            moved = original(this, *args, **kwargs)
            # Afterwards: buffers are other tensors then.
            if isinstance(this, self._torch.nn.Module) and isinstance(asked, (str, int, self._torch.device)):
                _note_move(this, _is_cuda(self._torch, asked))
            return self.copy_if_alias(this, moved) if isinstance(wanted, (str, self._torch.device)) else moved

        return to

    def move_to_cuda(self, _: Any) -> Any:
        """For a module's `cuda`, which has nothing to do here."""

        def cuda(this: Any, device: Any = None) -> Any:
            queries.use_device(device)
            _note_move(this, True)
            return this

        return cuda

    def copy_to_cuda(self, _: Any) -> Any:
        """For a tensor's `cuda`."""

        def cuda(this: Any, device: Any = None, *args: Any, **kwargs: Any) -> Any:
            queries.use_device(device)
            return self.copy_if_alias(this, this)

        return cuda

    def move_to_cpu(self, original: Any) -> Any:
        """For a module's `cpu`."""

        def cpu(this: Any) -> Any:
            moved = original(this)
            _note_move(this, False)
            return moved

        return cpu

    def keep_place(self, original: Any) -> Any:
        """For deep copies: an average of weights or a teacher is where the model is that it was copied from."""

        def copy(this: Any, memo: Any) -> Any:
            made = original(this, memo)
            if _moved is not None and this in _moved:
                _moved[made] = _moved[this]
            return made

        return copy

    def copy_if_alias(self, before: Any, after: Any) -> Any:
        """What a move to another device gives: never an alias of the original's data."""
        same = after is before and isinstance(after, self._torch.Tensor)
        return after.clone() if same and not after.requires_grad else after


def _patch_default_device(torch: Any, patches: Patches) -> None:
    """`with torch.device("cuda")`, set_default_device and the question what the default is."""
    from torch.utils._device import DeviceContext  # not there before the first use of a device context

    def init(original: Any) -> Any:
        def call(this: Any, device: Any) -> None:
            original(this, device_to_cpu(torch, device))
            named = torch.device(device)
            this._torchport_cuda = named if named.type == "cuda" else None
            if named.type == "cuda":
                queries.use_device(named)

        return call

    def get(original: Any) -> Any:
        def call() -> Any:
            active = [
                mode for mode in torch.overrides._get_current_function_mode_stack() if isinstance(mode, DeviceContext)
            ]
            default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
            asked = active[-1] if active else default
            cuda = getattr(asked, "_torchport_cuda", None)
            if cuda is None:
                return original()
            return torch.device("cuda", queries.current_device() if cuda.index is None else cuda.index)

        return call

    patches.wrap(DeviceContext, "__init__", init)
    wrap_if_present(patches, torch, "get_default_device", get)
