"""Random numbers that a script draws on the device: from a generator of their own, as on a GPU.

They leave the CPU's generator alone, and with it the order of the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchport.patches import Patches
from torchport.record.reference.tables import wrap_all

# Factories that draw random numbers; on a CUDA device they draw from the device's generator.
RANDOM_FACTORIES = ("rand", "randn", "randint", "randperm", "normal")

# Functions that draw random numbers inside a model, where a CUDA script has its tensors on the device.
RANDOM_LAYERS = {
    "torch.nn.functional": (
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
        "scaled_dot_product_attention", "rrelu", "gumbel_softmax",
    ),
    **{f"torch.nn.{layer}": ("forward",) for layer in ("RNN", "LSTM", "GRU")},  # between their layers
}  # fmt: skip


def patch(torch: Any, patches: Patches, generator: Any) -> None:
    """Let everything that draws on the device draw from `generator`."""
    from torchport.record.reference.places import device_to_cpu

    @contextlib.contextmanager
    def current() -> Iterator[None]:
        """Make the device's random stream the current one: these functions take no generator."""
        default = torch.default_generator
        state = default.get_state()
        default.set_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(default.get_state())
            default.set_state(state)

    def factory(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            wanted = kwargs.get("device")
            if wanted is not None:
                kwargs["device"] = device_to_cpu(torch, wanted)
                if str(wanted) != str(kwargs["device"]) and kwargs.get("generator") is None:
                    kwargs["generator"] = generator
            return original(*args, **kwargs)

        return call

    def layer(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with current():
                return original(*args, **kwargs)

        return call

    wrap_all(patches, RANDOM_LAYERS, layer)
    wrap_all(patches, {"torch": RANDOM_FACTORIES}, factory)
