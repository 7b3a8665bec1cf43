"""Outermost calls of modules: the steps of a script that only evaluates, and what a model is given while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchport.record import quiet, releases
from torchport.record.sites import Sites

DEEPEST = 4  # containers inside containers in what a module takes and gives


class OutermostCalls:
    """Tells of each call of a module that no other module makes, until it is removed.

    `entered(module)` comes first; then `given(site, tensors)` with all tensors among the arguments, in order, and
    `called(site, norm, device, number)`. `site` is the place and the module's class, `norm` the Euclidean norm of all
    floating-point outputs, computed on the host in float64, so that nothing is launched for it. `called` may be taken
    away: then outputs are not read. `placed(site, module)` and `gave(site, module, outputs)`, which has these outputs
    themselves, are told before that.
    """

    def __init__(
        self,
        torch: Any,
        sites: Sites,
        called: Callable[[str, float, str, int], None],
        given: Callable[[str, list[Any]], None],
        entered: Callable[[Any], None],
        placed: Callable[[str, Any], None],
        gave: Callable[[str, Any, list[Any]], None],
    ) -> None:
        self._torch = torch
        self._sites = sites
        self.called: Callable[[str, float, str, int], None] | None = called
        self._given = given
        self._entered = entered
        self._placed = placed
        self._gave = gave
        self._depth = 0
        self._number = 0
        modules = torch.nn.modules.module
        self._hooks = [
            modules.register_module_forward_pre_hook(self._enter),
            releases.after_modules(torch, self._leave),
        ]

    def remove_hooks(self) -> None:
        """Stop watching."""
        while self._hooks:
            self._hooks.pop().remove()

    def _enter(self, module: Any, inputs: Any) -> None:
        self._depth += 1
        if self._depth == 1 and self._can_look():
            self._entered(module)

    def _leave(self, module: Any, inputs: Any, named: Any, outputs: Any) -> None:
        self._depth -= 1
        if self._depth != 0 or outputs is releases.RAISED or not self._can_look():
            return
        if isinstance(module, _losses(self._torch)):
            return
        place = f"{self._sites.find_user_line(2)} {type(module).__name__}"
        if given := list(_tensors(self._torch, (inputs, named), 0)):
            self._given(place, given)
        found = [
            tensor
            for tensor in _tensors(self._torch, outputs, 0)
            if tensor.is_floating_point() and tensor.layout == self._torch.strided
        ]
        self._placed(place, module)
        if found:
            self._gave(place, module, found)
        if self.called is None or not found or releases.is_capturing(self._torch):
            return
        with quiet.silence_listeners():
            squares = sum(tensor.detach().cpu().double().square().sum().item() for tensor in found)
        number, self._number = self._number, self._number + 1
        self.called(place, squares**0.5, found[0].device.type, number)

    def _can_look(self) -> bool:
        """Whether there are numbers to look at, and parameters that are the module's own."""
        return not (releases.is_compiling(self._torch) or releases.is_within_transform(self._torch))


def _losses(torch: Any) -> type:
    """A loss follows a call that was counted already."""
    kind: type = torch.nn.modules.loss._Loss
    return kind


def _tensors(torch: Any, value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < DEEPEST:
        if isinstance(value, Mapping):
            parts: Any = value.values()
        elif isinstance(value, (list, tuple)):
            parts = value
        else:
            parts = ()
        for part in parts:
            yield from _tensors(torch, part, depth + 1)
