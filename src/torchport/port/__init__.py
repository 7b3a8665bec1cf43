"""The main job: convert a script, run the original and the port, compare, and keep each step's files."""

from torchport.port.driver import run_port
from torchport.port.plan import STEPS, Plan

__all__ = ["STEPS", "Plan", "run_port"]
