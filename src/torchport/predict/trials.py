"""What is tried in place of a run that does not fit, by changes of the process that leave the script as it is."""

from __future__ import annotations

from typing import Any

FOREACH, RECOMPUTE = "foreach", "recompute"


def apply_trial(torch: Any, trial: str) -> None:
    """Make this process try it: FOREACH updates parameters one after the other, RECOMPUTE computes the activations of
    repeated blocks again in the backward pass. "" changes nothing."""
    if trial == FOREACH:
        _without_foreach()
    elif trial == RECOMPUTE:
        _recompute(torch)


def _without_foreach() -> None:
    from torch.optim import optimizer

    def after(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for group in [self.defaults, *self.param_groups]:
            if "foreach" in group:
                group["foreach"] = False

    original = optimizer.Optimizer.__init__
    optimizer.Optimizer.__init__ = after


def _recompute(torch: Any) -> None:
    from torch.utils.checkpoint import checkpoint

    def blocks(module: Any) -> None:
        for child in module.modules():
            if isinstance(child, torch.nn.ModuleList | torch.nn.Sequential) and len(child) > 2:
                kinds = {type(each) for each in child}
                if len(kinds) == 1 and next(iter(kinds)).__module__.split(".")[0] != "torch":
                    for block in child:
                        _checkpointed(block)

    def _checkpointed(block: Any) -> None:
        forward = block.forward
        if getattr(forward, "recomputed", False):
            return

        def again(*args: Any, **kwargs: Any) -> Any:
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

        again.__dict__["recomputed"] = True
        block.forward = again

    seen: set[int] = set()

    def before(module: Any, _: Any) -> None:
        if id(module) not in seen:
            seen.update(id(child) for child in module.modules())
            blocks(module)

    torch.nn.modules.module.register_module_forward_pre_hook(before)
