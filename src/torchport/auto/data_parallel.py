"""`DataParallel` on several NPUs: it runs as it is, and the summary says what is better."""

from __future__ import annotations

from typing import Any

from torchport.auto.log import Log
from torchport.patches import Patches

INSTEAD = (
    "torch_npu does not list it as supported on several NPUs: --device-list 0 gives the script one, --nproc N starts "
    "a process for each, which DistributedDataParallel needs"
)


def patch_data_parallel(torch: Any, patches: Patches, log: Log) -> None:
    """Note each module, and each call of the function, that is spread over several NPUs."""

    def note(devices: Any) -> None:
        if len(devices) > 1:
            log.count_unsupported_call(f"torch.nn.DataParallel on {len(devices)} NPUs", INSTEAD)

    def making(original: Any) -> Any:
        def init(this: Any, *args: Any, **kwargs: Any) -> None:
            original(this, *args, **kwargs)
            if getattr(this, "device_ids", None) and this.src_device_obj.type in ("npu", "cuda"):
                note(this.device_ids)

        return init

    patches.wrap(torch.nn.DataParallel, "__init__", making)
