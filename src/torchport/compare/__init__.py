"""Judge two recordings of one script: does the port compute what the original computes?

Pure functions from recordings to findings; torch is not needed.
"""

from torchport.compare.judge import compare, ending

__all__ = ["compare", "ending"]
