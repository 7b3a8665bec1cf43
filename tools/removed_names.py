"""Write src/torchport/knowledge/removed.json: what old wheels have and the installed ones do not.

  python tools/removed_names.py WHEELS            write the file (half a minute)
  python tools/removed_names.py WHEELS --check    compare only; exit code 1 where it differs

WHEELS is a folder with old wheels, which are read and not installed: any platform will do.

  pip download -d WHEELS --no-deps --only-binary :all: --python-version 38 --implementation cp \\
      --platform macosx_10_9_x86_64 --abi none torch==1.7.1        (104 MB; then torchvision==0.8.2 without --abi)
  pip download -d WHEELS --no-deps --only-binary :all: --python-version 38 --platform manylinux2010_x86_64 numpy==1.19.5

Public modules, the functions and classes that they define, and their parameters are listed from the text of the
old wheel; each is asked for in the installed package. Names that went before the old wheel, or came and went after it,
are written by hand in `removed.toml`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent.parent / "src/torchport/knowledge/removed.json"
# Parts of a package that no training script imports.
INNER = re.compile(
    r"(?:^|\.)(?:_\w*|tests?|testing|distutils|f2py|setup|conftest|caffe2|doc|lib2to3|benchmark)(?:\.|$)"
)
# Modules of which only that they are gone is worth a row.
DETAILS = re.compile(
    r"(?:numpy\.(?:core|lib|ma|polynomial|matrixlib)|torch\.(?:onnx\.|quantization\.|distributed\.nn))"
)
# The stubs of what torch defines in C++, by the module whose names they are.
STUBS = {"torch/_C/_VariableFunctions.pyi": "torch", "torch/_C/__init__.pyi": "torch"}
IN_STUBS = {"_VariableFunctions": "torch", "_TensorBase": "torch.Tensor"}
_MISSING = object()


class Old:
    """The content of one old wheel: modules, names by module, parameters by dotted name."""

    def __init__(self, wheel: Path) -> None:
        self.package, self.version = wheel.name.split("-")[:2]
        self.modules: set[str] = set()
        self.names: dict[str, set[str]] = {}
        self.parameters: dict[str, list[str]] = {}
        self._listed: dict[str, set[str]] = {}  # `__all__`
        self._stars: list[tuple[str, str]] = []  # a package, and the module of which it exports everything
        self._aliases: list[tuple[str, str]] = []  # a name of a package, and where it is defined
        with zipfile.ZipFile(wheel) as archive:
            for path in archive.namelist():
                if path.startswith(f"{self.package}/") and path.endswith(".py"):
                    self._read_module(path, archive.read(path))
                elif path in STUBS:
                    self._read_stub(STUBS[path], archive.read(path))
        for _ in range(4):  # packages export what packages below them export
            self._export()

    def _read_module(self, path: str, data: bytes) -> None:
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if INNER.search(module):
            return
        self.modules.add(module)
        tree = ast.parse(data)
        for node in tree.body:
            self._note(module, node)
        self._listed[module] = set(filter(_is_public, _listed(tree)))
        if path.endswith("/__init__.py"):
            for node in tree.body:
                if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
                    below = f"{module}.{node.module}"
                    if node.names[0].name == "*":
                        self._stars.append((module, below))
                    self._aliases += [
                        (f"{module}.{alias.asname or alias.name}", f"{below}.{alias.name}")
                        for alias in node.names
                        if _is_public(alias.asname or alias.name)
                    ]

    def _export(self) -> None:
        for module, below in self._stars:
            names = self._listed.get(below) or self.names.get(below, set())
            self._aliases += [(f"{module}.{name}", f"{below}.{name}") for name in names]
        for name, definition in set(self._aliases):
            module, _, word = name.rpartition(".")
            self.names.setdefault(module, set()).add(word)
            if definition in self.parameters:
                self.parameters[name] = self.parameters[definition]

    def _read_stub(self, module: str, data: bytes) -> None:
        for node in ast.parse(data).body:
            if isinstance(node, ast.ClassDef) and node.name in IN_STUBS:
                for inner in node.body:
                    self._note(IN_STUBS[node.name], inner, parameters=False)
            elif isinstance(node, ast.FunctionDef):
                self._note(module, node, parameters=False)

    def _note(self, module: str, node: ast.stmt, *, parameters: bool = True) -> None:
        found = self.names.setdefault(module, set())
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and _is_public(node.name):
            found.add(node.name)
            function = node if isinstance(node, ast.FunctionDef) else _initializer(node)
            if function is not None and parameters:
                asked = function.args
                words = [argument.arg for argument in (*asked.posonlyargs, *asked.args, *asked.kwonlyargs)]
                self.parameters[f"{module}.{node.name}"] = words[1:] if isinstance(node, ast.ClassDef) else words
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name) and _is_public(target.id))


def _listed(tree: ast.Module) -> list[str]:
    """The words of `__all__`."""
    return [
        constant.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == "__all__"
        for constant in ast.walk(node.value)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    ]


def _initializer(node: ast.ClassDef) -> ast.FunctionDef | None:
    return next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)


def _is_public(name: str) -> bool:
    return not name.startswith("_") and name.isidentifier() and len(name) > 1


def has_module(name: str) -> bool:
    """Whether the installed packages have the module."""
    return find_value(name, is_module=True) is not _MISSING


def find_value(name: str, *, is_module: bool = False) -> Any:
    """The value of this dotted name in the installed packages, else `_MISSING`."""
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        words = name.split(".")
        for count in range(len(words), 0, -1):
            try:
                value = importlib.import_module(".".join(words[:count]))
            except ModuleNotFoundError as error:
                if not str(error.name or "").startswith(words[0]):
                    return None  # it is there and needs a package that is not: nothing is known
                if is_module:
                    return _MISSING
                continue
            except Exception:  # whatever an import of somebody else's raises: nothing is known of the name
                return None
            try:
                for word in words[count:]:
                    value = getattr(value, word)
            except AttributeError:
                return _MISSING
            return value
    return _MISSING


def parameters_of(value: Any) -> set[str] | None:
    """The parameters of a function or class; None where it takes any, or does not say."""
    try:
        found = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return None
    kinds = {one.kind for one in found.values()}
    return None if inspect.Parameter.VAR_KEYWORD in kinds else set(found)


def find_removed(old: Old) -> tuple[list[str], dict[str, list[str]], dict[str, list[str]]]:
    """Modules, names by module, and parameters of names, that the wheel has and the installed package has not."""
    modules: list[str] = []
    for module in sorted(old.modules):
        inside = any(module.startswith(f"{gone}.") for gone in modules)
        if not inside and not has_module(module) and find_value(module) is _MISSING:  # no class took its name
            modules.append(module)
    names: dict[str, list[str]] = {}
    parameters: dict[str, list[str]] = {}
    for module in sorted(set(old.names) - set(modules)):
        if DETAILS.match(module) or find_value(module) in (None, _MISSING):
            continue
        for name in sorted(old.names[module]):
            value = find_value(f"{module}.{name}")
            if value is _MISSING:
                if f"{module}.{name}" not in modules:
                    names.setdefault(module, []).append(name)
                continue
            has = parameters_of(value)
            gone = [word for word in old.parameters.get(f"{module}.{name}", ()) if has and word not in has]
            if gone:
                parameters[f"{module}.{name}"] = gone
    return modules, names, parameters


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, metavar="WHEELS")
    parser.add_argument("--check", action="store_true", help="compare only")
    arguments = parser.parse_args()
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    data: dict[str, Any] = {"modules": [], "names": {}, "new": {}, "old": {}, "parameters": {}}
    for wheel in sorted(arguments.wheels.glob("*.whl")):
        old = Old(wheel)
        modules, names, parameters = find_removed(old)
        data["modules"] += modules
        data["names"] |= names
        data["parameters"] |= parameters
        data["old"][old.package] = old.version
        data["new"][old.package] = str(importlib.import_module(old.package).__version__).partition("+")[0]
    text = json.dumps(data, indent=0, sort_keys=True) + "\n"
    if arguments.check:
        same = FILE.read_text("utf-8") == text
        print("up to date" if same else "out of date")
        return 0 if same else 1
    FILE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
