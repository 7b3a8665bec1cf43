"""Operators of the device that the CPU computes in its place, in the user's process: `torchport bisect`.

What an operator is given is copied to the host, computed there, and copied back. Of an operator that the CPU does not
have, or has with other results, the plain form of it (`record.oracles`) takes its place; where there is none the
device computes it, and the recording says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from torchport.record import oracles
from torchport.record.operators.rebuilt import UnknownCallError
from torchport.record.part import Part

# They move numbers, make memory, or draw: there is nothing in them that the CPU would compute otherwise.
LEFT_ALONE = (
    "empty",
    "resize_",
    "set_",
    "view",
    "_local_scalar_dense",
    "is_pinned",
    "_pin_memory",
    "record_stream",
    "copy_",
    "_to_copy",
    "detach",
    "alias",
    "lift",
    "as_strided",
    "_reshape_alias",
    "format_cast",
    "rand",
    "normal_",
    "uniform_",
    "bernoulli",
    "multinomial",
    "exponential_",
    "dropout",
    "cauchy_",
    "geometric_",
    "log_normal_",
    "poisson",
)


class OnCpu(Part):
    """Lets the CPU compute the operators `names` ("aten::mm") of tensors on `device` ("npu") from `install` to the end.
    Then `seen` is told how often each operator was called that it might compute, and which of `names` it could not."""

    def __init__(
        self, torch: Any, names: Iterable[str], device: str, seen: Callable[[dict[str, int], list[str]], None]
    ) -> None:
        self._mode = _mode(torch, frozenset(names), device)
        self._seen = seen

    def install(self) -> None:
        """Begin."""
        self._mode.__enter__()

    def finish(self) -> None:
        """End, and tell."""
        self._mode.__exit__(None, None, None)
        self._seen(dict(self._mode.seen), sorted(self._mode.refused))


def _mode(torch: Any, names: frozenset[str], device: str) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen: Counter[str] = Counter()
            self.refused: set[str] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = func._schema.name
            if name in self.refused or not _computes(name) or not _somewhere(torch, (args, kwargs), device):
                return func(*args, **kwargs)
            self.seen[name] += 1
            if name not in names:
                return func(*args, **kwargs)
            try:
                return compute_on_host(torch, func, args, kwargs, device)
            except (NotImplementedError, RuntimeError, TypeError, ValueError, UnknownCallError):
                self.refused.add(name)  # the CPU refuses it with these arguments
                return func(*args, **kwargs)

    return Mode()


def _computes(name: str) -> bool:
    space, _, short = name.partition("::")
    return space in ("aten", "npu") and not any(word in short for word in LEFT_ALONE)


def _somewhere(torch: Any, value: Any, device: str) -> bool:
    """Whether there is a tensor of the device in it."""
    if isinstance(value, torch.Tensor):
        return bool(value.device.type == device)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return any(_somewhere(torch, part, device) for part in parts)


def compute_on_host(torch: Any, func: Any, args: Any, kwargs: Any, device: str) -> Any:
    """What `func` gives, computed on the host, on the device; what it writes is written there."""
    schema = func._schema
    host = _Host(torch, device)
    reference = oracles.find_reference(schema.name, on_npu=True, tanh=True)
    if reference is not None:
        return _by_reference(torch, func, reference, args, kwargs, host)
    results = func(*host.to_host(args), **host.to_host(kwargs))
    host.write_back(schema, args, kwargs)
    return host.to_device(results)


def _by_reference(torch: Any, func: Any, reference: Any, args: Any, kwargs: Any, host: Any) -> Any:
    """A reference gives what it judges; the rest (a mask of the device's own layout) is the device's."""
    schema = func._schema
    if "made" in reference.__code__.co_varnames[: reference.__code__.co_argcount] or any(
        argument.alias_info is not None for argument in schema.arguments
    ):
        raise UnknownCallError("it draws, or writes what it is given")
    own = func(*args, **kwargs)
    given = [
        args[place] if place < len(args) else kwargs.get(one.name, one.default_value)
        for place, one in enumerate(schema.arguments)
    ]
    made = reference(torch, *host.to_host(given))
    flat = list(own) if isinstance(own, (list, tuple)) else [own]
    for place, one in enumerate(flat):
        if place < len(made) and made[place] is not None and isinstance(one, torch.Tensor):
            flat[place] = made[place].to(one)
    return type(own)(flat) if isinstance(own, (list, tuple)) else flat[0]


class _Host:
    """Arguments on the host: each tensor once, so that what is written is written for all who see it."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch = torch
        self._device = device
        self._at = torch.device("cpu")
        self._made: dict[int, Any] = {}
        self._back: dict[int, Any] = {}
        self._where: Any = None

    def to_host(self, value: Any) -> Any:
        """The same with tensors and devices of the host."""
        torch = self._torch
        if isinstance(value, torch.Tensor):
            if value.device.type != self._device:
                return value
            self._where = value.device
            if id(value) not in self._made:
                made = self._made[id(value)] = value.detach().cpu()
                self._back[id(made)] = value
            return self._made[id(value)]
        if isinstance(value, torch.device):
            return self._at if value.type == self._device else value
        if isinstance(value, dict):
            return {name: self.to_host(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.to_host(one) for one in value)
        return value

    def write_back(self, schema: Any, args: Any, kwargs: Any) -> None:
        """Copy what the call has written to the tensors that it was given."""
        silent = schema.name.endswith("native_batch_norm")
        for place, one in enumerate(schema.arguments):
            value = args[place] if place < len(args) else kwargs.get(one.name)
            writes = one.alias_info is not None and one.alias_info.is_write
            if value is None or not (writes or (silent and one.name in ("running_mean", "running_var"))):
                continue
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if id(tensor) in self._made:
                    tensor.copy_(self._made[id(tensor)])

    def to_device(self, value: Any) -> Any:
        """Results on the device; what the call was given is given back as it is."""
        if isinstance(value, self._torch.Tensor):
            known = self._back.get(id(value))
            return known if known is not None else value.to(self._where)
        if isinstance(value, (list, tuple)):
            return type(value)(self.to_device(one) for one in value)
        return value
