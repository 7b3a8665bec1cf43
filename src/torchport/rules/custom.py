"""TP190: rules of the user's own, from a JSON file in the format of Ascend's migration tools.

{"rules": {"ArgsModifyRule": [{"func_name": "f", "arg_idx": 0, "arg_new": "x"}],
           "FuncNameModifyRule": [{"old_name": "f", "new_name": "g"}],
           "ModuleNameModifyRule": [{"old_name": "m", "new_name": "n", "parent_module": "a.b"}]}}

Names are dotted names as imports give them (`torch.cuda.amp.autocast`), whatever the file calls them.
"""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Rule
from torchport.rules.torch_cuda_import import module_edit
from torchport.source.module import Module

KEYS: dict[str, dict[str, type]] = {
    "ArgsModifyRule": {"func_name": str, "arg_idx": int, "arg_new": str},
    "FuncNameModifyRule": {"old_name": str, "new_name": str},
    "ModuleNameModifyRule": {"old_name": str, "new_name": str, "parent_module": str},
}


@dataclasses.dataclass(frozen=True, slots=True)
class CustomRules:
    """The rules of one file: new arguments by (function, position), new function names, new module names."""

    arguments: dict[tuple[str, int], str]
    functions: dict[str, str]
    modules: dict[str, str]

    @classmethod
    def from_file(cls, path: Path) -> CustomRules:
        """Read a file of rules. Raises TorchportError where it is missing or says something that is not a rule."""
        try:
            value = json.loads(path.read_bytes())
        except OSError as error:
            raise TorchportError(f"cannot read the rules {path}: {error.strerror}") from error
        except ValueError as error:
            raise TorchportError(f"the rules {path} are not JSON: {error}") from error
        rows = value.get("rules") if isinstance(value, dict) else None
        if not isinstance(rows, dict) or not set(rows) <= set(KEYS):
            raise TorchportError(
                f'{path} has no rules: {{"rules": {{...}}}} with the keys {", ".join(KEYS)} is expected'
            )
        for kind, some in rows.items():
            for number, row in enumerate(some if isinstance(some, list) else [some], 1):
                _require(path, kind, number, row)
        return cls(
            {(row["func_name"], row["arg_idx"]): row["arg_new"] for row in rows.get("ArgsModifyRule", [])},
            {row["old_name"]: row["new_name"] for row in rows.get("FuncNameModifyRule", [])},
            {
                ".".join(filter(None, (row.get("parent_module", ""), row["old_name"]))): row["new_name"]
                for row in rows.get("ModuleNameModifyRule", [])
            },
        )

    def check_module(self, module: Module) -> Iterator[Finding]:
        """What the rules change in a file."""
        for call in module.iter_nodes(ast.Call):
            name = _name(module, call.func)
            for (function, position), new in self.arguments.items():
                if function == name:
                    yield from _argument(module, call, position, new)
            if name in self.functions:
                yield _finding(module, call.func, name, self.functions[name])
        for attribute in module.iter_nodes(ast.Attribute):
            name = module.resolve_name(attribute) or ""
            if name in self.modules:
                edit = module.attribute_edit(attribute, self.modules[name])
                yield CUSTOM.make_finding(module, attribute, f"your rule: {name} is now {self.modules[name]}", [edit])
        for plain in module.iter_nodes(ast.Import):
            yield from self._imports(module, plain, "")
        for chosen in module.iter_nodes(ast.ImportFrom):
            if chosen.level == 0 and chosen.module:
                yield from self._imports(module, chosen, chosen.module + ".")

    def _imports(self, module: Module, node: ast.Import | ast.ImportFrom, parent: str) -> Iterator[Finding]:
        if isinstance(node, ast.ImportFrom) and (new := self._renamed(node.module or "")) != node.module:
            edit = module_edit(module, node, new)
            yield CUSTOM.make_finding(module, node, f"your rule: {node.module} is now {new}", [edit])
        for alias in node.names:
            old = parent + alias.name
            new = self._renamed(old) if isinstance(node, ast.Import) or old in self.modules else old
            if new != old:
                start, _ = module.text.span(alias)
                text = new.removeprefix(parent) if isinstance(node, ast.Import) else new.rpartition(".")[2]
                if "." not in text and not alias.asname:
                    text += f" as {alias.name}"
                edit = Edit(start, start + len(alias.name.encode()), text.encode(module.text.encoding))
                yield CUSTOM.make_finding(module, node, f"your rule: {old} is now {new}", [edit])

    def _renamed(self, name: str) -> str:
        """A dotted name with the modules in it renamed, each by its own rule."""
        words = name.split(".")
        return ".".join(self.modules.get(".".join(words[: index + 1]), word) for index, word in enumerate(words))


def _require(path: Path, kind: str, number: int, row: Any) -> None:
    keys = KEYS[kind]
    optional = {"parent_module"}
    good = isinstance(row, dict) and set(row) <= set(keys) and set(keys) - optional <= set(row)
    if not good or not all(type(row[key]) is keys[key] for key in row):
        wanted = ", ".join(f"{key} ({type_.__name__})" for key, type_ in keys.items())
        raise TorchportError(f"{path}: {kind} number {number} is not a rule", hint=f"It needs {wanted}.")
    for key in ("arg_new", "new_name"):
        try:
            ast.parse(row.get(key, "x"), mode="eval")
        except (SyntaxError, ValueError) as error:
            raise TorchportError(f"{path}: {key} of {kind} number {number} is not Python: {row[key]!r}") from error


def _name(module: Module, function: ast.expr) -> str:
    """The dotted name of what is called; for what the file defines itself, as it is written."""
    return module.resolve_name(function) or (module.get_source(function) if isinstance(function, ast.Name) else "")


def _finding(module: Module, function: ast.expr, old: str, new: str) -> Finding:
    """Rename in place where only the last word differs, else write the new name out."""
    same_parent = old.rpartition(".")[0] == new.rpartition(".")[0]
    if same_parent and isinstance(function, ast.Attribute):
        edit = module.attribute_edit(function, new.rpartition(".")[2])
    elif "." in new and new.partition(".")[0] not in module.names.scopes[module.tree].bindings:
        return CUSTOM.make_finding(
            module,
            function,
            f"your rule: {old} is now {new}, which this file does not import",
            hint=f"Import {new.partition('.')[0]} in it.",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
        )
    else:
        edit = Edit(*module.text.span(function), new.encode(module.text.encoding))
    return CUSTOM.make_finding(module, function, f"your rule: {old} is now {new}", [edit])


def _argument(module: Module, call: ast.Call, position: int, new: str) -> Iterator[Finding]:
    if position >= len(call.args) or any(isinstance(arg, ast.Starred) for arg in call.args[: position + 1]):
        yield CUSTOM.make_finding(
            module,
            call,
            f"your rule: there is no argument at position {position}",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
            hint=f"Write {new} where it belongs.",
        )
    elif module.get_source(call.args[position]) != new:
        edit = Edit(*module.text.span(call.args[position]), new.encode(module.text.encoding))
        yield CUSTOM.make_finding(module, call, f"your rule: argument {position} is now {new}", [edit])


CUSTOM = Rule(
    code="TP190",
    title="a rule of your own (--rule)",
    safety=Safety.REVIEW,
    severity=Severity.INFO,
    why="The file that was given with --rule says so.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    check=lambda module, style: (),
    rewrites=(),
)
