"""apex.amp: torchport's, and the state that scripts look into."""

from torchport.amp.casting import (
    disable_casts,
    float_function,
    half_function,
    promote_function,
    register_float_function,
    register_half_function,
    register_promote_function,
)
from torchport.amp.frontend import initialize, load_state_dict, master_params, scale_loss, state_dict

from ._amp_state import _amp_state

__all__ = [
    "_amp_state",
    "disable_casts",
    "float_function",
    "half_function",
    "initialize",
    "load_state_dict",
    "master_params",
    "promote_function",
    "register_float_function",
    "register_half_function",
    "register_promote_function",
    "scale_loss",
    "state_dict",
]
