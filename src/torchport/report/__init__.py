"""Format findings. Nothing else in torchport does."""

from torchport.report.comparison import render_comparison
from torchport.report.operators import render_operators
from torchport.report.terminal import printable, render

__all__ = ["printable", "render", "render_comparison", "render_operators"]
