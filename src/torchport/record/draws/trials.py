"""What a draw of the device's own gives, for each operator: numbers whose law is known.

A trial is made of the arguments that the script gave. It calls the device's kernel with the same ones on tensors of
its own, which are filled or whose values do not matter; layers get inputs in which the mask shows. Numbers without a
variance, or with heavy tails, are put through their distribution function, after which they are uniform.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from torchport.record import releases
from torchport.record.draws import laws
from torchport.record.draws.laws import Law
from torchport.record.draws.operators import EXACT

MOST = 1 << 18  # numbers of one draw that are looked at: 6 standard errors of a share are then 0.006
EVEN = 4096  # numbers that a trial with tensors of its own choice asks for
NEVER = 1e-9  # a probability
_SIZE = 64  # of the states and heads that show a mask


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """What one call gave: numbers (float64 on the host, one dimension), their law, the error that rounding to the
    dtype may leave in each, and what is wrong beyond statistics."""

    numbers: Any
    law: Law
    rounding: float
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One kind of draw: its dtype, its parameters (to tell it from others), and how the device does it."""

    dtype: str
    parameters: tuple[Any, ...]
    draw: Callable[[Callable[..., Any]], Drawn | None]


class Trials:
    """Makes trials; a method takes the arguments of its operator and gives None for what cannot be tried."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def find_trial_method(self, operator: str) -> Callable[..., Trial | None] | None:
        """The method for `operator` ("aten::normal_"), None for one that does not draw by itself."""
        return getattr(self, _METHODS.get(operator, ""), None)

    def uniform(self, this: Any, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Trial | None:
        if not (this.is_floating_point() and low <= high and math.isfinite(high - low)):
            return None

        def draw(original: Any) -> Drawn:
            numbers = self._host(original(self._scratch(this), low, high, generator=generator))
            whole = (low, high) == (0.0, 1.0) and this.element_size() >= 4
            problem = "1 is among them" if whole and bool((numbers == 1).any()) else ""
            return Drawn(
                numbers, laws.uniform_law(low, high), self._eps(this.dtype) * max(abs(low), abs(high)), problem
            )

        return self._trial(this, (low, high), draw)

    def normal(self, this: Any, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Trial | None:
        if not this.is_floating_point() or not self._normal_fits(this.dtype, mean, std):
            return None

        def draw(original: Any) -> Drawn:
            numbers = self._host(original(self._scratch(this), mean, std, generator=generator))
            return Drawn(numbers, laws.normal_law(mean, std), self._eps(this.dtype) * (abs(mean) + 3 * std))

        return self._trial(this, (mean, std), draw)

    def normal_new(self, mean: float, std: float, size: Any, *, generator: Any = None, **options: Any) -> Trial | None:
        torch, count = self._torch, math.prod(size)
        dtype = options["out"].dtype if "out" in options else options.get("dtype") or torch.get_default_dtype()
        if not count or not dtype.is_floating_point or not self._normal_fits(dtype, mean, std):
            return None

        def draw(original: Any) -> Drawn:
            sizes = list(size) if count <= MOST else [MOST]
            more = options | ({"out": torch.empty_like(options["out"])} if "out" in options else {})
            numbers = self._host(original(mean, std, sizes, generator=generator, **more))
            return Drawn(numbers, laws.normal_law(mean, std), self._eps(dtype) * (abs(mean) + 3 * std))

        return Trial(_name(dtype), (mean, std), draw)

    def normal_of(self, mean: Any, std: Any = 1.0, *, generator: Any = None, out: Any = None) -> Trial | None:
        torch = self._torch
        tensors = [one for one in (mean, std) if isinstance(one, torch.Tensor)]
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        if not all(tensor.is_floating_point() for tensor in tensors) or not 0 < math.prod(shape) <= MOST:
            return None

        def draw(original: Any) -> Drawn:
            more = {} if out is None else {"out": torch.empty_like(out)}
            numbers = self._host(original(mean, std, generator=generator, **more))
            means, stds = (
                self._host(one.expand(shape)) if isinstance(one, torch.Tensor) else torch.full_like(numbers, one)
                for one in (mean, std)
            )
            some = stds > 0
            eps = self._eps(tensors[0].dtype)
            rounding = eps * (3 + float((means[some] / stds[some]).abs().mean())) if bool(some.any()) else 0.0
            return Drawn(((numbers - means) / stds)[some], laws.normal_law(0, 1), rounding)

        return Trial(_name(tensors[0].dtype), ("tensors",), draw)

    def random(self, this: Any, *, generator: Any = None) -> Trial | None:
        return self._integers(this, 0, None, (), generator)

    def random_to(self, this: Any, to: int, *, generator: Any = None) -> Trial | None:
        return self._integers(this, 0, to - 1, (to,), generator)

    def random_from(self, this: Any, low: int, to: int | None, *, generator: Any = None) -> Trial | None:
        return self._integers(this, low, None if to is None else to - 1, (low, to), generator)

    def _integers(self, this: Any, low: int, high: int | None, bounds: Any, generator: Any) -> Trial | None:
        torch, dtype = self._torch, this.dtype
        if high is None:
            whole = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
            high = torch.iinfo(dtype).max if whole else 1 if dtype is torch.bool else EXACT.get(_name(dtype), -1)
        if low > high:
            return None
        law = laws.integer_law(low, high)

        def draw(original: Any) -> Drawn:
            numbers = self._host(original(self._scratch(this), *bounds, generator=generator))
            return Drawn(numbers, law, max(self._eps(dtype), 1e-15) * max(abs(low), abs(high)))

        return self._trial(this, (low, high), draw)

    def bernoulli(self, this: Any, p: float = 0.5, *, generator: Any = None) -> Trial | None:
        if not 0 <= p <= 1 or this.is_complex():
            return None

        def draw(original: Any) -> Drawn:
            numbers = self._host(original(self._scratch(this), p, generator=generator))
            return Drawn(numbers, laws.bernoulli_law(p), 0.0, _binary(numbers))

        return self._trial(this, (p,), draw)

    def bernoulli_tensor(self, this: Any, p: Any, *, generator: Any = None) -> Trial | None:
        if not p.is_floating_point() or this.is_complex() or not 0 < this.numel() <= MOST:
            return None

        def draw(original: Any) -> Drawn | None:
            numbers = self._host(original(self._scratch(this), p, generator=generator))
            return self._chosen(numbers, self._host(p.expand(this.shape)), p.dtype)

        return self._trial(this, ("tensor",), draw)

    def bernoulli_of(self, p: Any, *, generator: Any = None, out: Any = None) -> Trial | None:
        if not p.is_floating_point() or not 0 < p.numel() <= MOST:
            return None

        def draw(original: Any) -> Drawn | None:
            more = {} if out is None else {"out": self._torch.empty_like(out)}
            return self._chosen(self._host(original(p, generator=generator, **more)), self._host(p), p.dtype)

        return self._trial(p, ("tensor",), draw)

    def _chosen(self, numbers: Any, p: Any, dtype: Any) -> Drawn | None:
        if not bool(((p >= 0) & (p <= 1)).all()):
            return None
        each = p * (1 - p)
        # The fourth central moment is each * (1 - 3 * each).
        scatter = float((each * (1 - 4 * each)).mean())
        law = laws.mixed_law(float(p.mean()), float(each.mean()), scatter, -1.0, 2.0)
        return Drawn(numbers - p + p.mean(), law, self._eps(dtype), _binary(numbers))

    def exponential(self, this: Any, rate: float = 1.0, *, generator: Any = None) -> Trial | None:
        if not this.is_floating_point() or not rate > 0:
            return None

        def draw(original: Any) -> Drawn:
            numbers = self._host(original(self._scratch(this), rate, generator=generator))
            return Drawn(-(-rate * numbers).expm1(), laws.uniform_law(0, 1), self._eps(this.dtype))

        return self._trial(this, (rate,), draw)

    def randperm(self, n: int, *, out: Any = None, **options: Any) -> Trial | None:
        torch = self._torch
        if n < 2:
            return None
        dtype = (options.get("dtype") or torch.int64) if out is None else out.dtype
        count = min(n, MOST)

        def draw(original: Any) -> Drawn:
            more = {} if out is None else {"out": torch.empty_like(out)}
            order = self._host(original(count, **options, **more))
            places = torch.arange(count, dtype=torch.float64, device="cpu")
            # The mean is the correlation of numbers with places, whose variance is 1 / (count - 1).
            law = Law(0.0, count / (count - 1), math.inf, -3.0, 3.0)
            if order.numel() != count or not bool((order.sort().values == places).all()):
                return Drawn(torch.zeros_like(places), law, 0.0, "they are no permutation")
            return Drawn(
                (order - places.mean()) * (places - places.mean()) / laws.integer_law(1, count).variance, law, 0.0
            )

        return Trial(_name(dtype), (count,), draw)

    def multinomial(
        self, weights: Any, samples: int, replacement: bool = False, *, generator: Any = None, out: Any = None
    ) -> Trial | None:
        if not weights.is_floating_point() or weights.dim() not in (1, 2) or not weights.numel() or samples < 1:
            return None
        number = weights.shape[-1]

        def draw(original: Any) -> Drawn:
            rows = weights.reshape(-1, number)[: max(1, MOST // number)]
            of_each = samples if replacement else 1
            again = max(1, min(EVEN // (len(rows) * of_each), MOST // rows.numel()))
            places = original(rows.repeat(again, 1), samples, replacement, generator=generator).cpu()
            ordered = places.sort(-1).values
            twice = not replacement and bool((ordered[:, 1:] == ordered[:, :-1]).any())
            # Drawn one after the other, so the first of each row has the law of the weights.
            places = places if replacement else places[:, :1]
            share = self._host(rows, flat=False)
            share = share / share.sum(-1, keepdim=True)
            middles = share.cumsum(-1) - share / 2 - 0.5  # the distribution function, in the middle of its steps
            second, fourth = ((share * middles**power).sum(-1) for power in (2, 4))
            law = laws.mixed_law(0.5, float(second.mean()), float((fourth - second**2).mean()), 0.0, 1.0)
            empty = bool((share.repeat(again, 1).gather(1, places) == 0).any())
            numbers = middles.repeat(again, 1).gather(1, places) + 0.5
            problem = "one is drawn twice" if twice else "one of weight 0 is drawn" if empty else ""
            return Drawn(numbers.flatten(), law, 4 * self._eps(weights.dtype), problem)

        return Trial(_name(weights.dtype), (number, min(samples, 2), replacement), draw)

    def dropout(self, this: Any, p: float, train: bool | None = True) -> Trial | None:
        if train is False or not 0 < p < 1 or not this.is_floating_point():
            return None

        def draw(original: Any) -> Drawn:
            ones = self._scratch(this).fill_(1)
            return self._kept(self._host(original(ones, p, True)[0]), p, 1 / (1 - p), 2 * self._eps(this.dtype))

        return self._trial(this, (p,), draw)

    def rrelu(
        self,
        this: Any,
        noise: Any,
        lower: float = 1 / 8,
        upper: float = 1 / 3,
        training: bool = False,
        generator: Any = None,
        *,
        out: Any = None,
    ) -> Trial | None:
        if not training or lower > upper or not this.is_floating_point():
            return None

        def draw(original: Any) -> Drawn:
            ones = self._scratch(this).fill_(-1)
            more = {} if out is None else {"out": self._torch.empty_like(ones)}
            given = original(ones, self._torch.empty_like(ones), lower, upper, True, generator, **more)
            return Drawn(
                -self._host(given), laws.uniform_law(lower, upper), self._eps(this.dtype) * max(abs(lower), upper)
            )

        return self._trial(this, (lower, upper), draw)

    def attention(
        self, query: Any, key: Any, value: Any, mask: Any = None, dropout_p: float = 0.0, *more: Any, **named: Any
    ) -> Trial | None:
        """Queries of zeros attend to all alike, and values that are a unit matrix show each weight."""
        torch = self._torch
        if not 0 < dropout_p < 1 or not self._plain(query):
            return None

        def draw(original: Any) -> Drawn:
            zeros = torch.zeros(1, 8, _SIZE, _SIZE, dtype=query.dtype, device=query.device)
            unit = torch.eye(_SIZE, dtype=query.dtype, device=query.device).repeat(1, 8, 1, 1)
            given = original(zeros, zeros.clone(), unit, None, dropout_p, False)
            return self._kept(self._host(given), dropout_p, 1 / (_SIZE * (1 - dropout_p)), 4 * self._eps(query.dtype))

        return self._trial(query, (dropout_p,), draw)

    def lstm(self, data: Any, hidden: Any, parameters: Any, *settings: Any) -> Trial | None:
        """Biases hold the gates open or shut (input, forget, cell, output): the second layer shows its input."""
        return self._recurrent(data, settings, (20.0, -20.0, 20.0, 20.0), 2, math.tanh(math.tanh(math.tanh(1))), True)

    def gru(self, data: Any, hidden: Any, parameters: Any, *settings: Any) -> Trial | None:
        """As for the LSTM; the gates are reset, update, new."""
        return self._recurrent(data, settings, (-20.0, -20.0, 20.0), 2, math.tanh(1), False)

    def _recurrent(
        self, data: Any, settings: Any, gates: tuple[float, ...], new: int, expected: float, cell: bool
    ) -> Trial | None:
        torch, (_, layers, p, train, *_) = self._torch, settings
        if not train or not 0 < p < 1 or layers < 2 or not self._plain(data):
            return None

        def draw(original: Any) -> Drawn:
            options = {"dtype": data.dtype, "device": data.device}
            bias = torch.tensor(gates, **options).repeat_interleave(_SIZE)
            nothing = torch.zeros(len(gates) * _SIZE, _SIZE, **options)
            seeing, unseen = nothing.clone(), bias.clone()
            seeing[new * _SIZE : (new + 1) * _SIZE] = torch.eye(_SIZE, **options) * (1 - p)
            unseen[new * _SIZE : (new + 1) * _SIZE] = 0
            zero = torch.zeros_like(bias)
            weights = [nothing, nothing.clone(), bias, zero, seeing, nothing.clone(), unseen, zero.clone()]
            start = torch.zeros(2, 16, _SIZE, **options)
            inputs = torch.zeros(16, 16, _SIZE, **options)
            state = (start, start.clone()) if cell else start
            given = original(inputs, state, weights, True, 2, p, True, False, False)[0]
            return self._kept(self._host(given), p, expected, max(1e-3, 8 * self._eps(data.dtype)))

        return self._trial(data, (p,), draw)

    def _kept(self, given: Any, p: float, expected: float, relative: float) -> Drawn:
        """The mask that shows in what a layer gave, and whether what it kept is scaled so that the mean stays."""
        kept = given.abs() > expected / 1024
        problem = ""
        if bool(kept.all()) and (1 - p) ** kept.numel() < NEVER:
            problem = "nothing is dropped"
        elif bool(kept.any()):
            value = float(given[kept].mean())
            if not abs(value - expected) <= relative * expected:
                problem = f"what is kept is {value / expected:.4g} times what it has to be, that the mean stays"
        return Drawn(kept.double(), laws.bernoulli_law(1 - p), 0.0, problem)

    def _trial(self, like: Any, parameters: tuple[Any, ...], draw: Callable[[Any], Drawn | None]) -> Trial | None:
        return Trial(_name(like.dtype), parameters, draw) if like.numel() else None

    def _scratch(self, like: Any) -> Any:
        """A tensor of the same shape, or a shorter one where that is large."""
        if like.numel() <= MOST:
            return self._torch.empty_like(like)
        return self._torch.empty(MOST, dtype=like.dtype, device=like.device)

    def _host(self, tensor: Any, *, flat: bool = True) -> Any:
        found = tensor.detach().to("cpu").double()
        return found.flatten() if flat else found

    def _eps(self, dtype: Any) -> float:
        return float(self._torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0

    def _normal_fits(self, dtype: Any, mean: Any, std: float) -> bool:
        real = not isinstance(mean, complex)
        return real and std >= 0 and abs(mean) + 8 * std < self._torch.finfo(dtype).max

    def _plain(self, tensor: Any) -> bool:
        """Whether tensors may be made here: kernels at the autograd keys are reached by tracers and transforms too."""
        torch = self._torch
        return (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and torch._C._len_torch_dispatch_stack() == 0
            and not releases.is_within_transform(torch)
            and not releases.is_compiling(torch)
        )


_METHODS = {
    f"aten::{name}": method
    for method, names in {
        "uniform": ("uniform_",),
        "normal": ("normal_",),
        "normal_new": ("normal.float_float", "normal.float_float_out"),
        "normal_of": tuple(
            f"normal.{kind}{out}" for kind in ("Tensor_float", "float_Tensor", "Tensor_Tensor") for out in ("", "_out")
        ),
        "random": ("random_",),
        "random_to": ("random_.to",),
        "random_from": ("random_.from",),
        "bernoulli": ("bernoulli_.float", "bernoulli.p"),
        "bernoulli_tensor": ("bernoulli_.Tensor",),
        "bernoulli_of": ("bernoulli", "bernoulli.out"),
        "exponential": ("exponential_",),
        "randperm": ("randperm", "randperm.generator", "randperm.out", "randperm.generator_out"),
        "multinomial": ("multinomial", "multinomial.out"),
        "dropout": ("native_dropout",),
        "rrelu": ("rrelu_with_noise", "rrelu_with_noise.out", "rrelu_with_noise_"),
        "attention": ("scaled_dot_product_attention",),
        "lstm": ("lstm.input",),
        "gru": ("gru.input",),
    }.items()
    for name in names
}


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _binary(numbers: Any) -> str:
    return "" if bool(((numbers == 0) | (numbers == 1)).all()) else "others than 0 and 1 are among them"
