"""The random stream of a recorded run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torchport.on_import import after_import
from torchport.patches import Patches
from torchport.record import releases
from torchport.record.draws import layers, natives, operators
from torchport.record.draws.generators import Generators
from torchport.record.draws.kernels import Kernels
from torchport.record.draws.numbers import Numbers
from torchport.record.draws.own import OwnDraws
from torchport.record.part import Part


class Draws(Part):
    """Gives random functions of `torch` the same numbers on every device, from `install` until its patches are
    undone.

    What a script does not seed is decided by `seed`; a script's own seeds count as ever. `site()` names the place of
    the draw that is going on, its source line and module path; it is asked once for each new draw. A draw that is
    left to the device is told to `unmatched(operator, site)`, once for each place. With `drawn` the device draws beside
    each first draw as it would by itself, and is measured (`OwnDraws`).

    Explicit generators of the CPU are left as they are. Shapes, dtypes, devices, gradients and errors are torch's.
    Not safe to install twice at once.
    """

    def __init__(
        self,
        torch: Any,
        seed: int,
        site: Callable[[], str],
        unmatched: Callable[[str, str], None],
        drawn: Callable[..., None] | None = None,
    ) -> None:
        self._torch = torch
        self.site = site
        self._drawn = drawn
        self._unmatched = unmatched
        self._told: set[tuple[str, str]] = set()
        self.generators = Generators(torch, seed)
        self.accelerator = _accelerator(torch)

    def install(self, patches: Patches) -> None:
        """Replace the random kernels; undoing `patches` puts everything back.

        Where that is not possible (a torch before 2.1, no numpy) all draws stay the device's, and `unmatched` is told.
        """
        missing = self._missing()
        if missing:
            self.report_unmatched(f"every draw: {missing}", "")
            return
        self.numbers = Numbers()
        # Kept: torch forgets the kernels of a library that nobody holds.
        self._kernels = Kernels(self._torch)
        patches.on_undo(lambda: self._kernels.restore_kernels())
        self.generators.follow_seeds(patches)
        self._replace(patches)
        if self.accelerator is None:  # a script may import torch_npu by itself, after torch

            def imported(module: Any) -> None:
                self._kernels.restore_kernels()
                self.accelerator = _accelerator(self._torch)
                self._replace(patches)

            patches.on_undo(after_import("torch_npu", imported))
        self._keep_inductor_from_drawing(patches)

    def _replace(self, patches: Patches) -> None:
        self.generators.follow_devices(patches)
        kernels: Kernels | OwnDraws = self._kernels
        if self._drawn is not None and self.accelerator is not None:
            kernels = OwnDraws(self, self._kernels, self._drawn)
        operators.replace_operator_kernels(self, kernels)
        layers.replace_layer_kernels(self, kernels)
        natives.watch_native_operators(self, kernels)

    def step_done(self) -> None:
        """Notices draws that went past all this, once a training step."""
        if self.is_capturing() or releases.is_within_transform(self._torch):
            return  # in a graph or in a transform (vmap, grad) no state can be read
        for device in self.generators.find_moved_generators():
            self.report_unmatched(f"an operator that moves the generator of {device}", "between two steps")

    def report_unmatched(self, operator: str, where: str | None = None) -> None:
        """Report a draw of `operator` that is left to the device, at the present site."""
        found = operator, self.site() if where is None else where
        if found not in self._told:
            self._told.add(found)
            self._unmatched(*found)

    def next_key(self, kind: str, count: int, generator: Any, on_device: bool) -> int | None:
        """The key of the next draw; None for one that has to stay what it is."""
        stream = self.generators.get_stream(generator)
        if stream is None:
            return None
        if on_device and self.is_capturing():
            return None
        return stream.next_key(KINDS[kind], count, self.site)

    def leave_to_torch(self, operator: str) -> None:
        """A draw is left to torch: say so, and do not take it for one of an unknown operator."""
        self.report_unmatched(f"{operator}, while a graph is captured" if self.is_capturing() else operator)
        self.generators.forget_states()

    def make_cpu_generator(self, key: int) -> Any:
        """A generator of torch for the CPU, seeded by `key`, for distributions that torch draws itself."""
        generator = type(self._torch.default_generator)()  # the reference replaces torch.Generator
        self.generators.seed_natively(generator, key)
        return generator

    def to_tensor_like(self, drawn: Any, like: Any, dtype: Any = None) -> Any:
        """The array `drawn` as a tensor of the shape and on the device of `like`, and of `dtype` if one is given."""
        tensor = self._torch.from_numpy(drawn).view(like.shape)
        if dtype is not None:
            tensor = tensor.to(dtype)  # here, so that both runs round alike
        if like.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(like.device, non_blocking=True)  # does not wait for the device

    def is_capturing(self) -> bool:
        """Whether the accelerator is capturing a graph, which would replay the numbers copied now."""
        module = getattr(self._torch, "npu" if self.accelerator == "PrivateUse1" else "cuda", None)
        if self.accelerator is None or module is None or not module.is_initialized():
            return False
        return bool(module.is_current_stream_capturing())

    def find_dispatch_keys(self, kernels: Kernels | OwnDraws, operator: str) -> Iterable[str]:
        """The dispatch keys under which `operator` has kernels that draw."""
        for key in ("CPU", self.accelerator):
            if key is not None and kernels.has_kernel(operator, key):
                yield key

    def _missing(self) -> str:
        if releases.get_torch_release(self._torch) < releases.OLDEST:
            return f"torch {self._torch.__version__} is too old"
        try:
            import numpy  # noqa: F401
        except ImportError:
            return "numpy is not installed"
        return ""

    def _keep_inductor_from_drawing(self, patches: Patches) -> None:
        """Let compiled code call the random operators: inductor would make numbers of its own."""

        def imported(config: Any) -> None:
            before = config.fallback_random
            config.fallback_random = True
            patches.on_undo(lambda: setattr(config, "fallback_random", before))

        patches.on_undo(after_import("torch._inductor.config", imported))


def _accelerator(torch: Any) -> str | None:
    """The dispatch key of the device that is not the CPU."""
    if hasattr(torch, "npu"):
        return "PrivateUse1"
    return "CUDA" if torch.version.cuda else None


KINDS = {
    name: index
    for index, name in enumerate(
        (
            "uniform",
            "normal",
            "integers",
            "bernoulli",
            "exponential",
            "geometric",
            "log_normal",
            "cauchy",
            "multinomial",
            "randperm",
            "poisson",
            "binomial",
            "gamma",
            "dirichlet",
            "rrelu",
        )
    )
}
