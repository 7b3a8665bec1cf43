"""Half precision on the CPU: what it lacks or rounds more than once is computed in float32 and rounded once.

The CPU's kernels for float16 and bfloat16 are as precise as its instructions: products of matrices and convolutions
are summed up in float16 where the processor can, layer by layer and image by image otherwise, and are a hundred
times slower than in float32. An accelerator multiplies in half precision, sums up in float32, and rounds the result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record.reference.autocast_kernels import overload
from torchport.record.reference.half_operators import OPERATORS, Outputs

KEY = "CPU"


def patch(torch: Any, patches: Patches) -> None:
    """Replace the CPU's kernels of the table's operators; other dtypes still go to those."""
    library = torch.library.Library("aten", "IMPL")
    patches.on_undo(library._destroy)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # that kernels are replaced
        for name, outputs in OPERATORS.items():
            operator = overload(torch, name)
            if operator is None:
                continue
            kernel = torch.library.get_kernel(operator, KEY)
            library.impl(name, _wide(torch, operator, kernel, outputs), KEY, with_keyset=True)


def _wide(torch: Any, operator: Any, kernel: Any, outputs: Outputs) -> Callable[..., Any]:
    tensor, wide = torch.Tensor, torch.float32
    half = frozenset((torch.float16, torch.bfloat16))
    written = [
        (place, argument.name)
        for place, argument in enumerate(operator._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]

    def is_half(value: Any) -> bool:
        return isinstance(value, tensor) and value.dtype in half

    def widened(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [widened(one) for one in value]
        return value.to(wide) if is_half(value) else value

    def in_float32(keys: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        large = [widened(one) for one in args]
        named = {name: widened(one) for name, one in kwargs.items()}
        results = kernel.call_boxed(keys, *large, **named)
        if written:
            (place, name) = written[0]
            target = kwargs[name] if name in kwargs else args[place]
            if target.shape != results.shape:
                target.resize_(results.shape)
            return target.copy_(results)
        given = [one for one in args if is_half(one)]
        first = given[0].dtype if given else wide

        def narrowed(result: Any, source: int | None) -> Any:
            if not isinstance(result, tensor) or result.dtype is not wide or source is None:
                return result
            like = args[source] if source >= 0 and len(args) > source else None
            dtype = like.dtype if isinstance(like, tensor) and like.dtype.is_floating_point else first
            return result.to(dtype)

        if isinstance(results, (list, tuple)):
            sources = outputs or (-1,) * len(results)
            return tuple(narrowed(*pair) for pair in zip(results, sources, strict=True))
        return narrowed(results, -1)

    def call(keys: Any, *args: Any, **kwargs: Any) -> Any:
        for one in args:
            if isinstance(one, tensor) and one.dtype in half:
                return in_float32(keys, args, kwargs)
        return kernel.call_boxed(keys, *args, **kwargs)

    return call
