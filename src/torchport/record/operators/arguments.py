"""An operator's arguments and results as JSON: what is no tensor by its value, tensors by their place among the call's.

| JSON | argument |
|---|---|
| null, true, 3, 0.5, "mean", [..] | None, bool, int, float, str, a list |
| {"t": i} | the i-th tensor of the call's inputs (outputs); undefined where that is null |
| {"float": "nan"} | a float that JSON has no word for: nan, inf, -inf |
| {"complex": [re, im]} | a complex number |
| {"dtype": "float32"}, {"device": "cpu"}, {"layout": "strided"}, {"memory_format": "channels_last"} | torch's own |
| {"generator": "cpu"} | a generator of random numbers, by its device |
| {"other": "..."} | anything else, by the name of its type |

csrc/record/arguments.h writes the same.
"""

from __future__ import annotations

import json
import math
from typing import Any


def of_call(torch: Any, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, list[Any]]:
    """JSON with a value for each argument of the schema, in order, and the tensors that it counts."""
    tensors: list[Any] = []
    values = []
    for place, argument in enumerate(schema.arguments):
        if place < len(args):
            value = args[place]
        else:
            value = kwargs.get(argument.name, argument.default_value if argument.has_default_value() else None)
        if isinstance(value, int) and not isinstance(value, bool) and "ScalarType" in str(argument.real_type):
            value = None
        values.append(to_json_value(torch, value, tensors))
    return json.dumps(values, separators=(",", ":")), tensors


def of_results(torch: Any, results: Any) -> tuple[str, list[Any]]:
    """The same of what an operator gave."""
    tensors: list[Any] = []
    parts = results if isinstance(results, tuple) else (results,)
    return json.dumps([to_json_value(torch, part, tensors) for part in parts], separators=(",", ":")), tensors


def to_json_value(torch: Any, value: Any, tensors: list[Any]) -> Any:
    """One value; tensors are appended to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"t": len(tensors) - 1}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [to_json_value(torch, part, tensors) for part in (value.real, value.imag)]}
    if isinstance(value, (list, tuple)):
        return [to_json_value(torch, part, tensors) for part in value]
    for kind, name in ((torch.dtype, "dtype"), (torch.layout, "layout"), (torch.memory_format, "memory_format")):
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Generator):
        return {"generator": str(value.device)}
    return {"other": type(value).__name__}
