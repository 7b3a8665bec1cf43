"""Chooses the device before torch is imported: `torchport case` copies this file beside the test.

DEVICE=cpu needs no NPU. Else the NPU of this machine is used if it has one, or torchport's virtual NPU.
"""

import os

if os.environ.get("DEVICE") == "cpu":
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
else:
    try:
        from torchport import errors, vnpu
    except ImportError:  # the environment is as the device's maker has set it up
        pass
    else:
        try:
            vnpu.activate()
        except errors.TorchportError:  # there is neither
            os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
