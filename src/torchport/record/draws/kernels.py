"""Replacing kernels in torch's dispatcher, and putting them back."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

# Kernels for several keys at once, in the order in which the dispatcher falls back to them.
ALIASES = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


class Kernels:
    """Kernels that stand in the place of others from `replace_kernel` to `restore_kernels`.

    The original is asked of `torch.library.get_kernel`, which came with torch 2.9. Before, ours steps aside while the
    original works: what another thread calls of the same operator meanwhile is the original, too.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._handles = hasattr(torch.library, "get_kernel")
        self._libraries: dict[str, Any] = {}
        self._moved: list[_Moved] = []

    def replace_kernel(self, operator: str, key: str, function: Callable[..., Any]) -> None:
        """Let `function(original, *arguments)` be the kernel of `operator` ("aten::normal_") for dispatch key `key`.

        `original(*arguments)` calls what was there. Raises RuntimeError for an operator that does not exist.
        """
        if not self._handles:
            self._moved.append(_Moved(self._torch, operator, key, self._untraced(function)))
            return
        original = self._torch.library.get_kernel(operator, key).call_boxed
        called = self._untraced(function)

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            return called(functools.partial(original, keys), *args, **kwargs)

        namespace, _, name = operator.partition("::")
        if namespace not in self._libraries:
            self._libraries[namespace] = self._torch.library.Library(namespace, "IMPL")
        with _overriding():
            self._libraries[namespace].impl(name, kernel, key, with_keyset=True, allow_override=True)

    def has_kernel(self, operator: str, key: str) -> bool:
        """Whether there is a kernel of its own for this key, not one for all of them."""
        return _has(self._torch, operator, key)

    def restore_kernels(self) -> None:
        """Put all kernels back."""
        while self._libraries:
            self._libraries.popitem()[1]._destroy()
        while self._moved:
            self._moved.pop().restore_kernel()

    def _untraced(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # Where a compiled function breaks its graph, dynamo compiles each Python frame that is entered: ours too.
        set_tracer = self._torch._C._dynamo.eval_frame.set_eval_frame

        def call(*args: Any, **kwargs: Any) -> Any:
            tracer = set_tracer(None)
            try:
                return function(*args, **kwargs)
            finally:
                set_tracer(tracer)

        return call


class _Moved:
    """One kernel of ours that steps aside for the original.

    Torch before 2.9 has no handle for a kernel, and calls the one that was registered last. Where the original was
    registered for several keys at once it can be called by the name of those; else it can only be called while ours
    is not registered. That a kernel is taken away while it runs is what torch's own tests do, too: it has nothing
    left to do but to pass on what Python gave. But another thread must not be on its way into the same operator then:
    torch changes the dispatcher's tables without asking who reads them.
    """

    _lock = threading.RLock()  # of all of them: the dispatcher's tables are changed without one

    def __init__(self, torch: Any, operator: str, key: str, function: Callable[..., Any]) -> None:
        self._torch = torch
        namespace, _, self._name = operator.partition("::")
        self._namespace, self._key = namespace, key
        packet, _, overload = self._name.partition(".")
        operators = getattr(getattr(torch.ops, namespace), packet)
        self._call = getattr(operators, overload or "default")._op_dk
        own = key if _has(torch, operator, key) else ""
        alias = next((name for name in ALIASES if _has(torch, operator, name)), "")
        self._other = "" if own else alias
        original = self._under_the_alias if self._other else self._aside
        self._kernel = functools.partial(function, original)
        self._library: Any = None
        self._register()

    def restore_kernel(self) -> None:
        """Put the original back."""
        self._library = None  # its end takes its kernels away

    def _register(self) -> None:
        self._library = self._torch._C._dispatch_library("IMPL", self._namespace, "")
        with _overriding():
            self._library.impl(self._name, self._key, self._kernel)

    def _under_the_alias(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(getattr(self._torch._C.DispatchKey, self._other), *args, **kwargs)

    def _aside(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            ours = self._library
            if ours is None:  # the original calls itself
                return self._call(getattr(self._torch._C.DispatchKey, self._key), *args, **kwargs)
            self._library = ours = None
            try:
                return self._call(getattr(self._torch._C.DispatchKey, self._key), *args, **kwargs)
            finally:
                self._register()


def _has(torch: Any, operator: str, key: str) -> bool:
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))
    except RuntimeError:  # no such operator, or no such key, in this release
        return False


def _overriding() -> warnings.catch_warnings[None]:
    """Without torch's warning that a kernel is overridden."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)
