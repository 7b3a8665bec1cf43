"""What the user's modules call their parameters."""

from __future__ import annotations

from typing import Any


class Names:
    """Qualified names of the parameters of modules that were called; holds neither alive."""

    def __init__(self, torch: Any) -> None:
        weak = torch.utils.weak.WeakIdKeyDictionary
        self._names: Any = weak()
        self._modules: Any = weak()

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

    def find_name(self, parameter: Any) -> str:
        """Its name, the longest where several modules have it; "" where none has."""
        return str(self._names.get(parameter, ""))

    def _read(self, module: Any) -> None:
        for name, parameter in module.named_parameters():
            if len(name) > len(self._names.get(parameter, "")):
                self._names[parameter] = name
