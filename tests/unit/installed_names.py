"""Tell what the installed packages have: a process of test_removed.py.

Standard input is JSON with `names`, `functions` and `modules`; standard output says of each name whether it is "there",
"missing" or only "raises", of each function its parameters, of each module whether it can be imported, and the versions.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import warnings
from typing import Any


def find_value(name: str) -> Any:
    """The value of a dotted name; AttributeError and ModuleNotFoundError if there is none."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        try:
            value = importlib.import_module(".".join(words[:count]))
        except ModuleNotFoundError:
            if count == 1:
                raise
            continue
        for word in words[count:]:
            value = getattr(value, word)
        return value
    raise AssertionError(name)


def describe_name(name: str) -> str:
    try:
        value = find_value(name)
    except (ModuleNotFoundError, AttributeError):
        return "missing"
    # torch keeps some names only to say that they were removed.
    return "raises" if inspect.isfunction(value) and "is now removed" in inspect.getsource(value) else "there"


def describe_module(name: str) -> str:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return "missing"
    return "there"


def list_parameters(name: str) -> list[str]:
    try:
        return list(inspect.signature(find_value(name)).parameters)
    except (ModuleNotFoundError, AttributeError):
        return []


def main() -> None:
    asked = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    versions = {}
    for package in ("torch", "torchvision", "numpy", "scipy", "PIL"):
        if describe_module(package) == "there":
            versions[package] = importlib.import_module(package).__version__.partition("+")[0]
    told = {
        "names": {name: describe_name(name) for name in asked["names"]},
        "functions": {name: list_parameters(name) for name in asked["functions"]},
        "modules": {name: describe_module(name) for name in asked["modules"]},
        "versions": versions,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
