"""Half precision on the CPU: what it lacks or rounds more than once is computed in float32 and rounded once.

The CPU's kernels for float16 and bfloat16 are as precise as its instructions, may round after each term or each
image, and are a hundred times slower than those for float32 where it has no instructions. An accelerator multiplies
in half precision, sums up in float32, and rounds the result.

The kernels are replaced when the process first makes a tensor of half precision: they are called through Python,
and a script in float32 need not pay for that.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record.reference.half_operators import OPERATORS, UPDATED, Outputs
from torchport.record.reference.operators import find_overload, tensor_places, with_tensors
from torchport.record.reference.tables import wrap_all

KEY = "CPU"
# What makes tensors of a dtype that is among the arguments.
MAKERS = {
    "torch": (
        "empty",
        "zeros",
        "ones",
        "full",
        "tensor",
        "as_tensor",
        "rand",
        "randn",
        "randint",
        "normal",
        "arange",
        "empty_like",
        "zeros_like",
        "ones_like",
        "full_like",
        "rand_like",
        "randn_like",
        "set_default_dtype",
    ),
    "torch.Tensor": ("to", "type", "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"),
}


def patch_half_kernels(torch: Any, patches: Patches) -> Callable[[], None]:
    """Replace the CPU's kernels of the table's operators as soon as the script makes something of half precision.

    Returns the function that replaces them now, for other places where half precision begins.
    """
    kernels = _Kernels(torch)
    patches.on_undo(kernels.restore_half_kernels)
    replace, half = kernels.replace_half_kernels, kernels.half
    names = frozenset(
        ("torch.HalfTensor", "torch.BFloat16Tensor", "torch.cuda.HalfTensor", "torch.cuda.BFloat16Tensor")
    )

    def is_half(value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return value.dtype in half
        return (isinstance(value, torch.dtype) and value in half) or (isinstance(value, str) and value in names)

    def maker(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not kernels.replaced and (any(map(is_half, args)) or is_half(kwargs.get("dtype"))):
                replace()
            return original(*args, **kwargs)

        return call

    def always(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            replace()
            return original(*args, **kwargs)

        return call

    def load(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            loaded = original(*args, **kwargs)
            if any(map(is_half, torch.utils._pytree.tree_leaves(loaded))):
                replace()
            return loaded

        return call

    wrap_all(patches, MAKERS, maker)
    wrap_all(patches, {"torch.Tensor": ("half", "bfloat16")}, always)
    patches.wrap(torch, "load", load)
    return replace


class _Kernels:
    """The kernels of one process: not yet replaced, or replaced."""

    def __init__(self, torch: Any) -> None:
        self.half = frozenset((torch.float16, torch.bfloat16))
        self.replaced = False
        self._torch = torch
        self._lock = threading.Lock()
        self._libraries: list[Any] = []

    def replace_half_kernels(self) -> None:
        """Replace the kernels, once."""
        with self._lock:
            if self.replaced:
                return
            torch, get = self._torch, self._torch.library.get_kernel
            library = torch.library.Library("aten", "IMPL")
            self._libraries.append(library)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Warning only once for all operators")  # of what is done here
                for name, outputs in OPERATORS.items():
                    operator = find_overload(torch, name)
                    if operator is not None:
                        kernel = self._wide(operator, get(operator, KEY), outputs)
                        library.impl(name, kernel, KEY, with_keyset=True)
            self.replaced = True

    def restore_half_kernels(self) -> None:
        """Put torch's kernels back."""
        while self._libraries:
            self._libraries.pop()._destroy()

    def _wide(self, operator: Any, kernel: Any, outputs: Outputs) -> Callable[..., Any]:
        """A kernel that computes in float32 where it gets a tensor of half precision."""
        torch, half = self._torch, self.half
        tensor, wide, places = torch.Tensor, torch.float32, tensor_places(operator)
        arguments = operator._schema.arguments
        updated = [
            (place, argument.name)
            for place, argument in enumerate(arguments)
            if argument.name in UPDATED or (argument.alias_info is not None and argument.alias_info.is_write)
        ]
        returns_argument = any(value.alias_info is not None for value in operator._schema.returns)

        def is_half(value: Any) -> bool:
            return isinstance(value, tensor) and value.dtype in half

        def widened(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [widened(one) for one in value]
            return value.to(wide) if is_half(value) else value

        def in_float32(keys: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            args = with_tensors(torch, places, args)
            large = [widened(arg) for arg in args]
            named = {name: widened(one) for name, one in kwargs.items()}
            results = kernel.call_boxed(keys, *large, **named)
            targets = [
                (kwargs[name], named[name]) if name in kwargs else (args[place], large[place])
                for place, name in updated
                if name in kwargs or place < len(args)
            ]
            for target, value in targets:
                if is_half(target):
                    if target.shape != value.shape:  # out= is resized
                        target.resize_(value.shape)
                    target.copy_(value)
            if returns_argument:
                return targets[0][0]
            first = next(arg.dtype for arg in (*args, *kwargs.values()) if is_half(arg))

            def narrowed(result: Any, source: int | None) -> Any:
                if not isinstance(result, tensor) or result.dtype is not wide or source is None:
                    return result
                like = args[source] if 0 <= source < len(args) else None
                return result.to(like.dtype if isinstance(like, tensor) else first)

            if isinstance(results, (list, tuple)):
                sources = outputs or (-1,) * len(results)
                return tuple(narrowed(*pair) for pair in zip(results, sources, strict=True))
            return narrowed(results, -1)

        def call(keys: Any, *args: Any, **kwargs: Any) -> Any:
            for arg in args:
                if isinstance(arg, tensor) and arg.dtype in half:
                    return in_float32(keys, args, kwargs)
            return kernel.call_boxed(keys, *with_tensors(torch, places, args), **kwargs)

        return call
