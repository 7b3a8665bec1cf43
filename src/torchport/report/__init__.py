"""Format findings. Nothing else in torchport does."""

from torchport.report.comparison import render_comparison
from torchport.report.terminal import render

__all__ = ["render", "render_comparison"]
