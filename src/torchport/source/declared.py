"""Values that are declared, not assigned: fields of classes, options of commands, parameters of tests.

A field of a dataclass, a NamedTuple or a pydantic model is an attribute of its class; what a constructor is given by
its name or place is that attribute. An option that a decorator declares is a parameter of the function below it.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from torchport.source.names import Binds, Names

if TYPE_CHECKING:
    from torchport.source.classes import Classes
    from torchport.source.flow import Flow

# Calls that stand for the default that they are given: pydantic, dataclasses, attrs, typer.
_DEFAULTS = frozenset({"Field", "field", "Option", "Argument", "attrib", "ib", "Parameter", "Query", "Param"})
# Objects whose attributes are what they are made with.
_RECORDS = frozenset({"SimpleNamespace", "Namespace", "ConfigDict", "EasyDict", "Munch", "Box", "DotMap", "AttrDict"})
_PROPERTIES = frozenset({"property", "cached_property"})
_OPTIONS = frozenset({"option", "argument"})

_Definition = ast.FunctionDef | ast.AsyncFunctionDef


def unite_declared_values(flow: Flow, names: Names, classes: Classes) -> None:
    """Unite the values of one file that declarations make one."""
    declarations = _Declarations(flow, names, classes)
    for node in names.nodes:
        match node:
            case ast.Call():
                declarations.unite_call(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                declarations.add_function(node)
            case ast.Attribute(attr="value"):
                declarations.enum_value(node)
            case ast.ClassDef():
                declarations.unite_enum_members(node)
            case _:
                pass
    declarations.unite_fixtures()


class _Declarations:
    def __init__(self, flow: Flow, names: Names, classes: Classes) -> None:
        self._flow = flow
        self._names = names
        self._classes = classes
        self._fixtures: dict[str, _Definition] = {}
        self._functions: list[_Definition] = []

    # -- classes and records -----------------------------------------------------------------------------------

    def unite_call(self, node: ast.Call) -> None:
        word = _last(node.func)
        if word in _DEFAULTS:
            self._flow.unite(node, *_default(node))
        owner = self._names.find_definition(node.func)
        if isinstance(owner, ast.ClassDef) and self._classes.find_method(owner, "__init__") is None:
            self._construct(node, owner)
        elif word in _RECORDS or (fields := self._record(node.func)) is not None:
            given = [] if word in _RECORDS else list(zip(fields or (), node.args, strict=False))
            for name, value in [*given, *((keyword.arg, keyword.value) for keyword in node.keywords)]:
                if name is not None:
                    self._flow.unite(value, self._flow.make_option_key(name))

    def _construct(self, node: ast.Call, owner: ast.ClassDef) -> None:
        """`Config("cuda", lr=1)` of a class whose fields make its constructor."""
        if self._is_enum(owner):
            members = [value for _, value in _members(owner)]
            if len(node.args) == 1 and all(isinstance(value, ast.Constant) for value in members):
                self._flow.unite(node.args[0], *members)
            return
        family = list(self._classes.iter_class_and_bases(owner))
        fields = [
            part.target.id
            for one in reversed(family)
            for part in one.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        ]
        outermost = self._classes.find_outermost_base(owner)
        for name, value in zip(fields, node.args, strict=False):
            if isinstance(value, ast.Starred):
                break
            self._flow.unite(value, ("attribute", outermost, name))
        for keyword in node.keywords:
            if keyword.arg in fields:
                self._flow.unite(keyword.value, ("attribute", outermost, keyword.arg))

    def _record(self, function: ast.expr) -> list[str] | None:
        """The fields of `namedtuple("Config", "device lr")`, where the name means that."""
        if not isinstance(function, ast.Name):
            return None
        for binding in self._names.find_bindings(function):
            value = binding.value
            if isinstance(value, ast.Call) and _last(value.func) == "namedtuple" and len(value.args) >= 2:
                fields = value.args[1]
                if isinstance(fields, ast.Constant):
                    return str(fields.value).replace(",", " ").split()
                if isinstance(fields, ast.List | ast.Tuple):
                    return [str(elt.value) for elt in fields.elts if isinstance(elt, ast.Constant)]
        return None

    # -- enumerations ------------------------------------------------------------------------------------------

    def _is_enum(self, owner: ast.ClassDef) -> bool:
        return any(
            _last(base).endswith("Enum") for one in self._classes.iter_class_and_bases(owner) for base in one.bases
        )

    def unite_enum_members(self, owner: ast.ClassDef) -> None:
        """`where: Where` may be any of its members."""
        if not self._is_enum(owner):
            return
        for parameter in self._names.nodes:
            annotation = parameter.annotation if isinstance(parameter, ast.arg) else None
            if annotation is None or self._names.find_definition(annotation) is not owner:
                continue
            function = self._flow.function_around(parameter)
            if function is None:
                continue
            assert isinstance(parameter, ast.arg)
            variable = self._flow.make_variable_key(parameter.arg, self._names.scopes[function])
            self._flow.unite(variable, *(value for _, value in _members(owner)))

    def enum_value(self, node: ast.Attribute) -> None:
        """`Where.GPU.value` and `where.value`: the text of a member is what the member was given."""
        inner = node.value
        if isinstance(inner, ast.Attribute):
            owner = self._names.find_definition(inner.value)
            if isinstance(owner, ast.ClassDef) and self._is_enum(owner):
                self._flow.unite(node, inner)
        elif isinstance(inner, ast.Name):
            for binding in self._names.find_bindings(inner):
                annotation = binding.node.annotation if isinstance(binding.node, ast.arg | ast.AnnAssign) else None
                owner = self._names.find_definition(annotation) if annotation is not None else None
                if isinstance(owner, ast.ClassDef) and self._is_enum(owner):
                    self._flow.unite(node, inner)

    # -- functions ---------------------------------------------------------------------------------------------

    def add_function(self, node: _Definition) -> None:
        self._functions.append(node)
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call):
                if _last(decorator) == "fixture":
                    self._fixtures[node.name] = node
                elif _last(decorator) in _PROPERTIES:
                    self._property(node)
                continue
            word = _last(decorator.func)
            if word in _OPTIONS:
                self._option(node, decorator)
            elif word == "parametrize" and len(decorator.args) >= 2:
                self._parametrize(node, decorator.args[0], decorator.args[1])
            elif word == "fixture":
                self._fixtures[node.name] = node
                self._fixture_parameters(node, decorator)

    def _property(self, function: _Definition) -> None:
        owner = self._names.parents.get(function)
        if isinstance(owner, ast.ClassDef):
            attribute = ("attribute", self._classes.find_outermost_base(owner), function.name)
            self._flow.unite(attribute, ("returns", function))

    def _option(self, function: _Definition, decorator: ast.Call) -> None:
        """`@click.option("--device", default="cuda", type=click.Choice(["cuda", "cpu"]))`."""
        words = [str(arg.value) for arg in decorator.args if isinstance(arg, ast.Constant)]
        plain = [word for word in words if not word.startswith("-")]
        long_words = plain or [word for word in words if word.startswith("--")] or words
        if not long_words:
            return
        name = long_words[0].lstrip("-").partition("/")[0].replace("-", "_").lower()
        variable = self._flow.make_variable_key(name, self._names.scopes[function])
        for keyword in decorator.keywords:
            if keyword.arg in ("default", "flag_value"):
                self._flow.unite(variable, keyword.value)
            elif keyword.arg == "type" and isinstance(keyword.value, ast.Call) and keyword.value.args:
                choices = keyword.value.args[0]
                if _last(keyword.value.func) == "Choice" and isinstance(choices, ast.List | ast.Tuple):
                    self._flow.unite(variable, *choices.elts)

    def _parametrize(self, function: _Definition, words: ast.expr, values: ast.expr) -> None:
        """`@pytest.mark.parametrize("device, n", [("cpu", 1), pytest.param("cuda", 2)])`."""
        if isinstance(words, ast.Constant):
            names = [word.strip() for word in str(words.value).split(",") if word.strip()]
        elif isinstance(words, ast.List | ast.Tuple):
            names = [str(elt.value) for elt in words.elts if isinstance(elt, ast.Constant)]
        else:
            return
        variables = [self._flow.make_variable_key(name, self._names.scopes[function]) for name in names]
        rows = values.elts if isinstance(values, ast.List | ast.Tuple) else []
        if not rows and len(variables) == 1:
            self._flow.unite(variables[0], ("elements", self._flow.find(values)))
        for row in rows:
            given = row.args if isinstance(row, ast.Call) and _last(row.func) == "param" else None
            if given is None and len(variables) > 1:
                given = row.elts if isinstance(row, ast.Tuple | ast.List) else []
            for variable, value in zip(variables, given if given is not None else [row], strict=False):
                self._flow.unite(variable, value)

    def _fixture_parameters(self, function: _Definition, decorator: ast.Call) -> None:
        """`@pytest.fixture(params=["cpu", "cuda"])`: what `request.param` is in it."""
        for keyword in decorator.keywords:
            given = keyword.value
            if isinstance(given, ast.Name):  # params=available_devices
                bound = [one.value for one in self._names.find_bindings(given)]
                given = bound[0] if len(bound) == 1 and bound[0] is not None else given
            if keyword.arg == "params" and isinstance(given, ast.List | ast.Tuple):
                asked = [
                    node
                    for node in ast.walk(function)
                    if isinstance(node, ast.Attribute) and node.attr == "param" and _last(node.value) == "request"
                ]
                values = [elt.args[0] if isinstance(elt, ast.Call) and elt.args else elt for elt in given.elts]
                self._flow.unite(("param", function), *asked, *values)

    def unite_fixtures(self) -> None:
        """What a fixture returns or yields is what a parameter of its name is in tests and other fixtures."""
        for function in self._functions:
            for parameter in self._parameters(function):
                fixture = self._fixtures.get(parameter)
                if fixture is not None and fixture is not function:
                    variable = self._flow.make_variable_key(parameter, self._names.scopes[function])
                    self._flow.unite(variable, ("returns", fixture))
                    self._flow.unite(variable, ("elements", self._flow.find(("returns", fixture))))

    def _parameters(self, function: _Definition) -> Iterator[str]:
        scope = self._names.scopes[function]
        for name, bindings in scope.bindings.items():
            if any(binding.how is Binds.PARAMETER for binding in bindings):
                yield name


def _default(node: ast.Call) -> list[Hashable]:
    """What a declaration such as `Field("cuda")` stands for."""
    found: list[Hashable] = []
    if node.args and not (isinstance(node.args[0], ast.Constant) and node.args[0].value is ...):
        found.append(node.args[0])
    for keyword in node.keywords:
        if keyword.arg == "default":
            found.append(keyword.value)
        elif keyword.arg in ("default_factory", "factory") and isinstance(keyword.value, ast.Lambda):
            found.append(keyword.value.body)
    return found


def _members(owner: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for part in owner.body:
        if isinstance(part, ast.Assign) and len(part.targets) == 1 and isinstance(part.targets[0], ast.Name):
            yield part.targets[0].id, part.value


def _last(node: ast.expr) -> str:
    """The last word of a name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
