"""Attribute replacements that can be undone exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()


class Patches:
    """Replaced attributes of modules and classes, remembered so that `undo` restores them identically.

    An attribute that the owner only inherited is deleted again, not set, so that the class dictionary is the
    same as before. Not safe to use from several threads at once.
    """

    def __init__(self) -> None:
        self._originals: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value`."""
        self._originals.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace the function `owner.name` by `make(original)`; name, docstring and signature stay
        visible."""
        original = getattr(owner, name)
        replacement = make(original)
        # Not functools.wraps: builtins lack some of the attributes, and C functions have no __dict__.
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(original, attribute):
                setattr(replacement, attribute, getattr(original, attribute))
        replacement.__wrapped__ = original
        self.set(owner, name, replacement)

    def undo(self) -> None:
        """Put every attribute back, last one first. Undoing twice is harmless."""
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
