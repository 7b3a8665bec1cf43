"""What a script's data loader takes: processor time of each batch that it makes, on this machine, and in how many
workers.

The virtual clock has nothing of this machine's time in it; this stands beside it. Workers are forks, which count in
memory that they share with us, each in a place of its own.
"""

from __future__ import annotations

import importlib
import mmap
import struct
import time
from typing import Any

_PLACE = struct.Struct("dqq")  # seconds, batches, workers
MOST_WORKERS = 256


class Loading:
    """Counts the batches that torch's DataLoader makes and those that the script takes."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _PLACE.size * (MOST_WORKERS + 1))
        self._taken = 0
        data = importlib.import_module("torch.utils.data")
        for kind in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            fetcher = getattr(data._utils.fetch, kind)
            fetcher.fetch = self._counted(fetcher.fetch, data.get_worker_info)
        iterator = data.dataloader._BaseDataLoaderIter
        original = iterator.__next__

        def following(loader: Any) -> Any:
            batch = original(loader)
            self._taken += 1
            return batch

        iterator.__next__ = following

    def _counted(self, original: Any, worker_info: Any) -> Any:
        def fetch(fetcher: Any, *args: Any) -> Any:
            began = time.thread_time()
            batch = original(fetcher, *args)
            self._add(time.thread_time() - began, worker_info())
            return batch

        return fetch

    def _add(self, seconds: float, worker: Any) -> None:
        place = 0 if worker is None else min(worker.id + 1, MOST_WORKERS)
        spent, batches, _ = _PLACE.unpack_from(self._shared, place * _PLACE.size)
        workers = 0 if worker is None else worker.num_workers
        _PLACE.pack_into(self._shared, place * _PLACE.size, spent + seconds, batches + 1, workers)

    def collect_notes(self) -> dict[str, Any]:
        """`seconds` of processor time for all of `batches`, by `workers` (0: the program itself), of which `taken`."""
        places = list(_PLACE.iter_unpack(self._shared[:]))
        return {
            "seconds": sum(place[0] for place in places),
            "batches": sum(place[1] for place in places),
            "workers": max(place[2] for place in places),
            "taken": self._taken,
        }
