"""Judge two recordings of one script: does the port compute what the original computes?

Pure functions from recordings to findings; torch is not needed.
"""

from torchport.compare.judge import Forced, compare_recordings
from torchport.compare.verdict import Verdict, Word

__all__ = ["Forced", "Verdict", "Word", "compare_recordings"]
