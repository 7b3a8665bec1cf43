"""Format findings. Nothing else in torchport does."""

from torchport.report.terminal import render

__all__ = ["render"]
