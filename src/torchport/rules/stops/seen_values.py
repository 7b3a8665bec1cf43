"""What a file shows of a tensor: the dtype that it is made in, and whether it is put on a device."""

from __future__ import annotations

import ast
import dataclasses

from torchport.source.module import Module

DTYPES = {
    "torch.float64": "float64",
    "torch.double": "float64",
    "torch.complex64": "complex64",
    "torch.cfloat": "complex64",
    "torch.complex128": "complex64",
    "torch.cdouble": "complex64",
}
_CASTS = {"double": "float64", "cfloat": "complex64", "cdouble": "complex64"}
# Methods after which a tensor has another dtype than before.
_OTHER_CASTS = frozenset({"float", "half", "bfloat16", "int", "long", "short", "bool", "byte", "char", "type_as"})
_MAKES = frozenset(
    f"torch.{name}"
    for name in (
        "zeros",
        "ones",
        "empty",
        "full",
        "rand",
        "randn",
        "randint",
        "eye",
        "tensor",
        "arange",
        "linspace",
        "as_tensor",
        "from_numpy",
    )
)
# Functions that make complex numbers of real ones, on the device of these.
_COMPLEX = frozenset({"torch.complex", "torch.polar", "torch.view_as_complex"})
_KEEPS = frozenset(
    {
        "t",
        "transpose",
        "permute",
        "view",
        "reshape",
        "contiguous",
        "detach",
        "clone",
        "requires_grad_",
        "unsqueeze",
        "squeeze",
        "flatten",
        "mul",
        "add",
        "sub",
        "div",
    }
)
_DEPTH = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """The dtype ("float64", "complex64"), empty where it is another or not known, and whether a device has it."""

    dtype: str = ""
    on_device: bool = False


def infer_dtype_and_device(module: Module, node: ast.expr, depth: int = _DEPTH) -> Seen:
    """What is to be seen of the value of an expression."""
    if depth == 0:
        return Seen()
    match node:
        case ast.Call(func=ast.Attribute(attr=method, value=owner)) if module.resolve_name(node.func) is None:
            return _of_method(module, node, method, infer_dtype_and_device(module, owner, depth - 1))
        case ast.Call() if module.resolve_name(node.func) in _MAKES:
            given = {word.arg: word.value for word in node.keywords}
            dtype = DTYPES.get(module.resolve_name(given["dtype"]) or "", "") if "dtype" in given else ""
            return Seen(dtype, "device" in given and not _is_cpu(given["device"]))
        case ast.Call(args=[first, *_]) if module.resolve_name(node.func) in _COMPLEX:
            return Seen("complex64", infer_dtype_and_device(module, first, depth - 1).on_device)
        case ast.Attribute(attr="T" | "mT" | "H" | "mH", value=owner):
            return infer_dtype_and_device(module, owner, depth - 1)
        case ast.Name():
            found = {
                infer_dtype_and_device(module, binding.value, depth - 1) if binding.value is not None else Seen()
                for binding in module.names.find_bindings(node)
            }
            return found.pop() if len(found) == 1 else Seen()
        case _:
            return Seen()


def made_on_cpu(module: Module, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Whether the value is seen to be made on the CPU, as long as no other device is the default, and not moved."""
    if depth == 0:
        return False
    match node:
        case ast.Call() if module.resolve_name(node.func) in _MAKES:
            return all(word.arg not in (None, "device") for word in node.keywords)
        case ast.Call(func=ast.Attribute(attr=method, value=owner)) if module.resolve_name(node.func) is None:
            keeps = method in _KEEPS or method in _CASTS or method in _OTHER_CASTS - {"type_as"}
            formats = method == "to" and not node.args and {word.arg for word in node.keywords} == {"memory_format"}
            return (keeps or formats) and made_on_cpu(module, owner, depth - 1)
        case ast.Name():
            values = [binding.value for binding in module.names.find_bindings(node)]
            return bool(values) and all(value is not None and made_on_cpu(module, value, depth - 1) for value in values)
        case _:
            return False


def _of_method(module: Module, call: ast.Call, method: str, before: Seen) -> Seen:
    if method in ("cuda", "npu"):
        return dataclasses.replace(before, on_device=True)
    if method == "cpu":
        return dataclasses.replace(before, on_device=False)
    if method in _CASTS:
        return _cast(before, _CASTS[method])
    if method in ("to", "type"):
        names = [module.resolve_name(arg) or "" for arg in (*call.args, *(word.value for word in call.keywords))]
        moves = any(word.arg == "device" for word in call.keywords) or bool(
            call.args and not names[0].startswith("torch.") and method == "to"
        )
        if moves:  # as one call does both, the tensor is cast before it is moved
            device = next((word.value for word in call.keywords if word.arg == "device"), (*call.args, None)[0])
            before = dataclasses.replace(before, on_device=before.on_device or not _is_cpu(device))
        dtype = next((DTYPES[name] for name in names if name in DTYPES), None)
        if dtype is not None:
            return Seen(dtype, before.on_device) if moves else _cast(before, dtype)
        return Seen("", before.on_device) if any(name.startswith("torch.") for name in names) else before
    if method in _OTHER_CASTS:
        return Seen("", before.on_device)
    return before if method in _KEEPS else Seen()


def _cast(before: Seen, dtype: str) -> Seen:
    """torch_npu 2.13.0 casts a tensor that it has to float32 where float64 is asked for (ToKernelNpu.cpp)."""
    return Seen("", True) if before.on_device and dtype == "float64" else Seen(dtype, before.on_device)


def _is_cpu(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cpu"
