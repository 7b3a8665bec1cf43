"""In which order the virtual NPU adds the terms of a sum."""

from __future__ import annotations

import os
from collections.abc import Mapping

from torchport.errors import TorchportError
from torchport.vnpu.backend import Kind, detect

SUM_ORDER = "VNPU_SUM_ORDER"  # "cpu", or the seed of another order
_CPU, _FIRST_SEED = "cpu", 1


def choose_sum_order(*, reordered: bool, environ: Mapping[str, str] = os.environ) -> int | None:
    """The seed of the order in which operators add, as `environ` has it; None for the order of torch's CPU kernels.

    With `reordered` it is 1 if `environ` has none. Raises `TorchportError` if that is asked for on a real NPU, which
    has an order of its own.
    """
    is_virtual = detect().kind is not Kind.CANN
    if reordered and not is_virtual:
        raise TorchportError(
            "--reordered is a setting of the virtual NPU, and this port would run on a real one",
            hint="Leave it out: a real NPU adds in an order of its own. Or set TORCHPORT_BACKEND=vnpu.",
        )
    told = environ.get(SUM_ORDER) or _CPU
    if told.isdecimal() and is_virtual:
        return int(told)
    return _FIRST_SEED if reordered else None
