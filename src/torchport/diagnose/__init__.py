"""From the logs of a run that failed to its first cause, with the lines that prove it and what to do next.

`reading` gives the bytes of any file or pipe as whole lines, `matching` finds the lines that a row of
`knowledge/errors` speaks of, `raised` the exceptions that none does, `moments` when and on which rank a line was
written, `judging` which of them came first, and `results` says it as findings; `at_exit` says it in a script that
fails. Nothing of the user's is imported or run, and neither torch nor numpy is needed.
"""

from torchport.diagnose.results import diagnose_logs, diagnose_text

__all__ = ["diagnose_logs", "diagnose_text"]
