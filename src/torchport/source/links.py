"""The values of a file that other files have too, under names that both know.

A value class of `Flow` ends with its file. What leaves a file by a name (a variable of a module, a parameter or the
result of a function, an attribute of a class) and what comes in by an import get a key here that means the same in
every file of the project, so that the classes of several files can be united.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Hashable, Iterator

from torchport.source.module import Module
from torchport.source.names import Binds, Scope

# ("name", file, word, ...): a variable of a module or an attribute of its class; ("returns", file, word, ...),
# ("returned", file, word, ..., index) and ("param", file, word, ..., index or name): of a function, or of a class when
# it is called; ("elements", file, word, ...), ("values", file, word, ...) and ("item", file, word, ..., index or key):
# of a container, which is ("uniform", file, word, ...) where all its elements mean the same; ("option", name): an
# attribute of an object of which only that is known.
Key = tuple[str | int, ...]
Link = tuple[Hashable, Key]

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.lru_cache(1)  # asked for each role of the file that is looked at
def find_links(module: Module) -> tuple[Link, ...]:
    """Pairs of a value of the file (a node, or a key of its `Flow`) and the key that it has in the project."""
    seen = _Links(module)
    return (*seen.link_exports(), *seen.link_uses(), *seen.link_options())


def find_star_imports(module: Module) -> Iterator[str]:
    """The files of the project of which the file imports every name."""
    for star in module.names.stars:
        joint = "" if star.endswith(".") else "."
        found = _find(module, f"{star}{joint}_")
        if found is not None:
            yield found[0]


def find_reexports(module: Module) -> dict[str, tuple[str, ...]]:
    """The names that the file imports from others of the project, and can be imported from here: file and words."""
    found = {}
    for name, bindings in module.names.scopes[module.tree].bindings.items():
        if len(bindings) == 1 and bindings[0].how is Binds.IMPORT:
            target = _find(module, bindings[0].target)
            if target is not None and target[1]:
                found[name] = (target[0], *target[1])
    return found


def _find(module: Module, name: str) -> tuple[str, tuple[str, ...]] | None:
    """The file of the project that a dotted name leads to, and the words that are looked up in it."""
    outside = module.project.outside
    return outside.locate_in_project(module.text.path, name) if outside is not None else None


class _Links:
    def __init__(self, module: Module) -> None:
        self._module = module
        self._path = module.text.path
        self._flow = module.flow
        self._scope = module.names.scopes[module.tree]

    @functools.cached_property
    def _counts(self) -> dict[ast.AST, int]:
        """How many values a function gives at most: `return device, backend`."""
        found: dict[ast.AST, int] = {}
        for given in self._module.iter_nodes(ast.Return):
            if isinstance(given.value, ast.Tuple) and (function := self._flow.function_around(given)) is not None:
                found[function] = max(found.get(function, 0), len(given.value.elts))
        return found

    # -- what the file gives to others -------------------------------------------------------------------------

    def link_exports(self) -> Iterator[Link]:
        for name, bindings in self._scope.bindings.items():
            key = ("name", self._path, name)
            variable = ("variable", self._scope, name)
            yield variable, key
            yield from self._parts(variable, key)
            if self._flow.is_uniform(variable):
                yield ("elements", self._flow.find(variable)), ("uniform", *key[1:])
            for binding in bindings:
                if binding.how is Binds.IMPORT and (found := _find(self._module, binding.target)) is not None:
                    yield variable, ("name", found[0], *found[1])
                    yield from self._parts(variable, ("name", found[0], *found[1]))
                elif isinstance(binding.node, _Function):
                    yield from self._function((name,), binding.node)
                elif isinstance(binding.node, ast.ClassDef):
                    yield from self._class(name, binding.node)
                for index in _indices(binding.value):
                    yield ("item", self._flow.find(variable), index), ("item", *key[1:], index)

    def _parts(self, container: Hashable, key: Key) -> Iterator[Link]:
        """What the elements and values of a container have in common, where they do."""
        root = self._flow.find(container)
        for part in ("elements", "values"):
            yield (part, root), (part, *key[1:])

    def _function(self, words: tuple[str, ...], function: _Function, *, skip: int = 0) -> Iterator[Link]:
        yield ("returns", function), ("returns", self._path, *words)
        for index in range(self._counts.get(function, 0)):
            yield ("item", self._flow.find(("returns", function)), index), ("returned", self._path, *words, index)
        yield from self._parameters(words, function, skip)

    def _parameters(self, words: tuple[str, ...], function: _Function, skip: int) -> Iterator[Link]:
        scope = self._module.names.scopes[function]
        positional = [*function.args.posonlyargs, *function.args.args][skip:]
        for index, parameter in enumerate(positional):
            variable = self._flow.make_variable_key(parameter.arg, scope)
            yield variable, ("param", self._path, *words, index)
            yield variable, ("param", self._path, *words, parameter.arg)
        for parameter in function.args.kwonlyargs:
            yield self._flow.make_variable_key(parameter.arg, scope), ("param", self._path, *words, parameter.arg)

    def _class(self, name: str, owner: ast.ClassDef) -> Iterator[Link]:
        classes = self._module.classes
        outermost = classes.find_outermost_base(owner)
        family = list(classes.iter_class_and_bases(owner))
        made = False
        for one in family:
            for part in one.body:
                if isinstance(part, _Function):
                    static = any(_last(decorator) == "staticmethod" for decorator in part.decorator_list)
                    yield from self._function((name, part.name), part, skip=0 if static else 1)
                    if part.name == "__init__" and not made:
                        made = True
                        yield from self._parameters((name,), part, 1)
        for attribute in self._attributes(owner):
            yield ("attribute", outermost, attribute), ("name", self._path, name, attribute)
            yield ("attribute", outermost, attribute), ("option", attribute)
            yield from self._parts(("attribute", outermost, attribute), ("name", self._path, name, attribute))
        if not made:
            fields = [
                part.target.id
                for one in reversed(family)
                for part in one.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            ]
            for index, field in enumerate(fields):
                yield ("attribute", outermost, field), ("param", self._path, name, index)
                yield ("attribute", outermost, field), ("param", self._path, name, field)
        for base in (base for one in family for base in one.bases):
            found = _find(self._module, self._module.resolve_name(base) or "")
            if found is not None:
                for attribute in self._attributes(owner):
                    yield ("attribute", outermost, attribute), ("name", found[0], *found[1], attribute)

    def _attributes(self, owner: ast.ClassDef) -> set[str]:
        """The names of attributes that the class and its bases in this file read or write."""
        found: set[str] = set()
        for base in self._module.classes.iter_class_and_bases(owner):
            found |= self._module.names.scopes[base].bindings.keys()
            found |= self._of_self.get(base, set())
        return found

    @functools.cached_property
    def _of_self(self) -> dict[ast.AST, set[str]]:
        """For each class the attributes of `self` that are named inside of it."""
        found: dict[ast.AST, set[str]] = {}
        for part in self._module.iter_nodes(ast.Attribute):
            if isinstance(part.value, ast.Name) and part.value.id == "self":
                scope: Scope | None = self._module.names.scope_of(part)
                while scope is not None:
                    if scope.is_class:
                        found.setdefault(scope.node, set()).add(part.attr)
                    scope = scope.parent
        return found

    # -- what the file takes from others -----------------------------------------------------------------------

    def link_uses(self) -> Iterator[Link]:
        for name in self._module.iter_nodes(ast.Name):
            if isinstance(name.ctx, ast.Load):
                yield from self._name(name)
        for attribute in self._module.iter_nodes(ast.Attribute):
            yield from self._attribute(attribute)
        for call in self._module.iter_nodes(ast.Call):
            yield from self._call(call)

    def _name(self, node: ast.Name) -> Iterator[Link]:
        if self._module.names.find_bindings(node):
            name = self._module.resolve_name(node)
            found = _find(self._module, name) if name is not None else None
            if found is not None and found[1]:
                yield from self._taken(node, ("name", found[0], *found[1]))
        else:
            for star in find_star_imports(self._module):
                yield node, ("name", star, node.id)

    def _attribute(self, node: ast.Attribute) -> Iterator[Link]:
        name = self._module.resolve_name(node)
        found = _find(self._module, name) if name is not None else self._of_instance(node)
        if found is not None and found[1]:
            yield from self._taken(node, ("name", found[0], *found[1]))
            if node.attr == "value" and len(found[1]) > 2:  # the text of a member of an enumeration
                yield node, ("name", found[0], *found[1][:-1])

    def _taken(self, node: ast.Name | ast.Attribute, key: Key) -> Iterator[Link]:
        """What a name of another file gives here: the value, and what is in it."""
        yield node, key
        above = self._module.get_parent(node)
        if isinstance(above, ast.Subscript) and above.value is node and isinstance(above.slice, ast.Constant):
            index = above.slice.value
            yield from [(above, ("item", *key[1:], index))] if isinstance(index, int | str) else []
        if not isinstance(above, ast.Attribute):
            yield from self._parts(node, key)

    def _of_instance(self, node: ast.Attribute) -> tuple[str, tuple[str, ...]] | None:
        """Where an attribute of an object is defined whose class comes from another file."""
        receiver = node.value
        if isinstance(receiver, ast.Name):
            bindings = self._module.names.find_bindings(receiver)
            if len(bindings) != 1:
                return None
            made = bindings[0].value
            annotation = bindings[0].node.annotation if isinstance(bindings[0].node, ast.arg) else None
            if annotation is not None:
                return self._member(annotation, node.attr)
            if bindings[0].how is not Binds.VALUE or made is None:
                return None
            receiver = made
        return self._member(receiver.func, node.attr) if isinstance(receiver, ast.Call) else None

    def _member(self, class_: ast.expr, attribute: str) -> tuple[str, tuple[str, ...]] | None:
        if isinstance(class_, ast.Constant):
            return None
        found = _find(self._module, self._module.resolve_name(class_) or "")
        return (found[0], (*found[1], attribute)) if found is not None and found[1] else None

    def _call(self, node: ast.Call) -> Iterator[Link]:
        name = self._module.resolve_name(node.func)
        if name is not None:
            found = _find(self._module, name)
        elif isinstance(node.func, ast.Attribute):
            found = self._of_instance(node.func)
        else:
            found = None
            if isinstance(node.func, ast.Name) and not self._module.names.find_bindings(node.func):
                for star in find_star_imports(self._module):
                    found = star, (node.func.id,)
        if found is None or not found[1]:
            return
        path, words = found
        yield node, ("returns", path, *words)
        above = self._module.get_parent(node)
        if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple):  # a, b = f()
            for index, _ in enumerate(above.targets[0].elts):
                yield ("item", self._flow.find(node), index), ("returned", path, *words, index)
        for index, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                break
            yield argument, ("param", path, *words, index)
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield keyword.value, ("param", path, *words, keyword.arg)

    # -- what is known by its name alone -----------------------------------------------------------------------

    def link_options(self) -> Iterator[Link]:
        for attribute in self._module.iter_nodes(ast.Attribute):
            option = self._flow.make_option_key(attribute.attr)
            if self._flow.find(attribute) == self._flow.find(option):
                yield attribute, ("option", attribute.attr)
        for call in self._module.iter_nodes(ast.Call):
            name = self._module.classes.option_name(call)
            if name:
                yield self._flow.make_option_key(name), ("option", name)


def _indices(value: ast.expr | None) -> Iterator[int | str]:
    """By what the parts of a list, a tuple or a dictionary are asked for that is written out."""
    if isinstance(value, ast.List | ast.Tuple):
        yield from range(len(value.elts))
    elif isinstance(value, ast.Dict):
        for key in value.keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, int | str):
                yield key.value


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
