"""What takes part in a recorded run: told of each step, in the user's process, on both sides."""

from __future__ import annotations

from typing import Any


class Part:
    """Is told by the recorder what happens; does nothing by itself.

    The recorder tells its parts in their order, so one that changes something stands before the one that is to see it.
    `number` is that of an optimizer in the order in which they were built (-1 for one that was not seen being built),
    `step` counts the steps of all optimizers of the process from 0, as the events `step` do.
    """

    def training_starts(self) -> None:
        """The first loss is about to be recorded."""

    def on_backward_begin(self, site: str, by: str, roots: tuple[Any, ...]) -> None:
        """A backward pass from `roots` is about to begin at `site`; `by` is "backward" or "grad"."""

    def on_backward_end(self, site: str, by: str, results: Any) -> None:
        """That pass has ended; `results` is what `torch.autograd.grad` gave, None for `backward`."""

    def on_step_begin(self, optimizer: Any, number: int, step: int, closure: bool) -> None:
        """An optimizer is about to step with the gradients that are there; with `closure` it makes its own."""

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """It has changed its parameters."""

    def step_done(self) -> None:
        """A step of the kind that counts for this run is done, and all parts were told of it."""

    def finish(self) -> None:
        """The script has ended; the device still works."""
