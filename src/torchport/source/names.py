"""What a name means: scopes, what binds a name in them, and dotted names through imports and aliases.

Everything is flow-insensitive: a name means whatever any assignment in its scope gives it, and it has *one* meaning
only where all of them agree. `None` does not count, so `try: import x / except ImportError: x = None` is still `x`.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
from collections.abc import Iterable, Iterator

ScopeNode = (
    ast.Module
    | ast.FunctionDef
    | ast.AsyncFunctionDef
    | ast.Lambda
    | ast.ClassDef
    | ast.ListComp
    | ast.SetComp
    | ast.DictComp
    | ast.GeneratorExp
)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


_OF_TORCH = frozenset({"cuda", "backends", "version"})  # modules that nothing else called torch has

# Fields that hold words, not nodes; operators and contexts (ast.Load) are nodes, but one object for all places.
_WORDS = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "kind", "conversion", "level", "simple", "type_comment", "module"}
)
_FIELDS = {
    kind: tuple(name for name in kind._fields if name not in _WORDS)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_FIELDS[ast.Constant] = ()
# Most nodes of a file bind nothing and open no scope.
_PLAIN = frozenset(
    {
        ast.Attribute,
        ast.BinOp,
        ast.BoolOp,
        ast.Call,
        ast.Compare,
        ast.Constant,
        ast.Dict,
        ast.Expr,
        ast.FormattedValue,
        ast.If,
        ast.IfExp,
        ast.JoinedStr,
        ast.List,
        ast.Name,
        ast.Return,
        ast.Set,
        ast.Slice,
        ast.Starred,
        ast.Subscript,
        ast.Tuple,
        ast.UnaryOp,
        ast.arg,
        ast.keyword,
    }
)

_LEAVES = frozenset(kind for kind in _PLAIN if not _FIELDS[kind])


def iter_children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes right below a node in the order of the text, without operators and contexts."""
    for name in _FIELDS[type(node)]:
        value = getattr(node, name, None)
        if value is None:
            continue
        if type(value) is list:
            for item in value:
                if isinstance(item, ast.AST):
                    yield item
        elif isinstance(value, ast.AST):
            yield value


class Binds(enum.Enum):
    """How a name comes by its value."""

    IMPORT = enum.auto()
    VALUE = enum.auto()  # name = value
    PARAMETER = enum.auto()
    ELEMENT = enum.auto()  # for name in value
    CONTEXT = enum.auto()  # with value as name
    DEFINITION = enum.auto()  # def, class
    OTHER = enum.auto()  # unpacking, except, match, del


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """One place that gives a name its value. `target` is the dotted name of an import."""

    how: Binds
    node: ast.AST
    value: ast.expr | None = None
    target: str = ""


class Scope:
    """A module, class, function or comprehension with the names bound in it."""

    def __init__(self, node: ScopeNode, parent: Scope | None) -> None:
        self.node = node
        self.parent = parent
        self.bindings: dict[str, list[Binding]] = {}
        self.elsewhere: dict[str, Scope] = {}  # global and nonlocal names

    @property
    def is_module(self) -> bool:
        return isinstance(self.node, ast.Module)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_comprehension(self) -> bool:
        return isinstance(self.node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)

    def add_binding(self, name: str, binding: Binding) -> None:
        owner = self.elsewhere.get(name, self)
        owner.bindings.setdefault(name, []).append(binding)

    def find_owner_scope(self, name: str) -> Scope | None:
        """The scope whose binding a use of `name` in this scope means; None for builtins and star imports."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.elsewhere:
                return scope.elsewhere[name]
            if name in scope.bindings and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None


class Names:
    """Scopes, parents and dotted names of one syntax tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}  # scope node -> its scope
        self.stars: list[str] = []  # modules of `from module import *`
        self.nodes: list[ast.AST] = []
        self._scope_of: dict[ast.AST, Scope] = {}
        self._qualified: dict[ast.expr, str | None] = {}
        self._build()

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope that a node's names are looked up in."""
        return self._scope_of[node]

    def iter_ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node`, innermost first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def find_bindings(self, name: ast.Name) -> list[Binding]:
        """Everything that may have given `name` its value; empty for builtins and what is not defined here."""
        owner = self._scope_of[name].find_owner_scope(name.id)
        return owner.bindings[name.id] if owner is not None and name.id in owner.bindings else []

    def iter_imports(self) -> Iterator[Binding]:
        """Every name of the file that an import gives its value, with the dotted name that it means."""
        for scope in self.scopes.values():
            for bindings in scope.bindings.values():
                yield from (binding for binding in bindings if binding.how is Binds.IMPORT)

    def find_definition(self, node: ast.expr) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None:
        """The function or class of this file that a name means, where it means exactly one."""
        if not isinstance(node, ast.Name):
            return None
        found = self.find_bindings(node)
        if len(found) == 1 and isinstance(found[0].node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return found[0].node
        return None

    def resolve_name(self, node: ast.expr) -> str | None:
        """The dotted name of what an expression means, such as "torch.cuda.Stream"; None where that is not proven.

        Follows imports, aliases (`t = torch.cuda`), `getattr(torch, "cuda")`, `importlib.import_module("torch.cuda")`,
        `torch.__dict__["cuda"]` and `sys.modules["torch"]`. Builtins are "builtins.<name>".
        """
        known = self._qualified
        if node in known:
            return known[node]
        known[node] = None  # a cycle has no meaning
        found = known[node] = self._find_qualified(node)
        return found

    def _find_qualified(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._name_meaning(node)
        if isinstance(node, ast.Attribute):
            base = self.resolve_name(node.value)
            if node.attr in _OF_TORCH and self.is_torch_of_another(node.value):
                return f"torch.{node.attr}"
            return f"{base}.{node.attr}" if base else None
        if isinstance(node, ast.Call):
            return self._call_meaning(node)
        if isinstance(node, ast.IfExp):  # autocast if args.amp else nullcontext
            meanings = {self.resolve_name(node.body), self.resolve_name(node.orelse)} - {"contextlib.nullcontext"}
            return meanings.pop() if len(meanings) == 1 else None
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        ):
            base = self.resolve_name(node.value) or ""
            if base == "sys.modules":
                return node.slice.value
            if base.endswith(".__dict__"):
                return f"{base.removesuffix('.__dict__')}.{node.slice.value}"
        return None

    def is_torch_of_another(self, node: ast.expr) -> bool:
        """Whether it is the torch that another module or an object holds: `mod.torch` in `mod.torch.cuda`.

        A module of the name torch that is imported by its dotted name is its own: `import horovod.torch`.
        """
        if not isinstance(node, ast.Attribute) or node.attr != "torch":
            return False
        name = self.resolve_name(node)
        imports = (one for one in self.nodes if isinstance(one, ast.Import))
        return name is None or all(alias.name != name for one in imports for alias in one.names)

    def _name_meaning(self, node: ast.Name) -> str | None:
        found = self.find_bindings(node)
        if not found:
            if hasattr(builtins, node.id):
                return f"builtins.{node.id}"
            torch_stars = [star for star in self.stars if star.partition(".")[0] in ("torch", "torch_npu")]
            return f"{torch_stars[0]}.{node.id}" if len(torch_stars) == 1 else None
        meanings = set()
        for binding in found:
            if binding.how is Binds.IMPORT:
                meanings.add(binding.target)
            elif binding.how is Binds.VALUE and binding.value is not None:
                if isinstance(binding.value, ast.Constant) and binding.value.value is None:
                    continue
                meanings.add(self.resolve_name(binding.value) or "")
            else:
                return None
        return meanings.pop() or None if len(meanings) == 1 else None

    def _call_meaning(self, node: ast.Call) -> str | None:
        called = self.resolve_name(node.func)
        words = [
            argument.value
            for argument in node.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        if called == "builtins.getattr" and len(node.args) >= 2 and words:
            base = self.resolve_name(node.args[0])
            return f"{base}.{words[0]}" if base else None
        if called == "importlib.import_module" and len(node.args) == 1 and words:
            return words[0]
        if called == "builtins.__import__" and words:
            return words[0].partition(".")[0]
        if called == "builtins.vars" and len(node.args) == 1:
            base = self.resolve_name(node.args[0])
            return f"{base}.__dict__" if base else None
        return None

    # -- building ----------------------------------------------------------------------------------------------

    def _build(self) -> None:
        module = Scope(self.tree, None)
        self.scopes[self.tree] = module
        self._scope_of[self.tree] = module
        # Functions see names that are bound after them, so binding and looking up are two steps; this is the first.
        waiting: list[tuple[ast.AST, Scope]] = [(child, module) for child in reversed(self.tree.body)]
        parents, scope_of, note = self.parents, self._scope_of, self.nodes.append
        parents.update((child, self.tree) for child in self.tree.body)
        while waiting:
            node, scope = waiting.pop()
            scope_of[node] = scope
            note(node)
            if (kind := type(node)) in _LEAVES:
                continue
            if kind in _PLAIN:
                below = list(iter_children(node))
                for child in below:
                    parents[child] = node
                waiting.extend([(child, scope) for child in reversed(below)])
                continue
            entered = list(self._enter(node, scope))
            for child, _ in entered:
                parents[child] = node
            waiting.extend(reversed(entered))

    def _enter(self, node: ast.AST, scope: Scope) -> Iterable[tuple[ast.AST, Scope]]:
        """Bind what `node` binds in `scope`; its children with the scopes they live in."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return self._enter_function(node, scope)
        if isinstance(node, ast.ClassDef):
            scope.add_binding(node.name, Binding(Binds.DEFINITION, node))
            inner = self._open(node, scope)
            outside: list[ast.AST] = [*node.decorator_list, *node.bases, *node.keywords]
            return [(child, scope) for child in outside] + [(child, inner) for child in node.body]
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            inner = self._open(node, scope)
            return [(child, inner) for child in iter_children(node)]
        self._bind(node, scope)
        return [(child, scope) for child in iter_children(node)]

    def _enter_function(self, node: Function, scope: Scope) -> Iterable[tuple[ast.AST, Scope]]:
        inner = self._open(node, scope)
        arguments = node.args
        for argument in _parameters(arguments):
            inner.add_binding(argument.arg, Binding(Binds.PARAMETER, argument))
        outside: list[ast.AST] = [*arguments.defaults, *(default for default in arguments.kw_defaults if default)]
        # `arguments` itself is a node without a place; its parameters hang below the function for their annotations.
        self.parents[arguments] = node
        self._scope_of[arguments] = inner
        if isinstance(node, ast.Lambda):
            body: list[ast.AST] = [node.body]
        else:
            scope.add_binding(node.name, Binding(Binds.DEFINITION, node))
            outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
            body = list(node.body)
        outside += _parameters(arguments)
        return [(child, scope) for child in outside] + [(child, inner) for child in body]

    def _open(self, node: ScopeNode, parent: Scope) -> Scope:
        self.scopes[node] = Scope(node, parent)
        return self.scopes[node]

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    scope.add_binding(name, Binding(Binds.IMPORT, node, target=alias.name if alias.asname else name))
            case ast.ImportFrom():
                self._bind_from(node, scope)
            case ast.Assign():
                for target in node.targets:
                    _bind_target(target, node.value, node, scope)
            case ast.AnnAssign(target=ast.Name(id=name)) if node.value is not None:
                scope.add_binding(name, Binding(Binds.VALUE, node, node.value))
            case ast.NamedExpr(target=ast.Name(id=name)):
                outer = scope
                while outer.is_comprehension and outer.parent is not None:
                    outer = outer.parent
                outer.add_binding(name, Binding(Binds.VALUE, node, node.value))
            case ast.AugAssign(target=ast.Name(id=name)):
                scope.add_binding(name, Binding(Binds.OTHER, node))
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                _bind_names(node.target, Binds.ELEMENT, node.iter, node, scope)
            case ast.withitem() if node.optional_vars is not None:
                _bind_names(node.optional_vars, Binds.CONTEXT, node.context_expr, node, scope)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                scope.add_binding(name, Binding(Binds.OTHER, node))
            case ast.Global():
                for name in node.names:
                    scope.elsewhere[name] = self.scopes[self.tree]
            case ast.Nonlocal():
                for name in node.names:
                    owner = scope.parent.find_owner_scope(name) if scope.parent else None
                    if owner is not None:
                        scope.elsewhere[name] = owner
            case _:
                pass

    def _bind_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                dot = "" if module.endswith(".") else "."
                scope.add_binding(
                    alias.asname or alias.name, Binding(Binds.IMPORT, node, target=f"{module}{dot}{alias.name}")
                )


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    optional = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *optional]


def _bind_target(target: ast.expr, value: ast.expr, node: ast.AST, scope: Scope) -> None:
    """Bind `target = value`, pairing tuples of equal length."""
    if isinstance(target, ast.Name):
        scope.add_binding(target.id, Binding(Binds.VALUE, node, value))
    elif isinstance(target, ast.Tuple | ast.List):
        pairs = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else None
        if pairs is not None and not any(isinstance(item, ast.Starred) for item in [*pairs, *target.elts]):
            for item, part in zip(target.elts, pairs, strict=True):
                _bind_target(item, part, node, scope)
        else:
            _bind_names(target, Binds.OTHER, value, node, scope)


def _bind_names(target: ast.expr, how: Binds, value: ast.expr, node: ast.AST, scope: Scope) -> None:
    """Bind every name in an unpacking target; a lone name keeps `how`, a part of a tuple is OTHER."""
    if isinstance(target, ast.Name):
        scope.add_binding(target.id, Binding(how, node, value))
        return
    for part in ast.walk(target):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            scope.add_binding(part.id, Binding(Binds.OTHER, node, value))
