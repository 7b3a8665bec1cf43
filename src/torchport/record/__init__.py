"""What a training run leaves behind: the loss of each step, step times, seeds, the weights it started from.

`recording` is the format and its reader (no torch), `recorder` watches a live process, `equal` makes two runs
start from the same numbers, `script` runs a script as `python script` would. `python -m torchport.record`
puts them together.
"""
