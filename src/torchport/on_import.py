"""Do something right before, right after or around the first import of a module.

Light on purpose: an environment with `torchport vnpu enable` loads it at every start of Python.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class BeforeImport:
    """A finder on `sys.meta_path` that finds nothing; it sees names go by and at its own calls `action`."""

    def __init__(self, names: tuple[str, ...], action: Callable[[], object]) -> None:
        self._names = names
        self._action = action

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Called by the import system for each module that is not loaded yet."""
        if fullname in self._names:
            self.cancel()
            self._action()

    def waits_for(self, names: tuple[str, ...]) -> bool:
        """Whether any of `names` is among those that it waits for."""
        return any(name in self._names for name in names)

    def cancel(self) -> None:
        """Stop waiting; harmless when it has come."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def before_import(names: tuple[str, ...], action: Callable[[], object]) -> Callable[[], None]:
    """Call `action` right before the first import of one of `names`; what it raises, that import raises.

    Gives back a function that cancels the wait.
    """
    finder = BeforeImport(names, action)
    sys.meta_path.insert(0, finder)
    return finder.cancel


class AroundImport:
    """A finder on `sys.meta_path` that hooks the loader which the other finders give for `name`: `around(execute)` is
    called in place of `execute`, which executes the module."""

    def __init__(self, name: str, around: Callable[[Callable[[], ModuleType]], object]) -> None:
        self._name = name
        self._around = around

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Called by the import system for each module that is not loaded yet."""
        if fullname != self._name:
            return None
        from importlib.util import find_spec  # here: needed once, costs every start of Python otherwise

        position = sys.meta_path.index(self)
        self.cancel()
        try:
            spec = find_spec(fullname)
        finally:
            sys.meta_path.insert(position, self)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return spec
        inner = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The instance attribute set below: the class's own method is back. Another wait may have done so.
            vars(loader).pop("exec_module", None)

            def execute() -> ModuleType:
                inner(module)
                self.cancel()
                return module

            self._around(execute)

        loader.exec_module = exec_module
        return spec

    def cancel(self) -> None:
        """Stop waiting; harmless when the module has been imported."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def around_import(name: str, around: Callable[[Callable[[], ModuleType]], object]) -> Callable[[], None]:
    """Call `around(execute)` when the module `name` is imported for the first time: `execute` executes it, with all
    that waits for it by now, and returns it; what `around` raises, the import statement raises. Nothing happens if the
    module is there already.

    Gives back a function that cancels the wait.
    """
    finder = AroundImport(name, around)
    sys.meta_path.insert(0, finder)
    return finder.cancel


def _after_execution(
    module: ModuleType, spec: ModuleSpec, action: Callable[[ModuleType], object]
) -> Callable[[], None]:
    """Call `action(module)` when the module whose code runs now has been executed: `_load_unlocked` of importlib sets
    an attribute of its spec then (Python 3.8 to 3.14)."""
    waiting: list[Callable[[ModuleType], object]] = vars(spec).setdefault("_torchport_waiting", [])
    waiting.append(action)
    if len(waiting) == 1:
        kind = type(spec)

        class Executing(kind):  # type: ignore[misc, valid-type]
            def __setattr__(self, name: str, value: object) -> None:
                super().__setattr__(name, value)
                if name == "_initializing" and not value:
                    spec.__class__ = kind
                    actions = vars(spec).pop("_torchport_waiting")
                    for act in actions if sys.modules.get(spec.name) is module else ():  # else it has failed
                        act(module)

        spec.__class__ = Executing
    return lambda: waiting.remove(action) if action in waiting else None


def after_import(name: str, action: Callable[[ModuleType], object]) -> Callable[[], None]:
    """Call `action(module)` once the top-level module `name` has been executed; at once if it already has.

    Gives back a function that cancels the wait. What `action` raises, the import statement raises.
    """
    module = sys.modules.get(name)
    if module is not None:
        spec = module.__spec__
        if spec is not None and getattr(spec, "_initializing", False):
            return _after_execution(module, spec, action)
        action(module)
        return lambda: None
    return around_import(name, lambda execute: action(execute()))
