"""Whose method a call runs: torch's, a class's of the project, a library's, or somebody else's."""

from __future__ import annotations

import ast
import enum
import functools
import re
import sys
from collections.abc import Iterator

from torchport.knowledge.libraries import MOVED, TORCH, load_libraries
from torchport.source.definitions import ANY_CLASS
from torchport.source.module import Module
from torchport.source.names import Binds

# Attributes that are methods; a value of that name that cannot be called is not what a call of it means.
_CALLED = ("cuda", "to")
# Names of the object with the options of a script. `params` may be a tensor as well: OPTIONS leaves it out.
_HOLDERS = r"(?:self\.)?_?(?:args?|opts?|options?|flags?|config|conf|cfg|hparams|settings"
OPTIONS = re.compile(rf"{_HOLDERS})", re.IGNORECASE)
FLAGS = re.compile(rf"{_HOLDERS}|params)", re.IGNORECASE)
# Attributes that only a module of torch has, and classes that take one.
_OF_MODULES = frozenset(
    {"parameters", "named_parameters", "state_dict", "load_state_dict", "named_modules", "zero_grad"}
)
_MODES = frozenset({"train", "eval"})  # of a module, behind a call of cuda()
_WRAPPERS = (".DistributedDataParallel", ".DataParallel", ".FullyShardedDataParallel")
# Python's own functions that give back what they are given, or a copy.
_HANDED_ON = frozenset({"copy.copy", "copy.deepcopy"})

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Owner(enum.Enum):
    """Where a method or attribute is defined."""

    TORCH = enum.auto()
    USER = enum.auto()  # a class of the project defines it
    MOVED = enum.auto()  # a library's class, whose objects are moved by to() alone on an NPU
    OTHER = enum.auto()  # a library's of which nothing is known
    UNKNOWN = enum.auto()


class Receivers:
    """Decides for one attribute name ("cuda") whose it is on any receiver in one file."""

    def __init__(self, module: Module, attribute: str, known: dict[ast.AST, Owner] | None = None) -> None:
        self._module = module
        self._attribute = attribute
        # The answers on the way to one answer; what is asked for again before it is known is not known.
        self._known: dict[ast.AST, Owner] = {} if known is None else known

    @functools.cached_property
    def defined_here(self) -> bool:
        """Whether any class of this file defines the attribute, or answers to every one."""
        return any(self._defines(node) or _answers_all(node) for node in self._module.iter_nodes(ast.ClassDef))

    @functools.cached_property
    def defined_elsewhere(self) -> bool:
        """Whether a class of another file of the project defines the attribute."""
        return bool(self._module.project.find_classes_with(self._attribute))

    @functools.cached_property
    def _is_exposed(self) -> bool:
        """Whether the file names a class of the project that has the attribute: its objects may be here."""
        classes = self._module.project.find_classes_with(self._attribute)
        return ANY_CLASS in classes or not classes.isdisjoint(re.findall(r"\w+", self._module.text.text))

    @functools.cached_property
    def _meets_moved(self) -> bool:
        """Whether the project uses a library whose objects have cuda() and no npu(): any object may be one."""
        imported = {binding.target.partition(".")[0] for binding in self._module.names.iter_imports()}
        known = load_libraries()
        return any(
            known[name].objects == MOVED
            for name in (imported | self._module.project.imported) & known.keys()
            if not self._module.project.has_package(name)
        )

    def is_part_of_owner(self, node: ast.expr) -> bool:
        """Whether the receiver stands in the method of this name, of the only class of the project that has one, and is
        not that object: `self.x.cuda()` in `def cuda(self)` moves what the class holds."""
        inside: ast.FunctionDef | ast.AsyncFunctionDef | None = None
        for above in self._module.names.iter_ancestors(node):
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef) and inside is None:
                inside = above if above.name == self._attribute else None
            elif isinstance(above, ast.ClassDef):
                own = {one.name for one in self._defining if isinstance(one, ast.ClassDef)}
                others = self._module.project.find_classes_with(self._attribute)
                return inside is not None and not isinstance(node, ast.Name) and own | others == {above.name}
        return False

    def is_used_as_module(self, node: ast.expr) -> bool:
        """Whether the rest of the file takes the receiver, or what it is assigned to, for a module of torch:
        `net.parameters()`, `DistributedDataParallel(net)`."""
        module, names = self._module, set[str]()
        if isinstance(node, ast.Name | ast.Attribute):
            names.add(ast.unparse(node))
        above = module.get_parent(node)
        while isinstance(above, ast.Attribute | ast.Call):  # net = Net().cuda().train()
            if isinstance(above, ast.Attribute) and above.attr in _OF_MODULES | _MODES:
                return True
            above = module.get_parent(above)
        if isinstance(above, ast.Assign):
            names |= {ast.unparse(target) for target in above.targets}
        return not names.isdisjoint(self._used_as_modules)

    @functools.cached_property
    def _used_as_modules(self) -> frozenset[str]:
        """The names and attributes of the file that are used as a module of torch, as they are written."""
        module = self._module
        found = {
            ast.unparse(node.value)
            for node in module.iter_nodes(ast.Attribute)
            if node.attr in _OF_MODULES and isinstance(node.value, ast.Name | ast.Attribute)
        }
        for call in module.iter_nodes(ast.Call):
            if call.args and (module.resolve_name(call.func) or "").endswith(_WRAPPERS):
                found.add(ast.unparse(call.args[0]))
        return frozenset(found)

    def is_proven(self, node: ast.expr) -> bool:
        """Whether the receiver is seen to be torch's: not only because nothing else of the file has the attribute."""
        self._known.clear()
        return self._owner(node) is Owner.TORCH

    def is_moved(self, node: ast.expr) -> bool:
        """Whether the receiver is seen to be an object of a library whose objects are not torch's."""
        self._known.clear()
        return self._owner(node) is Owner.MOVED

    def resolve_owner(self, node: ast.expr) -> Owner:
        """Whose attribute it is on the receiver `node`.

        Where the receiver's type is not known but no class of the file defines the attribute, it can only be torch's,
        or a library's that the project uses: nothing else that the script could hold answers to it.
        """
        self._known.clear()
        found = self._owner(node)
        if found is Owner.OTHER and self._module.project.assume_modules:
            return Owner.TORCH
        if found is Owner.UNKNOWN and not self.defined_here:
            if self._is_exposed:
                return Owner.UNKNOWN
            return Owner.MOVED if self._meets_moved else Owner.TORCH
        return found

    def _owner(self, node: ast.expr) -> Owner:
        if node not in self._known:
            self._known[node] = Owner.UNKNOWN
            self._known[node] = self._find_owner(node)
        return self._known[node]

    def _find_owner(self, node: ast.expr) -> Owner:
        if (definition := self._module.classes.class_of(node)) is not None:
            return self._owner_of_class(definition)
        if isinstance(node, ast.Call):
            return self._owner_of_call(node)
        name = self._module.resolve_name(node)
        if name is not None:  # a module, a class or another file's variable: `numba.cuda(...)`, `net.model.cuda()`
            return Owner.TORCH if name in ("torch.Tensor", "torch.nn.Module") else self._owner_of_value(name)
        if isinstance(node, ast.Name):
            return self._owner_of_name(node)
        if isinstance(node, ast.IfExp):
            return self._agreed([node.body, node.orelse])
        return Owner.UNKNOWN

    def _agreed(self, nodes: list[ast.expr]) -> Owner:
        found = {self._owner(node) for node in nodes}
        return found.pop() if len(found) == 1 else Owner.UNKNOWN

    def _owner_of_call(self, node: ast.Call) -> Owner:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            around = [above for above in self._module.names.iter_ancestors(node) if isinstance(above, ast.ClassDef)]
            return self._owner_of_class(around[0], itself=False) if around else Owner.UNKNOWN
        name = self._module.resolve_name(node.func)
        if name in _HANDED_ON and node.args:
            return self._owner(node.args[0])
        if name is not None:
            return self._owner_of_made(name)
        if isinstance(node.func, ast.Attribute):
            # What a method of torch's gives back is torch's: model.eval(), x.view(-1).
            owner = self._owner(node.func.value)
            return owner if owner in (Owner.TORCH, Owner.MOVED) else Owner.UNKNOWN
        return Owner.UNKNOWN

    def _owner_of_made(self, name: str) -> Owner:
        """Whose attribute it is on what the function or class of a dotted name gives back."""
        root = name.partition(".")[0]
        if not name.startswith(".") and not self._module.project.has_package(root):
            if root in ("builtins", "") or root in sys.stdlib_module_names:
                return Owner.UNKNOWN  # it hands on what the script gave it
            if (known := _of_library(root)) is not None:
                return known
        found = {self._given(module, meaning) for module, meaning in self._meanings(name)}
        if not found:
            own = name.startswith(".") or self._module.project.has_package(root)
            return Owner.UNKNOWN if own else Owner.OTHER
        return found.pop() if len(found) == 1 else Owner.UNKNOWN

    def _given(self, module: Module, meaning: ast.AST) -> Owner:
        """Whose attribute it is on what a class or function of another file gives back when it is called."""
        receivers = Receivers(module, self._attribute, self._known)
        if isinstance(meaning, ast.ClassDef):
            return receivers._owner_of_class(meaning)
        if isinstance(meaning, ast.FunctionDef | ast.AsyncFunctionDef):
            return receivers._owner_of_function(meaning)
        return Owner.UNKNOWN

    def _owner_of_function(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Owner:
        around = self._module.get_parent(function)
        if isinstance(around, ast.ClassDef):  # Net.from_name(...): what makes one in another way, as a rule
            return self._owner_of_class(around)
        returned = [
            node.value
            for node in self._module.iter_nodes(ast.Return)
            if node.value is not None and self._module.names.scope_of(node).node is function
        ]
        if function not in self._known and returned:
            self._known[function] = Owner.UNKNOWN
            self._known[function] = self._agreed(returned)
        return self._known.get(function, Owner.UNKNOWN)

    def _owner_of_value(self, name: str) -> Owner:
        """Whose attribute it is on a variable of another file, or on a module or class itself."""
        found = {
            Receivers(module, self._attribute, self._known)._owner(meaning)
            for module, meaning in self._meanings(name)
            if isinstance(meaning, ast.expr)
        }
        if found:
            return found.pop() if len(found) == 1 else Owner.UNKNOWN
        return Owner.OTHER

    def _meanings(self, name: str) -> Iterator[tuple[Module, Definition | ast.expr]]:
        if self._module.project.outside is not None:
            yield from self._module.project.outside.find_meanings(self._module, name)

    def _owner_of_name(self, node: ast.Name) -> Owner:
        found = set()
        bindings = self._module.names.find_bindings(node)
        for binding in bindings:
            if binding.how is not Binds.VALUE or binding.value is None:
                return Owner.UNKNOWN
            if len(bindings) > 1 and _moves_itself(binding.value, node.id):
                continue  # x = x.cuda(): what it was before
            if not (isinstance(binding.value, ast.Constant) and binding.value.value is None):
                found.add(self._owner(binding.value))
        return found.pop() if len(found) == 1 else Owner.UNKNOWN

    def _owner_of_class(self, node: ast.ClassDef, *, itself: bool = True) -> Owner:
        """Whose attribute it is on an instance of the class; without `itself` on `super()` in it."""
        if not itself:
            return self._owner_in_family(node, itself=False)
        if node not in self._known:
            self._known[node] = Owner.UNKNOWN
            self._known[node] = self._owner_in_family(node, itself=True)
        return self._known[node]

    def _owner_in_family(self, node: ast.ClassDef, *, itself: bool) -> Owner:
        family = list(self._module.classes.iter_class_and_bases(node))
        asked = family if itself else family[1:]
        if any(map(self._defines, asked)):
            return Owner.USER
        if any(map(_answers_all, asked)):
            return Owner.UNKNOWN
        names = [self._module.resolve_name(base) for member in family for base in member.bases]
        found = {self._owner_of_base(name) for name in names if name is not None}
        for owner in (Owner.USER, Owner.MOVED, Owner.TORCH):
            if owner in found:
                return owner
        return Owner.UNKNOWN

    def _owner_of_base(self, name: str) -> Owner:
        root = name.partition(".")[0]
        known = None if self._module.project.has_package(root) else _of_library(root)
        if known is not None:
            return known
        for module, meaning in self._meanings(name):
            if isinstance(meaning, ast.ClassDef):
                return Receivers(module, self._attribute, self._known)._owner_of_class(meaning)
        return Owner.UNKNOWN

    def _defines(self, node: ast.ClassDef) -> bool:
        """Whether the class has the attribute: a method, a class variable, `self.<attribute> = ...`."""
        return node in self._defining

    @functools.cached_property
    def _defining(self) -> set[ast.AST]:
        """The classes of the file that define the attribute."""
        module, found = self._module, set[ast.AST]()
        functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
            *module.iter_nodes(ast.FunctionDef),
            *module.iter_nodes(ast.AsyncFunctionDef),
        ]
        for function in functions:
            if function.name == self._attribute:
                found.update(above for above in [module.get_parent(function)] if isinstance(above, ast.ClassDef))
        for name in module.iter_nodes(ast.Name):
            if name.id == self._attribute and isinstance(name.ctx, ast.Store) and self._may_be_asked(name):
                found.add(module.names.scope_of(name).node)
        for attribute in module.iter_nodes(ast.Attribute):
            if attribute.attr != self._attribute or not isinstance(attribute.ctx, ast.Store):
                continue
            of_self = isinstance(attribute.value, ast.Name) and attribute.value.id == "self"
            if of_self and self._may_be_asked(attribute):
                found.update(
                    above for above in module.names.iter_ancestors(attribute) if isinstance(above, ast.ClassDef)
                )
        return found

    def _may_be_asked(self, target: ast.expr) -> bool:
        """Whether `self.cuda = value` can be what `x.cuda()` calls: `self.cuda = args.cuda` is a flag."""
        statement = self._module.get_parent(target)
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if value is None or self._attribute not in _CALLED:
            return True
        match value:
            case ast.Name():
                return self._module.names.find_definition(value) is not None
            case ast.Attribute(value=owner):
                return FLAGS.fullmatch(self._module.get_source(owner)) is None
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "is_available")):
                return False
            case ast.Call(func=function):
                return not (self._module.resolve_name(function) or "").startswith(("torch.", "builtins."))
            case ast.Constant() | ast.Compare() | ast.BoolOp() | ast.UnaryOp() | ast.IfExp() | ast.Subscript():
                return False
            case _:
                return True


def _of_library(root: str) -> Owner | None:
    """Whose attributes the objects of a package have; None where its row does not say."""
    if root == "torch":
        return Owner.TORCH
    library = load_libraries().get(root)
    if library is None or not library.objects:
        return None
    return Owner.TORCH if library.objects == TORCH else Owner.MOVED


def _moves_itself(value: ast.expr, name: str) -> bool:
    match value:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=moved), attr="cuda" | "to" | "npu" | "cpu" | "float" | "half")
        ):
            return moved == name
    return False


def _answers_all(node: ast.ClassDef) -> bool:
    """Whether the class answers to names that it does not have: for an object inside it, as a rule."""
    return any(
        isinstance(part, ast.FunctionDef) and part.name in ("__getattr__", "__getattribute__") for part in node.body
    )
