"""A checkpoint is another state than what is there, and a schedule goes on with its optimizer."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torchport.patches import Patches
from torchport.record import releases
from torchport.record.invariants.rule import Rule

LEAST = 5  # steps of a schedule


class Restoring(Rule):
    """`load_state_dict` is not given the module's own tensors as an earlier `state_dict` has returned them, and where
    the state of an optimizer was loaded, so was the state of its schedule."""

    name = "states that are loaded were kept"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._loaded: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers and schedules
        # By address: what a module has returned, and after how many steps.
        self._returned: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._scheduled: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        """See what is loaded, and schedules step."""
        optim = self.torch.optim
        base = releases.find_scheduler(self.torch)
        patches.wrap(self.torch.nn.Module, "state_dict", self._returning)
        patches.wrap(self.torch.nn.Module, "load_state_dict", self._loading_module)
        patches.wrap(optim.Optimizer, "load_state_dict", self._loading)
        for kind in (base, *_list_kinds(base)):
            if "load_state_dict" in vars(kind):
                patches.wrap(kind, "load_state_dict", self._loading)
        patches.wrap(base, "step", self._stepping)

    def _returning(self, original: Any) -> Any:
        def state_dict(this: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(this, *args, **kwargs)
            if not args and kwargs.get("destination") is None and isinstance(found, OrderedDict):
                self._returned[id(found)] = weakref.ref(found), self.steps
            return found

        return state_dict

    def _loading_module(self, original: Any) -> Any:
        def load_state_dict(this: Any, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
            known = self._returned.get(id(state_dict))
            if known is not None and known[0]() is state_dict and known[1] < self.steps:
                self._look(this, state_dict)
            return original(this, state_dict, *args, **kwargs)

        return load_state_dict

    def _look(self, module: Any, state: Mapping[str, Any]) -> None:
        own = dict(module.named_parameters())
        pairs = [(own[name], value) for name, value in state.items() if name in own and self.torch.is_tensor(value)]
        self.judged += bool(pairs)
        if pairs and all(_share(one, other) for one, other in pairs):
            self.report(
                type(module).__name__,
                f"{type(module).__name__} loads its own weights, which changes nothing: state_dict() was kept and not "
                "copied, so training went on in it",
                self.find_site(),
                self.steps - 1,
            )

    def _loading(self, original: Any) -> Any:
        def load_state_dict(this: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            if state_dict.get("state", True):  # an optimizer's may be empty
                self._loaded.add(this)
            return original(this, state_dict, *args, **kwargs)

        return load_state_dict

    def _stepping(self, original: Any) -> Any:
        def step(this: Any, *args: Any, **kwargs: Any) -> Any:
            optimizer = getattr(this, "optimizer", None)
            if optimizer is not None and optimizer in self._loaded and not getattr(this, "_is_initial", False):
                self.judged += 1
                count = self._scheduled[this] = self._scheduled.get(this, 0) + 1
                if count == LEAST and this not in self._loaded:
                    self.report(
                        f"schedule {id(this)}",
                        f"the state of {type(optimizer).__name__} was loaded, and of its {type(this).__name__} not: the"
                        " learning rate begins again where training goes on",
                        self.find_site(),
                        self.steps - LEAST + 1,
                    )
            return original(this, *args, **kwargs)

        return step


def _list_kinds(kind: type[Any]) -> list[type[Any]]:
    return [one for below in kind.__subclasses__() for one in (below, *_list_kinds(below))]


def _share(one: Any, other: Any) -> bool:
    return bool(one.data_ptr() == other.data_ptr() and one.numel() == other.numel() and one.numel())
