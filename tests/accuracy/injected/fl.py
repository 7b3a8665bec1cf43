"""Seeded faults below the dispatcher: the operator's kernel on PrivateUse1 (the NPU) is replaced by a wrong one.
Nothing happens on the CPU. FAULT names the fault; without it nothing is replaced."""

import os, sys, random
import torch

NOW = {"step": 0, "n": {}}
RANK = int(os.environ.get("RANK", "0"))
_keep = []


def _tick(*_):
    NOW["step"] += 1
    NOW["n"].clear()


def inject(op, change, calls=None, steps=None, when=None, rank=None):
    if not hasattr(torch, "npu") or "torch_npu" not in sys.modules:
        return False
    if rank is not None and rank != RANK:
        return False
    ns, _, rest = op.partition("::")
    kernel = torch.library.get_kernel(op, "PrivateUse1")
    lib = torch.library.Library(ns, "IMPL")
    _keep.append((lib, kernel))
    schema = torch._C._get_schema(op.partition(".")[0], op.partition(".")[2])

    def wrong(keyset, *args, **kwargs):
        def right(*a, **k):
            if op.startswith("npu::"):
                ks = keyset  # call_boxed cannot fill in defaults of keyword-only arguments: pass by position
                full = {x.name: (x.default_value if x.has_default_value() else None) for x in schema.arguments}
                names = list(full)
                for i, v in enumerate(a):
                    full[names[i]] = v
                full.update(k)
                return kernel.call_boxed(keyset, *full.values())
            return kernel.call_boxed(keyset, *a, **k)

        n = NOW["n"].get(op, 0)
        NOW["n"][op] = n + 1
        hit = (
            (calls is None or n in calls)
            and (steps is None or NOW["step"] in steps)
            and (when is None or when(*args, **kwargs))
        )
        if not hit:
            return right(*args, **kwargs)
        if os.environ.get("FAULT_LOG"):
            with open(os.environ["FAULT_LOG"], "a") as f:
                print(f"hit {op} call {n} step {NOW['step']} rank {RANK}", file=f)
        return change(right, *args, **kwargs)

    lib.impl(rest, wrong, "PrivateUse1", with_keyset=True, allow_override=True)
    return True


def setup(faults):
    name = os.environ.get("FAULT", "")
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda *a: _tick())
    if name:
        faults[name]()


def first(out, f):
    return (f(out[0]),) + tuple(out[1:]) if isinstance(out, (tuple, list)) else f(out)


def at(out, i, f):
    out = list(out)
    out[i] = f(out[i])
    return tuple(out)
