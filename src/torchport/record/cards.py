"""The NPUs that a process has opened: which, and the most memory that it has held on each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchport.results.port import Card

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
# The cure for a rank that holds memory of another's card.
ELSEWHERE_TOO = (
    'Call torch.npu.set_device(int(os.environ["LOCAL_RANK"])) before the first tensor on the device, and load '
    "checkpoints with map_location=: what is put on the device without a number goes to the first card in each rank."
)


def list_opened_cards(torch: Any) -> list[Card]:
    """The cards that this process has opened so far, the one that it works on first: most was allocated there.

    Asking opens none: torch_npu's allocator has the numbers.
    """
    npu = vars(torch).get("npu")  # getattr for what torch lacks takes long
    if npu is None or not npu.is_initialized():
        return []
    import torch_npu

    from torchport.results.port import Card  # not before: this is imported in every process of a run

    found: list[tuple[int, Card]] = []
    for index in range(torch_npu._C._npu_getDeviceCount()):
        memory = torch_npu._C._npu_memoryStats(index)
        held, allocated = memory["reserved_bytes"]["all"]["peak"], memory["allocated_bytes"]["all"]["allocated"]
        # A context takes memory of its own, which the allocator does not count.
        if held or torch_npu._C._npu_hasPrimaryContext(index):
            card = Card(f"npu:{index}", number_of(index), held)
            found.append((-allocated, card))
    return [card for _, card in sorted(found, key=lambda one: one[0])]


def number_of(index: int) -> str:
    """The number on the machine of the card that is `npu:index` in this process."""
    names = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return names[index] if index < len(names) else str(index)
