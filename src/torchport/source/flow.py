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
from torchport.source.declared import unite_declared_values
from torchport.source.equivalence import Equivalence
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
# Expressions on the right of `in`; the elements of a list that is written there are compared one by one.
_CONTAINERS = (ast.Name, ast.Attribute, ast.Call, ast.Dict, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_OPTION = re.compile(r"--\w|-[A-Za-z]$")
# Two rounds find the elements of a container that is reached through a variable of another container.
_ROUNDS = 2
# What `_connect` looks at: as below.
_CONNECTED = frozenset(
    {
        ast.Name,
        ast.Attribute,
        ast.Assign,
        ast.AnnAssign,
        ast.AugAssign,
        ast.NamedExpr,
        ast.IfExp,
        ast.BoolOp,
        ast.BinOp,
        ast.JoinedStr,
        ast.Compare,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.Lambda,
        ast.Return,
        ast.Call,
        ast.Subscript,
        ast.Match,
    }
)
# What `_connect_elements` looks at: asked first, since most nodes are nothing of it.
_ABOUT_ELEMENTS = (
    ast.Dict,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.For,
    ast.AsyncFor,
    ast.comprehension,
    ast.Yield,
    ast.Subscript,
    ast.Call,
    ast.ListComp,
    ast.SetComp,
    ast.GeneratorExp,
    ast.DictComp,
    ast.Compare,
)


def _takes_apart(node: ast.AST) -> bool:
    """Whether this is `device, backend = choose()`."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Call)


class Flow(Equivalence):
    """Value classes of one file; its keys are expressions, and tuples that name what is no expression."""

    def __init__(self, names: Names, classes: Classes) -> None:
        super().__init__()
        self._names = names
        self._classes = classes
        self._uniform: set[Hashable] = set()  # containers whose elements all mean the same
        for node in names.nodes:
            if type(node) in _CONNECTED:
                self._connect(node)
        unite_declared_values(self, names, classes)
        containers = [node for node in names.nodes if isinstance(node, _ABOUT_ELEMENTS) or _takes_apart(node)]
        for _ in range(_ROUNDS):
            for node in containers:
                self._connect_elements(node)

    def is_same_value(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether two expressions are known to hold the same value."""
        return self.find(one) == self.find(other)

    def make_option_key(self, name: str) -> Hashable:
        """The key of `args.<name>` for an object that is not `self`."""
        return ("attribute", None, name)

    def is_uniform(self, container: Hashable) -> bool:
        """Whether all elements of a container are made alike, so that each means what the others mean."""
        root = self.find(container)
        return any(self.find(one) == root for one in self._uniform)

    # -- plain values ------------------------------------------------------------------------------------------

    def _connect(self, node: ast.AST) -> None:
        match node:
            case ast.Name():
                self.unite(node, self.make_variable_key(node.id, self._names.scope_of(node)))
            case ast.Attribute():
                self._connect_attribute(node)
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value)
            case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr():
                if node.value is not None:
                    self._assign(node.target, node.value)
                if isinstance(node, ast.AnnAssign):
                    self.connect_annotation(node.target, node.annotation)
            case ast.IfExp():
                self.unite(node, node.body, node.orelse)
            case ast.BoolOp():
                self.unite(node, *node.values)
            case ast.BinOp(op=ast.Add()) if _is_text(node.left) or _is_text(node.right):
                self.unite(node, node.left)
            case (
                ast.BinOp(op=ast.Mult(), left=ast.List() as repeated)
                | ast.BinOp(op=ast.Mult(), right=ast.List() as repeated)
            ):
                self.unite(node, repeated)
            case ast.BinOp(op=ast.Add(), left=ast.List()) | ast.BinOp(op=ast.Add(), right=ast.List()):
                self.unite(node, node.left, node.right)
            case ast.BinOp(op=ast.Mod()) if _is_text(node.left):
                self.unite(node, node.left)
                if isinstance(node.left, ast.Constant) and str(node.left.value).startswith("%s"):
                    self.unite(node, *(node.right.elts[:1] if isinstance(node.right, ast.Tuple) else [node.right]))
            case ast.JoinedStr(values=[ast.FormattedValue(value=value), *_]):
                self.unite(node, value)
            case ast.Compare():
                self._connect_comparison(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._connect_function(node)
            case ast.Return() if node.value is not None:
                function = self.function_around(node)
                if function is not None:
                    self.unite(("returns", function), node.value)
            case ast.Call():
                self._connect_call(node)
            case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="split" | "rsplit" | "partition"))):
                self.unite(node, node.value)
            case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper)):
                self.unite(node, node.value)  # a part of a list has the same elements
                for bound in (lower, upper):  # device[len("cuda:"):]
                    match bound:
                        case ast.Call(func=ast.Name(id="len"), args=[ast.Constant(value=str()) as word]):
                            self.unite(node.value, word)
                        case _:
                            pass
            case ast.Match():
                for case in node.cases:
                    self._connect_pattern(node.subject, case.pattern)
            case _:
                pass

    def _connect_pattern(self, subject: ast.expr, pattern: ast.pattern) -> None:
        match pattern:
            case ast.MatchValue(value=value):
                self.unite(subject, value)
            case ast.MatchOr(patterns=patterns):
                for one in patterns:
                    self._connect_pattern(subject, one)
            case ast.MatchAs(pattern=ast.pattern() as inner):
                self._connect_pattern(subject, inner)
            case ast.MatchSequence(patterns=patterns) if isinstance(subject, ast.Tuple | ast.List):
                if len(patterns) == len(subject.elts):
                    for item, one in zip(subject.elts, patterns, strict=True):
                        self._connect_pattern(item, one)
            case _:
                pass

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        self.unite(target, value)
        pairs = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
        if pairs and len(target.elts) == len(value.elts):  # type: ignore[attr-defined]
            for item, part in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
                self._assign(item, part)

    def _connect_attribute(self, node: ast.Attribute) -> None:
        if node.attr == "type":  # device.type: the same word as the device itself
            self.unite(node, node.value)
            return
        owner = self._classes.class_of(node.value)
        if owner is not None:
            self.unite(node, ("attribute", self._classes.find_outermost_base(owner), node.attr))
        elif node.attr not in _MANY_MEANINGS and self._names.resolve_name(node) is None:
            self.unite(node, self.make_option_key(node.attr))

    def connect_annotation(self, key: Hashable, annotation: ast.expr | None) -> None:
        """`device: Literal["cuda", "cpu"]`: what a variable may be; also by a name for such an annotation."""
        for node in ast.walk(annotation) if annotation is not None else ():
            values = [node]
            if isinstance(node, ast.Name):
                values += [binding.value for binding in self._names.find_bindings(node) if binding.value is not None]
            for value in values:
                if isinstance(value, ast.Subscript) and (self._names.resolve_name(value.value) or "").endswith(
                    ".Literal"
                ):
                    self.unite(key, *(value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]))

    def _connect_comparison(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
                if not any(isinstance(side, ast.Constant) and not _is_text(side) for side in (left, right)):
                    self.unite(left, right)
            elif isinstance(operator, ast.In | ast.NotIn):
                if isinstance(right, ast.Tuple | ast.List | ast.Set):
                    self.unite(left, *right.elts)
                elif _is_text(left):
                    self.unite(left, right)  # "cuda" in device
            left = right

    def _connect_function(self, node: Function) -> None:
        scope = self._names.scopes[node]
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
        pairs += [
            (name, value) for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value
        ]
        for argument, default in pairs:
            self.unite(self.make_variable_key(argument.arg, scope), default)
        for argument in (*positional, *arguments.kwonlyargs):
            self.connect_annotation(self.make_variable_key(argument.arg, scope), argument.annotation)
        if isinstance(node, ast.Lambda):
            self.unite(("returns", node), node.body)

    # -- calls -------------------------------------------------------------------------------------------------

    def _connect_call(self, node: ast.Call) -> None:
        called = self._names.resolve_name(node.func)
        if called in ("torch.device", "builtins.str", "os.path.expandvars") and node.args:
            self.unite(node, node.args[0])
        elif called == "builtins.getattr" and len(node.args) >= 2:
            self.unite(node, *node.args[2:])
            if isinstance(node.args[1], ast.Constant):
                self.unite(node, self.make_option_key(str(node.args[1].value)))
        elif called == "os.getenv":
            self.unite(node, *node.args[1:])
        elif isinstance(node.func, ast.Attribute):
            self._connect_method(node, node.func)
        function = self._classes.function_called(node)
        if function is not None:
            self._pass_arguments(node, function)

    def _connect_method(self, node: ast.Call, method: ast.Attribute) -> None:
        name, receiver = method.attr, method.value
        if name in _SAME_TEXT:
            # d.replace("cuda:", "") looks for a part of the text; with two words it translates one into another.
            self.unite(node, receiver, *(node.args[:1] if sum(map(_is_word, node.args)) == 1 else []))
        elif name in _AFFIX and node.args:
            self.unite(receiver, node.args[0])
        elif name == "format" and isinstance(receiver, ast.Constant):
            first = node.args[:1] if str(receiver.value).startswith("{") else []
            self.unite(node, receiver, *first)
        elif name == "join" and isinstance(receiver, ast.Constant) and receiver.value == ":":
            match node.args:
                case [ast.List(elts=[word, *_]) | ast.Tuple(elts=[word, *_])]:  # ":".join(["cuda", str(index)])
                    self.unite(node, word)
                case _:
                    pass
        elif name in _DEFAULTED and len(node.args) == 2:
            self.unite(node, node.args[1])
        elif name == "add_argument":
            self._connect_option(node)
        elif name in _EQUALITIES and len(node.args) >= 2:
            self.unite(node.args[0], node.args[1])

    def _connect_option(self, node: ast.Call) -> None:
        """`parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])`."""
        name = self._classes.option_name(node)
        if not name:
            return
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        for key in ("default", "const"):
            if key in keywords:
                self.unite(self.make_option_key(name), keywords[key])
        choices = keywords.get("choices")
        if isinstance(choices, ast.List | ast.Tuple | ast.Set):
            self.unite(self.make_option_key(name), *choices.elts)

    def _pass_arguments(self, node: ast.Call, function: Function) -> None:
        scope = self._names.scopes[function]
        names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
        inside_class = isinstance(self._names.parents.get(function), ast.ClassDef)
        static = not isinstance(function, ast.Lambda) and any(
            self._names.resolve_name(decorator) == "builtins.staticmethod" for decorator in function.decorator_list
        )
        if inside_class and not static and not self._through_class(node):
            names = names[1:]
        for name, argument in zip(names, node.args, strict=False):
            if isinstance(argument, ast.Starred):
                break
            self.unite(self.make_variable_key(name, scope), argument)
        for keyword in node.keywords:
            if keyword.arg in scope.bindings:
                self.unite(self.make_variable_key(str(keyword.arg), scope), keyword.value)
        if not (isinstance(function, ast.FunctionDef) and function.name == "__init__"):
            self.unite(node, ("returns", function))

    def _through_class(self, node: ast.Call) -> bool:
        """Whether this is `Class.method(instance, ...)`."""
        return isinstance(node.func, ast.Attribute) and isinstance(
            self._names.find_definition(node.func.value), ast.ClassDef
        )

    def _is_filled_in(self, node: ast.AST) -> bool:
        """Whether this is the tuple of `"%s:%d" % ("cuda", index)`, whose elements have nothing in common."""
        above = self._names.parents.get(node)
        return isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mod) and above.right is node

    # -- keys --------------------------------------------------------------------------------------------------

    def make_variable_key(self, name: str, scope: Scope) -> Hashable:
        owner = scope.find_owner_scope(name)
        if owner is not None and isinstance(owner.node, ast.ClassDef):
            return ("attribute", self._classes.find_outermost_base(owner.node), name)
        return ("variable", owner, name)

    def function_around(self, node: ast.AST) -> Function | None:
        for above in self._names.iter_ancestors(node):
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return above
        return None

    def _connect_elements(self, node: ast.AST) -> None:
        match node:
            case ast.Dict():
                self._connect_dict(node)
            case ast.List(ctx=ast.Load()) | ast.Tuple(ctx=ast.Load()) | ast.Set() if (
                node.elts and not self._is_filled_in(node)
            ):
                container = self.find(node)
                if not is_command_line(node):  # its words have nothing in common
                    self.unite(("elements", container), *node.elts)
                if all(map(is_choice, node.elts)):
                    self.unite(("values", container), *node.elts)
                for index, item in enumerate(node.elts):
                    self.unite(("item", container, index), item)
                    if isinstance(item, ast.Starred):
                        self.unite(("elements", container), ("elements", self.find(item.value)))
            case ast.Assign(targets=[ast.Tuple(elts=parts)], value=ast.Call() as given):  # device, backend = choose()
                if not any(isinstance(part, ast.Starred) for part in parts):
                    for index, part in enumerate(parts):
                        self.unite(("item", self.find(given), index), part)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._connect_loop(node.target, node.iter)
            case ast.Yield() if node.value is not None:
                function = self.function_around(node)
                if function is not None:
                    self.unite(("elements", self.find(("returns", function))), node.value)
            case ast.Subscript(slice=ast.Constant(value=str(word))):
                container = self.find(node.value)
                self.unite(node, ("item", container, word))
                self.unite(node.slice, ("keys", container))
            case ast.Subscript(slice=ast.Constant(value=int(index))):
                container = self.find(node.value)
                uniform = container in self._uniform
                self.unite(node, ("elements", container) if uniform else ("item", container, index))
            case ast.Subscript() if not isinstance(node.slice, ast.Slice | ast.Tuple | ast.Constant):
                self.unite(node.slice, ("keys", self.find(node.value)))
                self.unite(node, ("values", self.find(node.value)))
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault", value=value), args=[key, *_]):
                container = self.find(value)
                self.unite(key, ("keys", container))
                constant = isinstance(key, ast.Constant)
                self.unite(node, ("item", container, key.value) if constant else ("values", container))  # type: ignore[attr-defined]
            case (
                ast.Call(func=ast.Attribute(attr="append" | "add" | "appendleft", value=value), args=[item])
                | ast.Call(func=ast.Attribute(attr="insert", value=value), args=[_, item])
            ):
                self.unite(("elements", self.find(value)), item)
            case ast.Call(func=ast.Attribute(attr="extend" | "update", value=value), args=[more]):
                self.unite(("elements", self.find(value)), ("elements", self.find(more)))
            case ast.Call(func=ast.Attribute(attr="keys", value=value), args=[]):
                self.unite(("elements", self.find(node)), ("keys", self.find(value)))
            case ast.Call(func=ast.Name(id="filter" | "map" as word), args=[ast.Lambda() as function, values]):
                if (inner := function.args.args[:1]) and len(function.args.args) == 1:
                    one = self.make_variable_key(inner[0].arg, self._names.scopes[function])
                    self.unite(one, ("elements", self.find(values)))
                if word == "filter":
                    self.unite(node, values)
            case ast.Call(
                func=ast.Name(id="list" | "tuple" | "sorted" | "set" | "frozenset" | "reversed"), args=[value]
            ):
                self.unite(node, value)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                container = self.find(node)
                self._uniform.add(container)
                self.unite(("elements", container), ("values", container), node.elt)
            case ast.DictComp():
                self.unite(("keys", self.find(node)), ("elements", self.find(node)), node.key)
                self.unite(("values", self.find(node)), node.value)
            case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
                for keyword in keywords:
                    self.unite(keyword.value, ("item", self.find(node), keyword.arg))
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[right]) if isinstance(right, _CONTAINERS):
                self.unite(node.left, ("elements", self.find(right)))
            case _:
                pass

    def _connect_dict(self, node: ast.Dict) -> None:
        container = self.find(node)
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                # `for key in d` and `key in d` mean its keys
                self.unite(("keys", container), ("elements", container), key)
            if isinstance(key, ast.Constant):
                self.unite(value, ("item", container, key.value))
        if node.values and all(map(is_choice, node.values)):
            self.unite(("values", container), *node.values)

    def _connect_loop(self, target: ast.expr, values: ast.expr) -> None:
        """`for x in values`, `for key, value in d.items()`, `for index, x in enumerate(values)`."""
        match target, values:
            case ast.Tuple(elts=[key, value]), ast.Call(func=ast.Attribute(attr="items", value=table), args=[]):
                self.unite(key, ("keys", self.find(table)))
                self.unite(value, ("values", self.find(table)))
            case ast.Tuple(elts=[_, item]), ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
                self.unite(item, ("elements", self.find(inner)))
            case ast.Tuple(elts=items), ast.Call(func=ast.Name(id="zip"), args=inner) if len(items) == len(inner):
                for item, one in zip(items, inner, strict=True):
                    self.unite(item, ("elements", self.find(one)))
            case _:
                self.unite(target, ("elements", self.find(values)))


def _is_word(node: ast.expr) -> bool:
    """Whether this is a text with letters, not a separator or nothing."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and any(map(str.isalpha, node.value))


def is_choice(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _CHOICES.fullmatch(node.value) is not None


def is_command_line(node: ast.expr) -> bool:
    """Whether a list has the words of a command line: ["python", "train.py", "--device", "cuda"]."""
    return isinstance(node, ast.List | ast.Tuple) and any(
        isinstance(word, ast.Constant) and isinstance(word.value, str) and _OPTION.match(word.value)
        for word in node.elts
    )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
