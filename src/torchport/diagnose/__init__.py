"""From the logs of a run that failed to its first cause, with the lines that prove it and what to do next.

`sources` opens the logs that a path stands for and `plogs` CANN's own beside them, `reading` gives the bytes of any
file or pipe as whole lines, `marks` tells the text of a line from the marks of launchers. `matching` finds the lines
that a row of `knowledge/errors` speaks of, `raised` the exceptions, `fields` the facts around them, `moments` when and
on which rank a line was written, and `logs` puts it together. `progress` keeps the numbers of a training and knows a
good end, `sickness` judges them. `judging` says which event came first, `devices` which ranks shared a card, and
`results` says it as findings; `at_exit` says it in a script that fails. Nothing of the user's is imported or run, and
neither torch nor numpy is needed.
"""

from torchport.diagnose.results import diagnose_logs, diagnose_text

__all__ = ["diagnose_logs", "diagnose_text"]
