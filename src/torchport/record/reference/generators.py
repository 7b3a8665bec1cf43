"""The random generator that stands for the device's, and what torch.cuda says and does about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record.reference.places import to_cpu


def patch_generators(torch: Any, patches: Patches) -> None:
    """Give the device a generator, and let torch.cuda's functions act on it."""
    cuda, generator = torch.cuda, torch.Generator()
    generator.manual_seed(torch.initial_seed())

    def set_state(state: Any, device: Any = "cuda") -> None:
        generator.set_state(state)

    def set_state_all(states: Any) -> None:
        generator.set_state(next(iter(states)))

    def seed(value: Any) -> None:
        generator.manual_seed(int(value))

    def seed_from_clock() -> None:
        generator.seed()

    functions: dict[str, Callable[..., Any]] = {
        "manual_seed": seed,
        "manual_seed_all": seed,
        "seed": seed_from_clock,
        "seed_all": seed_from_clock,
        "initial_seed": generator.initial_seed,
        "get_rng_state": lambda device="cuda": generator.get_state(),
        "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state": set_state,
        "set_rng_state_all": set_state_all,
    }
    for name, function in functions.items():
        for owner in (cuda, cuda.random):
            if hasattr(owner, name):
                patches.set(owner, name, function)
    patches.set(cuda, "default_generators", (generator,))
    real = torch.Generator

    class Generator(type):
        """Makes `torch.Generator(device="cuda")` a CPU generator and keeps isinstance checks true."""

        def __call__(cls, device: Any = "cpu") -> Any:
            return real(device=to_cpu(torch, device))

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, real)

    patches.set(torch, "Generator", Generator("Generator", (), {"__doc__": real.__doc__}))
