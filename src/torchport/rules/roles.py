"""What string values mean: whether they get to where a device (or a backend) is expected."""

from __future__ import annotations

import ast
import enum
import functools
import itertools
import re
from collections.abc import Callable, Hashable, Iterator

from torchport.knowledge.arguments import Role, load_role
from torchport.knowledge.libraries import TORCH, load_libraries
from torchport.source.links import find_links
from torchport.source.module import Module

# Libraries whose `device=` is not torch's.
_OTHER_DEVICES = frozenset(
    {"cupy", "numba", "tensorflow", "jax", "onnxruntime", "paddle", "mxnet", "warp", "pycuda", "ctranslate2"}
    | {"faster_whisper"}
)


DEVICES = frozenset({"cpu", "mps", "xpu", "hpu", "mlu", "musa", "mtia"})


class Proof(enum.IntEnum):
    """How well it is known that a value has a role."""

    NONE = 0
    NAMED = 1  # a variable or keyword of a telling name
    PROVEN = 2  # it reaches an argument that has the role


def find_roles(module: Module, role: str) -> Roles:
    """The value classes of a file that have a role, "device" or "backend", by what is known of the project's values
    now."""
    return _find_roles(module, role, id(module.project.values.get(module.text.path)))


@functools.lru_cache(4)  # asked for by several rules for each file
def _find_roles(module: Module, role: str, known: int) -> Roles:
    return Roles(module, load_role(role))


class Roles:
    """The value classes of one file that have one role."""

    def __init__(self, module: Module, role: Role) -> None:
        self._module = module
        self._role = role
        self._tells = _telling(role.names)
        self._proofs: dict[Hashable, Proof] = {}
        self._fixed: set[Hashable] = set()
        self._take_over()
        for node, proof in self._uses():
            self._raise(node, proof)
        for dictionary in module.iter_nodes(ast.Dict):  # map_location={"cuda:1": "cuda:0"}
            if (proof := self.find_proof(dictionary)) is not Proof.NONE:
                for part in (*dictionary.keys, *dictionary.values):
                    if part is not None:
                        self._raise(part, proof)
        for made in module.iter_nodes(ast.DictComp):
            if (proof := self.find_proof(made)) is not Proof.NONE:
                self._raise(made.key, proof)
                self._raise(made.value, proof)

    def _take_over(self) -> None:
        """What other files of the project know of values of this one."""
        known = self._module.project.values.get(self._module.text.path)
        if not known:
            return
        index = 0 if self._role.name == "device" else 1
        for value, key in find_links(self._module):
            if (told := known.get(key)) is not None:
                self._raise(value, Proof(told.proofs[index]))
                if told.fixed:
                    self._fixed.add(self._module.flow.find(value))

    def is_fixed(self, node: ast.expr) -> bool:
        """Whether the value is spelled out in another file where it cannot be edited."""
        return self._module.flow.find(node) in self._fixed

    def proof_of(self, root: Hashable) -> Proof:
        """How well it is known that a class of values has the role."""
        return self._proofs.get(root, Proof.NONE)

    def _raise(self, node: Hashable, proof: Proof) -> None:
        root = self._module.flow.find(node)
        self._proofs[root] = max(proof, self._proofs.get(root, Proof.NONE))

    def find_proof(self, node: ast.expr) -> Proof:
        """How well it is known that the value of `node` has the role."""
        return self._proofs.get(self._module.flow.find(node), Proof.NONE)

    def holds_name(self, node: ast.expr) -> bool:
        """Whether the value is a `torch.device` or a device string somewhere, not only an index."""
        return self._module.flow.find(node) in self._texts

    @functools.cached_property
    def _texts(self) -> frozenset[Hashable]:
        module = self._module
        texts = {
            module.flow.find(call)
            for call in module.iter_nodes(ast.Call)
            if module.resolve_name(call.func) == "torch.device"
        }
        for kind in (ast.Constant, ast.JoinedStr):
            for node in module.iter_nodes(kind):
                if not isinstance(node, ast.Constant) or isinstance(node.value, str):
                    texts.add(module.flow.find(node))
        return frozenset(texts)

    @functools.cached_property
    def _own_methods(self) -> frozenset[str]:
        """The methods of classes of this file: a call of one may be theirs where the object is not known."""
        return frozenset(
            part.name
            for owner in self._module.iter_nodes(ast.ClassDef)
            for part in owner.body
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
        )

    def _uses(self) -> Iterator[tuple[Hashable, Proof]]:
        module, role = self._module, self._role
        for call in module.iter_nodes(ast.Call):
            yield from self._arguments(call)
            if self._tells(_last_name(call.func)) and self._is_open(call.func):  # get_device(), device_name()
                yield call, Proof.NAMED
        for attribute in module.iter_nodes(ast.Attribute):
            if role.name == "device" and attribute.attr == "type":
                if _is_device_attribute(attribute.value):
                    yield attribute, Proof.PROVEN
                elif self._tells(_last_name(attribute.value)):  # devices[0].type, get_device().type
                    yield attribute, Proof.NAMED
            elif self._tells(attribute.attr) and self._is_open(attribute):
                yield attribute, Proof.NAMED
        for name in module.iter_nodes(ast.Name):
            if self._tells(name.id):
                yield name, Proof.NAMED
                if name.id.endswith("s"):  # devices = ["cuda:0", "cuda:1"]
                    yield ("elements", module.flow.find(name)), Proof.NAMED
        for dictionary in module.iter_nodes(ast.Dict):
            for key, value in _items(dictionary):
                if self._tells(key):
                    yield value, Proof.NAMED
            said = [one.value for one in dictionary.values if isinstance(one, ast.Constant)]
            if any(isinstance(word, str) and word.startswith("--") and self._tells(_plain(word)) for word in said):
                yield from ((value, Proof.NAMED) for key, value in _items(dictionary) if key == "default")
            if role.name == "device":
                yield from self._table(dictionary)
        if role.name == "device":
            yield from self._filled()
        lists: list[ast.List | ast.Tuple] = [*module.iter_nodes(ast.List), *module.iter_nodes(ast.Tuple)]
        for words in lists:
            for option, value in itertools.pairwise(words.elts):
                if self._tells(_option_word(option)):
                    yield value, Proof.NAMED
        functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
            *module.iter_nodes(ast.FunctionDef),
            *module.iter_nodes(ast.AsyncFunctionDef),
        ]
        for function in functions:
            if self._tells(function.name) and any(_last_name(one) == "fixture" for one in function.decorator_list):
                yield ("returns", function), Proof.NAMED  # of tests in other files
            arguments = [*function.args.posonlyargs, *function.args.args]
            for argument, default in zip(reversed(arguments), reversed(function.args.defaults), strict=False):
                if self._tells(argument.arg):
                    yield default, Proof.NAMED
            for argument, keyword_default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
                if keyword_default is not None and self._tells(argument.arg):
                    yield keyword_default, Proof.NAMED

    def _is_open(self, node: ast.expr) -> bool:
        """Whether a name is the project's own, so that what it says is all that is known."""
        root = (self._module.resolve_name(node) or "").partition(".")[0]
        return root != "torch" and root not in _OTHER_DEVICES

    def _filled(self) -> Iterator[tuple[Hashable, Proof]]:
        """`"cuda:{}".format(torch.cuda.current_device())`: a text that is filled with the number of a device."""
        module = self._module
        for call in module.iter_nodes(ast.Call):
            if module.resolve_name(call.func) != "torch.cuda.current_device":
                continue
            above = module.get_parent(call)
            if isinstance(above, ast.FormattedValue):
                above = module.get_parent(above)
            match above:
                case ast.JoinedStr():
                    yield above, Proof.PROVEN
                case ast.BinOp(op=ast.Mod(), left=ast.Constant() as text):
                    yield text, Proof.PROVEN
                case ast.Call(func=ast.Attribute(attr="format", value=ast.Constant() as text)):
                    yield text, Proof.PROVEN
                case _:
                    pass

    def _table(self, dictionary: ast.Dict) -> Iterator[tuple[Hashable, Proof]]:
        """`{"cuda": torch.cuda.synchronize, "cpu": None}`: keys beside functions of torch.cuda that name devices."""
        words = {key.value for key in dictionary.keys if isinstance(key, ast.Constant)}
        for key, value in zip(dictionary.keys, dictionary.values, strict=True):
            ours = (self._module.resolve_name(value) or "").startswith("torch.cuda")
            if key is not None and ours and not words.isdisjoint(DEVICES):
                yield key, Proof.NAMED

    def _arguments(self, call: ast.Call) -> Iterator[tuple[Hashable, Proof]]:
        module, role = self._module, self._role
        called = module.resolve_name(call.func) or ""
        positions = role.positions.get(called)
        ours = positions is not None or _makes_torch(called.partition(".")[0])
        proof = Proof.PROVEN
        given = call.args
        if called == "functools.partial" and given:  # partial(torch.autocast, "cuda")
            called = module.resolve_name(given[0]) or ""
            positions, given = role.positions.get(called), given[1:]
            ours = positions is not None or _makes_torch(called.partition(".")[0])
        if positions is None and not called and isinstance(call.func, ast.Attribute):
            positions = role.methods.get(call.func.attr)
            if positions is not None and module.classes.function_called(call) is None:
                ours = True
                if call.func.attr in self._own_methods:
                    proof = Proof.NAMED
        if called == "builtins.getattr" and role.name == "device" and asks_torch(self._module, call):
            yield call.args[1], Proof.PROVEN
        if called == "torch.device" or (role.name == "backend" and called == "torch.distributed.get_backend"):
            yield call, Proof.PROVEN
        for position in positions or ():
            if ours and isinstance(position, int) and position < len(given):
                yield given[position], proof
        for keyword in call.keywords:
            if positions and keyword.arg in positions:
                yield keyword.value, Proof.PROVEN
            elif keyword.arg in role.keywords and called.partition(".")[0] not in _OTHER_DEVICES:
                yield keyword.value, Proof.PROVEN if ours else Proof.NAMED
            elif keyword.arg is not None and self._tells(keyword.arg) and self._is_open(call.func):
                yield keyword.value, Proof.NAMED  # HParams(dist_backend="nccl")
            elif keyword.arg == "default" and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                yield from self._option(call)

    def _option(self, call: ast.Call) -> Iterator[tuple[Hashable, Proof]]:
        words = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        for word in words:
            name = _plain(str(word))
            if self._tells(name):
                for keyword in call.keywords:
                    made = self._module.names.find_definition(keyword.value) if keyword.arg == "type" else None
                    if isinstance(made, ast.FunctionDef):  # what it gives is the option
                        yield ("returns", made), Proof.NAMED
                option = self._module.flow.make_option_key(name)
                yield option, Proof.NAMED
                if name.endswith("s"):
                    yield ("elements", self._module.flow.find(option)), Proof.NAMED


def _plain(option: str) -> str:
    """The name of an option of the command line."""
    return option.lstrip("-").replace("-", "_")


def _items(dictionary: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    """The entries of a dictionary with a text as their key."""
    for key, value in zip(dictionary.keys, dictionary.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, value


def asks_torch(module: Module, call: ast.Call) -> bool:
    """Whether this is `getattr(torch, name)`, the functions of a device by its name."""
    return (
        len(call.args) == 2
        and module.resolve_name(call.func) == "builtins.getattr"
        and module.resolve_name(call.args[0]) == "torch"
    )


@functools.cache
def _telling(names: re.Pattern[str]) -> Callable[[str], bool]:
    """Whether a name is one of a role's telling names; names come again and again."""
    return functools.lru_cache(65536)(lambda name: names.match(name) is not None)


def _option_word(node: ast.expr) -> str:
    """The name in a text such as "--dist-backend"; empty for anything else."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return text[2:].replace("-", "_") if text.startswith("--") else ""


def _makes_torch(root: str) -> bool:
    """Whether a package is torch, or one whose functions take devices as torch's do."""
    library = load_libraries().get(root)
    return root == "torch" or (library is not None and library.objects == TORCH)


def _last_name(node: ast.expr) -> str:
    """The last word of what an expression asks for, through indices and calls."""
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_device_attribute(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "device"
