"""Old NPU scripts on today's torch_npu: what the porting guide prints and torch_npu has dropped since.

    import torchport.legacy     # before or after torch; nothing else in the script changes

Restored are torch.npu.profile and the prof_* and iteration_* functions, profileConfig,
torch.autograd.profiler.profile(use_npu=, use_npu_simple=), torch.utils.dumper, torch.npu_* functions,
Tensor.npu_format_cast, and assertEqual(prec=) of torch's own TestCase. What torch_npu still has is left alone,
but for set_dump and finalize_dump, which wait for the operators that torch_npu has not launched yet.
`torchport.legacy.uninstall()` takes everything away again. `torchport.legacy.read_dump(file)` gives the tensors of one
of CANN's dump files.
"""

from __future__ import annotations

from torchport.legacy.restore import install, uninstall

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    import torch

__all__ = ["install", "read_dump", "uninstall"]


def read_dump(path: str | os.PathLike[str]) -> dict[str, list[torch.Tensor]]:
    """The tensors in one of CANN's dump files, as {"input": [...], "output": [...]}, on the host.

    Raises ValueError for a file that is none or ends too early, and for a tensor of a type that torch does not have.
    """
    from torchport.record.operators import dump_file  # here: it imports torch

    return dump_file.read_dump_file(path)


install()
