"""Stand-in for xformers: `xformers.ops.memory_efficient_attention` and its masks.

Not here: xformers' components, factory, sparse tensors, and the other operators of `xformers.ops`.
"""

__version__ = "0.0.28"  # the release whose signatures these are
