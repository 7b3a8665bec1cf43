"""Random operators whose numbers come from the stream of the run.

What they check of their arguments they check by themselves: a call that our numbers do not fit (a negative standard
deviation, an integer tensor for `uniform_`) goes to torch's kernel, which has the words for it and draws nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchport.record.draws.draws import Draws
    from torchport.record.draws.kernels import Kernels
    from torchport.record.draws.own import OwnDraws

# Largest whole number up to which all are exact, which `random_()` draws up to.
EXACT = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}

# Distributions that torch's own kernel for the CPU draws with a generator of ours.
IN_PLACE = ("exponential", "geometric", "log_normal", "cauchy")
FUNCTIONS = {"poisson": "poisson", "binomial": "binomial", "_standard_gamma": "gamma", "_sample_dirichlet": "dirichlet"}


def replace_operator_kernels(draws: Draws, kernels: Kernels | OwnDraws) -> None:
    """Replace the kernels of the random operators that fill or make a tensor."""
    operators = _Operators(draws)
    functions: dict[str, Callable[..., Any]] = {
        "uniform_": operators.uniform,
        "normal_": operators.normal,
        "normal.float_float": operators.normal_new,
        "normal.float_float_out": operators.normal_out,
        "normal.Tensor_float": operators.normal_of,
        "normal.float_Tensor": operators.normal_of,
        "normal.Tensor_Tensor": operators.normal_of,
        "normal.Tensor_float_out": operators.normal_of,
        "normal.float_Tensor_out": operators.normal_of,
        "normal.Tensor_Tensor_out": operators.normal_of,
        "random_": operators.random,
        "random_.to": operators.random_to,
        "random_.from": operators.random_from,
        "bernoulli_.float": operators.bernoulli,
        "bernoulli_.Tensor": operators.bernoulli_tensor,
        "bernoulli.p": operators.bernoulli_new,
        "bernoulli": operators.bernoulli_of,
        "bernoulli.out": operators.bernoulli_of,
        "randperm": operators.randperm,
        "randperm.generator": operators.randperm,
        "randperm.out": operators.randperm,
        "randperm.generator_out": operators.randperm,
        "multinomial": operators.multinomial,
        "multinomial.out": operators.multinomial,
        **{f"{name}_": operators.in_place(name) for name in IN_PLACE},
        **{name: operators.make_cpu_only_kernel(kind) for name, kind in FUNCTIONS.items()},
    }
    for name, function in functions.items():
        for key in draws.find_dispatch_keys(kernels, f"aten::{name}"):
            kernels.replace_kernel(f"aten::{name}", key, _named(draws, f"aten::{name}", function))


def _named(draws: Draws, operator: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with a report where torch's kernel, which it may call, drew numbers that are not ours."""

    kind = type(draws._torch.default_generator)

    def kernel(original: Any, *args: Any, **kwargs: Any) -> Any:
        def native(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            given = [arg for arg in (*args, kwargs.get("generator")) if isinstance(arg, kind)]
            if draws.generators.get_stream(given[0] if given else None) is not None:
                draws.leave_to_torch(operator)
            return result

        return function(native, *args, **kwargs)

    return kernel


class _Operators:
    """Kernels: each takes the one that it replaces first, then the operator's arguments."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._numbers = draws.numbers
        self._torch: Any = draws._torch

    def uniform(self, original: Any, this: Any, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Any:
        if this.is_complex():
            self._torch.view_as_real(this).uniform_(low, high, generator=generator)
            return this
        fits = this.is_floating_point() and low <= high and math.isfinite(high - low)
        key = self._key("uniform", this, generator) if fits else None
        if key is None:
            return original(this, low, high, generator=generator)
        drawn = self._numbers.draw_uniform(key, this.numel(), _name(this.dtype))
        if (low, high) != (0.0, 1.0):
            drawn *= drawn.dtype.type(high - low)
            drawn += drawn.dtype.type(low)
        return self._fill(this, drawn)

    def normal(self, original: Any, this: Any, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
        if this.is_complex() and not isinstance(mean, complex) and std >= 0:
            self._torch.view_as_real(this).normal_(0.0, std / math.sqrt(2), generator=generator)
            if mean:
                this.add_(mean)
            return this
        fits = this.is_floating_point() and std >= 0
        key = self._key("normal", this, generator) if fits else None
        if key is None:
            return original(this, mean, std, generator=generator)
        drawn = self._numbers.draw_normal(key, this.numel(), _name(this.dtype))
        if std != 1.0:
            drawn *= drawn.dtype.type(std)
        if mean != 0.0:
            drawn += drawn.dtype.type(mean)
        return self._fill(this, drawn)

    def normal_new(
        self, original: Any, mean: float, std: float, size: Any, *, generator: Any = None, **options: Any
    ) -> Any:
        return self._torch.empty(size, **options).normal_(mean, std, generator=generator)

    def normal_out(self, original: Any, mean: float, std: float, size: Any, *, out: Any, generator: Any = None) -> Any:
        return out.resize_(size).normal_(mean, std, generator=generator)

    def normal_of(self, original: Any, mean: Any, std: Any = 1.0, *, generator: Any = None, out: Any = None) -> Any:
        torch = self._torch
        tensors = [one for one in (mean, std) if isinstance(one, torch.Tensor)]
        first = tensors[0]
        stream = self._draws.generators.get_stream(generator)
        on_host = first.device.type == "cpu"
        fits = all(tensor.is_floating_point() for tensor in tensors) and all(
            tensor.device == first.device for tensor in tensors
        )
        if fits and stream is not None:
            # A look at a device's tensor would wait for the device.
            fits = (not on_host or not bool((std < 0).any())) if isinstance(std, torch.Tensor) else std >= 0
        if not fits or stream is None:
            more = {} if out is None else {"out": out}
            return original(mean, std, generator=generator, **more)
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        drawn = torch.empty(shape, dtype=first.dtype, device=first.device).normal_(generator=generator)
        drawn = drawn.mul_(std).add_(mean)
        return drawn if out is None else out.resize_(shape).copy_(drawn)

    def random(self, original: Any, this: Any, *, generator: Any = None) -> Any:
        return self._integers(original, this, 0, None, generator, ())

    def random_to(self, original: Any, this: Any, to: int, *, generator: Any = None) -> Any:
        return self._integers(original, this, 0, to - 1, generator, (to,))

    def random_from(self, original: Any, this: Any, low: int, to: int | None, *, generator: Any = None) -> Any:
        return self._integers(original, this, low, None if to is None else to - 1, generator, (low, to))

    def _integers(self, original: Any, this: Any, low: int, high: int | None, generator: Any, arguments: Any) -> Any:
        torch, dtype = self._torch, this.dtype
        if this.is_complex():
            return original(this, *arguments, generator=generator)
        if dtype is torch.bool:
            least, most = 0, 1
        elif this.is_floating_point():
            most = EXACT.get(_name(dtype), 0)
            least = -most
        else:
            least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        high = most if high is None else high
        if this.is_floating_point() and len(arguments) != 0 and high <= (1 << 63) - 1:
            most, least = (max(most, high), min(least, low))  # torch draws them, and says that they are not exact
        fits = least <= low <= high <= min(most, (1 << 63) - 1)
        key = self._key("integers", this, generator) if fits else None
        if key is None:
            return original(this, *arguments, generator=generator)
        return self._fill(this, self._numbers.draw_integers(key, this.numel(), low, high))

    def bernoulli(self, original: Any, this: Any, p: float = 0.5, *, generator: Any = None) -> Any:
        fits = 0 <= p <= 1 and not this.is_complex()
        key = self._key("bernoulli", this, generator) if fits else None
        if key is None:
            return original(this, p, generator=generator)
        return self._fill(this, self._numbers.draw_bernoulli(key, this.numel(), p))

    def bernoulli_new(self, original: Any, this: Any, p: float, *, generator: Any = None) -> Any:
        return self._torch.empty_like(this).bernoulli_(p, generator=generator)

    def bernoulli_tensor(self, original: Any, this: Any, p: Any, *, generator: Any = None) -> Any:
        fits = _probabilities(p) and p.numel() <= this.numel() and not this.is_complex()
        key = self._key("bernoulli", this, generator) if fits else None
        if key is None:
            return original(this, p, generator=generator)
        return this.copy_(self._below(key, p.expand(this.shape)))

    def bernoulli_of(self, original: Any, p: Any, *, generator: Any = None, out: Any = None) -> Any:
        key = self._key("bernoulli", p, generator) if _probabilities(p) else None
        if key is None:
            more = {} if out is None else {"out": out}
            return original(p, generator=generator, **more)
        drawn = self._below(key, p)
        if out is None:
            return self._torch.empty_like(p).copy_(drawn)
        return out.resize_(p.shape).copy_(drawn)

    def _below(self, key: int, p: Any) -> Any:
        """Whether a uniform number is below `p`, for each element of it."""
        torch = self._torch
        dtype = p.dtype if p.dtype is torch.float64 else torch.float32
        return self._draws.to_tensor_like(self._numbers.draw_uniform(key, p.numel(), _name(dtype)), p) < p.to(dtype)

    def randperm(self, original: Any, n: int, *, out: Any = None, **options: Any) -> Any:
        torch = self._torch
        generator = options.get("generator")  # in two of the four schemas, and needed there
        dtype = (options.get("dtype") or torch.int64) if out is None else out.dtype
        device = torch.device(options.get("device") or "cpu") if out is None else out.device
        whole = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
        fits = 0 <= n <= (torch.iinfo(dtype).max if whole else EXACT.get(_name(dtype), -1))
        key = self._draws.next_key("randperm", n, generator, device.type != "cpu") if fits else None
        if key is None:
            return original(n, **options) if out is None else original(n, **options, out=out)
        drawn = torch.randperm(n, generator=self._draws.make_cpu_generator(key))
        if out is not None:
            return out.resize_(n).copy_(drawn)
        return drawn.to(device=device, dtype=dtype)

    def multinomial(
        self,
        original: Any,
        weights: Any,
        samples: int,
        replacement: bool = False,
        *,
        generator: Any = None,
        out: Any = None,
    ) -> Any:
        torch = self._torch
        key = self._key("multinomial", weights, generator)
        more = {} if out is None else {"out": out}
        if key is None:
            return original(weights, samples, replacement, generator=generator, **more)
        if weights.device.type == "cpu":
            return original(weights, samples, replacement, generator=self._draws.make_cpu_generator(key), **more)
        drawn = torch.multinomial(weights.cpu(), samples, replacement, generator=self._draws.make_cpu_generator(key))
        return drawn.to(weights.device) if out is None else out.resize_(drawn.shape).copy_(drawn)

    def in_place(self, name: str) -> Callable[..., Any]:
        """The kernel of the distribution `name`, which torch draws on the host."""

        def kernel(original: Any, this: Any, *parameters: Any, generator: Any = None) -> Any:
            key = self._key(name, this, generator)
            if key is None:
                return original(this, *parameters, generator=generator)
            if this.device.type == "cpu":
                return original(this, *parameters, generator=self._draws.make_cpu_generator(key))
            drawn = self._torch.empty(this.shape, dtype=this.dtype)
            getattr(drawn, f"{name}_")(*parameters, generator=self._draws.make_cpu_generator(key))
            return this.copy_(drawn)

        return kernel

    def make_cpu_only_kernel(self, kind: str) -> Callable[..., Any]:
        """The kernel of a distribution that torch has for the CPU only; torch_npu brings the arguments there."""

        def kernel(original: Any, *arguments: Any) -> Any:
            torch = self._torch
            tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
            generator = next((argument for argument in arguments[len(tensors) :] if argument is not None), None)
            key = self._key(kind, tensors[0], generator)
            return original(*tensors, generator if key is None else self._draws.make_cpu_generator(key))

        return kernel

    def _key(self, kind: str, like: Any, generator: Any) -> int | None:
        return self._draws.next_key(kind, like.numel(), generator, like.device.type != "cpu")

    def _fill(self, this: Any, drawn: Any) -> Any:
        """Copy what was drawn on the host into `this`, with the dtype's own rounding."""
        return this.copy_(self._draws.to_tensor_like(drawn, this, this.dtype))


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _probabilities(p: Any) -> bool:
    """Whether `p` can be compared with; those of a device are not looked at, its kernels do not either."""
    if not p.is_floating_point():
        return False
    return p.device.type != "cpu" or p.numel() == 0 or bool(((p >= 0) & (p <= 1)).all())
