"""Conditions that open a CUDA kernel, an extension or the CUDA compiler, beside code that works on every device.

`if x.is_cuda and _init(): return _plugin.act(x)` with `return torch.relu(x)` behind it runs on an NPU as it is: the
condition is false and the fallback runs. Renamed, it would build the plugin there. So such conditions stay.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from torchport.knowledge.libraries import Support, load_libraries
from torchport.rules import npu_flags
from torchport.rules.branches import find_span, is_negated, leaves
from torchport.source.module import Module
from torchport.source.names import Binding, Binds

_CUDA = re.compile(r"cuda|nccl", re.IGNORECASE)
_NAMES_CUDA = re.compile(rb"cuda|nccl", re.IGNORECASE)
_BUILDERS = re.compile(
    r"torch\.utils\.cpp_extension\.(?:load|load_inline|CUDAExtension|CUDA_HOME)\Z|mmcv\.utils\.(?:ext_loader\.)?load_ext\Z"
)
_CAPABILITY = frozenset({"torch.cuda.get_device_capability", "torch.cuda.get_device_properties"})
_SOURCE = re.compile(r"\.cuh?\Z|\bnvcc\b")
_COMPILER = re.compile(r"(?:\A|_)cuda_(?:version|home)\Z|(?:\A|_)nvcc(?:\Z|_)", re.IGNORECASE)
# A compiled module by its name: selective_scan_cuda, _C, _ext, fused_kernels; is_cuda is a question.
_COMPILED = re.compile(
    r"\A(?!(?:is|has|have|use|using|to|on|get|set|with|no|need|needs|check|init|enable|disable|requires?|seed)_)\w+_cuda\Z|"
    r"\A_C\Z|_ext\Z|_kernels?\Z"
)
# Every use of these is one of CUDA's own; of other packages that have to be replaced, only the import is asked about.
_LIBRARIES = frozenset({"cupy", "pycuda", "tensorrt", "cuda"})
_UNUSABLE = (Support.REPLACE, Support.UNSUPPORTED)
_DEEPEST = 6  # calls on the way from a condition to a kernel
_REACHED = -1  # in place of the number of calls after which nothing was found
_Definition = ast.FunctionDef | ast.AsyncFunctionDef

_Nodes = Sequence[ast.AST]


def find_kernel_guards(module: Module) -> list[tuple[int, int]]:
    """Byte ranges of the conditions and of the code that they open."""
    if not _NAMES_CUDA.search(module.text.data):
        return []
    search = _Search(module)
    found: list[_Nodes] = []
    kernel, neutral = [], []
    for test, opened, other in _choices(module):
        if search.is_guard(test, opened, other):
            kernel.append(test)
            found += [[test], opened]
        else:
            neutral.append(test)
    ours = {flag for test in neutral for flag in npu_flags.list_flags(module, test)}
    for test in kernel:
        if not ours & set(npu_flags.list_flags(module, test)):
            found += npu_flags.list_deciding_values(module, [test])
    return [find_span(module, nodes) for nodes in found if nodes]


def find_capability_tests(module: Module) -> list[tuple[int, int]]:
    """Byte ranges of the conditions that ask for CUDA and for its compute capability, which an NPU has not: with
    torch.npu in both, the second would raise where the first was false."""
    found = []
    for test in module.iter_nodes(ast.BoolOp) if b"get_device_" in module.text.data else ():
        names = {module.resolve_name(node.func) for node in ast.walk(test) if isinstance(node, ast.Call)}
        if "torch.cuda.is_available" in names and not names.isdisjoint(_CAPABILITY):
            found.append(find_span(module, [test]))
    return found


def find_cpu_ways(module: Module) -> Iterator[tuple[ast.Compare, bool]]:
    """The questions for the CPU that decide between code for every device and a CUDA kernel, and whether one that is
    true leads to the kernel: `if x.device.type == "cpu": return native(x)` before it."""
    search = _Search(module)
    for test, body, other in _branches(module):
        questions = list(_ask_for_cpu(test))
        if not questions or not other:
            continue
        opens, rest = search.opens_kernel(body), search.opens_kernel(other)
        way = body if rest else other
        if opens is not rest and not isinstance(way[0], ast.Raise):
            yield from ((one, opens) for one, asks_for_others in questions if asks_for_others is opens)


def _ask_for_cpu(test: ast.expr, negated: bool = False) -> Iterator[tuple[ast.Compare, bool]]:
    """The comparisons of a device with "cpu", and whether each is true for the other devices."""
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _ask_for_cpu(value, negated)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _ask_for_cpu(operand, not negated)
        case ast.Compare(
            left=ast.Attribute(attr="type", value=ast.Attribute(attr="device") | ast.Name(id="device")),
            ops=[ast.Eq() | ast.NotEq() as how],
            comparators=[ast.Constant(value="cpu")],
        ):
            yield test, isinstance(how, ast.NotEq) is not negated


def _choices(module: Module) -> Iterator[tuple[ast.expr, _Nodes, _Nodes]]:
    """The branches, with `not x` and `x != "cuda"` as the opposite."""
    for test, body, other in _branches(module):
        yield _turned(test, body, other)


def _branches(module: Module) -> Iterator[tuple[ast.expr, _Nodes, _Nodes]]:
    """Each condition with the nodes that it opens if it is true and the nodes that run otherwise."""
    for choice in module.iter_nodes(ast.IfExp):
        yield choice.test, [choice.body], [choice.orelse]
    for one in module.iter_nodes(ast.If):
        rest: _Nodes = one.orelse
        if not rest and leaves(one):
            block = module.find_block(one)
            rest = block[block.index(one) + 1 :]
        yield one.test, one.body, rest


def _turned(test: ast.expr, body: _Nodes, other: _Nodes) -> tuple[ast.expr, _Nodes, _Nodes]:
    return (test, other, body) if is_negated(test) else (test, body, other)


class _Search:
    """Looks for kernels in one file, and in the functions of the project that it calls."""

    def __init__(self, module: Module, first: _Search | None = None) -> None:
        self._module = module
        # Shared by the searches of all files that the first one leads to.
        self._known: dict[ast.AST, int] = {} if first is None else first._known  # by functions and calls
        self._flags: dict[tuple[Module, str], bool] = {} if first is None else first._flags

    def is_guard(self, test: ast.expr, opened: _Nodes, other: _Nodes, depth: int = 0) -> bool:
        """Whether the condition asks for CUDA and opens a kernel, and the rest does without."""
        if not _CUDA.search(self._module.get_source(test)) and not self._asks_for_cuda(test):
            return False
        if not self._reaches([test, *opened], depth) or self._reaches(other, depth):
            return False
        return not (other and isinstance(other[0], ast.Raise))

    def opens_kernel(self, nodes: _Nodes) -> bool:
        """Whether the nodes build or use a kernel."""
        return self._reaches(nodes, 0)

    def _asks_for_cuda(self, test: ast.expr) -> bool:
        """Whether a flag of the condition has its value from a question for CUDA."""
        for flag in npu_flags.list_flags(self._module, test):
            key = self._module, flag
            if key not in self._flags:
                values = npu_flags.list_deciding_values(self._module, [test])
                texts = (self._module.text.decode_range(*find_span(self._module, nodes)) for nodes in values)
                self._flags[key] = any(_CUDA.search(text) for text in texts)
            if self._flags[key]:
                return True
        return False

    def _reaches(self, nodes: _Nodes, depth: int) -> bool:
        """Whether the nodes build or use a kernel, in at most as many calls as are left."""
        if depth > _DEEPEST:
            return False
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if self._is_kernel(node, depth):
                return True
            if isinstance(node, ast.If | ast.IfExp):
                body: _Nodes = node.body if isinstance(node, ast.If) else [node.body]
                other: _Nodes = node.orelse if isinstance(node, ast.If) else [node.orelse]
                test, opened, rest = _turned(node.test, body, other)
                if self.is_guard(test, opened, rest, depth + 1):
                    waiting += rest  # it has a fallback of its own
                    continue
            waiting += ast.iter_child_nodes(node)
        return False

    def _is_kernel(self, node: ast.AST, depth: int) -> bool:
        module = self._module
        match node:
            case ast.Constant(value=str() as text):
                return _SOURCE.search(text) is not None
            case ast.Import(names=names):
                return any(self._is_compiled(alias.name) or self._is_unusable(alias.name) for alias in names)
            case ast.ImportFrom(names=names, module=source, level=level):
                base = "." * level + (source or "")
                return self._is_unusable(base) or any(
                    self._is_compiled(f"{base}{'' if base.endswith('.') else '.'}{alias.name}") for alias in names
                )
            case ast.Call(func=function):
                return self._is_called(function, depth)
            case ast.Name(id=name, ctx=ast.Load()):
                if _COMPILER.search(name):
                    return True
                owner = module.names.scope_of(node).find_owner_scope(name)
                return owner is not None and any(
                    self._is_handle(binding, depth, at_top=owner.is_module) for binding in owner.bindings.get(name, ())
                )
            case ast.Attribute(attr=name, ctx=ast.Load()):
                resolved = module.resolve_name(node) or ""
                return _BUILDERS.match(resolved) is not None or _COMPILER.search(name) is not None
        return False

    def _is_handle(self, binding: Binding, depth: int, *, at_top: bool) -> bool:
        """Whether a name is bound to a compiled module: imported, or built by a call. Functions that are
        called are followed for a name of the whole file only: each local one would lead through half of the project."""
        if binding.how is Binds.IMPORT:
            return _BUILDERS.match(binding.target) is not None or self._is_compiled(binding.target)
        value = binding.value
        if binding.how is not Binds.VALUE or not isinstance(value, ast.Call):
            return False
        if at_top:
            return self._remember(value, [value], depth)
        return _BUILDERS.match(self._module.resolve_name(value.func) or "") is not None

    def _remember(self, key: ast.AST, nodes: _Nodes, depth: int) -> bool:
        """`_reaches`, once for each key; a negative answer holds for all who have no more calls left."""
        known = self._known.get(key)
        if known is None or known > depth:
            self._known[key] = depth  # it may call itself, or be bound by itself
            if self._reaches(nodes, depth + 1):
                self._known[key] = _REACHED
        return self._known[key] == _REACHED

    def _is_compiled(self, target: str) -> bool:
        """Whether a dotted name is a compiled module, or belongs to one."""
        words = [word for word in target.split(".") if word]
        if not words or words[0] == "torch":
            return False
        project = self._module.project
        if any(word in project.extensions for word in words):
            return True
        if not target.startswith(".") and words[0] in _LIBRARIES:
            return True
        if not any(_COMPILED.search(word) for word in words):
            return False
        return project.outside is None or project.outside.locate_in_project(self._module.text.path, target) is None

    def _is_unusable(self, target: str) -> bool:
        """Whether an import brings a package that nobody can use on an NPU."""
        top = target.partition(".")[0]
        library = load_libraries().get(top)
        if library is None or library.monitors:  # that nobody watches the card is no reason to leave it out
            return False
        return library.status in _UNUSABLE and not self._module.project.has_package(top)

    def _is_called(self, function: ast.expr, depth: int) -> bool:
        """Whether a call leads to a kernel: of a builder, or of a function of the project that reaches one."""
        module = self._module
        resolved = module.resolve_name(function) or ""
        if _BUILDERS.match(resolved):
            return True
        if isinstance(function, ast.Attribute) and function.attr == "apply":  # of torch.autograd.Function
            function = function.value
            resolved = module.resolve_name(function) or ""
            own = module.names.find_definition(function)
        else:
            own = module.names.find_definition(function)
            own = own if isinstance(own, _Definition) else None
        if own is not None:
            return self._remember(own, own.body, depth)
        outside = module.project.outside
        if outside is None or outside.locate_in_project(module.text.path, resolved) is None:
            return False
        for other, found in outside.find_meanings(module, resolved):
            if isinstance(found, _Definition) and _Search(other, self)._remember(found, found.body, depth):
                return True
        return False
