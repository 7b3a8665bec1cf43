"""Everything below runs on `npu:0` of the virtual NPU: activate it before any test module imports torch."""

from torchport import vnpu

vnpu.activate(force=True)  # raises, and says how to build it, where it is missing: these tests never skip
