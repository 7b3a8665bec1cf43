"""Device names: wherever torch takes a device, a CUDA name means the NPU, and nowhere else.

torch converts names in C, in three places: the constructors of `torch.device` and of the few types that take a
device (Generator, Stream, Event), the argument parser of factory functions and methods, and serialization. The type
`torch.device` is taught rather than replaced, so that it stays the type of every device and `isinstance`, pickle,
TorchScript and dynamo work as before; a `torch.device` object needs no look on the hot paths after that.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable
from typing import Any

from torchport.auto.log import Log
from torchport.auto.views import TRACED, Name, sees_cuda
from torchport.knowledge.arguments import load_role
from torchport.patches import Patches

_CUDA = re.compile(r"cuda(:\d+)?", re.ASCII)
_TENSOR_TYPE = re.compile(r"torch\.cuda\.(\w+Tensor)", re.ASCII)


def npu_name(text: str) -> str:
    """`text` as a device of the NPU if it is the name of a CUDA device, else as it is."""
    return "npu" + text[4:] if _CUDA.fullmatch(text) else text


def cuda_name(text: str) -> str:
    """The reverse of `npu_name`."""
    return "cuda" + text[3:] if text == "npu" or text.startswith("npu:") else text


def _namer(log: Log) -> Callable[[str, str], str]:
    def named(where: str, device: str) -> str:
        """The NPU's name for what was given as a device to `where`, written down if it is another."""
        name = npu_name(device)
        if name is not device:
            log.count_redirected_call(f'{where}("{device}")', f'"{name}"')
        return name

    # dynamo calls it while it traces, instead of tracing it; torch._dynamo.assume_constant_result sets this, but takes
    # two seconds to import.
    named._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return named


class Devices:
    """The patches of everything in torch that takes or tells a device."""

    def __init__(self, torch: Any, patches: Patches, log: Log) -> None:
        self._torch = torch
        self._patches = patches
        self._log = log
        self._named = _namer(log)

    def apply_patches(self) -> None:
        """Apply them."""
        torch = self._torch
        self._teach_device()
        for cls in (torch.Generator, torch.Stream, torch.Event):
            self._patches.wrap_new(cls, self._constructor(cls.__name__))
        for owner, names in load_role("device").factories.items():
            for name in names:
                self._wrap(owner, name, self._keyword)
        for owner, names in load_role("device").movers.items():
            for name in names:
                self._wrap(owner, name, self._first_or_keyword)
        self._patches.set(torch._C._nn, "_parse_to", self._parse_to(torch._C._nn._parse_to))
        new = torch.UntypedStorage.__new__
        in_keyword = self._keyword("torch.UntypedStorage", new)
        self._patches.set(torch.UntypedStorage, "__new__", staticmethod(in_keyword))
        self._patch_tensors()
        self._patch_types()

    def _wrap(self, owner: str, name: str, make: Callable[[str, Any], Any]) -> None:
        place = pkgutil.resolve_name(owner)
        if hasattr(place, name):  # the table names what any supported torch has; no release has all of it
            self._patches.wrap(place, name, lambda original: make(f"{owner}.{name}", original))

    # dynamo traces through the wrappers below: they may hold functions and texts only.

    def _keyword(self, where: str, original: Any) -> Any:
        """A function with the keyword `device`. Costs 0.1 us where that is no text."""
        named = self._named

        def call(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
            if device is not None and isinstance(device, str):
                kwargs["device"] = named(where, device)
            return original(*args, **kwargs)

        return call

    def _first_or_keyword(self, where: str, original: Any) -> Any:
        """A method with a device as first argument or as keyword."""
        named = self._named

        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], str):
                return original(this, named(where, args[0]), *args[1:], **kwargs)
            device = kwargs.get("device")
            if device is not None and isinstance(device, str):
                kwargs["device"] = named(where, device)
            return original(this, *args, **kwargs)

        return call

    def _parse_to(self, original: Any) -> Any:
        """What `Module.to` and `PackedSequence.to` read their arguments with."""
        to = self._first_or_keyword("torch.nn.Module.to", lambda this, *args, **kwargs: original(*args, **kwargs))

        def call(*args: Any, **kwargs: Any) -> Any:
            return to(None, *args, **kwargs)

        return call

    def _constructor(self, where: str) -> Callable[[Any], Any]:
        named = self._named

        def make(create: Any) -> Any:
            def new(cls: type, *args: Any, **kwargs: Any) -> Any:
                if args and isinstance(args[0], str):
                    args = (named(f"torch.{where}", args[0]), *args[1:])
                for key in ("device", "type"):
                    if isinstance(kwargs.get(key), str):
                        kwargs[key] = named(f"torch.{where}", kwargs[key])
                return create(cls, args, kwargs)

            return staticmethod(new)

        return make

    def _teach_device(self) -> None:
        device = self._torch.device
        real_type, real_repr, real_str = (vars(device)[name] for name in ("type", "__repr__", "__str__"))
        script_type = Name("cuda", "npu")

        def type_(this: Any) -> str:
            name: str = real_type.__get__(this)
            view = sees_cuda() if name == "npu" else False
            return name if not view else script_type if view != TRACED else "cuda"

        def repr_(this: Any) -> str:
            text: str = real_repr(this)
            return text.replace("'npu'", "'cuda'") if sees_cuda() else text

        def str_(this: Any) -> str:
            text: str = real_str(this)
            return cuda_name(text) if sees_cuda() else text

        self._patches.wrap_new(device, self._constructor("device"))
        self._patches.set(device, "type", property(type_))
        self._patches.set(device, "__repr__", repr_)
        self._patches.set(device, "__str__", str_)

    def _patch_tensors(self) -> None:
        torch, log = self._torch, self._log

        def cuda(this: Any, device: Any = None, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling():
                log.count_redirected_call("torch.Tensor.cuda", "torch.Tensor.npu")
            device = npu_name(device) if isinstance(device, str) else device
            return this.npu(device, *args, **kwargs)

        def module_cuda(this: Any, device: Any = None) -> Any:
            log.count_redirected_call("torch.nn.Module.cuda", "torch.nn.Module.npu")
            return this.npu(npu_name(device) if isinstance(device, str) else device)

        self._patches.wrap(torch.Tensor, "cuda", lambda _: cuda)
        self._patches.wrap(torch.nn.Module, "cuda", lambda _: module_cuda)
        for cls, attribute in (
            (torch.Tensor, "is_npu"),
            (torch.UntypedStorage, "is_npu"),
            (torch.TypedStorage, "is_npu"),
            (torch.nn.utils.rnn.PackedSequence, "data"),
        ):
            self._patches.set(cls, "is_cuda", property(_is_cuda(attribute)))

    def _patch_types(self) -> None:
        """Typed tensors as text (`"torch.cuda.FloatTensor"`) and as the default type."""
        torch = self._torch
        state = {"device": False}

        def type_(original: Any) -> Any:
            def call(this: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
                if dtype is None:
                    text = original(this, *args, **kwargs)
                    npu = isinstance(text, str) and text.startswith("torch.npu.") and sees_cuda()
                    return Name(text.replace("torch.npu.", "torch.cuda."), text) if npu else text
                return original(this, self._tensor_type(dtype), *args, **kwargs)

            return call

        def set_default(original: Any) -> Any:
            def call(t: Any) -> None:
                name = self._tensor_type(t) if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
                on_npu = name.startswith("torch.npu.")
                if on_npu:
                    # torch_npu's types cannot be the default; a default device and dtype say the same.
                    torch.set_default_dtype(getattr(torch, name.rpartition(".")[2]).dtype)
                    torch.set_default_device("npu")
                else:
                    original(t)
                    if state["device"]:
                        torch.set_default_device(None)
                state["device"] = on_npu

            return call

        def get_module(original: Any) -> Any:
            def call(*args: Any) -> Any:
                module = original(*args)
                return torch.cuda if module is torch.npu and sees_cuda() else module

            return call

        self._patches.wrap(torch, "get_device_module", get_module)
        self._patches.wrap(torch.Tensor, "type", type_)
        self._patches.wrap(torch, "set_default_tensor_type", set_default)

    def _tensor_type(self, name: Any) -> Any:
        match = _TENSOR_TYPE.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            return name
        self._log.count_redirected_call(name, f"torch.npu.{match[1]}")
        return f"torch.npu.{match[1]}"


def _is_cuda(attribute: str) -> Callable[[Any], bool]:
    def is_cuda(this: Any) -> bool:
        value = getattr(this, attribute)
        return bool((value.is_npu if attribute == "data" else value) and sees_cuda())

    return is_cuda
