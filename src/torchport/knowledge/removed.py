"""`removed.toml` and `removed.json`: what older packages had and the packages of today do not.

The second is written by `tools/removed_names.py` from old wheels and the installed packages; the first by hand.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from torchport.knowledge import support

_PACKAGES = frozenset({"torch", "torchvision", "numpy", "scipy", "PIL"})  # the others are Python's


@dataclasses.dataclass(frozen=True, slots=True)
class Removed:
    """A module, a name or an argument that is gone.

    `becomes` is the dotted name (of an argument: the word) of what is the very same today, `text` an expression that
    is, `arguments` how many arguments a call may have for that; `use` says what else to do. `since` is the first
    version without it, `had` an old one that had it. `drop` is an argument that only made a call print. Of
    `module` only the module of that name is gone: something else has the name. `of` is the package
    of `since` where it is another; `pin` an older package that has it and works beside this torch.
    """

    name: str
    since: str = ""
    had: str = ""
    becomes: str = ""
    text: str = ""
    arguments: int | None = None
    use: str = ""
    drop: bool = False
    module: bool = False
    of: str = ""
    pin: str = ""

    def describe(self) -> str:
        """Since when it is gone: "gone since torch 2.0", "gone, torch 1.7.1 had it"."""
        root = self.name.partition(".")[0]
        package = self.of or ("Pillow" if root == "PIL" else root if root in _PACKAGES else "Python")
        if self.since:
            return f"gone since {package} {self.since}"
        now = read_versions().get(root)
        if self.had and now:
            return f"gone, {package} {self.had} had it and {now} does not"
        return f"gone, {package} {now} does not have it" if now else "gone"


@functools.cache
def read_versions() -> Mapping[str, str]:
    """The versions of the packages that are meant by "today"."""
    return {**_derived()["new"], "PIL": "13.0", "scipy": "1.17"}


@functools.cache
def load_removed_names() -> Mapping[str, Removed]:
    """All names and modules by dotted name."""
    old = _derived()["old"]
    found = {
        name: Removed(name, had=old[name.partition(".")[0]])
        for name in _derived()["modules"]
        if name.partition(".")[0] in old
    }
    for space, words in _derived()["names"].items():
        found |= {f"{space}.{word}": Removed(f"{space}.{word}", had=old[space.partition(".")[0]]) for word in words}
    for name, instead in support.load_removed_names().items():
        found[name] = Removed(name, use=f"Use {' or '.join(instead)}." if instead else "")
    return found | {name: Removed(name, **row) for name, row in _written()["names"].items()}


@functools.cache
def find_removed_module(name: str) -> Removed | None:
    """The row of a module or of a package around it, where that is gone."""
    words = name.split(".")
    rows = load_removed_names()
    for count in range(1, len(words) + 1):
        row = rows.get(".".join(words[:count]))
        if row is not None:
            return row
    return None


@functools.cache
def load_removed_arguments() -> Mapping[str, Mapping[str, Removed]]:
    """Keywords that a function or class had, by its dotted name."""
    old, found = _derived()["old"], {}
    for function, words in _derived()["parameters"].items():
        found[function] = {word: Removed(function, had=old[function.partition(".")[0]]) for word in words}
    for function, rows in _written()["arguments"].items():
        space = function.removesuffix("*")
        names = [name for name in found if name.startswith(space)] if space != function else [function]
        for name in names:
            given = {word: Removed(name, **row) for word, row in rows.items()}
            found[name] = {**found.get(name, {}), **given}
    return found


@functools.cache
def find_first_working(package: str) -> tuple[int, ...]:
    """The first version of another package that can be imported beside this torch; () where all are taken to be."""
    row = _written()["packages"].get(package, "")
    return tuple(map(int, row.split("."))) if row else ()


@functools.cache
def _written() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("removed.toml").read_text("utf-8"))


@functools.cache
def _derived() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(resources.files(__package__).joinpath("removed.json").read_text("utf-8"))
    return data
