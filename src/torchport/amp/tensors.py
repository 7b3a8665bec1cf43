"""Apply a function to the float tensors inside nested containers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch


def map_float_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with `change` applied to each floating point tensor in it.

    Looks into lists, tuples (named ones too), dictionaries and their subclasses; anything else is given back as
    it is.
    """
    if isinstance(value, torch.Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, list):
        return [map_float_tensors(item, change) for item in value]
    if isinstance(value, tuple):
        items = [map_float_tensors(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, MutableMapping):
        changed = copy.copy(value)
        for key, item in value.items():
            changed[key] = map_float_tensors(item, change)
        return changed
    if isinstance(value, Mapping):
        return {key: map_float_tensors(item, change) for key, item in value.items()}
    return value
