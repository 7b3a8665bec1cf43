"""Port PyTorch/CUDA training code to Ascend NPUs and prove the port on any machine.

Importing this package is light (no torch, no shared library); every package is imported where it is used.
"""

__version__ = "0.1.0"
