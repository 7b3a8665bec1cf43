"""Small faults that a run of the original makes on purpose, so that a comparison can show that it would notice them.

Each is there while it is measured and is then taken back bit by bit, so that the run goes on as if nothing had been;
the last one, in the last step, needs no taking back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torchport.patches import Patches
from torchport.record import releases
from torchport.record.names import list_parameters
from torchport.record.part import Part
from torchport.record.recording import BACKWARD, CALL, GRADIENT, OPTIMIZER, Journal

UPDATE, LAYER, SAMPLE = FAULTS = ("update", "gradient", "sample")
UPDATE_SHARE = 0.05  # of an update, on top of it
GRADIENT_SHARE = 0.01  # of one parameter's gradient, on top of it
LEAST_STEPS = 3  # one for each
DEEPEST = 4  # containers inside containers in what a module is given


class Faults:
    """The three faults of a run of `steps` steps of the kind `kind`, each with an event `fault`.

    `before` and `after` stand around the parts that measure: in the first third the update of one optimizer is 5 %
    larger, in the second the gradient of one parameter 1 %, and in the last step the first sample of a batch is another
    one. A fault that changes nothing where it is due (no gradient, an update of 0) is made in the next step that it
    changes. What could not be made at all is said in a `note`. `site()` names the user's line that is running;
    `taken_back()` is called when the parameters that were measured after a step are no longer there.
    """

    def __init__(
        self,
        torch: Any,
        journal: Journal,
        site: Callable[[], str],
        steps: int,
        kind: str = OPTIMIZER,
        taken_back: Callable[[], object] = lambda: None,
    ) -> None:
        self._torch = torch
        self._journal = journal
        self._site = site
        self._taken_back = taken_back
        self._kind = kind
        self._last = steps - 1
        self._open: dict[str, int] = {}
        if steps >= LEAST_STEPS:
            due = {UPDATE: self._last // 3, LAYER: 2 * self._last // 3, SAMPLE: self._last}
            possible = {OPTIMIZER: FAULTS, BACKWARD: FAULTS[1:], GRADIENT: FAULTS[1:], CALL: FAULTS[2:]}
            self._open = {name: step for name, step in due.items() if name in possible.get(kind, FAULTS)}
        else:
            journal.write_event("note", text=f"no faults are made: a run of {steps} steps has no room for them")
        self._done = 0
        self._depth = 0
        self._called_in: set[int] = set()
        self._closure = False
        self._earlier: Any = None
        self._old: list[tuple[Any, Any]] = []  # parameters before an update that is to be larger
        self._saved: list[tuple[Any, Any]] = []  # what has to be put back
        self._moved = False  # parameters are among that
        self._leaves: list[Any] = []
        self.before, self.after = _Before(self), _After(self)

    def install(self, patches: Patches) -> None:
        """Watch what modules are given, until `patches` are undone."""
        patches.wrap(self._torch.nn.Module, "__call__", self._calling)

    def on_step_begin(self, optimizer: Any, number: int, step: int, closure: bool) -> None:
        """An optimizer is about to step: what will be compared is kept, or the gradient becomes wrong."""
        if self._kind != OPTIMIZER:
            return
        self._closure = closure
        turn = self._turn(step)
        if turn == UPDATE:
            self._old = [(one, one.clone()) for one in map(_data, list_parameters(optimizer))]
        elif turn == LAYER and not closure:
            self._change_gradient(list_parameters(optimizer), number, step)

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """It has stepped: what it changed becomes wrong; or the gradient that it has made itself."""
        if self._old:
            self._change_update(number, step)
        elif self._closure and self._turn(step) == LAYER:
            self._change_gradient(list_parameters(optimizer), number, step)

    def on_backward_begin(self, roots: tuple[Any, ...]) -> None:
        """Without optimizers the leaves of the backward pass have the gradients."""
        if self._kind == BACKWARD and self._turn(self._done) == LAYER:
            self._leaves = list(find_leaf_tensors(roots))

    def on_backward_end(self, results: Any) -> None:
        """The gradients of a run without optimizers are there."""
        if self._kind == BACKWARD and self._leaves:
            self._change_gradient(self._leaves, -1, self._done)
            self._leaves = []
        elif self._kind == GRADIENT and results is not None and self._turn(self._done) == LAYER:
            given = results if isinstance(results, (tuple, list)) else [results]
            self._change(list(enumerate(given)), -1, self._done)

    def put_back(self) -> None:
        """What was measured is taken back."""
        for tensor, value in self._saved:
            tensor.copy_(value)
        self._saved = []
        if self._moved:
            self._moved = False
            self._taken_back()

    def step_done(self) -> None:
        """Counts the steps of the run."""
        self._done += 1

    def finish(self) -> None:
        """Say what could not be made."""
        for name in self._open:
            why = "no module was called with tensors" if name == SAMPLE else "no step had a number to change"
            self._journal.write_event("note", text=f"the control run could not make its fault {name!r}: {why}")
        self._open = {}

    def _turn(self, step: int) -> str:
        """Which fault is due in this step, before the last one: one at a time."""
        due = [name for name in (LAYER, UPDATE) if self._open.get(name, step + 1) <= step < self._last]
        return due[0] if due else ""

    def _change_update(self, number: int, step: int) -> None:
        saved = [(data, data.clone()) for data, _ in self._old]
        for data, old in self._old:
            data += ((data - old) * UPDATE_SHARE).to(data.dtype)
        if any(not self._torch.equal(data, value) for data, value in saved):
            self._saved, self._moved = saved, True
            self._made(UPDATE, step, "change", optimizer=number)
        self._old = []

    def _change_gradient(self, parameters: Iterable[Any], number: int, step: int) -> None:
        self._change([(place, one.grad) for place, one in enumerate(parameters) if one.grad is not None], number, step)

    def _change(self, gradients: list[tuple[int, Any]], number: int, step: int) -> None:
        """Change the gradient of median norm among those of weights: matrices, if there are such, then vectors."""
        dense = [
            (place, _data(one))
            for place, one in gradients
            if one is not None and one.layout == self._torch.strided and one.is_floating_point()
        ]
        sizes = [(float(one.double().norm()), place, one) for place, one in dense]
        sizes = [row for row in sizes if 0 < row[0] < float("inf")]
        weights = [row for row in sizes if row[2].dim() > 1]
        rows = sorted(weights or [row for row in sizes if row[2].numel() > 1] or sizes, key=lambda row: row[:2])
        if not rows:
            return
        _, place, gradient = rows[(len(rows) - 1) // 2]
        self._saved = [(gradient, gradient.clone())]
        gradient.mul_(1 + GRADIENT_SHARE)
        # Leaves have no numbers that two places of the recorder would agree on.
        self._made(LAYER, step, "gradient", optimizer=number, parameter=None if number < 0 else place)

    def _calling(self, original: Any) -> Any:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth == 0 and SAMPLE in self._open and self._counts():
                args, kwargs = self._other_sample(module, args, kwargs)
            self._depth += 1
            try:
                return original(module, *args, **kwargs)
            finally:
                self._depth -= 1

        return call

    def _counts(self) -> bool:
        """Whether a call now is part of a step: training has gradients, and evaluation has none. Within a transform of
        torch.func there are no single samples."""
        if releases.is_within_transform(self._torch):
            return False
        return bool(self._torch.is_grad_enabled()) == (self._kind != CALL)

    def _other_sample(self, module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        first = self._done not in self._called_in
        self._called_in.add(self._done)
        if not self._is_last_with_a_call():
            if first:
                self._earlier = next(self._single((args, kwargs), 0), None)
            return args, kwargs
        for floating in (True, False):
            changed = self._changed((args, kwargs), floating, 0)
            if changed is not None:
                self._made(SAMPLE, self._done, "input", site=f"{self._site()} {type(module).__name__}")
                given: tuple[Any, Any] = changed
                return given
        return args, kwargs

    def _is_last_with_a_call(self) -> bool:
        """Whether the next call will come after the last step: optimizers that step one after the other share one."""
        before = max((step for step in self._called_in if step < self._done), default=self._done - 1)
        return 2 * self._done - before > self._last

    def _changed(self, value: Any, floating: bool, depth: int) -> Any:
        """`value` with another sample in the first place of its first tensor that has one; None where none has."""
        if isinstance(value, self._torch.Tensor):
            fits = (value.is_floating_point() or value.is_complex()) == floating
            return self._with_other(value) if fits else None
        for key, part in _parts(value) if depth < DEEPEST else ():
            changed = self._changed(part, floating, depth + 1)
            if changed is not None:
                return _with_part(value, key, changed)
        return None

    def _with_other(self, value: Any) -> Any:
        torch = self._torch
        if value.layout != torch.strided or value.dim() == 0 or value.dtype == torch.bool:
            return None
        if len(value) == 1:
            old = self._earlier
            fits = old is not None and old.shape == value.shape and old.dtype == value.dtype
            return old.to(value.device) if fits and not torch.equal(old, value) else None
        for place in range(len(value) - 1, 0, -1):
            if not torch.equal(value[place], value[0]):
                return torch.cat([value[place : place + 1], value[1:]])
        return None

    def _single(self, value: Any, depth: int) -> Iterator[Any]:
        """Copies of the tensors of one sample, floating-point ones first."""
        found = [one for one in _tensors(self._torch, value, depth) if one.dim() and len(one) == 1]
        for tensor in sorted(found, key=lambda one: not one.is_floating_point()):
            yield tensor.detach().clone()

    def _made(
        self,
        name: str,
        step: int,
        what: str,
        optimizer: int | None = None,
        parameter: int | None = None,
        site: str = "",
    ) -> None:
        del self._open[name]
        self._journal.write_event(
            "fault", name=name, step=step, what=what, optimizer=optimizer, parameter=parameter, site=site
        )


class _Before(Part):
    """Stands before the parts that measure: makes what is wrong."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def on_backward_begin(self, site: str, by: str, roots: tuple[Any, ...]) -> None:
        self._faults.on_backward_begin(roots)

    def on_backward_end(self, site: str, by: str, results: Any) -> None:
        self._faults.on_backward_end(results)

    def on_step_begin(self, optimizer: Any, number: int, step: int, closure: bool) -> None:
        self._faults.on_step_begin(optimizer, number, step, closure)

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        self._faults.on_step_end(optimizer, number, step)


class _After(Part):
    """Stands behind them: takes it back."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def on_backward_end(self, site: str, by: str, results: Any) -> None:
        self._faults.put_back()

    def on_step_begin(self, optimizer: Any, number: int, step: int, closure: bool) -> None:
        self._faults.put_back()

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        self._faults.put_back()

    def step_done(self) -> None:
        self._faults.step_done()

    def finish(self) -> None:
        self._faults.finish()


def find_leaf_tensors(roots: tuple[Any, ...]) -> Iterator[Any]:
    """The tensors that a backward pass from `roots` gives gradients to, in the order in which they are met."""
    waiting = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):  # AccumulateGrad
            yield node.variable
        below = [one for one, _ in node.next_functions if one is not None and one not in seen]
        seen.update(below)
        waiting += reversed(below)


def _data(tensor: Any) -> Any:
    """The numbers of this process, changed behind autograd's back: a graph that is kept would refuse the tensor."""
    return getattr(tensor, "_local_tensor", tensor).data


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _with_part(value: Any, key: Any, part: Any) -> Any:
    if isinstance(value, tuple):
        parts = [part if place == key else one for place, one in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    changed = copy.copy(value)
    changed[key] = part
    return changed


def _tensors(torch: Any, value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < DEEPEST:
        for _, part in _parts(value):
            yield from _tensors(torch, part, depth + 1)
