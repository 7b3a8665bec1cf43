"""Checkpoints to ONNX: weights into the user's model, exported and compared in a process of its own without torch_npu.

`driver` is the part that the command calls and knows no torch; `child` is the program of the other process, which the
modules beside it belong to: `loading`, `exporting`, `checking`, and `npu_forms` in the place of torch_npu.
"""
