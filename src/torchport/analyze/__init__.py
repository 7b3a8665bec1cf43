"""Say what converting would do to a project and what is in its way, without changing anything."""

from torchport.analyze.operators import analyze_run
from torchport.analyze.project import analyze_tree

__all__ = ["analyze_run", "analyze_tree"]
