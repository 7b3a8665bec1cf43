"""O1: torch's functions cast their arguments, convolutions and matrix products to fp16, sensitive ones to fp32."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchport.amp.tensors import map_float_tensors
from torchport.patches import Patches

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]

# Cube work: fp16.
HALF = {
    torch.nn.functional: (
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "conv_tbc",
        "linear",
        "scaled_dot_product_attention",
    ),
    torch: (
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "conv_tbc",
        "prelu",
        "addmm",
        "addmv",
        "addr",
        "matmul",
        "mm",
        "mv",
        "addbmm",
        "baddbmm",
        "bmm",
        "einsum",
    ),
    torch.Tensor: (
        "__matmul__",
        "__rmatmul__",
        "addmm",
        "addmv",
        "addr",
        "matmul",
        "mm",
        "mv",
        "addbmm",
        "baddbmm",
        "bmm",
        "prelu",
    ),
    torch._VF: ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
}

# Functions with a large range or long sums: fp32. Batch norm is here because the porting guide has it in O1's fp32
# part.
POINTWISE = (
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "pow",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "cumprod",
    "cumsum",
    "dist",
    "norm",
    "prod",
    "renorm",
    "std",
    "sum",
    "var",
    "softmax",
    "log_softmax",
)
FLOAT = {
    torch.nn.functional: (
        "softmax",
        "log_softmax",
        "softmin",
        "softplus",
        "gelu",
        "interpolate",
        "grid_sample",
        "batch_norm",
        "instance_norm",
        "layer_norm",
        "group_norm",
        "local_response_norm",
        "rms_norm",
        "normalize",
        "cosine_similarity",
        "cross_entropy",
        "nll_loss",
        "gaussian_nll_loss",
        "poisson_nll_loss",
        "kl_div",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "mse_loss",
        "binary_cross_entropy_with_logits",
        "ctc_loss",
        "cosine_embedding_loss",
        "hinge_embedding_loss",
        "margin_ranking_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "multilabel_soft_margin_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
    ),
    torch: POINTWISE,
    torch.Tensor: (*POINTWISE, "__pow__", "__ipow__", "__rpow__"),
}

# Functions of several tensors that torch does not promote by itself: the widest dtype among them.
WIDEST = {
    torch: ("bilinear", "cross", "dot", "vdot", "cat", "stack"),
    torch.nn.functional: ("bilinear",),
    torch.Tensor: ("cross", "dot", "vdot"),
}

NEEDS_FLOAT = (
    "amp O1 does not run binary_cross_entropy on float16: its logarithm overflows. Use "
    "BCEWithLogitsLoss, which holds the sigmoid, or call amp.register_float_function(torch, 'sigmoid') before "
    "amp.initialize."
)

_enabled = True
# Casts of parameters, by id: reused while neither the parameter nor grad mode changes; forgotten at each step.
_casts: dict[int, tuple[Any, int, bool, Any]] = {}
_registered: list[tuple[Any, str, Decorator]] = []


def patch_torch() -> Patches:
    """Make torch's functions cast their arguments; `undo()` of what is returned ends that.

    For all threads, and for calls through the attributes of torch, torch.nn.functional, torch.Tensor: a script
    that took a function's reference earlier has the unpatched one.
    """
    patches = Patches()
    tables: tuple[tuple[dict[Any, tuple[str, ...]], Decorator], ...] = (
        (HALF, half_function),
        (FLOAT, float_function),
        (WIDEST, promote_function),
    )
    for table, decorate in tables:
        for owner, names in table.items():
            for name in names:
                patches.wrap(owner, name, decorate)
    patches.wrap(torch.nn.functional, "binary_cross_entropy", _refuse_half)
    for owner, name, decorate in _registered:
        patches.wrap(owner, name, decorate)
    return patches


def half_function(function: Function) -> Function:
    """A decorator: cast the function's float32 tensors to float16 while O1 is on."""
    return _casting(function, lambda args, kwargs: _to_half)


def float_function(function: Function) -> Function:
    """A decorator: cast the function's float16 tensors to float32 while O1 is on."""
    return _casting(function, lambda args, kwargs: _to_float)


def promote_function(function: Function) -> Function:
    """A decorator: cast float16 tensors to float32 if the function gets both, while O1 is on."""

    def choose(args: Any, kwargs: Any) -> Function:
        dtypes = set()
        map_float_tensors((args, kwargs), lambda tensor: dtypes.add(tensor.dtype) or tensor)  # type: ignore[func-returns-value]
        return _to_float if torch.float32 in dtypes else _unchanged

    return _casting(function, choose)


def register_half_function(module: Any, name: str) -> None:
    """Treat `module.name` as a `half_function`; before `initialize`."""
    _register(module, name, half_function)


def register_float_function(module: Any, name: str) -> None:
    """Treat `module.name` as a `float_function`; before `initialize`."""
    _register(module, name, float_function)


def register_promote_function(module: Any, name: str) -> None:
    """Treat `module.name` as a `promote_function`; before `initialize`."""
    _register(module, name, promote_function)


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    """No casts inside the block: torch's functions take their arguments as they are."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def forget_casts() -> None:
    """Forget the casts of parameters, which are about to change."""
    _casts.clear()


def _register(module: Any, name: str, decorate: Decorator) -> None:
    if not hasattr(module, name):
        raise ValueError(f"No function named {name} in {module!r}.")
    _registered.append((module, name, decorate))


def _casting(function: Function, choose: Callable[[Any, Any], Function]) -> Function:
    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _enabled:
            return function(*args, **kwargs)
        change = choose(args, kwargs)
        return function(*map_float_tensors(args, change), **map_float_tensors(kwargs, change))

    return call


def _refuse_half(function: Function) -> Function:
    @functools.wraps(function)
    def call(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if _enabled and input.dtype == torch.float16:
            raise NotImplementedError(NEEDS_FLOAT)
        return function(input, *args, **kwargs)

    return call


def _unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _to_float(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def _to_half(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype != torch.float32:
        return tensor
    if not (tensor.is_leaf and tensor.requires_grad):
        return tensor.half()
    with_grad = torch.is_grad_enabled()
    known = _casts.get(id(tensor))
    if known is not None and known[0]() is tensor and known[1:3] == (tensor._version, with_grad):
        return known[3]
    half = tensor.half()
    _casts[id(tensor)] = (weakref.ref(tensor), tensor._version, with_grad, half)
    return half
