"""Cures for faults of torch_npu 2.13.0 in scripts that are right; each leaves alone what is not at fault."""

from __future__ import annotations

import sys
from typing import Any

from torchport.patches import Patches

_WINDOWS = ("bartlett_window", "blackman_window", "hamming_window", "hann_window")


def patch_npu_faults(torch: Any, patches: Patches) -> None:
    """Cure them until `patches` are undone."""
    import torch_npu

    for scaler in (torch.amp.grad_scaler.GradScaler, torch_npu.npu.amp.grad_scaler.GradScaler):
        patches.wrap(scaler, "step", _unscaling)
    for name in _WINDOWS:
        patches.wrap(torch, name, lambda original: _of_the_default_dtype(torch, original))
    patches.wrap(torch, "kaiser_window", lambda original: _made_on_the_cpu(torch, original))
    patches.wrap(torch.npu, "is_bf16_supported", _answered_without_a_device(torch, False))
    kernels = "_get_foreach_kernels_supported_devices"
    # torch.optim deletes the name of this module.
    patches.wrap(sys.modules["torch.optim.optimizer"], kernels, _answered_without_a_device(torch, ["cuda", "xpu"]))
    patches.wrap(torch.Tensor, "sparse_mask", lambda original: _keeping_zeros(torch, original))
    forward = _ForwardMode(torch)
    patches.wrap(torch.autograd.forward_ad, "enter_dual_level", forward.wrap_enter)
    patches.wrap(torch.autograd.forward_ad, "exit_dual_level", forward.wrap_exit)
    patches.on_undo(forward.restore_operators)


def _unscaling(original: Any) -> Any:
    """Gradients of fused optimizers are unscaled as those of any other.

    torch hands them the scale and whether a gradient is infinite, and torch_npu 2.13.0 makes use of neither
    (FusedAdamWKernelNpuOpApi.cpp): steps that are to be left out are done. Its own scaler hands itself on, which `step`
    of torch 2.13 does not take.
    """

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        fused = any(group.get("fused") for group in optimizer.param_groups)
        if not fused or not getattr(optimizer, "_step_supports_amp_scaling", False):
            return original(self, optimizer, *args, **kwargs)
        optimizer._step_supports_amp_scaling = False  # set by each optimizer's constructor
        try:
            return original(self, optimizer, *args, **kwargs)
        finally:
            optimizer._step_supports_amp_scaling = True

    return step


def _of_the_default_dtype(torch: Any, original: Any) -> Any:
    """Without a dtype torch_npu 2.13.0 makes the window of int64, and multiplies that by a fraction
    (TensorFactories.cpp: `arange(window_length, options)`)."""

    def window(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dtype") is None and "out" not in kwargs:
            kwargs["dtype"] = torch.get_default_dtype()
        return original(*args, **kwargs)

    return window


def _made_on_the_cpu(torch: Any, original: Any) -> Any:
    """torch_npu 2.13.0 has no kernel of this window."""

    def window(*args: Any, **kwargs: Any) -> Any:
        device = torch.device(kwargs.get("device") or torch.get_default_device())
        if device.type != "npu" or "out" in kwargs:
            return original(*args, **kwargs)
        tracked = kwargs.pop("requires_grad", False)
        kwargs.pop("pin_memory", None)
        made = original(*args, **{**kwargs, "device": "cpu"}).to(device)
        return made.requires_grad_() if tracked else made

    return window


def _answered_without_a_device(torch: Any, answer: Any) -> Any:
    """Where no NPU is visible the function gives `answer`.

    torch_npu 2.13.0 opens the device to say whether it has bfloat16, which autocast asks even where it is switched off,
    and in each step of an optimizer, whatever device its parameters are on (utils/_optim.py): a script that trains on
    the CPU and hides its cards dies of "No NPUs are available", where CUDA's goes on.
    """

    def wrap(original: Any) -> Any:
        def ask(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if torch.npu.is_available() else answer

        return ask

    return wrap


def _keeping_zeros(torch: Any, original: Any) -> Any:
    """What the mask names is in the result, zero or not.

    torch takes the product of both for it, and torch_npu 2.13.0 leaves the zeros out of products with a sparse tensor:
    the first step of SparseAdam finds no values of its state.
    """

    def sparse_mask(self: Any, mask: Any) -> Any:
        dense = self.layout is torch.strided and mask.layout is torch.sparse_coo and mask.device.type == "npu"
        if not dense or self.shape != mask.shape or mask.sparse_dim() == 0:
            return original(self, mask)
        indices = mask._indices()
        values = self[tuple(indices.unbind())]
        return torch.sparse_coo_tensor(indices, values, mask.shape, is_coalesced=mask.is_coalesced())

    return sparse_mask


class _ForwardMode:
    """While tangents are carried forward, `matmul` and `linear` are the operators that they are made of.

    torch_npu 2.13.0 has kernels of its own for both, whose backward formula (`matmul_backward`) has no forward one:
    forward over reverse (`torch.func.hessian`, `jvp(grad(f))`) silently gives 0.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._library: Any = None

    def wrap_enter(self, original: Any) -> Any:
        def enter_dual_level() -> Any:
            level = original()
            self._enter()
            return level

        return enter_dual_level

    def wrap_exit(self, original: Any) -> Any:
        def exit_dual_level(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self._torch.autograd.forward_ad._current_level < 0:
                self.restore_operators()
            return result

        return exit_dual_level

    def _enter(self) -> None:
        if self._library is not None:
            return
        torch = self._torch
        from torch._decomp.decompositions import matmul

        def linear(input: Any, weight: Any, bias: Any = None) -> Any:
            product = matmul(input, weight.t())
            return product if bias is None else product + bias

        self._library = torch.library.Library("aten", "IMPL")
        for name, function in (("matmul", matmul), ("linear", linear)):
            self._library.impl(name, function, "AutogradPrivateUse1", allow_override=True)

    def restore_operators(self) -> None:
        """Both operators are torch_npu's again."""
        if self._library is not None:
            self._library._destroy()
            self._library = None
