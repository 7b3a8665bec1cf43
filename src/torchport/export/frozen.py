"""Python values that a model takes from tensors: tracing makes constants of them, whatever later inputs hold.

`watch_conversions` notes each conversion (`int(x.numel())`, `if mask.any()`, `.item()`) while torch traces: its line,
its value, and by the graph that is being traced whether the value comes from what the inputs contain or from their
sizes alone. Whether a value matters is seen by another trace, in which the line gets another value: if the graph stays
the same, it does not. torch's own TracerWarning has the line and none of the rest.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import itertools
import linecache
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchport.export.loading import OURS, TORCH

SHOWN = 60  # characters of a value
# Methods of Tensor that leave torch for Python, and the word for what they give.
CONVERSIONS = {
    "__bool__": "a truth value",
    "__int__": "an integer",
    "__index__": "an integer",
    "__float__": "a float",
    "__complex__": "a complex number",
    "__len__": "a length",
    "__iter__": "a length",
    "__array__": "an array",
    "item": "a number",
    "tolist": "a list",
    "numpy": "an array",
    "is_nonzero": "a truth value",
    "equal": "a truth value",
    "allclose": "a truth value",
}
COMPARISONS = ("__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__")
UNCHANGED = ("__iter__", "__array__", "numpy", "tolist")  # no other value can be put in their place
FUNCTIONS = ("equal", "allclose", "is_nonzero")  # the same as functions of torch
SIZES = {"aten::size", "aten::numel", "aten::len", "aten::sym_size", "aten::_shape_as_tensor"}
# Operators with a result of which the contents of an input decide the size.
SHAPED_BY_DATA = {
    *("aten::nonzero", "aten::nonzero_numpy", "aten::masked_select", "aten::_unique", "aten::_unique2", "aten::unique"),
    *("aten::unique_dim", "aten::unique_consecutive", "aten::bincount", "aten::repeat_interleave", "aten::argwhere"),
    *("aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "torchvision::nms", "aten::one_hot"),
}
SAME = {"aten::contiguous", "aten::detach", "aten::alias", "aten::clone"}  # ONNX has values alone, no memory
NUMBERS = {"aten::Int", "aten::Float", "aten::IntImplicit", "aten::FloatImplicit", "aten::ScalarImplicit"}
SAYING = {"warn", "warning", "warning_once", "info", "debug", "error", "log", "print"}
REQUIRING = ("_assert", "_check")  # torch._assert(), torch._check() and their like


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """One conversion. `sizes` are the sizes that the value was made of, `constants` the numbers they met.

    `distance`: of a truth value, by how much its two sides are apart, as long as it stays the same so does the value.
    """

    place: str
    what: str
    value: str
    data: bool
    sizes: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()
    distance: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Forced:
    """Another value for the first conversion of a kind at a line."""

    place: str
    what: str
    value: Any


@contextlib.contextmanager
def watch_conversions(inputs: int, forced: Forced | None = None) -> Iterator[list[Taken]]:
    """Note the conversions in what is traced within. The first `inputs` of the graph are the model's own."""
    found: list[Taken] = []
    graph: _Graph | None = None
    # By the tensor that a comparison gave, which is kept: how far its sides are apart.
    distances: dict[int, tuple[Any, float]] = {}

    def note(name: str, tensor: Any, value: Any) -> Any:
        nonlocal graph
        state = torch._C._get_tracing_state()
        if state is None or not isinstance(tensor, torch.Tensor):
            return value
        graph = graph or _Graph(state, inputs)
        taken = graph.describe(_locate(), name, tensor, value)
        if CONVERSIONS[name] == "a truth value" and not taken.data and tensor.dim() == 0:
            distance = distances[id(tensor)][1] if id(tensor) in distances else _read_number(tensor)
            taken = dataclasses.replace(taken, distance=distance)
        first = not any((one.place, one.what) == (taken.place, taken.what) for one in found)
        found.append(taken)
        if forced is not None and first and (forced.place, forced.what) == (taken.place, taken.what):
            return forced.value
        return value

    def wrap(name: str, known: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(known)
        def convert(self: Any, *given: Any, **options: Any) -> Any:
            made = known(self, *given, **options)
            if name in UNCHANGED:
                note(name, self, self.shape[0] if self.dim() else made)
                return made
            return note(name, self, made)

        return convert

    def wrap_comparison(known: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(known)
        def compare(self: Any, other: Any) -> Any:
            made = known(self, other)
            if torch._C._get_tracing_state() is not None and isinstance(made, torch.Tensor) and made.dim() == 0:
                left, right = _read_number(self), _read_number(other)
                if left is not None and right is not None:
                    distances[id(made)] = made, left - right
            return made

        return compare

    kept = {name: torch.Tensor.__dict__.get(name) for name in (*CONVERSIONS, *COMPARISONS)}
    functions = {name: getattr(torch, name) for name in FUNCTIONS}
    for name in CONVERSIONS:
        setattr(torch.Tensor, name, wrap(name, getattr(torch.Tensor, name)))
    for name in COMPARISONS:
        setattr(torch.Tensor, name, wrap_comparison(getattr(torch.Tensor, name)))
    for name, function in functions.items():
        setattr(torch, name, wrap(name, function))
    try:
        yield found
    finally:
        for name, known in kept.items():
            if known is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, known)
        for name, function in functions.items():
            setattr(torch, name, function)


def trace_conversions(model: Any, given: tuple[Any, ...], forced: Forced | None = None) -> tuple[list[Taken], int]:
    """Trace the model as the TorchScript exporter does: the conversions, and a number that stands for the graph.

    Raises what the trace raises.
    """
    with warnings.catch_warnings(), watch_conversions(len(given), forced) as found, torch.no_grad():
        warnings.simplefilter("ignore")
        graph = torch.jit._get_trace_graph(model, given)[0]
    return found, _sign(graph)


def _sign(graph: Any) -> int:
    """A number by operators, their inputs and all constants, without the types, which have the sizes of this trace."""
    torch._C._jit_pass_dce(graph)
    # Which weight it is counts, and of a constant its value.
    names: dict[str, Any] = {value.debugName(): number for number, value in enumerate(graph.inputs())}
    fresh = itertools.count(len(names))
    rows: list[Any] = []

    def name(value: Any) -> Any:
        if value.debugName() not in names:
            names[value.debugName()] = next(fresh)
        return names[value.debugName()]

    def walk(block: Any) -> None:
        for node in block.nodes():
            if node.kind() in SAME:
                names[node.output().debugName()] = name(next(node.inputs()))
            elif node.kind() == "prim::Constant":
                held = node.output().toIValue()
                constant = _read_bytes(held) if isinstance(held, torch.Tensor) else repr(held)
                names[node.output().debugName()] = "constant", constant
            else:
                rows.append((node.kind(), tuple(map(name, node.inputs())), tuple(map(name, node.outputs()))))
                for inner in node.blocks():
                    walk(inner)

    walk(graph)
    return hash((*rows, tuple(map(name, graph.outputs()))))


def _read_bytes(tensor: Any) -> Any:
    whole = tensor.detach().contiguous()
    return tuple(whole.shape), str(whole.dtype), whole.reshape(-1).view(torch.uint8).numpy().tobytes()


def list_other_values(text: str) -> list[Any]:
    """Values in the place of the one that is written so; none if there is no other to think of."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return []
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [other for other in dict.fromkeys((0, 1, value // 2, value + 1)) if other != value]
    return [2 * value + 1.0] if isinstance(value, float) else []


def _locate() -> str:
    """The innermost line that is neither torch's nor ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((TORCH, OURS, "<")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _read_number(value: Any) -> float | None:
    """The number in a tensor of one, without a trace of it; None for what is no number."""
    if not isinstance(value, torch.Tensor):
        return float(value) if isinstance(value, int | float) else None
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        return float(torch._C.TensorBase.item(value)) if value.numel() == 1 else None
    finally:
        torch._C._set_tracing_state(state)


class _Graph:
    """The graph of a trace that goes on."""

    def __init__(self, state: Any, inputs: int) -> None:
        self._inputs = {value.debugName() for value in list(state.graph().inputs())[:inputs]}
        self._shaped: dict[str, bool] = {}

    def describe(self, place: str, name: str, tensor: Any, value: Any) -> Taken:
        shown = _show(value)
        traced = torch._C._get_value_trace(tensor)
        if name in ("__len__", "__iter__"):
            size = int(tensor.detach().shape[0]) if tensor.dim() else 0
            return Taken(place, CONVERSIONS[name], shown, self._is_shaped_by_data(traced), (size,))
        data, sizes, constants = self._find_origin(traced)
        return Taken(place, CONVERSIONS[name], shown, data, sizes, constants)

    def _find_origin(self, value: Any) -> tuple[bool, tuple[int, ...], tuple[int, ...]]:
        """Whether contents of an input decide the value; else the sizes and the constants that it was made of."""
        sizes: list[int] = []
        constants: list[int] = []
        waiting, seen = [value], set()
        while waiting:
            one = waiting.pop()
            if one.debugName() in seen:
                continue
            seen.add(one.debugName())
            node = one.node()
            kind = node.kind()
            if kind == "prim::Param" and one.debugName() in self._inputs:
                return True, (), ()
            if kind in SIZES:
                whole, *rest = node.inputs()
                if self._is_shaped_by_data(whole):
                    return True, (), ()
                sizes += _read_sizes(whole, [axis.toIValue() for axis in rest])
            elif kind == "prim::Constant":
                held = one.toIValue()
                if isinstance(held, int | float) and not isinstance(held, bool):
                    constants.append(int(held))
            else:
                waiting += _list_inputs(node)
        return False, tuple(sizes), tuple(constants)

    def _is_shaped_by_data(self, value: Any) -> bool:
        """Whether the contents of an input decide the sizes of a tensor, by all that it was computed of."""
        waiting = [value]
        while waiting:
            one = waiting[-1]
            name, node = one.debugName(), one.node()
            if name in self._shaped:
                waiting.pop()
                continue
            inner = _list_inputs(node)
            open_ones = [each for each in inner if each.debugName() not in self._shaped]
            if open_ones and node.kind() != "prim::Param":
                waiting += open_ones
                continue
            waiting.pop()
            self._shaped[name] = any(self._shaped[each.debugName()] for each in inner) or self._is_source(node)
        return self._shaped[value.debugName()]

    def _is_source(self, node: Any) -> bool:
        kind, inner = node.kind(), list(node.inputs())
        if kind in SHAPED_BY_DATA:
            return kind != "aten::repeat_interleave" or str(inner[-1].type()) == "Tensor" or len(inner) < 4
        if kind == "aten::index":
            chosen = list(inner[1].node().inputs())
            return any(_is_mask(one) for one in chosen)
        return kind in NUMBERS and any(self._find_origin(one)[0] for one in inner)


def _list_inputs(node: Any) -> list[Any]:
    """List the values that a node reads, in its blocks too."""
    found = list(node.inputs())
    for block in node.blocks():
        for inner in block.nodes():
            found += _list_inputs(inner)
    return found


def _is_mask(value: Any) -> bool:
    try:
        return str(value.type().scalarType()) in ("Bool", "Byte")
    except (AttributeError, RuntimeError):  # no tensor, or one of which the trace keeps no type
        return False


def _read_sizes(value: Any, axes: list[Any]) -> list[int]:
    try:
        sizes = list(value.type().sizes() or ())
    except (AttributeError, RuntimeError):
        return []
    return [sizes[axes[0]]] if axes and isinstance(axes[0], int) and axes[0] < len(sizes) else sizes


def _show(value: Any) -> str:
    if hasattr(value, "tobytes"):
        value = value.tolist()
    text = repr(value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... {hash(text) & 0xFFFFFFFF:08x}"


@functools.cache
def is_guard(place: str) -> bool:
    """Whether the line only checks or says something: an assertion, an `if` that raises, a warning."""
    file, _, number = place.rpartition(":")
    statement = _find_statement(file, int(number))
    if isinstance(statement, ast.If):
        return _only_says(statement.body) or (bool(statement.orelse) and _only_says(statement.orelse))
    return isinstance(statement, ast.Assert) or (isinstance(statement, ast.Expr) and _says(statement.value))


def _only_says(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(one, ast.Raise | ast.Pass | ast.Assert) or (isinstance(one, ast.Expr) and _says(one.value))
        for one in body
    )


def _says(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return isinstance(value, ast.Constant)  # a docstring, or `...`
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return name in SAYING or name.startswith(REQUIRING)


@functools.cache
def _parse(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _find_statement(file: str, number: int) -> ast.stmt | None:
    """The innermost statement with the line; of an `if`, its condition has to have it."""
    module, found = _parse(file), None
    for node in ast.walk(module) if module else ():
        if isinstance(node, ast.stmt) and node.lineno <= number <= (node.end_lineno or 0):
            if isinstance(node, ast.If | ast.While) and number > (node.test.end_lineno or 0):
                continue
            if found is None or node.lineno >= found.lineno:
                found = node
    return found
