"""Whose method a call runs: torch's, a class's of this file, or somebody else's."""

from __future__ import annotations

import ast
import enum
import functools
import re

from torchport.source.module import Module
from torchport.source.names import Binds

# Packages whose objects are torch's or derived from it: their `.cuda()` is `Module.cuda` or `Tensor.cuda`.
_TORCH_FAMILY = frozenset(
    {
        "torch",
        "torchvision",
        "torchaudio",
        "timm",
        "transformers",
        "diffusers",
        "peft",
        "segmentation_models_pytorch",
    }
)
# Attributes that are methods; a value of that name that cannot be called is not what a call of it means.
_CALLED = ("cuda", "to")
# What holds the options of a script.
_FLAGS = re.compile(
    r"(?:self\.)?_?(?:args?|opts?|options?|flags?|config|conf|cfg|params|hparams|settings)", re.IGNORECASE
)


class Owner(enum.Enum):
    """Where a method or attribute is defined."""

    TORCH = enum.auto()
    USER = enum.auto()  # a class of this file defines it
    OTHER = enum.auto()  # another library's
    UNKNOWN = enum.auto()


class Receivers:
    """Decides for one attribute name ("cuda") whose it is on any receiver in one file."""

    def __init__(self, module: Module, attribute: str) -> None:
        self._module = module
        self._attribute = attribute
        self._seen: set[ast.expr] = set()

    @functools.cached_property
    def defined_here(self) -> bool:
        """Whether any class of this file defines the attribute, or answers to every one."""
        return any(self._defines(node) or _answers_all(node) for node in self._module.all(ast.ClassDef))

    @functools.cached_property
    def defined_elsewhere(self) -> bool:
        """Whether a class of another file of the project defines the attribute."""
        return bool(self._module.project.of(self._attribute))

    @functools.cached_property
    def _is_exposed(self) -> bool:
        """Whether the file names a class of the project that has the attribute: its objects may be here."""
        words = set(re.findall(r"\w+", self._module.text.text))
        return not words.isdisjoint(self._module.project.of(self._attribute))

    def is_proven(self, node: ast.expr) -> bool:
        """Whether the receiver is seen to be torch's: not only because nothing else of the file has the attribute."""
        self._seen = set()
        return self._owner(node) is Owner.TORCH

    def owner(self, node: ast.expr) -> Owner:
        """Whose attribute it is on the receiver `node`.

        Where the receiver's type is not known but no class of the file defines the attribute, it can only be torch's:
        nothing else that the script could hold answers to it.
        """
        self._seen = set()
        found = self._owner(node)
        if found is Owner.UNKNOWN and not self.defined_here and self._is_exposed:
            return Owner.UNKNOWN
        if found is Owner.UNKNOWN and not self.defined_here:
            return Owner.TORCH
        return found

    def _owner(self, node: ast.expr) -> Owner:
        if node in self._seen:
            return Owner.UNKNOWN
        self._seen.add(node)
        if (definition := self._module.flow.class_of(node)) is not None:
            return self._owner_of_class(definition)
        if isinstance(node, ast.Call):
            return self._owner_of_call(node)
        name = self._module.qualified(node)
        if name is not None:  # a module or a class: `numba.cuda(...)`, `torch.cuda(...)`
            return Owner.TORCH if name in ("torch.Tensor", "torch.nn.Module") else Owner.OTHER
        if isinstance(node, ast.Name):
            return self._owner_of_name(node)
        if isinstance(node, ast.Subscript):
            return Owner.UNKNOWN
        return Owner.UNKNOWN

    def _owner_of_call(self, node: ast.Call) -> Owner:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            around = [
                above for above in self._module.names.ancestors(node) if isinstance(above, ast.ClassDef)
            ]
            return self._owner_of_bases(around[0]) if around else Owner.UNKNOWN
        name = self._module.qualified(node.func)
        if name is not None:
            root = name.partition(".")[0]
            if root in _TORCH_FAMILY:
                return Owner.TORCH
            return Owner.UNKNOWN if root in ("builtins", "") or name.startswith(".") else Owner.OTHER
        if isinstance(node.func, ast.Attribute):
            # What a method of torch's gives back is torch's: model.eval(), x.view(-1).
            owner = self._owner(node.func.value)
            return owner if owner is Owner.TORCH else Owner.UNKNOWN
        return Owner.UNKNOWN

    def _owner_of_name(self, node: ast.Name) -> Owner:
        found = set()
        for binding in self._module.names.bindings(node):
            if binding.how is not Binds.VALUE or binding.value is None:
                return Owner.UNKNOWN
            if not (isinstance(binding.value, ast.Constant) and binding.value.value is None):
                found.add(self._owner(binding.value))
        return found.pop() if len(found) == 1 else Owner.UNKNOWN

    def _owner_of_class(self, node: ast.ClassDef) -> Owner:
        family = list(self._module.flow.bases(node))
        if any(self._defines(base) for base in family):
            return Owner.USER
        return Owner.UNKNOWN if any(map(_answers_all, family)) else self._owner_of_bases(node)

    def _owner_of_bases(self, node: ast.ClassDef) -> Owner:
        family = list(self._module.flow.bases(node))
        if any(self._defines(base) for base in family[1:]):
            return Owner.USER
        if any(map(_answers_all, family[1:])):
            return Owner.UNKNOWN
        names = [self._module.qualified(base) or "" for member in family for base in member.bases]
        if any(name.partition(".")[0] in _TORCH_FAMILY for name in names):
            return Owner.TORCH
        return Owner.UNKNOWN

    def _defines(self, node: ast.ClassDef) -> bool:
        """Whether the class has the attribute: a method, a class variable, `self.<attribute> = ...`."""
        for part in ast.walk(node):
            match part:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if name == self._attribute and part in node.body:
                        return True
                case ast.Name(id=name, ctx=ast.Store()) if name == self._attribute:
                    if self._module.names.scope_of(part).node is node and self._may_be_asked(part):
                        return True
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    if name == self._attribute and self._may_be_asked(part):
                        return True
                case _:
                    pass
        return False

    def _may_be_asked(self, target: ast.expr) -> bool:
        """Whether `self.cuda = value` can be what `x.cuda()` calls: `self.cuda = args.cuda` is a flag."""
        statement = self._module.parent(target)
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if value is None or self._attribute not in _CALLED:
            return True
        match value:
            case ast.Name():
                return self._module.names.definition(value) is not None
            case ast.Attribute(value=owner):
                return _FLAGS.fullmatch(self._module.source(owner)) is None
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "is_available")):
                return False
            case ast.Call(func=function):
                return not (self._module.qualified(function) or "").startswith(("torch.", "builtins."))
            case (
                ast.Constant() | ast.Compare() | ast.BoolOp() | ast.UnaryOp() | ast.IfExp() | ast.Subscript()
            ):
                return False
            case _:
                return True


def _answers_all(node: ast.ClassDef) -> bool:
    """Whether the class answers to names that it does not have: for an object inside it, as a rule."""
    return any(
        isinstance(part, ast.FunctionDef) and part.name in ("__getattr__", "__getattribute__")
        for part in node.body
    )
