"""Autocast for CUDA on CPU tensors: kernels for the dispatch key AutocastCPU that follow `cast_policy`.

torch's own kernels for that key follow the CPU's lists, and those for CUDA's key cast CUDA tensors only.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torchport.record.reference import cast_policy
from torchport.record.reference.operators import find_overload, tensor_places, with_tensors

KEY = "AutocastCPU"
Kernel = Callable[..., Any]


class Casts:
    """Casts of tensors in autocast regions, and the cache of weights that were cast.

    A float32 weight is cast once in a region, as on a GPU: its uses share the cast, and so their gradients are added
    up in half precision.
    """

    def __init__(self, torch: Any, dtype: Callable[[], Any]) -> None:
        self._torch = torch
        self._dtype = dtype  # of the current region
        self.library: Any = None  # the kernels that use this
        self._weights: dict[tuple[int, Any], tuple[weakref.ref[Any], Any]] = {}

    def forget_weights(self) -> None:
        """The region has ended: drop the weights."""
        self._weights.clear()

    def is_eligible(self, value: Any) -> bool:
        """Whether autocast may change the dtype of this argument."""
        torch = self._torch
        return (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.dtype is not torch.float64
            and value.device.type == "cpu"
        )

    def cast_tensors(self, value: Any, dtype: Any) -> Any:
        """`value` in `dtype` if it is a tensor that is eligible, or a list or tuple of what such a cast gives."""
        if isinstance(value, (list, tuple)):
            return (
                type(value)(self.cast_tensors(one, dtype) for one in value) if type(value) in (list, tuple) else value
            )
        if not self.is_eligible(value) or value.dtype is dtype:
            return value
        torch = self._torch
        weight = (
            value.dtype is torch.float32
            and dtype is self._dtype()
            and value.requires_grad
            and value.is_leaf
            and not value._is_view()
            and torch.is_autocast_cache_enabled()
        )
        if not weight:
            return value.to(dtype)
        key = id(value), dtype
        found = self._weights.get(key)
        if found is None or found[0]() is not value:
            found = self._weights[key] = weakref.ref(value), value.to(dtype)
        return found[1]

    def find_widest_dtype(self, values: Any) -> Any:
        """The dtype for an operator that takes several: float32 if any argument has it, else that of the region.

        Raises RuntimeError for a mixture with another half precision, as torch does.
        """
        torch, half = self._torch, self._dtype()
        flat = [one for value in values for one in (value if isinstance(value, (list, tuple)) else (value,))]
        dtypes = {one.dtype for one in flat if self.is_eligible(one)}
        if torch.float32 in dtypes:
            return torch.float32
        if dtypes - {half}:
            raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
        return half


def register_kernels(torch: Any, casts: Casts, dtype: Callable[[], Any]) -> Any:
    """Register the kernels; returns the library whose `_destroy()` takes them back."""
    library = torch.library.Library("aten", "IMPL")
    kernels = _kernels(torch, casts, dtype)
    ours = {f"aten::{name}" for name in kernels}
    for name in torch._C._dispatch_get_registrations_for_dispatch_key(KEY):
        if name not in ours:  # what is on the CPU's lists only
            library.impl(name.removeprefix("aten::"), torch.library.fallthrough_kernel, KEY)
    for name, kernel in kernels.items():
        library.impl(name, kernel, KEY)
    return library


def _kernels(torch: Any, casts: Casts, half: Callable[[], Any]) -> dict[str, Kernel]:
    without_autocast = torch._C._ExcludeDispatchKeyGuard
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def in_dtype(operator: Any, dtype: Callable[[tuple[Any, ...]], Any]) -> Kernel:
        places = tensor_places(operator)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with without_autocast(keys):
                args = with_tensors(torch, places, args)
                wanted = dtype((*args, *kwargs.values()))
                args = tuple(casts.cast_tensors(arg, wanted) for arg in args)
                kwargs = {name: casts.cast_tensors(one, wanted) for name, one in kwargs.items()}
                return operator(*args, **kwargs)

        return kernel

    def float32_result(operator: Any) -> Kernel:
        # `dtype` is the last argument of all of them, by keyword in some.
        position = [argument.name for argument in operator._schema.arguments].index("dtype")

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with without_autocast(keys):
                given = args[position] if len(args) > position else kwargs.get("dtype")
                if given is None and casts.is_eligible(args[0]):
                    args, kwargs = args[:position], {**kwargs, "dtype": torch.float32}
                    names = [argument.name for argument in operator._schema.arguments[: len(args)]]
                    return operator(**dict(zip(names, args, strict=True)), **kwargs)
                return operator(*args, **kwargs)

        return kernel

    def float32_overload(operator: Any, with_dtype: Any) -> Kernel:
        def kernel(this: Any, *args: Any) -> Any:
            with without_autocast(keys):
                given = [argument.default_value for argument in operator._schema.arguments]
                args = (*args, *given[1 + len(args) :])
                return with_dtype(this, *args, dtype=torch.float32 if casts.is_eligible(this) else this.dtype)

        return kernel

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(cast_policy.REFUSAL)

    rows: list[tuple[frozenset[str], Callable[[Any], Kernel]]] = [
        (cast_policy.LOWER_PRECISION | cast_policy.RECURRENT, lambda op: in_dtype(op, lambda _: half())),
        (cast_policy.FLOAT32, lambda op: in_dtype(op, lambda _: torch.float32)),
        (cast_policy.FLOAT32_RESULT, float32_result),
        (cast_policy.WIDEST, lambda op: in_dtype(op, casts.find_widest_dtype)),
        (cast_policy.REFUSED, lambda _: refused),
    ]
    kernels = {
        name: make(operator)
        for names, make in rows
        for name in names
        if (operator := find_overload(torch, name)) is not None
    }
    for name, other in cast_policy.FLOAT32_OVERLOAD.items():
        kernels[name] = float32_overload(find_overload(torch, name), find_overload(torch, other))
    return kernels
