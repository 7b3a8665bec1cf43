"""Attribute replacements that can be undone exactly."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

_MISSING = object()
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE, Include/object.h
# Offsets in PyTypeObject (Include/cpython/object.h), the same from Python 3.8 to 3.13 on 64-bit machines.
_FLAGS, _NEW = 168, 312


class Patches:
    """Replaced attributes of modules and classes, remembered so that `undo` restores them identically.

    An attribute that the owner only inherited is deleted again, not set, so that the class dictionary is the
    same as before. Not safe to use from several threads at once.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value`. Types that C made immutable (`torch.device`) are owners like others."""
        original = vars(owner).get(name, _MISSING)
        _assign(owner, name, value)
        self._undo.append(lambda: _assign(owner, name, original))

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace the function `owner.name` by `make(original)`; name, docstring and signature stay
        visible."""
        original = getattr(owner, name)
        self.set(owner, name, disguise(make(original), original))

    def wrap_new(
        self, cls: type, make: Callable[[Callable[[type, tuple[Any, ...], dict[str, Any]], Any]], Any]
    ) -> None:
        """Replace the constructor of a type that is implemented in C: `make(create)` gives `__new__`, and
        `create(cls, args, kwargs)` makes an instance as before.

        The type stays the object that it is, so `isinstance`, pickle and TorchScript notice nothing.
        """
        import ctypes  # here, as below: it takes milliseconds, and most users change Python classes only

        slot = ctypes.c_void_p.from_address(id(cls) + _NEW)
        address = slot.value or 0  # never 0 for a type that can be called
        _check_layout()
        # tp_new itself: the `__new__` in the class dictionary refuses to work once the slot leads to Python.
        create = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.py_object)(address)

        def restore() -> None:
            slot.value = address  # assigning `__new__` leaves the slot to Python behind

        self._undo.append(restore)
        self.set(cls, "__new__", make(create))

    def set_computed(self, module: ModuleType, getters: Mapping[str, Callable[[], Any]]) -> None:
        """Make attributes of a module be computed at each access (PEP 562): `getters[name]()` is the value."""
        inherited = vars(module).get("__getattr__")

        def getattribute(name: str) -> Any:
            getter = getters.get(name)
            if getter is not None:
                return getter()
            if inherited is not None:
                return inherited(name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        self.set(module, "__getattr__", getattribute)
        for name in getters:
            if name in vars(module):  # Python asks __getattr__ only for what is not there
                self.delete(module, name)

    def delete(self, owner: Any, name: str) -> None:
        """Delete `owner.name`."""
        original = vars(owner)[name]
        delattr(owner, name)
        self._undo.append(lambda: setattr(owner, name, original))

    def on_undo(self, action: Callable[[], object]) -> None:
        """Call `action` when the patches are undone, after those that were made later."""
        self._undo.append(action)

    def undo(self) -> None:
        """Put every attribute back, last one first. Undoing twice is harmless."""
        while self._undo:
            self._undo.pop()()


def disguise(replacement: Any, original: Any) -> Any:
    """`replacement` with the name, docstring and signature of `original`.

    Not functools.wraps: builtins lack some of the attributes, and C functions have no __dict__.
    """
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        if hasattr(original, attribute):
            setattr(replacement, attribute, getattr(original, attribute))
    replacement.__wrapped__ = original
    return replacement


def _assign(owner: Any, name: str, value: Any) -> None:
    immutable = isinstance(owner, type) and owner.__flags__ & _IMMUTABLE
    with _mutable(owner) if immutable else contextlib.nullcontext():
        if value is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, value)


@contextlib.contextmanager
def _mutable(cls: type) -> Iterator[None]:
    import ctypes

    _check_layout()
    flags = ctypes.c_ulong.from_address(id(cls) + _FLAGS)
    flags.value &= ~_IMMUTABLE
    try:
        yield
    finally:
        flags.value |= _IMMUTABLE


def _check_layout() -> None:
    """Compare what the offsets give with what Python says of some types, before anything is written there."""

    import ctypes

    class Inherits:
        pass

    def new(cls: type) -> int | None:
        return ctypes.c_void_p.from_address(id(cls) + _NEW).value

    flags = ctypes.c_ulong.from_address(id(int) + _FLAGS).value
    if flags != int.__flags__ or new(Inherits) != new(object) or new(int) == new(object):
        raise RuntimeError(
            f"Python {sys.version.split()[0]} arranges types in an unknown way: torchport cannot teach torch.device "
            "to read CUDA names. Use CPython 3.11 to 3.13, or convert the script (`torchport convert`)."
        )
