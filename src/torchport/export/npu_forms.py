"""A module in the place of torch_npu: its functions in plain torch, so that a model that calls them can be exported.

Each computes what the operator computes, in float32 within where the operator does; tests compare them on the NPU. What
is not here says so by name.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from torchport.export.npu_attention import fusion_attention


def npu_rms_norm(self: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Any, Any]:
    """The rows by their root mean square, times gamma; and the reciprocal of that root."""
    axes = tuple(range(-gamma.dim(), 0))
    wide = self.float()
    rstd = torch.rsqrt(wide.pow(2).mean(axes, keepdim=True) + epsilon)
    return (wide * rstd * gamma.float()).to(self.dtype), rstd


def npu_add_rms_norm(x1: Any, x2: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Any, Any, Any]:
    """The norm of the sum, the reciprocal of its root, and the sum."""
    total = x1 + x2
    y, rstd = npu_rms_norm(total, gamma, epsilon)
    return y, rstd, total


def npu_rotary_mul(self: Any, r1: Any, r2: Any, rotary_mode: str = "half") -> Any:
    """self * r1 + rotated(self) * r2; `half` rotates halves of the last axis, `interleave` pairs."""
    if rotary_mode == "half":
        one, two = self.chunk(2, -1)
        turned = torch.cat((-two, one), -1)
    elif rotary_mode == "interleave":
        turned = torch.stack((-self[..., 1::2], self[..., ::2]), -1).flatten(-2)
    else:
        raise NotImplementedError(f"npu_rotary_mul with rotary_mode={rotary_mode!r} has no plain form here")
    return self * r1 + turned * r2


def npu_swiglu(self: Any, dim: int = -1) -> Any:
    """silu of the first half times the second."""
    one, two = self.chunk(2, dim)
    return functional.silu(one.float()).mul(two.float()).to(self.dtype)


def npu_fast_gelu(self: Any) -> Any:
    """x * sigmoid(1.702 x)."""
    return self * torch.sigmoid(1.702 * self)


def npu_geglu(self: Any, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> tuple[Any, Any]:
    """One half times the gelu of the other, and that gelu. `approximate`: 1 is the form with tanh, 0 that with erf."""
    one, two = self.chunk(2, dim)
    kept, gated = (two, one) if activate_left else (one, two)
    gelu = functional.gelu(gated, approximate="tanh" if approximate == 1 else "none")
    return kept * gelu, gelu


def npu_gelu(self: Any, *, approximate: str = "none") -> Any:
    """As torch's."""
    return functional.gelu(self, approximate=approximate)


def npu_silu(self: Any) -> Any:
    """As torch's."""
    return functional.silu(self)


def npu_mish(self: Any) -> Any:
    """As torch's."""
    return functional.mish(self)


def npu_linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """As torch's."""
    return functional.linear(input, weight, bias)


def npu_transpose(self: Any, perm: Any, require_contiguous: bool = True) -> Any:
    """As permute."""
    return self.permute(*perm)


def npu_confusion_transpose(self: Any, perm: Any, shape: Any, transpose_first: bool) -> Any:
    """A permutation and a reshape, in the order that is asked for."""
    return self.permute(*perm).reshape(shape) if transpose_first else self.reshape(shape).permute(*perm)


def npu_dtype_cast(self: Any, dtype: Any) -> Any:
    """As to()."""
    return self.to(dtype)


def npu_scaled_masked_softmax(x: Any, mask: Any, scale: float = 1.0, fixed_triu_mask: bool = False) -> Any:
    """Softmax of the scaled scores, without those of the mask."""
    if fixed_triu_mask:
        raise NotImplementedError("npu_scaled_masked_softmax with fixed_triu_mask has no plain form here")
    return torch.softmax((x.float() * scale).masked_fill(mask.bool(), -10000.0), -1).to(x.dtype)


def npu_format_cast(self: Any, acl_format: Any, *rest: Any, **options: Any) -> Any:
    """The tensor as it is: a format is a layout in the NPU's memory, and no value changes."""
    return self


FORMS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(npu_rms_norm, npu_add_rms_norm, npu_rotary_mul, npu_swiglu, npu_fast_gelu, npu_geglu, npu_gelu, npu_silu),
        *(npu_mish, npu_linear, npu_transpose, npu_confusion_transpose, npu_dtype_cast, npu_scaled_masked_softmax),
        npu_format_cast,
    )
}
FORMS |= {"fast_gelu": npu_fast_gelu, "npu_format_cast_": npu_format_cast, "npu_fusion_attention": fusion_attention}


class _TorchNpu(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name in FORMS:
            return FORMS[name]
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(
            f"torch_npu.{name} has no plain form in torchport, and a model that uses it cannot be exported. Known are "
            f"{', '.join(sorted(FORMS))}"
        )


def install_npu_forms() -> None:
    """Let `import torch_npu`, `torch.npu` and `torch.ops.npu` be these, in a process that has no torch_npu."""
    module = _TorchNpu("torch_npu")
    module.__path__ = []
    # importlib.util.find_spec(), by which transformers, accelerate and diffusers look for torch_npu, raises without it.
    module.__spec__ = importlib.machinery.ModuleSpec("torch_npu", None, is_package=True)
    sys.modules["torch_npu"] = module
    device = types.ModuleType("torch.npu")
    device.__spec__ = importlib.machinery.ModuleSpec("torch.npu", None)
    absent = {"is_available": False, "device_count": 0, "is_initialized": False}
    for name, value in absent.items():
        setattr(device, name, lambda value=value: value)
    for name in ("set_compile_mode", "set_device", "set_option", "synchronize", "empty_cache"):
        setattr(device, name, lambda *given, **options: None)
    sys.modules["torch.npu"] = sys.modules["torch_npu.npu"] = device
    torch.npu = module.__dict__["npu"] = device
    torch.ops.npu = module
    torch.Tensor.npu_format_cast = npu_format_cast
    torch.Tensor.npu = lambda self, *given, **options: self
    torch.nn.Module.npu = lambda self, *given, **options: self
