"""Layers that draw inside: dropout, attention and recurrent layers with dropout, rrelu.

A device has its own ways here: one operator that keeps a mask of its own layout, attention that drops out inside, an
LSTM that ignores what it is told to drop. They all become the same arithmetic on both sides, with our masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchport.record.draws.draws import Draws
    from torchport.record.draws.kernels import Kernels
    from torchport.record.draws.own import OwnDraws


def replace_layer_kernels(draws: Draws, kernels: Kernels | OwnDraws) -> None:
    """Replace the kernels of the layers.

    Numbers are drawn only in kernels of the devices, which tracers and transforms do not reach: what stands at the
    autograd keys calls other operators and no more.
    """
    layers = _Layers(draws)
    # The autograd key first: once a device has a kernel of its own, the composite one is no longer to be had for it.
    # Tensors made under inference_mode have no autograd key, hence both.
    for key in ("AutogradCPU", "CPU"):
        kernels.replace_kernel("aten::dropout", key, layers.dropout)
    for name, function in {
        "native_dropout": layers.native_dropout,
        "native_dropout_backward": layers.native_dropout_backward,
        "rrelu_with_noise": layers.rrelu,
        "rrelu_with_noise.out": layers.rrelu,
        "rrelu_with_noise_": layers.rrelu_in_place,
    }.items():
        for key in draws.find_dispatch_keys(kernels, f"aten::{name}"):
            kernels.replace_kernel(f"aten::{name}", key, function)
    if draws.accelerator is None:
        return
    for key in (f"Autograd{draws.accelerator}", draws.accelerator):
        kernels.replace_kernel("aten::scaled_dot_product_attention", key, layers.attention)
        kernels.replace_kernel("aten::lstm.input", key, layers.make_recurrent_kernel("lstm"))
        kernels.replace_kernel("aten::gru.input", key, layers.make_recurrent_kernel("gru"))
    if draws.accelerator == "PrivateUse1":
        kernels.replace_kernel("aten::lstm.data", "AutogradPrivateUse1", layers.packed_lstm)


class _Layers:
    """Kernels: each takes the one that it replaces first, then the operator's arguments."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._numbers = draws.numbers
        self._torch: Any = draws._torch

    def dropout(self, original: Any, this: Any, p: float, train: bool) -> Any:
        """On the CPU: by the operator that a device uses, which rounds once in every dtype."""
        if not train or not 0 < p < 1:
            return original(this, p, train)  # draws nothing
        return self._torch.native_dropout(this, p, train)[0]

    def native_dropout(self, original: Any, this: Any, p: float, train: bool | None) -> Any:
        fits = train is not False and 0 <= p <= 1 and this.is_floating_point()
        key = self._key("bernoulli", this) if fits else None
        if key is None:
            if fits:
                self._draws.leave_to_torch("aten::native_dropout")
            return original(this, p, train)
        kept = self._draws.to_tensor_like(self._numbers.draw_bernoulli(key, this.numel(), 1 - p), this)
        return self._scaled(this, kept, 1 / (1 - p) if p < 1 else 0.0), kept

    def native_dropout_backward(self, original: Any, gradient: Any, kept: Any, scale: float) -> Any:
        if kept.dtype is not self._torch.bool or kept.shape != gradient.shape:  # a mask in the device's own layout
            return original(gradient, kept, scale)
        return self._scaled(gradient, kept, scale)

    def _scaled(self, this: Any, kept: Any, scale: float) -> Any:
        # On the CPU a product of two dtypes takes eight times longer than a conversion before it.
        factors = kept.to(this.dtype) if this.device.type == "cpu" else kept
        return this.mul(factors).mul_(scale)

    def attention(
        self,
        original: Any,
        query: Any,
        key: Any,
        value: Any,
        mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        captured = dropout_p > 0 and self._draws.is_capturing()
        if captured:
            self._draws.leave_to_torch("aten::scaled_dot_product_attention")
        if dropout_p <= 0 or captured:
            return original(query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if mask is not None and mask.dtype is self._torch.bool:
            # What the composite operator does before it chooses: its arithmetic takes numbers to add.
            mask = self._torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, float("-inf"))
        return self._torch.ops.aten._scaled_dot_product_attention_math(
            query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]

    def make_recurrent_kernel(self, name: str) -> Any:
        """The kernel of an LSTM or GRU of whole sequences: layer by layer where something is dropped between."""
        torch = self._torch
        one_layer = getattr(torch, name)

        def kernel(original: Any, data: Any, hidden: Any, parameters: Any, *settings: Any) -> Any:
            has_biases, layers, p, train, both, batch_first = settings
            if not train or p <= 0 or layers < 2 or self._draws.is_capturing():
                return original(data, hidden, parameters, *settings)
            data = data.transpose(0, 1) if batch_first else data
            of_each, directions = len(parameters) // layers, 2 if both else 1
            states = hidden if name == "lstm" else (hidden,)
            ends: list[Any] = []
            for layer in range(layers):
                part = slice(layer * directions, (layer + 1) * directions)
                start = tuple(state[part] for state in states)
                weights = parameters[layer * of_each : (layer + 1) * of_each]
                data, *end = one_layer(
                    data, start if name == "lstm" else start[0], weights, has_biases, 1, 0.0, True, both, False
                )
                ends.append(end)
                if layer < layers - 1:
                    data = torch.dropout(data, p, True)
            data = data.transpose(0, 1) if batch_first else data
            return data, *(torch.cat(parts) for parts in zip(*ends, strict=True))

        return kernel

    def packed_lstm(self, original: Any, *arguments: Any) -> Any:
        """torch_npu packs sequences with their padding, so that the masks of the two sides differ in shape."""
        *_, p, train, _ = arguments
        if train and p > 0:
            self._draws.report_unmatched("lstm of packed sequences, which torch_npu runs without dropout")
        return original(*arguments)

    def rrelu(
        self,
        original: Any,
        this: Any,
        noise: Any,
        lower: float = 1 / 8,
        upper: float = 1 / 3,
        training: bool = False,
        generator: Any = None,
        *,
        out: Any = None,
    ) -> Any:
        more = {} if out is None else {"out": out}
        fits = training and lower <= upper and this.is_floating_point()
        key = self._key("rrelu", this, generator) if fits else None
        if key is None:
            return original(this, noise, lower, upper, training, generator, **more)
        self._slopes(this, noise, key, lower, upper)
        found = this * noise
        return found if out is None else out.resize_(this.shape).copy_(found)

    def rrelu_in_place(self, original: Any, this: Any, noise: Any, *arguments: Any) -> Any:
        return this.copy_(self.rrelu(original, this, noise, *arguments))

    def _slopes(self, this: Any, noise: Any, key: int, lower: float, upper: float) -> None:
        """Fill `noise`: a number between the bounds where `this` is not positive, else 1."""
        torch = self._torch
        drawn = self._numbers.draw_uniform(key, this.numel(), str(this.dtype).removeprefix("torch."))
        slopes = self._draws.to_tensor_like(drawn * (upper - lower) + lower, this, this.dtype)
        noise.copy_(torch.where(this <= 0, slopes, torch.ones_like(this)))

    def _key(self, kind: str, like: Any, generator: Any = None) -> int | None:
        return self._draws.next_key(kind, like.numel(), generator, like.device.type != "cpu")
