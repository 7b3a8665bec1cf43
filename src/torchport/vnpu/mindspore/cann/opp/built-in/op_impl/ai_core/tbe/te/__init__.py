"""Stand-in for CANN's kernel language. MindSpore describes kernels in it as it is imported; nothing compiles them here.

Every module below `te` and `tbe` exists and has every name. What is called while a module is imported are decorators,
which leave the function as it is.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

from . import version as version  # before __getattr__ answers for it

_PACKAGES = ("te", "tbe")
_OWN = ("te", "te.version", "tbe")


class _Name:
    """Any name of the language."""

    def __getattr__(self, name: str) -> "_Name":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        decorated = len(arguments) == 1 and not options and isinstance(arguments[0], types.FunctionType)
        return arguments[0] if decorated else self


NAME = _Name()


class _Module(types.ModuleType):
    __path__ = []  # noqa: RUF012 (what a package has)

    def __getattr__(self, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return NAME


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] in _PACKAGES and name not in _OWN:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, _Finder())


def __getattr__(name: str) -> _Name:
    if name.startswith("__"):
        raise AttributeError(name)
    return NAME
