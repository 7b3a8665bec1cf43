"""apex.parallel, on torch's own data parallel training."""

from .data_parallel import DistributedDataParallel, Reducer
from .larc import LARC
from .sync_batch_norm import SyncBatchNorm, convert_syncbn_model, create_syncbn_process_group

__all__ = [
    "LARC",
    "DistributedDataParallel",
    "Reducer",
    "SyncBatchNorm",
    "convert_syncbn_model",
    "create_syncbn_process_group",
]
