"""Which module is running: told to the recorder at each call of a module, so that no operator has to ask."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torchport.record import releases

OUTERMOST = "."
# Wrappers whose one child is the user's model, with the name that they give it.
_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}


def list_wrapped_modules(module: Any) -> Sequence[Any]:
    """A module, what is in it where it is a wrapper, and so on: the last is the user's own, whose names count."""
    found = [module]
    while (name := _WRAPPERS.get(type(found[-1]).__name__, "")) and hasattr(found[-1], name):
        found.append(getattr(found[-1], name))
    return found


class Listener(Protocol):
    """Who is told."""

    def enter_module(self, name: str, module: Any, inputs: Any) -> None:
        """A module's forward begins."""

    def leave_module(self, name: str, module: Any, inputs: Any, outputs: Any) -> None:
        """It has ended; or raised, then its outputs are `releases.RAISED`."""


class Scopes:
    """Tells `listener` of each call of a module by its qualified name, from `install` to `remove`.

    The outermost module is called "."; modules that no called module holds have the name of their class. `learned` is
    called with a module that is called for the first time by no other.
    """

    def __init__(self, torch: Any, listener: Listener, learned: Callable[[Any], None]) -> None:
        self._torch = torch
        self._listener = listener
        self._learned = learned
        self._names: Any = torch.utils.weak.WeakIdKeyDictionary()
        # The same by address for what is asked at every call: torch's dictionary takes three times as long.
        self._quick: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._roots: Any = torch.utils.weak.WeakIdKeyDictionary()
        self._depth = 0
        self._hooks: list[Any] = []

    def install(self) -> None:
        """Begin to watch."""
        modules = self._torch.nn.modules.module
        self._hooks = [
            modules.register_module_forward_pre_hook(self._enter),
            releases.after_modules(self._torch, self._leave),
        ]

    def remove(self) -> None:
        """Stop watching."""
        while self._hooks:
            self._hooks.pop().remove()

    def list_module_names(self) -> list[str]:
        """Of all modules that are known."""
        return sorted(set(self._names.values()))

    def get_module_name(self, module: Any) -> str:
        """What it is called; asked of the outermost module at its first call."""
        quick = self._quick.get(id(module))
        if quick is not None and quick[0]() is module:
            return quick[1]
        known = self._names.get(module)
        if known is None:
            self._learn(module)
            known = self._names[module]
        self._quick[id(module)] = weakref.ref(module), str(known)
        return str(known)

    def _learn(self, module: Any) -> None:
        self._quick.clear()  # some get another name
        *wrappers, root = list_wrapped_modules(module)
        for one in wrappers:
            self._names[one] = OUTERMOST
        kind = type(root).__name__
        for name, one in root.named_modules():
            # A checkpoint calls a part of the model by itself: the longer name is that in the whole.
            if len(name) >= len(self._names.get(one, "")):
                # A loss called beside the model has nothing inside.
                outermost = not self._depth and next(one.children(), None) is not None
                self._names[one] = name or (OUTERMOST if outermost else kind)

    def _enter(self, module: Any, inputs: Any) -> None:
        if releases.is_compiling(self._torch):
            return
        if not self._depth and module not in self._roots:
            self._roots[module] = True
            self._learn(module)
            self._learned(module)
        self._depth += 1
        self._listener.enter_module(self.get_module_name(module), module, inputs)

    def _leave(self, module: Any, inputs: Any, named: Any, outputs: Any) -> None:
        if releases.is_compiling(self._torch) or not self._depth:
            return
        self._depth -= 1
        self._listener.leave_module(self.get_module_name(module), module, (inputs, named), outputs)
