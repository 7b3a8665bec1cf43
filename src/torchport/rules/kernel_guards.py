"""Conditions that open a CUDA kernel, an extension or the CUDA compiler, beside code that works on every device.

`if x.is_cuda and _init(): return _plugin.act(x)` with `return torch.relu(x)` behind it runs on an NPU as it is: the
condition is false and the fallback runs. Renamed, it would build the plugin there. So such conditions stay.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from torchport.rules import npu_flags
from torchport.source.module import Module
from torchport.source.names import Binds

_CUDA = re.compile(r"cuda|nccl", re.IGNORECASE)
_BUILDERS = re.compile(r"torch\.utils\.cpp_extension\.(?:load|load_inline|CUDAExtension|CUDA_HOME|CppExtension)\Z")
_SOURCE = re.compile(r"\.cuh?\Z|\bnvcc\b")
_COMPILER = re.compile(r"(?:\A|_)cuda_(?:version|home)\Z|(?:\A|_)nvcc(?:\Z|_)", re.IGNORECASE)
# A compiled module by its name: selective_scan_cuda, _C, _ext, fused_kernels.
_COMPILED = re.compile(r"\w_cuda\Z|\A_C\Z|\A_ext\Z|_ext\Z|_kernels?\Z|_cuda_kernels?\Z")
_LIBRARIES = frozenset({"cupy", "pycuda", "pynvml", "tensorrt", "cuda"})
_DEEPEST = 5  # calls on the way from a condition to a kernel
_BLOCKS = ("body", "orelse", "finalbody")
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef

_Nodes = Sequence[ast.AST]


def find_kernel_guards(module: Module) -> list[tuple[int, int]]:
    """Byte ranges of the conditions and of the code that they open."""
    if not _CUDA.search(module.text.decode_range(0, len(module.text.data))):
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
    return [_span(module, nodes) for nodes in found if nodes]


def _span(module: Module, nodes: _Nodes) -> tuple[int, int]:
    first, last = nodes[0], nodes[-1]
    assert isinstance(first, ast.expr | ast.stmt)
    assert isinstance(last, ast.expr | ast.stmt)
    return module.text.span(first)[0], module.text.span(last)[1]


def _choices(module: Module) -> Iterator[tuple[ast.expr, _Nodes, _Nodes]]:
    """Each condition with the nodes that it opens if it is true and the nodes that run otherwise; `not x` and
    `x != "cuda"` as the opposite."""
    for choice in module.iter_nodes(ast.IfExp):
        yield _turned(choice.test, [choice.body], [choice.orelse])
    for node in (module.tree, *module.names.nodes):
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for place, one in enumerate(block):
                if isinstance(one, ast.If):
                    rest = one.orelse or (block[place + 1 :] if isinstance(one.body[-1], _LEAVES) else [])
                    yield _turned(one.test, one.body, rest)


def _turned(test: ast.expr, body: _Nodes, other: _Nodes) -> tuple[ast.expr, _Nodes, _Nodes]:
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    negated |= isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.NotIn)
    return (test, other, body) if negated else (test, body, other)


class _Search:
    """Looks for kernels in one file, and in the functions of the project that it calls."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[ast.AST, bool] = {}

    def is_guard(self, test: ast.expr, opened: _Nodes, other: _Nodes, depth: int = 0) -> bool:
        """Whether the condition asks for CUDA and opens a kernel, and the rest does without."""
        if not _CUDA.search(self._module.get_source(test)) and not self._asks_for_cuda(test):
            return False
        if not self._reaches([test, *opened], depth) or self._reaches(other, depth):
            return False
        return not (other and isinstance(other[0], ast.Raise))

    def _asks_for_cuda(self, test: ast.expr) -> bool:
        """Whether a flag of the condition has its value from a question for CUDA."""
        return any(
            _CUDA.search(self._module.text.decode_range(*_span(self._module, nodes)))
            for nodes in npu_flags.list_deciding_values(self._module, [test])
        )

    def _reaches(self, nodes: _Nodes, depth: int) -> bool:
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if self._is_kernel(node, depth):
                return True
            if isinstance(node, ast.If | ast.IfExp):
                body: _Nodes = node.body if isinstance(node, ast.If) else [node.body]
                other: _Nodes = node.orelse if isinstance(node, ast.If) else [node.orelse]
                test, opened, rest = _turned(node.test, body, other)
                if depth < _DEEPEST and self.is_guard(test, opened, rest, depth + 1):
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
                return any(self._is_compiled(alias.name) for alias in names)
            case ast.ImportFrom(names=names, module=source, level=level):
                base = "." * level + (source or "")
                return any(
                    self._is_compiled(f"{base}{'' if base.endswith('.') else '.'}{alias.name}") for alias in names
                )
            case ast.Call(func=function):
                return self._is_called(function, depth)
            case ast.Name(id=name, ctx=ast.Load()):
                if _COMPILER.search(name):
                    return True
                return any(
                    self._is_handle(binding.how, binding.target, binding.value, depth)
                    for binding in module.names.find_bindings(node)
                )
            case ast.Attribute(attr=name, ctx=ast.Load()):
                resolved = module.resolve_name(node) or ""
                return _BUILDERS.match(resolved) is not None or _COMPILER.search(name) is not None
        return False

    def _is_handle(self, how: Binds, target: str, value: ast.expr | None, depth: int) -> bool:
        """Whether a name is bound to a compiled module: imported, or built by a call."""
        if how is Binds.IMPORT:
            return _BUILDERS.match(target) is not None or self._is_compiled(target)
        if how is Binds.VALUE and isinstance(value, ast.Call) and value not in self._known:
            self._known[value] = False  # a name that is bound by itself
            self._known[value] = depth < _DEEPEST and self._reaches([value], depth + 1)
        return value is not None and self._known.get(value, False)

    def _is_compiled(self, target: str) -> bool:
        """Whether a dotted name is a compiled module, or belongs to one."""
        words = [word for word in target.split(".") if word]
        if not words or words[0] == "torch":
            return False
        project = self._module.project
        if any(word in project.extensions for word in words) or (not target.startswith(".") and words[0] in _LIBRARIES):
            return True
        if not any(_COMPILED.search(word) for word in words):
            return False
        return project.outside is None or project.outside.locate_in_project(self._module.text.path, target) is None

    def _is_called(self, function: ast.expr, depth: int) -> bool:
        """Whether a call leads to a kernel: of a builder, or of a function of the project that reaches one."""
        module = self._module
        resolved = module.resolve_name(function) or ""
        if _BUILDERS.match(resolved):
            return True
        if depth >= _DEEPEST:
            return False
        if isinstance(function, ast.Attribute) and function.attr == "apply":  # of torch.autograd.Function
            function = function.value
            resolved = module.resolve_name(function) or ""
            own = module.names.find_definition(function)
        else:
            own = module.names.find_definition(function)
            own = own if isinstance(own, _Definition) else None
        if own is not None:
            if own not in self._known:
                self._known[own] = False  # it may call itself
                self._known[own] = self._reaches(own.body, depth + 1)
            return self._known[own]
        outside = module.project.outside
        if outside is None or outside.locate_in_project(module.text.path, resolved) is None:
            return False
        for other, found in outside.find_meanings(module, resolved):
            if isinstance(found, _Definition) and _Search(other)._reaches(found.body, depth + 1):
                return True
        return False
