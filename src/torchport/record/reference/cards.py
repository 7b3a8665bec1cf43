"""NCCL's refusal of two ranks of one communicator on one card, which gloo, that stands for it, does not know.

Tensors of the reference are on the CPU, so a rank's card is known only where the process has named or used no other
until then. Ranks tell each other their cards where NCCL makes the communicator: with `device_id=` as the group is made,
otherwise at the first collective. A rank with no card so far asks again at the next one; a rank with several is never
accused.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from torchport.record.reference import queries

_NONE_YET, _UNKNOWN = "", "?"
# The collectives of torch.distributed that NCCL runs with a tensor of the rank's card. Not `barrier`, for which torch
# chooses a card by the rank where none was used, and not what passes between two ranks.
COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "_all_gather_base",
    "_reduce_scatter_base",
)


class Communicator:
    """The ranks of one NCCL group. `mixed`: gloo carries what is on the CPU, so a collective says nothing of a card."""

    def __init__(self, torch: Any, group: Any, mixed: bool, bound: int | None) -> None:
        c10d = torch.distributed.distributed_c10d
        name = c10d._get_process_group_name(group)
        self._store = torch.distributed.PrefixStore(f"torchport/cards/{name}", c10d._get_default_store())
        self._rank, self._size = group.rank(), group.size()
        self._error = torch.distributed.DistBackendError
        self._round = 0
        self._met = self._size == 1
        self.mixed, self.bound = mixed, bound

    def meet(self) -> None:
        """Tell the other ranks this one's card, as they do; raise DistBackendError for two on one card.

        Waits for all ranks of the group, as NCCL does when it makes a communicator.
        """
        if self._met:
            return
        self._store.set(f"{self._round}/{self._rank}", self._describe_card())
        cards = [self._store.get(f"{self._round}/{rank}").decode() for rank in range(self._size)]
        self._round += 1
        self._met = _NONE_YET not in cards
        first: dict[str, int] = {}
        for rank, card in enumerate(cards):
            if card not in (_NONE_YET, _UNKNOWN) and first.setdefault(card, rank) != rank:
                raise self._error(
                    "NCCL error in: ncclCommInitRankConfig, invalid usage\n"
                    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
                    f"Last error:\nDuplicate GPU detected : rank {rank} and rank {first[card]} both on CUDA device "
                    f"{card.rpartition(' ')[2]}"
                )

    def _describe_card(self) -> str:
        """The machine and the card there; _NONE_YET before the first use of a card, _UNKNOWN after that of a second."""
        used = queries.list_used() if self.bound is None else {self.bound}
        if not used:
            return _NONE_YET
        ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
        # The script was told of fewer cards than it has ranks, and may have shared them out: it spawned its processes.
        short = queries.device_count() < (int(ranks) if ranks.isdecimal() else self._size)
        if len(used) > 1 or short:
            return _UNKNOWN
        (card,) = map(str, used)
        visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
        if visible:
            if int(card) >= len(visible):
                return _UNKNOWN
            card = visible[int(card)]
        # torchrun's number of the machine: several are tried out on one.
        return f"{platform.node()} {os.environ.get('GROUP_RANK', '')} {card}"
