"""A DataLoader gives other batches, of all of its data."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from torchport.patches import Patches
from torchport.record.invariants.rule import Rule

LOOKED = 12  # batches of an iterator
LEAST = 2  # rounds
NUMBERS = 32  # floating-point numbers of a batch: fewer may be equal by chance
WORKERS = 2


class Loading(Rule):
    """The workers of one loader do not all give the same batch: that they do is one seed for all, or an iterable data
    set that each of them reads from its beginning. A WeightedRandomSampler has a weight for each sample."""

    name = "loaders give different batches of all data"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # By iterator: checksums of what it has given in this epoch; None for one that was judged.
        self._sums: weakref.WeakKeyDictionary[Any, list[int] | None] = weakref.WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        """See what the iterators with workers give: below `__next__`, which torch_npu sets anew for each iterator."""
        patches.wrap(self.torch.utils.data.DataLoader, "__iter__", self._iterating)
        patches.wrap(self.torch.utils.data.dataloader._MultiProcessingDataLoaderIter, "_next_data", self._giving)

    def _iterating(self, original: Any) -> Any:
        def __iter__(this: Any) -> Any:  # noqa: N807
            sampler, data = getattr(this, "sampler", None), this.dataset
            if isinstance(sampler, self.torch.utils.data.WeightedRandomSampler) and hasattr(data, "__len__"):
                self.judged += 1
                if 0 < len(sampler.weights) < len(data):
                    self.report(
                        "weights",
                        f"a WeightedRandomSampler has {len(sampler.weights)} weights for {len(data):,} samples, and "
                        "draws of the first ones alone: it takes the weight of each sample, not of each class",
                        self.find_site(),
                        self.steps,
                    )
            return original(this)

        return __iter__

    def _giving(self, original: Any) -> Any:
        def _next_data(this: Any) -> Any:
            workers = this._num_workers
            if workers < WORKERS or self._sums.setdefault(this, []) is None:
                return original(this)
            try:
                batch = original(this)
            except StopIteration:
                self._judge(this, workers)
                raise
            sums, found = self._sums[this], _add_up(self.torch, batch)
            if sums is None or found is None:
                self._sums[this] = None
            else:
                sums.append(found)
                if len(sums) >= max(LOOKED, LEAST * workers):
                    self._judge(this, workers)
            return batch

        return _next_data

    def _judge(self, iterator: Any, workers: int) -> None:
        """Whether the batches of one round, of a worker each, are equal in each of several rounds."""
        sums, self._sums[iterator] = self._sums[iterator] or [], None
        rounds = [sums[first : first + workers] for first in range(0, len(sums) - workers + 1, workers)]
        if len(rounds) < LEAST:
            return
        self.judged += 1
        if len(set(sums)) > 1 and all(len(set(one)) == 1 for one in rounds):
            self.report(
                "workers",
                f"each of the {workers} workers of a DataLoader gives the same batch, {len(rounds)} times in a row: "
                "they draw from one seed (worker_init_fn), or each reads an iterable data set from its beginning "
                "(get_worker_info)",
                self.find_site(),
                self.steps - len(sums) + 1,
            )


def _add_up(torch: Any, batch: Any) -> int | None:
    """A checksum of the first floating-point tensor on the host that is large enough; None without one."""
    for tensor in _list_tensors(torch, batch):
        if tensor.is_floating_point() and tensor.numel() >= NUMBERS and tensor.device.type == "cpu":
            return zlib.crc32(tensor.detach().contiguous().flatten().view(torch.uint8).numpy())
    return None


def _list_tensors(torch: Any, value: Any) -> Iterator[Any]:
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _list_tensors(torch, part)
