"""Port PyTorch/CUDA training code to Ascend NPUs and prove the port on any machine.

Importing this package is light (no torch, no shared library); every package is imported where it is used.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`torchport.record(...)`, without an import of its own."""
    if name == "record":
        import importlib

        return importlib.import_module("torchport.record")
    raise AttributeError(f"module 'torchport' has no attribute {name!r}")
