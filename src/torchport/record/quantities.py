"""What each step does to each parameter: the norm of its gradient and of its change, measured on the device.

Everything is queued where the tensors are and read with the recorder's one read a step (`readings`). Nothing is
measured inside a function transform, a compiler, or a graph that is being captured.
"""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torchport.record.names import Names, list_parameters
from torchport.record.norms import Norms, Samples, to_local_tensor
from torchport.record.part import Part
from torchport.record.readings import Readings

# Elements of each parameter whose change is followed, and steps for which each parameter has its own numbers.
SAMPLE = 1024
DETAILED = 200
# How far a backward pass without optimizers is searched for the leaves that it reaches.
NODES = 20_000
DIGITS = 7  # float32 has no more
WITHOUT = -1  # the number that stands for no optimizer
ALL = "all parameters"


@dataclasses.dataclass(slots=True)
class _Followed:
    """What is known of the tensors of one optimizer, or of one place that calls `backward` without any."""

    key: tuple[tuple[int, int], ...] = ()
    names: list[str] = dataclasses.field(default_factory=list)
    sizes: list[int] = dataclasses.field(default_factory=list)
    sample: Samples | None = None
    gradients: Norms | None = None


class Quantities(Part):
    """Writes the events `parameters`, `initial` and `norms` with `write`.

    `names` are those of the modules, `optimizers()` says how many optimizers were built so far: while there are none,
    backward passes and `autograd.grad` are what is measured. `name_device` gives the type of a parameter's device.
    """

    def __init__(
        self,
        torch: Any,
        write: Callable[..., None],
        readings: Readings,
        names: Names,
        optimizers: Callable[[], int],
        name_device: Callable[[Any], str],
    ) -> None:
        self._torch = torch
        self._write = write
        self._readings = readings
        self._names = names
        self._optimizers = optimizers
        self._name_device = name_device
        self._followed: weakref.WeakKeyDictionary[Any, _Followed] = weakref.WeakKeyDictionary()
        self._places: dict[str, _Followed] = {}
        self._told: dict[int, tuple[list[str], list[int]]] = {}
        self._begun: set[int] = set()  # optimizers
        self._passes = 0
        self._leaves: list[Any] = []

    def on_step_begin(self, optimizer: Any, number: int, step: int, closure: bool) -> None:
        """Measure the gradients, and the parameters before the optimizer's first step."""
        if not self._readings.can_read():
            return
        tensors = list_parameters(optimizer)
        followed = self._followed.setdefault(optimizer, _Followed())
        if self._changed(followed, tensors):
            self._names.update_names(tensors)
            followed.names = [
                self._names.find_name(tensor) or f"optimizer {number}, parameter {index}"
                for index, tensor in enumerate(tensors)
            ]
            followed.sample = self._sample(tensors)
            self._tell_initial(number, tensors)
        followed.gradients = None if closure else self._gradients(tensors)

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """Measure what the step changed."""
        followed = self._followed.get(optimizer)
        tensors = list_parameters(optimizer)
        if followed is None or not self._readings.can_read() or followed.key != _key(tensors):
            return
        gradients, followed.gradients = followed.gradients or self._gradients(tensors), None
        scale = getattr(optimizer, "grad_scale", None)  # a fused optimizer divides by it itself
        self._measure(
            followed, number, step, tensors, gradients, scale if hasattr(scale, "is_floating_point") else None
        )

    def _tell_initial(self, number: int, tensors: Sequence[Any]) -> None:
        """How large each parameter is before the first step, by which the parts of several ranks are put together."""
        if number in self._begun:
            return
        self._begun.add(number)
        with self._quietly():
            norms = Norms(self._torch, tensors)
            local = [to_local_tensor(self._torch, tensor) for tensor in tensors]
        sizes = [0 if one is None else one.numel() for one in local]

        def write(values: Sequence[Sequence[float]]) -> None:
            self._write("initial", optimizer=number, norms=round_for_json(norms.assemble_norms(values)), sizes=sizes)

        self._readings.schedule_write(norms.vectors, write)

    def begin_again(self) -> None:
        """Parameters were given other values between two steps: what the next step changes counts from these."""
        if self._readings.can_read():
            for optimizer, followed in self._followed.items():
                tensors = list_parameters(optimizer)
                if followed.key == _key(tensors):
                    followed.sample = self._sample(tensors)

    def on_backward_begin(self, site: str, by: str, roots: tuple[Any, ...]) -> None:
        """Find the leaves of a backward pass that no optimizer will follow."""
        self._leaves = _leaves(roots) if by == "backward" and not self._optimizers() and self._passes < DETAILED else []

    def on_backward_end(self, site: str, by: str, results: Any) -> None:
        """Measure their gradients, and their change since the pass before from this place; or the results of
        `autograd.grad`."""
        step, self._passes = self._passes, self._passes + 1
        leaves, self._leaves = self._leaves, []
        if self._optimizers() or step >= DETAILED or not self._readings.can_read():
            return
        if by == "backward":
            self._names.update_names(leaves)
            named = sorted(
                ((self._names.find_name(leaf) or f"leaf {tuple(leaf.shape)}", leaf) for leaf in leaves),
                key=lambda one: one[0],
            )
            tensors, names = [leaf for _, leaf in named], [name for name, _ in named]
            followed = self._places.setdefault(site, _Followed())
            if self._changed(followed, tensors):
                followed.names, followed.sample = names, None
            if tensors:
                self._measure(followed, WITHOUT, step, tensors, self._gradients(tensors), None)
        else:
            tensors = [results] if isinstance(results, self._torch.Tensor) else list(results or ())
            names = [f"grad {index}" for index in range(len(tensors))]
            sizes = [0 if tensor is None else tensor.numel() for tensor in tensors]
            with self._quietly():
                norms = Norms(self._torch, tensors)
            empty: list[float | None] = [None] * len(tensors)
            self._tell(WITHOUT, step, names, sizes)
            self._readings.schedule_write(
                norms.vectors, lambda values: self._norms(WITHOUT, step, norms.assemble_norms(values), empty, empty)
            )

    def _changed(self, followed: _Followed, tensors: Sequence[Any]) -> bool:
        key = _key(tensors)
        if key == followed.key:
            return False
        followed.key, followed.sizes = key, [size for _, size in key]
        return True

    def _measure(
        self, followed: _Followed, number: int, step: int, tensors: Sequence[Any], gradients: Norms, scale: Any
    ) -> None:
        before, followed.sample = followed.sample, self._sample(tensors, followed.sample)
        with self._quietly():
            samples = followed.sample.measure(before)
        vectors = [*gradients.vectors, *samples.vectors]
        first, second = len(gradients.vectors), len(vectors)
        if scale is not None:
            vectors.append(scale.detach().clone())

        def write(values: list[list[float]]) -> None:
            factor = values[-1][0] if scale is not None else 1.0
            gradient = [None if one is None else one / factor for one in gradients.assemble_norms(values[:first])]
            norm, change = samples.assemble_norms(values[first:second])
            if step >= DETAILED:
                gradient, norm, change = [_total(gradient)], [_total(norm)], [_total(change)]
            self._norms(number, step, gradient, norm, change)

        if step < DETAILED:
            self._tell(number, step, followed.names, followed.sizes, list(map(self._name_device, tensors)))
        else:
            self._tell(number, step, [ALL], [sum(followed.sizes)])
        self._readings.schedule_write(vectors, write)

    def _tell(self, number: int, step: int, names: list[str], sizes: list[int], devices: Sequence[str] = ()) -> None:
        if self._told.get(number) != (names, sizes):
            self._told[number] = names, sizes
            fields = {"names": names, "sizes": sizes, "devices": [*devices]}
            self._readings.schedule_write(
                (), lambda _: self._write("parameters", optimizer=number, step=step, **fields)
            )

    def _norms(
        self,
        number: int,
        step: int,
        gradient: Sequence[float | None],
        norm: Sequence[float | None],
        change: Sequence[float | None],
    ) -> None:
        self._write(
            "norms",
            optimizer=number,
            step=step,
            gradient=round_for_json(gradient),
            norm=round_for_json(norm),
            change=round_for_json(change),
        )

    def _gradients(self, tensors: Sequence[Any]) -> Norms:
        with self._quietly():
            return Norms(self._torch, [tensor.grad for tensor in tensors])

    def _sample(self, tensors: Sequence[Any], before: Samples | None = None) -> Samples:
        with self._quietly():
            return Samples(self._torch, tensors, SAMPLE, before)

    def _quietly(self) -> Any:
        return suspend_tracking(self._torch)


def suspend_tracking(torch: Any) -> Any:
    """Measuring is no part of what is differentiated, cast, or seen by a function mode (the default device is one)."""
    import contextlib

    stack = contextlib.ExitStack()
    stack.enter_context(torch.no_grad())
    stack.enter_context(torch._C.DisableTorchFunction())
    return stack


def round_for_json(values: Sequence[float | None]) -> list[float | str | None]:
    """Values for JSON, in seven digits; text for what it has no word for."""
    return [
        None if value is None else float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
        for value in values
    ]


def _key(tensors: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    return tuple((id(tensor), tensor.numel()) for tensor in tensors)


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.sqrt(sum(value * value for value in known)) if known else None


def _leaves(roots: tuple[Any, ...]) -> list[Any]:
    """The tensors whose gradients a backward pass from `roots` accumulates, in the order in which they are found."""
    nodes = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen, found, place = set(nodes), [], 0
    while place < len(nodes) and place < NODES:
        node, place = nodes[place], place + 1
        if hasattr(node, "variable"):
            found.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
    return found
