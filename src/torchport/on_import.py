"""Do something right before a module is imported for the first time.

Light on purpose: `torchport vnpu enable` makes every start of an environment's Python load it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class BeforeImport:
    """A finder on `sys.meta_path` that finds nothing; it sees names go by and at its own calls `action`."""

    def __init__(self, names: tuple[str, ...], action: Callable[[], object]) -> None:
        self._names = names
        self._action = action

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Called by the import system for each module that is not loaded yet."""
        if fullname in self._names:
            sys.meta_path.remove(self)
            self._action()


def before_import(names: tuple[str, ...], action: Callable[[], object]) -> None:
    """Call `action` right before the first import of one of `names`; what it raises, that import raises."""
    sys.meta_path.insert(0, BeforeImport(names, action))


def activate_with_torch() -> None:
    """Activate the NPU backend of this machine when torch is imported, if there is one by then."""

    def activate() -> None:
        from torchport import vnpu

        if vnpu.detect().kind is not vnpu.Kind.NONE:  # else torch_npu itself says what it misses
            vnpu.activate()

    before_import(("torch", "torch_npu"), activate)
