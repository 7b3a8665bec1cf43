"""Replacing kernels in torch's dispatcher, and putting them back."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


class Kernels:
    """Kernels that stand in the place of others from `replace` to `remove`."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._libraries: dict[str, Any] = {}

    def replace(self, operator: str, key: str, function: Callable[..., Any]) -> None:
        """Let `function(original, *arguments)` be the kernel of `operator` ("aten::normal_") for dispatch key `key`.

        `original(*arguments)` calls what was there. Raises RuntimeError for an operator that does not exist.
        """
        original = self._torch.library.get_kernel(operator, key).call_boxed
        set_tracer = self._torch._C._dynamo.eval_frame.set_eval_frame

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            # Where a compiled function breaks its graph, dynamo compiles each Python frame that is entered: ours too.
            tracer = set_tracer(None)
            try:
                return function(functools.partial(original, keys), *args, **kwargs)
            finally:
                set_tracer(tracer)

        namespace, _, name = operator.partition("::")
        if namespace not in self._libraries:
            self._libraries[namespace] = self._torch.library.Library(namespace, "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
            self._libraries[namespace].impl(name, kernel, key, with_keyset=True, allow_override=True)

    def has(self, operator: str, key: str) -> bool:
        """Whether there is a kernel of its own for this key, not one for all of them."""
        try:
            return bool(self._torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))
        except RuntimeError:  # no such operator in this release
            return False

    def remove(self) -> None:
        """Put all kernels back."""
        while self._libraries:
            self._libraries.popitem()[1]._destroy()
