"""What a training run leaves behind: the loss of each step, step times, seeds, the weights it started from.

`recording` is the format and its reader (no torch), `recorder` watches a live process, `equal` makes two runs
start from the same numbers, `draws` gives both the same random ones, `reference` is a CUDA script's run on the CPU.
`session` puts them together in each process of a run, which Python starts through `auto/start/sitecustomize.py`.
"""
