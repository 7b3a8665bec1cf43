"""Every way people start training, read into one form: what to execute, and which file it is that trains.

`split_words` tells torchport's words from the script's, `parse_launch` says what a command line starts. `keeper` runs
one so that nothing of it is left, `host_memory` says what that holds of this machine.
"""

from torchport.launch.command import STANDALONE, Kind, Launch, add_target, launch_of, parse_launch
from torchport.launch.defined import defined_options
from torchport.launch.misspelt import refuse_misspelt
from torchport.launch.words import Split, refuse_shared, split_words

__all__ = [
    "STANDALONE",
    "Kind",
    "Launch",
    "Split",
    "add_target",
    "defined_options",
    "launch_of",
    "parse_launch",
    "refuse_misspelt",
    "refuse_shared",
    "split_words",
]
