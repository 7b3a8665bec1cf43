"""Which expressions hold the same value: classes of variables, attributes, parameters and literals.

Two expressions are in one class when one is assigned to, passed as, returned as or compared with the other. A rule
that knows what one member is (an argument of `torch.device`) then knows it of all, and rewrites the literals of a
class all or none, so that `if args.device == "cuda"` and `default="cuda"` never drift apart.

Flow-insensitive and per file. Attributes of `self` belong to their class; attributes of other objects are told
apart by name only (`args.device` in one function is `args.device` in the next).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable

from torchport.source.classes import Classes
from torchport.source.names import Function, Names, Scope

_SAME_TEXT = frozenset(
    {"lower", "upper", "strip", "lstrip", "rstrip", "split", "rsplit", "partition", "removeprefix", "replace"}
)
_EQUALITIES = frozenset({"assertEqual", "assertEquals", "assertNotEqual", "assertIs"})
_AFFIX = frozenset({"startswith", "endswith", "find", "index", "count"})
_DEFAULTED = frozenset({"get", "pop", "setdefault", "getenv"})
# The values of a table from which a device or a backend is chosen: {"gpu": "cuda", "cpu": "cpu"}[kind].
_CHOICES = re.compile(r"(?:cpu|gpu|cuda|mps|xpu|hpu|npu|meta|tpu|auto)(?::\d+)?|nccl|gloo|mpi|ucc|hccl")
_MANY_MEANINGS = frozenset({"name", "value", "data", "shape", "dtype", "size", "args", "kwargs", "__dict__"})
# Two rounds find the elements of a container that is reached through a variable of another container.
_ROUNDS = 2


class Flow:
    """Value classes of one file."""

    def __init__(self, names: Names, classes: Classes) -> None:
        self._names = names
        self._parent: dict[Hashable, Hashable] = {}
        self._classes = classes
        for node in names.nodes:
            self._connect(node)
        for _ in range(_ROUNDS):
            for node in names.nodes:
                self._connect_elements(node)

    def find(self, key: Hashable) -> Hashable:
        """The class of an expression (or of another key of this module): an opaque value to compare."""
        root = key
        while (above := self._parent.get(root, root)) != root:
            root = above
        while self._parent.get(key, key) != root:
            self._parent[key], key = root, self._parent[key]
        return root

    def same(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether two expressions are known to hold the same value."""
        return self.find(one) == self.find(other)

    def option(self, name: str) -> Hashable:
        """The key of `args.<name>` for an object that is not `self`."""
        return ("attribute", None, name)

    def _unite(self, one: Hashable, *others: Hashable) -> None:
        root = self.find(one)
        for other in others:
            self._parent[self.find(other)] = root
            root = self.find(root)

    # -- plain values ------------------------------------------------------------------------------------------

    def _connect(self, node: ast.AST) -> None:
        match node:
            case ast.Name():
                self._unite(node, self._variable(node.id, self._names.scope_of(node)))
            case ast.Attribute():
                self._connect_attribute(node)
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value)
            case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr():
                if node.value is not None:
                    self._assign(node.target, node.value)
                if isinstance(node, ast.AnnAssign):
                    self._connect_annotation(node.target, node.annotation)
            case ast.IfExp():
                self._unite(node, node.body, node.orelse)
            case ast.BoolOp():
                self._unite(node, *node.values)
            case ast.BinOp(op=ast.Add()) if _is_text(node.left) or _is_text(node.right):
                self._unite(node, node.left)
            case ast.BinOp(op=ast.Mod()) if _is_text(node.left):
                self._unite(node, node.left)
                if isinstance(node.left, ast.Constant) and str(node.left.value).startswith("%s"):
                    self._unite(
                        node, *(node.right.elts[:1] if isinstance(node.right, ast.Tuple) else [node.right])
                    )
            case ast.JoinedStr(values=[ast.FormattedValue(value=value), *_]):
                self._unite(node, value)
            case ast.Compare():
                self._connect_comparison(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._connect_function(node)
            case ast.Return() if node.value is not None:
                function = self._function_around(node)
                if function is not None:
                    self._unite(("returns", function), node.value)
            case ast.Call():
                self._connect_call(node)
            case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="split" | "rsplit" | "partition"))):
                self._unite(node, node.value)
            case ast.Match():
                for case in node.cases:
                    for pattern in ast.walk(case.pattern):
                        if isinstance(pattern, ast.MatchValue):
                            self._unite(node.subject, pattern.value)
            case _:
                pass

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        self._unite(target, value)
        pairs = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
        if pairs and len(target.elts) == len(value.elts):  # type: ignore[attr-defined]
            for item, part in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
                self._assign(item, part)

    def _connect_attribute(self, node: ast.Attribute) -> None:
        if node.attr == "type":  # device.type: the same word as the device itself
            self._unite(node, node.value)
            return
        owner = self._classes.class_of(node.value)
        if owner is not None:
            self._unite(node, ("attribute", self._classes.outermost(owner), node.attr))
        elif node.attr not in _MANY_MEANINGS and self._names.qualified(node) is None:
            self._unite(node, self.option(node.attr))

    def _connect_annotation(self, key: Hashable, annotation: ast.expr | None) -> None:
        """`device: Literal["cuda", "cpu"]`: what a variable may be."""
        for node in ast.walk(annotation) if annotation is not None else ():
            if isinstance(node, ast.Subscript) and (self._names.qualified(node.value) or "").endswith(
                ".Literal"
            ):
                values = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                self._unite(key, *values)

    def _connect_comparison(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
                if not any(isinstance(side, ast.Constant) and not _is_text(side) for side in (left, right)):
                    self._unite(left, right)
            elif isinstance(operator, ast.In | ast.NotIn):
                if isinstance(right, ast.Tuple | ast.List | ast.Set):
                    self._unite(left, *right.elts)
                elif _is_text(left):
                    self._unite(left, right)  # "cuda" in device
            left = right

    def _connect_function(self, node: Function) -> None:
        scope = self._names.scopes[node]
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = list(
            zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)
        )
        pairs += [
            (name, value)
            for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if value
        ]
        for argument, default in pairs:
            self._unite(self._variable(argument.arg, scope), default)
        for argument in (*positional, *arguments.kwonlyargs):
            self._connect_annotation(self._variable(argument.arg, scope), argument.annotation)
        if isinstance(node, ast.Lambda):
            self._unite(("returns", node), node.body)

    # -- calls -------------------------------------------------------------------------------------------------

    def _connect_call(self, node: ast.Call) -> None:
        called = self._names.qualified(node.func)
        if called in ("torch.device", "builtins.str", "os.path.expandvars") and node.args:
            self._unite(node, node.args[0])
        elif called == "builtins.getattr" and len(node.args) >= 2:
            self._unite(node, *node.args[2:])
            if isinstance(node.args[1], ast.Constant):
                self._unite(node, self.option(str(node.args[1].value)))
        elif called == "os.getenv":
            self._unite(node, *node.args[1:])
        elif isinstance(node.func, ast.Attribute):
            self._connect_method(node, node.func)
        function = self._classes.function_called(node)
        if function is not None:
            self._pass_arguments(node, function)

    def _connect_method(self, node: ast.Call, method: ast.Attribute) -> None:
        name, receiver = method.attr, method.value
        if name in _SAME_TEXT:
            # d.replace("cuda:", "") looks for a part of the text; with two words it translates one into another.
            self._unite(node, receiver, *(node.args[:1] if sum(map(_is_word, node.args)) == 1 else []))
        elif name in _AFFIX and node.args:
            self._unite(receiver, node.args[0])
        elif name == "format" and isinstance(receiver, ast.Constant):
            first = node.args[:1] if str(receiver.value).startswith("{") else []
            self._unite(node, receiver, *first)
        elif name in _DEFAULTED and len(node.args) == 2:
            self._unite(node, node.args[1])
        elif name == "add_argument":
            self._connect_option(node)
        elif name in _EQUALITIES and len(node.args) >= 2:
            self._unite(node.args[0], node.args[1])

    def _connect_option(self, node: ast.Call) -> None:
        """`parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])`."""
        flags = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        words = [flag for flag in flags if isinstance(flag, str)]
        if not words:
            return
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        long_words = [word for word in words if word.startswith("--")] or words
        name = long_words[0].lstrip("-").replace("-", "_")
        if isinstance(given := keywords.get("dest"), ast.Constant):
            name = str(given.value)
        for key in ("default", "const"):
            if key in keywords:
                self._unite(self.option(name), keywords[key])
        choices = keywords.get("choices")
        if isinstance(choices, ast.List | ast.Tuple | ast.Set):
            self._unite(self.option(name), *choices.elts)

    def _pass_arguments(self, node: ast.Call, function: Function) -> None:
        scope = self._names.scopes[function]
        names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
        inside_class = isinstance(self._names.parents.get(function), ast.ClassDef)
        static = not isinstance(function, ast.Lambda) and any(
            self._names.qualified(decorator) == "builtins.staticmethod"
            for decorator in function.decorator_list
        )
        if inside_class and not static and not self._through_class(node):
            names = names[1:]
        for name, argument in zip(names, node.args, strict=False):
            if isinstance(argument, ast.Starred):
                break
            self._unite(self._variable(name, scope), argument)
        for keyword in node.keywords:
            if keyword.arg in scope.bindings:
                self._unite(self._variable(str(keyword.arg), scope), keyword.value)
        if not (isinstance(function, ast.FunctionDef) and function.name == "__init__"):
            self._unite(node, ("returns", function))

    def _through_class(self, node: ast.Call) -> bool:
        """Whether this is `Class.method(instance, ...)`."""
        return isinstance(node.func, ast.Attribute) and isinstance(
            self._names.definition(node.func.value), ast.ClassDef
        )

    def _is_filled_in(self, node: ast.AST) -> bool:
        """Whether this is the tuple of `"%s:%d" % ("cuda", index)`, whose elements have nothing in common."""
        above = self._names.parents.get(node)
        return isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mod) and above.right is node

    # -- keys --------------------------------------------------------------------------------------------------

    def _variable(self, name: str, scope: Scope) -> Hashable:
        owner = scope.owner(name)
        if owner is not None and isinstance(owner.node, ast.ClassDef):
            return ("attribute", self._classes.outermost(owner.node), name)
        return ("variable", owner, name)

    def _function_around(self, node: ast.AST) -> Function | None:
        for above in self._names.ancestors(node):
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return above
        return None

    def _connect_elements(self, node: ast.AST) -> None:
        match node:
            case ast.Dict():
                container = self.find(node)
                for key, value in zip(node.keys, node.values, strict=True):
                    if key is not None:
                        self._unite(key, ("keys", container))
                    if isinstance(key, ast.Constant):
                        self._unite(value, ("item", container, key.value))
                if node.values and all(map(_is_choice, node.values)):
                    self._unite(("values", container), *node.values)
            case ast.List(ctx=ast.Load()) | ast.Tuple(ctx=ast.Load()) | ast.Set() if (
                node.elts and not self._is_filled_in(node)
            ):
                self._unite(("elements", self.find(node)), *node.elts)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._unite(node.target, ("elements", self.find(node.iter)))
            case ast.Subscript(slice=ast.Constant(value=str(word))):
                self._unite(node, ("item", self.find(node.value), word))
            case ast.Subscript() if not isinstance(node.slice, ast.Slice | ast.Tuple | ast.Constant):
                self._unite(node.slice, ("keys", self.find(node.value)))
                self._unite(node, ("values", self.find(node.value)))
            case ast.Call(func=ast.Attribute(attr="get", value=value), args=[key, *_]):
                self._unite(key, ("keys", self.find(value)))
                container = self.find(value)
                constant = isinstance(key, ast.Constant)
                self._unite(node, ("item", container, key.value) if constant else ("values", container))  # type: ignore[attr-defined]
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                self._unite(("elements", self.find(node)), node.elt)
            case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
                for keyword in keywords:
                    self._unite(keyword.value, ("item", self.find(node), keyword.arg))
            case ast.Compare(
                ops=[ast.In() | ast.NotIn()], comparators=[ast.Name() | ast.Attribute() as right]
            ):
                self._unite(node.left, ("elements", self.find(right)))
            case _:
                pass


def _is_word(node: ast.expr) -> bool:
    """Whether this is a text with letters, not a separator or nothing."""
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and any(map(str.isalpha, node.value))
    )


def _is_choice(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _CHOICES.fullmatch(node.value) is not None
    )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
