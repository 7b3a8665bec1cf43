"""Patch torch and take it back; print what is not the same object as before, as JSON. Run by test_auto.py."""

import json
import sys

from torchport import vnpu

vnpu.activate(force=True)

import torch  # noqa: E402

DUNDERS = ("__new__", "__init__", "__repr__", "__str__", "__getattr__")
# What changes torch when it is first used, with patches or without.
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1, device="npu"))


def attributes() -> dict[str, object]:
    """Every attribute of torch's modules and of the classes in them, once."""
    owners = {name: module for name, module in sys.modules.items() if name.split(".")[0] in ("torch", "sys")}
    owners["torch.npu"] = torch.npu
    for name, module in list(owners.items()):
        for key, value in list(vars(module).items()):
            if issubclass(type(value), type):  # not isinstance, which makes lazy modules load
                owners[f"{name}.{key}"] = value
    unique = {id(owner): (name, owner) for name, owner in owners.items()}
    return {
        f"{name}:{key}": value  # the objects themselves: a number alone could be used again
        for name, owner in unique.values()
        for key, value in list(vars(owner).items())
        if not key.startswith("__") or key in DUNDERS
    }


before, finders = attributes(), list(sys.meta_path)
import torchport.auto  # noqa: E402

patched = attributes()
used = torch.zeros(1, device="cuda").cuda().is_cuda and str(torch.device("cuda")) == "cuda"
torch.compile(torch.nn.Linear(1, 1))
torchport.auto.unpatch()
torchport.auto.unpatch()
after = attributes()
device = torch.device("npu:0")
json.dump(
    {
        "used": used,
        "patched": sum(patched.get(key) is not before[key] for key in before),
        "different": [key for key in before if key not in after or after[key] is not before[key]],
        "added": [key for key in after if key not in before],
        "device": [torch.device("cuda").type, device.type, str(device), repr(device)],
        "finders": [type(each).__name__ for each in sys.meta_path if each not in finders],
    },
    sys.stdout,
)
