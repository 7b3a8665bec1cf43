"""Format findings. Nothing else in torchport does."""

from torchport.report.comparison import render_comparison
from torchport.report.diagnosis import render_diagnosis
from torchport.report.invariants import render_invariants
from torchport.report.operators import render_operators
from torchport.report.port import render_compare, render_port
from torchport.report.prediction import render_prediction
from torchport.report.terminal import escape_unprintable, render_findings
from torchport.report.verdict import format_old_code, render_verdict

__all__ = [
    "escape_unprintable",
    "format_old_code",
    "render_compare",
    "render_comparison",
    "render_diagnosis",
    "render_findings",
    "render_invariants",
    "render_operators",
    "render_port",
    "render_prediction",
    "render_verdict",
]
