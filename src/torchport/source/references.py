"""The references in one file: what it imports and names, line by line, with the guard that each stands behind.

A guard is the line of a `try` that goes on without what fails in it, or of a condition on CUDA, a plugin or a flag.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchport.source.reach import Reach

Node = tuple[str, str]
# Conditions that ask for CUDA, and those that ask for a part that may be missing or switched off.
_DEVICE = re.compile(r"cuda|gpu|device", re.IGNORECASE)
_PART = re.compile(
    r"avail|install|\bhas_|_has_|use_|enable|fused|fast|flash|xformers|triton|plugin|kernel|impl\b|backend|apex|compiled"
    r"|build_(?:cuda|ext|ops)|skip_"
    r"|is not None|is None|TYPE_CHECKING|find_spec|environ|getenv|== ?['\"](?:True|true|1|on|ON|yes)['\"]",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(
    r"^not\b|\bis None\b|!= ?['\"]cuda|\.device\.type == ['\"]cpu|== ?['\"](?:ref|torch|native|naive|python|eager)"
)
# An NPU takes the other way, as CUDA does; conversion edits `x.device.type == "cpu"` (TP123) and nothing else of it.
_ON_CPU = re.compile(r"(?<!\.device\.type )== ?['\"]cpu['\"]|\bis_cpu\b")
_CAUGHT = re.compile(r"ImportError|ModuleNotFound|Exception|RuntimeError|OSError|AttributeError|NameError")


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """From a line of `source` to `target`; `guard` is the line of the condition or `try` before it, or 0."""

    source: Node
    target: Node
    line: int
    guard: int


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """A place that imports or names something that is no file of the project."""

    path: str
    node: str
    line: int
    guard: int


@dataclasses.dataclass(slots=True)
class References:
    """The references, uses and guards found in the files so far.

    `uses` are the imports of a name, `loads` the places where a file names what it imported; `optional` the names of a
    file that an import which may fail leaves unbound; `guards` the guard of a line that has one.
    """

    by_source: dict[Node, list[Reference]] = dataclasses.field(default_factory=dict)
    uses: dict[str, list[Use]] = dataclasses.field(default_factory=dict)
    loads: dict[tuple[str, str], list[Use]] = dataclasses.field(default_factory=dict)
    optional: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    guards: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)


def collect_references(reach: Reach, path: str, tree: ast.Module, found: References) -> None:
    """Add the references of a file to `found`; `reach` knows what its names mean. Raises RecursionError."""
    _Walk(reach, path, found).statements(tree.body, "", 0)


class _Walk:
    """Collects the references of one file, with the guard that each stands behind."""

    def __init__(self, reach: Reach, path: str, found: References) -> None:
        self._reach = reach
        self._path = path
        self._found = found
        self._defined, self._imported = reach.list_defined(path), reach.list_imported(path)
        self._defaults: dict[str, object] = {}  # of the parameters of the functions around

    def statements(self, body: list[ast.stmt], node: str, guard: int) -> None:
        for statement in body:
            self.statement(statement, node, guard)
            if isinstance(statement, ast.If) and _returns(statement.body) and not statement.orelse:
                test = ast.unparse(statement.test)
                if _OTHERWISE.search(test) and (_DEVICE.search(test) or _PART.search(test)):
                    guard = guard or statement.lineno  # the rest is for where CUDA or the part is there

    def statement(self, one: ast.stmt, node: str, guard: int) -> None:
        for line in range(one.lineno, (one.end_lineno or one.lineno) + 1) if guard else ():
            self._found.guards[self._path, line] = guard
        match one:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                inner = node or (one.name if one.name in self._defined else "")
                for mark in one.decorator_list:
                    self.expression(mark, node, guard)
                if any(isinstance(mark, ast.Call) for mark in one.decorator_list) and not node:
                    self._refer(node, (self._path, inner), one.lineno, guard)  # a registry may hand it out
                outer, self._defaults = self._defaults, self._defaults | _defaults(one)
                rest = [part for part in ast.iter_child_nodes(one) if part not in one.decorator_list]
                for part in rest:
                    if not isinstance(part, ast.stmt):
                        self.expression(part, inner, guard)
                # Where it is defined behind a guard, that says nothing of those who call it.
                self.statements(one.body, inner, guard if not inner or node else 0)
                self._defaults = outer
            case ast.If():
                self.expression(one.test, node, guard)
                ways = _ways(one, guard)
                if self._is_off(one.test):
                    ways = (guard or one.lineno, ways[1])
                elif self._is_on(one.test):
                    ways = (guard, ways[1])
                self.statements(one.body, node, ways[0])
                self.statements(one.orelse, node, ways[1])
            case ast.Try():
                goes_on = one.lineno if _goes_on(one) else 0
                self.statements(one.body, node, guard or goes_on)
                if goes_on and _leaves_nothing(one):
                    self._found.optional.setdefault(self._path, set()).update(_imported(one.body))
                imports = any(isinstance(each, ast.Import | ast.ImportFrom) for each in one.body)
                for handler in one.handlers:
                    if handler.type is not None:
                        self.expression(handler.type, node, guard or handler.lineno)
                        self._found.guards.setdefault((self._path, handler.lineno), guard or handler.lineno)
                    self.statements(handler.body, node, guard if imports else guard or handler.lineno)
                self.statements([*one.orelse, *one.finalbody], node, guard)
            case ast.With() if any("suppress(" in ast.unparse(item.context_expr) for item in one.items):
                self.statements(one.body, node, guard or one.lineno)
            case ast.Import():
                for alias in one.names:
                    self._import(alias.name, "", node, one.lineno, guard)
            case ast.ImportFrom():
                for alias in one.names:
                    self._import("." * one.level + (one.module or ""), alias.name, node, one.lineno, guard)
            case _:
                for part in ast.iter_child_nodes(one):
                    if isinstance(part, ast.stmt):
                        self.statement(part, node, guard)
                    elif isinstance(part, ast.ExceptHandler | ast.match_case):
                        self.statements(part.body, node, guard)
                    else:
                        self.expression(part, node, guard)

    def _is_off(self, test: ast.expr) -> bool:
        """Whether nobody takes a branch who does not ask for it: an option, a parameter that is something else."""
        match test:
            case ast.Attribute(attr=name, value=ast.Name()):
                return name in self._reach.switches
            case ast.Name(id=name):
                return self._defaults.get(name) is False
            case ast.BoolOp(op=ast.And(), values=values):
                return any(map(self._is_off, values))
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Constant(value=str() as value)]):
                return isinstance(self._defaults.get(name), str) and self._defaults[name] != value
        return False

    def _is_on(self, test: ast.expr) -> bool:
        """Whether a branch is taken unless somebody asks for another: BACKEND = "flash_attn" decides on it."""
        match test:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Constant(value=str() as value)]):
                return self._defaults.get(name) == value or value in self._reach.settings.get(name, ())
        return False

    def expression(self, one: ast.AST, node: str, guard: int) -> None:
        match one:
            case ast.BoolOp(op=ast.And(), values=values):
                for value in values:
                    self.expression(value, node, guard)
                    test = ast.unparse(value)
                    if (_DEVICE.search(test) or _PART.search(test)) and not _OTHERWISE.search(test):
                        guard = guard or one.lineno
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                if not isinstance(one.left, ast.Name):  # to ask for it is no use of it
                    self.expression(one.left, node, guard)
            case ast.IfExp():
                test = ast.unparse(one.test)
                asks, other = _DEVICE.search(test) or _PART.search(test), _OTHERWISE.search(test)
                self.expression(one.test, node, guard)
                self.expression(one.body, node, guard or (one.lineno if asks and not other else 0))
                self.expression(one.orelse, node, guard or (one.lineno if asks and other else 0))
            case ast.Name(ctx=ast.Load()):
                self._name(one.id, [], node, one.lineno, guard)
            case ast.Attribute():
                parts: list[str] = []
                inner: ast.AST = one
                while isinstance(inner, ast.Attribute):
                    parts.insert(0, inner.attr)
                    inner = inner.value
                if isinstance(inner, ast.Name):
                    self._name(inner.id, parts, node, one.lineno, guard)
                else:
                    self.expression(inner, node, guard)
            case _:
                for part in ast.iter_child_nodes(one):
                    self.expression(part, node, guard)

    def _name(self, name: str, rest: list[str], node: str, line: int, guard: int) -> None:
        if name in self._imported:
            use = Use(self._path, node, line, guard)
            self._found.loads.setdefault((self._path, name), []).append(use)
        target = self._reach.find_definition(self._path, name)
        while target is not None and not target[1] and rest:
            path = target[0]
            target = self._reach.find_definition(path, rest[0]) or self._below(path, rest[0])
            rest = rest[1:]
        if target is not None and target != (self._path, node):
            self._refer(node, target, line, guard)

    def _below(self, path: str, name: str) -> Node | None:
        if not path.endswith("__init__.py"):
            return None
        found = self._reach.find_module(name, path, 1)
        return (found, "") if found else None

    def _import(self, module: str, what: str, node: str, line: int, guard: int) -> None:
        reach = self._reach
        last = what or module.rpartition(".")[2]
        target = reach.module_of(self._path, module)
        inside = reach.module_of(self._path, f"{module}{'' if module.endswith('.') else '.'}{what}") if what else None
        for name in {last, module.rpartition(".")[2], module.lstrip(".").partition(".")[0]} - {""}:
            if (name == last and not inside) or not target:
                self._found.uses.setdefault(name, []).append(Use(self._path, node, line, guard))
        for found in (target, inside):
            if found is not None and found != self._path:
                self._refer(node, (found, ""), line, guard)
        parts = module.lstrip(".").split(".")
        for end in range(1, len(parts) if target or inside else 0):  # importing a module runs its packages
            above = reach.module_of(self._path, module[: len(module) - len(module.lstrip("."))] + ".".join(parts[:end]))
            if above is not None and above != self._path:
                self._refer(node, (above, ""), line, guard)
        if self._path.endswith("__init__.py") and not node and what and target is not None:
            definition = reach.find_definition(target, what)  # a library gives it to whoever imports it
            if definition is not None:
                self._refer(node, definition, line, guard)

    def _refer(self, node: str, target: Node, line: int, guard: int) -> None:
        source = (self._path, node)
        self._found.by_source.setdefault(source, []).append(Reference(source, target, line, guard))


def _ways(one: ast.If, guard: int) -> tuple[int, int]:
    """The guards of the two branches of a condition."""
    test = ast.unparse(one.test)
    device, part = _DEVICE.search(test), _PART.search(test)
    if guard or not (device or part) or (_ON_CPU.search(test) and not part):
        return guard, guard
    if _OTHERWISE.search(test):
        return guard, one.lineno
    if one.orelse and _raises(one.orelse):
        return guard, guard
    another = bool(one.orelse)
    return (one.lineno if another or _returns(one.body) or part else guard), guard


def _defaults(one: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> dict[str, object]:
    """The constants that the parameters of a function are where nobody gives them; None for the others."""
    if isinstance(one, ast.ClassDef):
        return {}
    every = [*one.args.posonlyargs, *one.args.args]
    given = dict(zip([each.arg for each in every][::-1], one.args.defaults[::-1], strict=False))
    given |= {
        each.arg: value
        for each, value in zip(one.args.kwonlyargs, one.args.kw_defaults, strict=True)
        if value is not None
    }
    names = [each.arg for each in (*every, *one.args.kwonlyargs)]
    return {name: value.value if isinstance(value := given.get(name), ast.Constant) else None for name in names}


def _returns(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return | ast.Continue)


def _raises(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _goes_on(one: ast.Try) -> bool:
    """Whether a `try` that fails lets the program go on."""
    for handler in one.handlers:
        caught = ast.unparse(handler.type) if handler.type else "Exception"
        if _CAUGHT.search(caught):
            ends = any(isinstance(each, ast.Raise) or "exit(" in ast.unparse(each) for each in handler.body)
            return not ends
    return False


def _leaves_nothing(one: ast.Try) -> bool:
    """Whether what failed to be imported has no other in its place."""
    for handler in one.handlers:
        for each in handler.body:
            if isinstance(each, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
                return False
            if isinstance(each, ast.Assign) and not (isinstance(each.value, ast.Constant) and not each.value.value):
                return False
    return True


def _imported(body: list[ast.stmt]) -> Iterator[str]:
    for each in body:
        if isinstance(each, ast.Import | ast.ImportFrom):
            for alias in each.names:
                yield (alias.asname or alias.name).partition(".")[0]
