"""The functions that scripts call."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchport.amp import attachment, casting, model
from torchport.amp.options import Options, resolve_options
from torchport.amp.scaler import CEILING, LossScaler
from torchport.patches import Patches


@dataclasses.dataclass(slots=True)
class Session:
    """What the last `initialize` of this process has set up; `options` is None before it and when disabled."""

    options: Options | None = None
    initialized: bool = False
    verbosity: int = 1
    loss_scalers: list[LossScaler] = dataclasses.field(default_factory=list)
    patches: Patches = dataclasses.field(default_factory=Patches)


session = Session()


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: torch.dtype | None = None,
    patch_torch_functions: bool | None = None,
    keep_batchnorm_fp32: bool | str | None = None,
    master_weights: bool | None = None,
    loss_scale: float | str | None = None,
    cast_model_outputs: torch.dtype | None = None,
    num_losses: int = 1,
    verbosity: int = 1,
    min_loss_scale: float | None = None,
    max_loss_scale: float = CEILING,
    combine_grad: bool | None = None,
    combine_ddp: bool | None = None,
    check_combined_tensors: bool | None = None,
) -> Any:
    """Set models and optimizers up for mixed precision, in place; gives them back, lists as lists.

    opt_level O0 is fp32; O1 casts the arguments of torch's functions (convolution and matmul in fp16, softmax,
    normalization and losses in fp32); O2 casts the model but batch norm to fp16 and lets the optimizer update fp32
    masters; O3 casts everything to fp16. `loss_scale` is a number or "dynamic" (default for O1 and O2; see
    `LossScaler`), one for each of `num_losses`. `combine_grad` keeps gradients in one tensor per dtype, see
    `torchport.amp.combined`; `combine_ddp` averages that tensor over the ranks. `check_combined_tensors` is taken
    and not needed: the combined tensors are checked at each backward pass.

    Without `optimizers`, only the models are given back. `enabled=False` changes nothing and makes `scale_loss`
    pass losses through. Calling it again replaces the process's loss scales and ends the casts of an earlier O1.

    Raises RuntimeError for contradictory options, models that are not fp32 or are wrapped for data parallelism
    already, and an optimizer that was initialized before.
    """
    session.patches.undo()
    casting.forget_casts()
    session.initialized, session.options, session.verbosity = True, None, verbosity
    session.loss_scalers = []
    if not enabled:
        return models if optimizers is None else (models, optimizers)
    chosen = resolve_options(
        opt_level,
        cast_model_type=cast_model_type,
        patch_torch_functions=patch_torch_functions,
        keep_batchnorm_fp32=keep_batchnorm_fp32,
        master_weights=master_weights,
        loss_scale=loss_scale,
        combine_grad=combine_grad,
        combine_ddp=combine_ddp,
    )
    for each in _as_list(models):
        model.check_model(each)
    for each in _as_list(models):
        model.cast_model(each, chosen, cast_model_outputs)
    for each in _as_list(optimizers):
        attachment.attach_to_optimizer(each, chosen)
    session.loss_scalers = [LossScaler(chosen.loss_scale, min_loss_scale, max_loss_scale) for _ in range(num_losses)]
    if chosen.patch_torch_functions:
        session.patches = casting.patch_torch()
    session.options = chosen
    return models if optimizers is None else (models, optimizers)


@contextlib.contextmanager
def scale_loss(
    loss: Tensor,
    optimizers: Any,
    loss_id: int = 0,
    model: Any = None,
    delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[Tensor]:
    """Gives the loss times its scale; at the end of the block the gradients have been unscaled.

    Gradients of earlier blocks since `zero_grad` are added to. If this block's hold inf or nan, the scale is halved
    and the next `step()` of each of `optimizers` does nothing. `delay_unscale=True` leaves the gradients scaled for a
    later block to add to and unscale; `delay_overflow_check=True` leaves the decision to a later block.

    Raises RuntimeError before `initialize`, or for an optimizer that was not given to it.
    """
    if not session.initialized:
        raise RuntimeError(
            "amp.scale_loss needs `model, optimizer = amp.initialize(model, optimizer, opt_level=...)` before it."
        )
    if session.options is None:  # initialize(enabled=False)
        yield loss
        return
    attachments = [attachment.attachment_of(optimizer) for optimizer in _as_list(optimizers)]
    scaler = session.loss_scalers[loss_id]
    chosen = session.options
    if not (scaler.dynamic or chosen.master_weights or chosen.combine_grad) and scaler.scale == 1.0:
        yield loss.float()
        casting.forget_casts()
        return
    for each in attachments:
        if not each.has_scaled_gradients:
            each.before_backward()
            scaler.begin_backward()
    yield loss.float() * scaler.scale
    casting.forget_casts()
    for each in attachments:
        each.has_scaled_gradients = delay_unscale
    if delay_unscale:
        return
    for each in attachments:
        each.after_backward(scaler)
    if not delay_overflow_check and scaler.update_scale():
        _say(f"Gradient overflow.  Skipping step, loss scaler {loss_id} reducing loss scale to {scaler.scale}")
        for each in attachments:
            each.skips_next = True


def master_params(optimizer: Any) -> Iterator[nn.Parameter]:
    """The parameters that `optimizer` updates, with their unscaled gradients: what to clip."""
    return attachment.iter_master_params(optimizer)


def state_dict(destination: dict[str, Any] | None = None) -> dict[str, Any]:
    """The loss scales, for a checkpoint: `loss_scaler0` and so on, in apex's format."""
    state = {} if destination is None else destination
    for index, scaler in enumerate(session.loss_scalers):
        state[f"loss_scaler{index}"] = {"loss_scale": scaler.scale, "unskipped": scaler.unskipped}
    return state


def load_state_dict(state_dict: dict[str, Any]) -> None:
    """Set the loss scales from `state_dict()`; after `initialize`.

    Of more scales than `num_losses`, the first ones are taken, with a message. Raises RuntimeError for keys that
    are not a loss scale's.
    """
    unexpected = [key for key in state_dict if not key.startswith("loss_scaler")]
    if unexpected:
        raise RuntimeError(f"amp.load_state_dict: unexpected keys {unexpected}.")
    if len(state_dict) != len(session.loss_scalers):
        _say(f"amp: the state has {len(state_dict)} loss scales, {len(session.loss_scalers)} are in use")
    for scaler, saved in zip(session.loss_scalers, state_dict.values(), strict=False):
        scaler.scale, scaler.unskipped = float(saved["loss_scale"]), int(saved["unskipped"])


def _as_list(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _say(text: str) -> None:
    distributed = torch.distributed
    first = not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0
    if session.verbosity and first:
        print(text)
