"""What O2 and O3 do to a model: fp16 parameters, fp16 inputs, fp32 outputs, fp32 checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from torchport.amp.options import Options
from torchport.amp.tensors import map_float_tensors

# The fp32 parameter that the optimizer updates in place of an fp16 one, if there is one.
master_of = WeakTensorKeyDictionary()

_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def check_model(model: Any) -> None:
    """Raise RuntimeError for what apex refuses: a parallel wrapper, or parameters that are not float32."""
    if isinstance(model, _PARALLEL):
        raise RuntimeError(
            f"amp.initialize got a model inside {type(model).__name__}: initialize the model first, then wrap it."
        )
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            raise RuntimeError(
                f"amp.initialize found parameter {name} with dtype {parameter.dtype}, expected torch.float32: "
                "it casts the model itself, drop .half() and the like."
            )


def cast_model(model: nn.Module, options: Options, outputs: torch.dtype | None) -> None:
    """Cast `model` in place as `options` say; its inputs are cast to match, its outputs to `outputs` or float32.

    By hooks, so that copies of the model and wrappers around it work alike. Checkpoints (`state_dict`) hold
    float32, those of parameters with a master the master's own digits; loading one sets the masters too.
    """
    dtype = options.cast_model_type
    if dtype is not None and dtype != torch.float32:
        _cast_parameters(model, dtype, options.keep_batchnorm_fp32)
        model.register_forward_pre_hook(_InputCast(dtype), with_kwargs=True, prepend=True)
        outputs = outputs or torch.float32
        model.register_state_dict_post_hook(_save_float)
        model.register_load_state_dict_pre_hook(_load_masters)
    if outputs is not None:
        model.register_forward_hook(_OutputCast(outputs))


def _cast_parameters(model: nn.Module, dtype: torch.dtype, keep_batchnorm: bool) -> None:
    for module in model.modules():
        if keep_batchnorm and isinstance(module, nn.modules.batchnorm._BatchNorm):
            continue
        for parameter in module.parameters(recurse=False):
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)
                if parameter.grad is not None:
                    parameter.grad.data = parameter.grad.data.to(dtype)
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point():
                module._buffers[name] = buffer.to(dtype)
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()


class _InputCast:
    """Casts a model's arguments. A class, not a closure: models are copied and pickled with their hooks."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def __call__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return map_float_tensors((args, kwargs), lambda tensor: tensor.to(self._dtype))  # type: ignore[no-any-return]


class _OutputCast:
    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def __call__(self, model: nn.Module, args: Any, output: Any) -> Any:
        return map_float_tensors(output, lambda tensor: tensor.to(self._dtype))


def _save_float(model: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for key, value in state.items():
        if key.startswith(prefix) and isinstance(value, Tensor) and value.dtype == torch.float16:
            parameter = parameters.get(key[len(prefix) :])
            master = None if parameter is None else master_of.get(parameter)
            state[key] = value.float() if master is None else master.detach()


def _load_masters(model: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name, parameter in model.named_parameters(remove_duplicate=False):
        value, master = state.get(prefix + name), master_of.get(parameter)
        if master is not None and value is not None and value.shape == master.shape:
            with torch.no_grad():
                master.copy_(value)
