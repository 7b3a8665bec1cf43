"""Names that the user's modules and variables give to parameters."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

MOST = 2000  # elements of a container that are looked at
DEEPEST = 3  # containers and objects inside of each other


def list_parameters(optimizer: Any) -> list[Any]:
    """The tensors that `optimizer` trains, in the order of its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class Names:
    """Qualified names of the parameters of modules that were called, else of the variables that had them where their
    optimizer was built; holds none of them alive."""

    def __init__(self, torch: Any) -> None:
        weak = torch.utils.weak.WeakIdKeyDictionary
        self._names: Any = weak()
        self._variables: Any = weak()
        self._modules: Any = weak()
        self._types = (torch.Tensor, torch.nn.Module)

    def learn_module(self, module: Any) -> None:
        """`module` is called, by no other module. Costs nothing from the second time on."""
        if module not in self._modules:
            self._modules[module] = True
            self._read(module)

    def list_modules(self) -> list[Any]:
        """The modules that were learned and are still there, in that order."""
        return list(self._modules)

    def update_names(self, parameters: list[Any]) -> None:
        """Ask the modules again where one of `parameters` has no name yet: it may have been added since."""
        if any(parameter not in self._names for parameter in parameters):
            for module in self.list_modules():
                self._read(module)

    def learn_variables(self, frame: FrameType | None, parameters: list[Any]) -> None:
        """An optimizer of `parameters` is built in `frame`: remember what its variables call them."""
        wanted = {id(parameter) for parameter in parameters if parameter not in self._names}
        if frame is None or not wanted:
            return
        for name, tensor in self._walk(dict(frame.f_locals), "", 0):
            if id(tensor) in wanted and tensor not in self._variables:
                self._variables[tensor] = name

    def find_name(self, parameter: Any) -> str:
        """Its name, the longest where several modules have it, else that of a variable; "" where none has it."""
        return str(self._names.get(parameter) or self._variables.get(parameter, ""))

    def _walk(self, value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
        """The tensors that a value has, with the expressions that give them."""
        tensor, module = self._types
        if isinstance(value, tensor):
            yield name, value
        elif isinstance(value, module):
            yield from ((f"{name}.{own}", parameter) for own, parameter in value.named_parameters())
        elif depth <= DEEPEST:
            if type(value) in (list, tuple):
                parts = [(f"{name}[{place}]", part) for place, part in enumerate(value[:MOST])]
            elif type(value) is dict:
                parts = [(f"{name}[{key!r}]" if name else str(key), part) for key, part in list(value.items())[:MOST]]
            elif name == "self":
                parts = [(f"{name}.{key}", part) for key, part in getattr(value, "__dict__", {}).items()]
            else:
                return
            for inner, part in parts:
                yield from self._walk(part, inner, depth + 1)

    def _read(self, module: Any) -> None:
        for name, parameter in module.named_parameters():
            if len(name) > len(self._names.get(parameter, "")):
                self._names[parameter] = name
