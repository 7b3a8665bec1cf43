"""Weights that a model says it ties are one tensor."""

from __future__ import annotations

from typing import Any

from torchport.record.invariants.rule import Look


class Tying(Look):
    """A transformers model with `tie_word_embeddings` has one tensor for its input and its output embeddings."""

    name = "tied weights are one tensor"

    def look(self, site: str, module: Any) -> None:
        """Ask the module and all in it."""
        for one in module.modules():
            if getattr(getattr(one, "config", None), "tie_word_embeddings", False) is not True:
                continue
            sides = [getattr(one, name, None) for name in ("get_input_embeddings", "get_output_embeddings")]
            # Without that list the class ties nothing, whatever the default of its configuration.
            if not all(callable(side) for side in sides) or not getattr(one, "_tied_weights_keys", None):
                continue
            first, second = (getattr(_ask(side), "weight", None) for side in sides)
            if first is None or second is None:
                continue
            self.judged += 1
            if first is not second and first.data_ptr() != second.data_ptr():
                self.report(
                    type(one).__name__,
                    f"{type(one).__name__} says that its input and output embeddings are tied, and they are two "
                    "tensors: what loaded, moved or wrapped it has parted them",
                    site,
                    self.steps,
                )


def _ask(side: Any) -> Any:
    try:
        return side()
    except (NotImplementedError, AttributeError):
        return None
