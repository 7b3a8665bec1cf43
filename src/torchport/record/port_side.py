"""What the port's recorded process needs: as many devices as the reference shows, and torch.compile without inductor.

The patch of torch.compile is also that of `torchport run`.
"""

from __future__ import annotations

import functools
import importlib.util
import types
from collections.abc import Callable, Mapping
from typing import Any

from torchport.patches import Patches
from torchport.record.cards import VISIBLE

NO_INDUCTOR = "inductor needs triton-ascend, which is not installed: compiled with the backend aot_eager"


def make_port_environment(environ: Mapping[str, str], processes: int = 1) -> dict[str, str]:
    """`environ` with one visible NPU for each of the `processes` of a run: those that are visible to it first.

    The reference shows a script as many devices; with more, `if device_count() > 1:` would go another way.
    """
    visible = [name for name in environ.get(VISIBLE, "").split(",") if name.strip()]
    chosen = visible[:processes] if visible else [str(index) for index in range(processes)]
    return {**environ, VISIBLE: ",".join(chosen)}


def apply_port_patches(torch: Any, tell: Callable[[str], object] = lambda text: None) -> Patches:
    """Patch the imported `torch` of a port: torch.compile runs without inductor where triton-ascend is missing.

    `tell` gets a sentence for people for each call that was given another backend. `undo()` of what is returned takes
    everything back.
    """
    patches = Patches()
    patch_compile(torch, patches, lambda: tell(NO_INDUCTOR))
    return patches


def patch_compile(torch: Any, patches: Patches, tell: Callable[[], object]) -> None:
    """Let torch.compile take the backend aot_eager where inductor is asked for and cannot work; `tell` is called then.

    What other patches call in place of tensor methods is made known to dynamo.
    """
    has_inductor = importlib.util.find_spec("triton") is not None

    def compile_(original: Any) -> Any:
        def call(model: Any = None, **kwargs: Any) -> Any:
            if model is None:
                return lambda function: call(function, **kwargs)
            _teach_dynamo(torch, patches)
            if kwargs.get("backend", "inductor") == "inductor" and not has_inductor:
                tell()
                # These two are inductor's.
                kwargs = {key: value for key, value in kwargs.items() if key not in ("mode", "options")}
                kwargs["backend"] = "aot_eager"
            return original(model, **kwargs)

        return call

    patches.wrap(torch, "compile", compile_)


def _teach_dynamo(torch: Any, patches: Patches) -> None:
    """Tell dynamo that the methods which the patches call are tensor methods: it looks at what torch.Tensor has.

    Here, as importing it takes two seconds.
    """
    from torch._dynamo import trace_rules

    known = trace_rules.get_tensor_method()
    patched = (getattr(method, "__wrapped__", None) for method in vars(torch.Tensor).values())
    originals = {method for method in patched if isinstance(method, types.MethodDescriptorType)}
    if not originals <= known:
        methods = known | originals
        patches.set(trace_rules, "get_tensor_method", functools.cache(lambda: methods))  # init_process_group clears it
