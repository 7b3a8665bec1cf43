"""Old NPU scripts on today's torch_npu: what the porting guide prints and torch_npu has dropped since.

    import torchport.legacy     # before or after torch; nothing else in the script changes

Restored are torch.npu.profile and the prof_* and iteration_* functions, profileConfig,
torch.autograd.profiler.profile(use_npu=, use_npu_simple=), torch.utils.dumper, torch.npu_* functions,
Tensor.npu_format_cast, and assertEqual(prec=) of torch's own TestCase. What torch_npu still has is left alone,
but for init_dump, set_dump and finalize_dump on the virtual NPU.
`torchport.legacy.uninstall()` takes everything away again.
"""

from torchport.legacy.restore import install, uninstall

__all__ = ["install", "uninstall"]

install()
