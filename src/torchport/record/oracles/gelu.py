"""GELU as an NPU computes it: in its tanh form, whatever `approximate` says (`record.gelu` has the sources)."""

from __future__ import annotations

from typing import Any


def gelu(torch: Any, given: Any, approximate: str = "none") -> list[Any]:
    """The tanh form."""
    return [torch.nn.functional.gelu(given, approximate="tanh")]


gelu_ = gelu


def gelu_backward(torch: Any, grad: Any, given: Any, approximate: str = "none") -> list[Any]:
    """Its derivative."""
    return [torch.ops.aten.gelu_backward(grad, given, approximate="tanh")]
