"""What `amp.initialize` was asked for: optimization levels and their overrides."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The properties of a run, after overrides.

    cast_model_type       dtype of the model's parameters; None leaves them alone
    patch_torch_functions cast the arguments of torch's functions (O1)
    keep_batchnorm_fp32   leave batch norm's parameters alone when the model is cast
    master_weights        the optimizer updates fp32 copies of the fp16 parameters
    loss_scale            a number, or "dynamic"
    combine_grad          gradients, and what is done with them, in one tensor per dtype
    combine_ddp           average the combined gradients over the ranks, in place of DistributedDataParallel
    """

    cast_model_type: torch.dtype | None
    patch_torch_functions: bool
    keep_batchnorm_fp32: bool
    master_weights: bool
    loss_scale: float | str
    combine_grad: bool = False
    combine_ddp: bool = False


# Apex's documented defaults.
LEVELS = {
    "O0": Options(torch.float32, False, False, False, 1.0),
    "O1": Options(None, True, False, False, "dynamic"),
    "O2": Options(torch.float16, False, True, True, "dynamic"),
    "O3": Options(torch.float16, False, False, False, 1.0),
}

# What an override contradicts, by level. O1 casts arguments and leaves the model in fp32.
_NOT_IN_O1 = {
    "cast_model_type": "O1 leaves the model in float32 and casts the arguments of functions; use O2 or O3",
    "keep_batchnorm_fp32": "O1 runs batch norm in float32 by itself; leave keep_batchnorm_fp32 out",
    "master_weights": "under O1 the model's own parameters are float32; leave master_weights out",
}


def resolve_options(opt_level: str, **overrides: Any) -> Options:
    """The options of `opt_level` with every override that is not None.

    `keep_batchnorm_fp32` and `loss_scale` may be strings ("True", "128.0", "dynamic"), as scripts pass them from
    the command line. Raises RuntimeError, as apex does, for an unknown level or overrides that contradict it.
    """
    if opt_level not in LEVELS:
        raise RuntimeError(
            f"Unexpected optimization level {opt_level!r}. Options are 'O0', 'O1', 'O2', 'O3' (the letter O)."
        )
    given = {name: value for name, value in overrides.items() if value is not None}
    if opt_level == "O1":
        for name, reason in _NOT_IN_O1.items():
            if given.get(name):
                raise RuntimeError(f"amp.initialize(opt_level='O1', {name}={given[name]!r}): {reason}.")
    elif given.get("patch_torch_functions"):
        raise RuntimeError(f"patch_torch_functions=True belongs to opt_level 'O1', not to {opt_level!r}.")
    if isinstance(given.get("keep_batchnorm_fp32"), str):
        given["keep_batchnorm_fp32"] = _truth(given["keep_batchnorm_fp32"])
    if given.get("loss_scale", "dynamic") != "dynamic":
        given["loss_scale"] = float(given["loss_scale"])
    chosen = dataclasses.replace(LEVELS[opt_level], **given)
    if opt_level == "O2" and chosen.combine_grad and not chosen.master_weights:
        raise RuntimeError("opt_level O2 with combine_grad=True needs master_weights.")
    if chosen.combine_ddp and not chosen.combine_grad:
        raise RuntimeError("combine_ddp=True averages the combined gradients: it needs combine_grad=True.")
    return chosen


def _truth(text: str) -> bool:
    if text not in ("True", "False"):
        raise RuntimeError(f"keep_batchnorm_fp32 as a string must be 'True' or 'False', not {text!r}.")
    return text == "True"
