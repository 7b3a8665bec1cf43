"""Code that a project runs on other devices because it has a branch of its own for the NPU.

`"npu" if is_npu_available() else "cuda"` and `{"cuda": "nccl", "npu": "hccl"}` are right as they are: converting the
CUDA half would only make it say the same twice, or replace the part that is meant for the NPU. So are the flags that
decide between the two, and functions, classes and files that have a sibling for the NPU.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Sequence

from torchport.rules import npu_flags
from torchport.rules.branches import find_span, is_negated, leaves
from torchport.rules.roles import asks_torch
from torchport.source.module import Module
from torchport.source.names import Binds
from torchport.source.siblings import NPU_WORD, find_paired, names_device, names_npu

_NPU = re.compile(NPU_WORD)
_CUDA = re.compile(r"cuda|nccl", re.IGNORECASE)
_CUDA_BYTES = re.compile(rb"[cC][uU][dD][aA]|[nN][cC][cC][lL]")
_DEVICE = re.compile(r"cuda|gpu|npu|nccl|hccl|ascend", re.IGNORECASE)

_Nodes = Sequence[ast.AST]


@functools.lru_cache(2)  # asked again for each name that needs another one beside it
def find_npu_ranges(module: Module) -> list[tuple[int, int]]:
    """Byte ranges of the code that stands beside a branch, an entry or a sibling for the NPU and is not that one."""
    if module.project.ignores_npu:
        return []
    if module.text.path in module.project.paired_files:
        return [(0, len(module.text.data))]
    found: list[_Nodes] = []
    if names_npu(module.text.data):
        chains = list(_chains(module))
        tests = [test for parts in chains for test, _ in parts if isinstance(test, ast.expr)]
        values = [*npu_flags.list_siblings_of_npu(module), *npu_flags.list_deciding_values(module, tests)]
        found += (nodes for nodes in values if _is_cuda_only(module, nodes))
        found += (nodes for parts in chains for nodes in _others(module, parts))
        found += _beside(module)
        found += _opened_by_siblings(module)
    elif module.project.paired:
        found += npu_flags.list_siblings_of_npu(module)
    found += _asked_by_importers(module)
    ranges = [find_span(module, nodes) for nodes in found if nodes]
    return [*ranges, *_serving(module, ranges)] if ranges else []


def _serving(module: Module, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The functions at the top of the file that only what stays uses, as a decorator of it or in it."""
    kept = [one for one in module.tree.body if is_in_ranges(ranges, module.text.span(one)[0])]
    marks = {
        id(name)
        for one in kept
        if isinstance(one, ast.FunctionDef | ast.ClassDef)
        for mark in one.decorator_list
        for name in ast.walk(mark)
    }
    for function in module.tree.body:
        if not isinstance(function, ast.FunctionDef) or function in kept or not _is_cuda_only(module, [function]):
            continue
        uses = [one for one in module.iter_nodes(ast.Name) if one.id == function.name and isinstance(one.ctx, ast.Load)]
        inside = all(id(one) in marks or is_in_ranges(ranges, module.text.span(one)[0]) for one in uses)
        if not uses or not inside:
            continue
        outside, name = module.project.outside, re.compile(re.escape(function.name.encode()))
        if outside is None or not any(outside.find_importers_with(module, name)):
            yield find_span(module, [function])


def _asked_by_importers(module: Module) -> Iterator[_Nodes]:
    """The flags of this file by which another file that imports it chooses between CUDA and the NPU."""
    outside, path = module.project.outside, module.text.path
    importers = module.project.naming_npu & module.project.importers.get(path, set())
    if outside is None or not importers or not _CUDA_BYTES.search(module.text.data):
        return
    flags: dict[str, list[_Nodes]] = {}
    for name in module.names.scopes[module.tree].bindings:
        values = [nodes for nodes in npu_flags.find_flag(module, name) if _is_cuda_only(module, nodes)]
        if values:
            flags[name] = values
    if not flags:
        return
    words = re.compile(rb"\b(?:%b)\b" % b"|".join(re.escape(name.encode()) for name in flags))
    for name in sorted(importers):
        importer = outside.load_module(name, module) if words.search(outside.read_bytes(name)) else None
        if importer is None:
            continue
        tests = [test for parts in _chains(importer) for test, _ in parts if isinstance(test, ast.expr)]
        for flag in npu_flags.name_flags(importer, tests):
            found = outside.locate_in_project(name, flag)
            if found is not None and found[0] == path and len(found[1]) == 1:
                yield from flags.get(found[1][0], ())


_Part = tuple[ast.expr | ast.pattern | None, _Nodes]


def _chains(module: Module) -> Iterator[list[_Part]]:
    """Conditions of which one is for the NPU, with the nodes that each guards; the last may have no condition."""
    found: list[list[_Part]] = []
    for statement in module.iter_nodes(ast.If):
        above = module.get_parent(statement)
        if not (isinstance(above, ast.If) and above.orelse == [statement]):  # elif: a part of its chain
            found.append(_chain(statement))
    for choice in module.iter_nodes(ast.IfExp):
        above = module.get_parent(choice)
        if not (isinstance(above, ast.IfExp) and above.orelse is choice):
            found.append(_chain(choice))
    found += ([(case.pattern, case.body) for case in match.cases] for match in module.iter_nodes(ast.Match))
    found += _sequences(module)
    for parts in found:
        if any(test is not None and _asks_for_npu(module, test) for test, _ in parts) or _ends_with_npu(module, parts):
            yield parts


def _ends_with_npu(module: Module, parts: list[_Part]) -> bool:
    """Whether the last alternative is the NPU and the others name CUDA: `else: device = "npu"`."""
    test, last = parts[-1]
    if test is not None or not last or not _is_npu_only(module, last):
        return False
    parts = parts[:-1]
    return any((asked and _is_cuda_only(module, [asked])) or _is_cuda_only(module, body) for asked, body in parts)


def _is_npu_only(module: Module, nodes: _Nodes) -> bool:
    """Whether code names the NPU, in more than a text for people, and does not name CUDA."""
    text = module.text.decode_range(*find_span(module, nodes))
    if _NPU.search(text) is None or _CUDA.search(text) is not None:
        return False
    return any(_names_device(node) for one in nodes for node in ast.walk(one))


def _names_device(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str() as text):
            return " " not in text and _NPU.match(text) is not None
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return _NPU.match(name) is not None
        case ast.Import(names=[ast.alias(name=name), *_]) | ast.ImportFrom(module=str() as name):
            return name.partition(".")[0] == "torch_npu"
    return False


def _chain(node: ast.If | ast.IfExp) -> list[_Part]:
    """The tests of an if-elif-else with the nodes that they guard; the last has no test."""
    parts: list[_Part] = []
    one: ast.AST | None = node
    rest: list[ast.stmt] | list[ast.expr] = []
    while isinstance(one, ast.If | ast.IfExp):
        parts.append((one.test, one.body if isinstance(one, ast.If) else [one.body]))
        rest = one.orelse if isinstance(one, ast.If) else [one.orelse]
        one = rest[0] if len(rest) == 1 else None
    return [*parts, (None, rest)]


def _sequences(module: Module) -> Iterator[list[_Part]]:
    """`if cuda: return ...`, `if npu: return ...` in one block, and others that ask the same of CUDA and of the NPU."""
    blocks = {id(block): block for block in map(module.find_block, module.iter_nodes(ast.If))}
    for block in blocks.values():
        choices = [one for one in block if isinstance(one, ast.If)]
        for_npu = [one for one in choices if _says_npu(module, one.test) and not is_negated(one.test)]
        for_cuda = [
            one
            for one in choices
            if one not in for_npu and not is_negated(one.test) and _is_cuda_only(module, [one.test, *one.body])
        ]
        for one in for_npu:
            asked = _subject(module, one.test)
            parts: list[_Part] = [(one.test, one.body)]
            for other in for_cuda:
                same = (
                    _subject(module, other.test) == asked or _set_same(one, other) or _each_its_own(module, one, other)
                )
                if same or (_leaves_alone(one) and _leaves_alone(other)):
                    parts.append((other.test, other.body))
            if isinstance(one.body[-1], ast.Return) and not one.orelse:
                parts.append((None, block[block.index(one) + 1 :]))
            if len(parts) > 1:
                yield parts
        for one in filter(_leaves_alone, for_cuda):  # what follows is for the NPU
            rest = [later for later in block[block.index(one) + 1 :] if _is_npu_only(module, [later])]
            if rest:
                yield [(one.test, one.body), (None, rest[:1])]


def _leaves_alone(choice: ast.If) -> bool:
    return leaves(choice) and not choice.orelse


def _each_its_own(module: Module, one: ast.If, other: ast.If) -> bool:
    """Whether the conditions ask for a device each and what they guard names it: the memory of both is given back."""
    return (
        _is_npu_only(module, one.body)
        and _is_cuda_only(module, [other.test])
        and _is_cuda_only(module, other.body)
        and not any(isinstance(part, ast.Compare) for test in (one.test, other.test) for part in ast.walk(test))
    )


def _set_same(one: ast.If, other: ast.If) -> bool:
    """Whether both do no more than give the same name a value."""
    match one.body, other.body:
        case [[ast.Assign(targets=[first])], [ast.Assign(targets=[second])]]:
            return ast.unparse(first) == ast.unparse(second) and not one.orelse and not other.orelse
    return False


def _subject(module: Module, test: ast.expr) -> str:
    """The question without the device that it asks for; the same of `x == "cuda"` and `x == "npu"`."""
    return _DEVICE.sub("*", module.get_source(test))


def _others(module: Module, parts: list[_Part]) -> Iterator[_Nodes]:
    """The parts of a chain that are not for the NPU."""
    swapped = False  # `if not is_npu_available():` guards the other devices, and the NPU's part follows
    for test, body in parts:
        for_npu = swapped or (test is None and _ends_with_npu(module, parts))
        if test is not None and _asks_for_npu(module, test):
            negated = is_negated(test) or _asks_for_none(test)
            for_npu, swapped = not negated, negated
        elif test is not None and not swapped:
            yield [test]
        if not for_npu:
            yield body


def _beside(module: Module) -> Iterator[_Nodes]:
    """Entries of collections, arguments and alternatives that stand beside one for the NPU."""
    for operator in module.iter_nodes(ast.BoolOp):
        if isinstance(operator.op, ast.Or) and any(_says_npu(module, value) for value in operator.values):
            yield from ([value] for value in operator.values if _is_cuda_only(module, [value]))
    for dictionary in module.iter_nodes(ast.Dict):
        if any(_is_npu(key) for key in dictionary.keys):
            for key, value in zip(dictionary.keys, dictionary.values, strict=True):
                if key is not None and _is_cuda_only(module, [key]):
                    yield [key, value]
        elif any(_is_npu(value) for value in dictionary.values):
            yield from ([value] for value in dictionary.values if _is_cuda_only(module, [value]))
    for call in module.iter_nodes(ast.Call):
        if any(word.arg is not None and _NPU.match(word.arg) for word in call.keywords):
            yield from ([word.value] for word in call.keywords if word.arg is not None and _CUDA.match(word.arg))
    collections: list[ast.List | ast.Tuple | ast.Set] = [
        *module.iter_nodes(ast.List),
        *module.iter_nodes(ast.Tuple),
        *module.iter_nodes(ast.Set),
    ]
    for collection in collections:
        if any(_is_npu(element) for element in collection.elts):
            yield from ([element] for element in collection.elts if _is_cuda_only(module, [element]))
    for class_ in module.iter_nodes(ast.ClassDef):
        values = [one.value for one in class_.body if isinstance(one, ast.Assign)]
        if any(_is_npu(value) for value in values):
            yield from ([value] for value in values if _is_cuda_only(module, [value]))
    for guarded in module.iter_nodes(ast.Try):  # try: import torch_npu; except ImportError: for another device
        imports = [one for one in guarded.body if isinstance(one, ast.Import | ast.ImportFrom)]
        if any(_says_npu(module, one) for one in imports) or _asks_torch(module, guarded.body):
            yield from (handler.body for handler in guarded.handlers)
    for assignment in module.iter_nodes(ast.Assign):  # torch.Tensor.cuda = torch.Tensor.npu
        if _says_npu(module, assignment.value) and not _CUDA.search(module.get_source(assignment.value)):
            yield from (
                [one] for one in assignment.targets if isinstance(one, ast.Attribute) and _is_cuda_only(module, [one])
            )
    for text in module.iter_nodes(ast.Constant):  # "cpu:gloo,cuda:nccl,npu:hccl"
        if isinstance(text.value, str) and "," in text.value and _says_npu(module, text):
            yield [text]


def _asks_torch(module: Module, body: _Nodes) -> bool:
    """Whether this is `return getattr(torch, device_name)`, of a file that knows the NPU's name."""
    calls = (node for one in body for node in ast.walk(one) if isinstance(node, ast.Call))
    return any(asks_torch(module, call) and not isinstance(call.args[1], ast.Constant) for call in calls)


def _opened_by_siblings(module: Module) -> Iterator[_Nodes]:
    """The code behind `if is_cuda():` where `is_npu` is imported beside `is_cuda`: another place asks for the NPU."""
    choices: list[ast.If | ast.IfExp] = [*module.iter_nodes(ast.If), *module.iter_nodes(ast.IfExp)]
    for choice in choices:
        test = choice.test.func if isinstance(choice.test, ast.Call) else choice.test
        if not isinstance(test, ast.Name) or not names_device(test.id):
            continue
        owner = module.names.scope_of(test).find_owner_scope(test.id)
        if owner is None or test.id not in find_paired(owner.bindings):
            continue
        if any(binding.how is Binds.IMPORT for binding in owner.bindings[test.id]):
            yield choice.body if isinstance(choice, ast.If) else [choice.body]


def _asks_for_npu(module: Module, test: ast.expr | ast.pattern) -> bool:
    """Whether a condition names the NPU, or asks for what an import of torch_npu brings, here or in another file:
    `amp is not None` after `from torch_npu.npu import amp`."""
    if _says_npu(module, test):
        return True
    outside = module.project.outside
    if outside is None or not isinstance(test, ast.expr):
        return False
    for name in npu_flags.name_flags(module, [test]):
        match outside.locate_in_project(module.text.path, name):
            case (path, (word,)) if (other := outside.load_module(path, module)) is not None:
                bindings = other.names.scopes[other.tree].bindings.get(word, ())
                if any(one.how is Binds.IMPORT and one.target.startswith("torch_npu.") for one in bindings):
                    return True
    return False


def _asks_for_none(test: ast.expr | ast.pattern) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and ast.unparse(test).endswith(" None")


def _says_npu(module: Module, node: ast.AST) -> bool:
    return _NPU.search(module.text.decode_range(*find_span(module, [node]))) is not None


def _is_cuda_only(module: Module, nodes: _Nodes) -> bool:
    text = module.text.decode_range(*find_span(module, nodes))
    return _CUDA.search(text) is not None and _NPU.search(text) is None


def _is_npu(node: ast.expr | None) -> bool:
    """Whether an entry is the NPU's: its name, or a pair or a call that begins with it."""
    match node:
        case ast.Constant(value=str() as text):
            return _NPU.match(text) is not None
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(isinstance(part, ast.Constant) and _is_npu(part) for part in parts)
        case ast.Call(args=arguments, keywords=keywords):  # Spec("npu", ...), Spec(name="npu", ...)
            given = [*arguments, *(keyword.value for keyword in keywords)]
            return any(isinstance(argument, ast.Constant) and _is_npu(argument) for argument in given)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return _NPU.match(name) is not None
    return False


def is_in_ranges(ranges: Iterable[tuple[int, int]], start: int) -> bool:
    """Whether a byte offset lies in one of the ranges."""
    return any(first <= start < last for first, last in ranges)
