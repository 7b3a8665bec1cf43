"""Mixtures of experts on several ranks, by definition: which rows each rank gets, what comes back of them.

An expert here multiplies a token by a number of its own, so that what comes back is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from ranks import run_ranks

Row = tuple[int, int, int]  # the rank that sent it, its token, which of the token's experts (shared ones behind)


@dataclasses.dataclass
class Mixture:
    """`ranks` ranks with `tokens` tokens each, `k` of `experts` experts for each; copies of shared experts first."""

    ranks: int
    experts: int
    k: int
    tokens: int = 5
    width: int = 1024
    shared: int = 0
    shared_ranks: int = 0
    special: tuple[int, int, int] = (0, 0, 0)
    dtype: torch.dtype = torch.float16
    mask: str = ""

    def __post_init__(self) -> None:
        count = self.experts + sum(self.special)
        self.x = [(torch.rand(self.tokens, self.width) * 4 - 2).to(self.dtype) for _ in range(self.ranks)]
        self.ids = [
            torch.stack([torch.randperm(count)[: self.k] for _ in range(self.tokens)]).int() for _ in range(self.ranks)
        ]
        self.weights = [torch.rand(self.tokens, self.k) for _ in range(self.ranks)]
        self.active: list[torch.Tensor | None] = [None] * self.ranks
        if self.mask == "tokens":
            self.active = [torch.arange(self.tokens) < self.tokens - r for r in range(self.ranks)]
        if self.mask == "pairs":
            self.active = [torch.rand(self.tokens, self.k) < 0.5 for _ in range(self.ranks)]

    @property
    def each(self) -> int:
        return self.experts // (self.ranks - self.shared_ranks)

    def here(self, rank: int) -> int:
        return 1 if rank < self.shared_ranks else self.each

    def takes_part(self, rank: int, token: int, which: int | None = None) -> bool:
        active = self.active[rank]
        if active is None:
            return True
        if active.dim() == 1:
            return bool(active[token])
        return bool(active[token].any() if which is None else active[token, which])

    def rows(self, rank: int) -> list[list[Row]]:
        """What each expert of the rank gets, in order."""
        made: list[list[Row]] = []
        if rank < self.shared_ranks:
            copies = self.shared_ranks // self.shared
            made.append(
                [
                    (source, token, self.k + rank // copies)
                    for source in range(self.ranks)
                    if source % copies == rank % copies
                    for token in range(self.tokens)
                    if self.takes_part(source, token)
                ]
            )
            return made
        for expert in range(self.each):
            number = (rank - self.shared_ranks) * self.each + expert
            made.append(
                [
                    (source, token, which)
                    for source in range(self.ranks)
                    for token in range(self.tokens)
                    for which in range(self.k)
                    if self.ids[source][token, which] == number and self.takes_part(source, token, which)
                ]
            )
        return made

    def most(self, rank: int) -> int:
        if rank < self.shared_ranks:
            copies = self.shared_ranks // self.shared
            return self.tokens * -(-self.ranks // copies)
        return self.tokens * self.ranks * min(self.each, self.k)

    def factor(self, rank: int, expert: int) -> float:
        return 0.5 * (rank + 1) + 0.25 * expert

    def combined(self, special: Callable[[int, int, int], torch.Tensor] | None = None) -> list[torch.Tensor]:
        """What each rank has at the end, in float64. `special` gives what a number behind the experts' stands for."""
        result = [torch.zeros(self.tokens, self.width, dtype=torch.float64) for _ in range(self.ranks)]
        for rank in range(self.ranks):
            for expert, rows in enumerate(self.rows(rank)):
                for source, token, which in rows:
                    weight = float(self.weights[source][token, which]) if which < self.k else 1.0
                    value = (self.x[source][token].float() * self.factor(rank, expert)).to(self.dtype)
                    result[source][token] += weight * value.double()
        for rank in range(self.ranks):
            for token in range(self.tokens):
                for which in range(self.k):
                    number = int(self.ids[rank][token, which]) - self.experts
                    if number >= 0 and special is not None and self.takes_part(rank, token, which):
                        weight = float(self.weights[rank][token, which])
                        result[rank][token] += weight * special(rank, token, number)
        return result

    # --- through the operators

    def numbers(self, rank: int, group: str) -> list[Any]:
        return [group, self.ranks, rank, self.experts, "", 0, 0, 0, self.shared, self.shared_ranks]

    def dispatch(
        self,
        name: str,
        group: str,
        quantized: int = 0,
        scales: torch.Tensor | None = None,
        counted: int = 1,
        algorithm: str = "",
    ) -> list[list[torch.Tensor]]:
        """The results of every rank: rows, their scales, what the way back needs, numbers of rows, counts."""
        first = name == "aclnnMoeDistributeDispatch"
        calls, results = [], []
        for rank in range(self.ranks):
            device, most = f"npu:{rank}", self.most(rank)
            kind = torch.int8 if quantized else self.dtype
            made = [
                torch.zeros(most, self.width, dtype=kind, device=device),
                torch.zeros(most, device=device),
                torch.zeros(self.tokens * self.k if first else most * 128, dtype=torch.int32, device=device),
                torch.zeros(self.here(rank), dtype=torch.int64, device=device),
                torch.zeros(self.ranks * self.here(rank), dtype=torch.int32, device=device),
            ]
            active = self.active[rank]
            tensors = [
                self.x[rank].to(device),
                self.ids[rank].to(device),
                None if scales is None else scales.to(device),
                None if active is None else active.to(device),
                None,
            ]
            tensors += [None] * {"V3": 1, "V4": 2}.get(name[-2:], 0)  # groups that shrink, times
            numbers = [*self.numbers(rank, group), quantized, 0, counted]
            numbers += [] if first else [algorithm]
            numbers += list(self.special) if name[-2:] in ("V3", "V4") else []
            none = torch.zeros(0, dtype=torch.int32, device=device)
            calls.append([*tensors, *numbers, *made, none, None])
            results.append(made)
        run_ranks(name, calls)
        return results

    def check_dispatch(
        self,
        results: list[list[torch.Tensor]],
        counted: int = 1,
        quantized: bool = False,
        scales: torch.Tensor | None = None,
    ) -> None:
        for rank, (rows, row_scales, _, numbers, _) in enumerate(results):
            expected = self.rows(rank)
            counts = torch.tensor([len(rows) for rows in expected])
            assert torch.equal(numbers.cpu(), counts if counted else counts.cumsum(0)), (rank, numbers)
            place = 0
            for expert, row in ((e, row) for e, of in enumerate(expected) for row in of):
                source, token, _ = row
                sent = self.x[source][token].double()
                if quantized:
                    if scales is not None:
                        shared = len(scales) - self.experts
                        which = (rank - self.shared_ranks) * self.each + expert + shared
                        if rank < self.shared_ranks:
                            which = rank // (self.shared_ranks // self.shared)
                        sent = sent * scales[which].double()
                    scale = sent.abs().max() / 127
                    assert abs(row_scales[place].item() / scale - 1) < 1e-5
                    assert ((rows[place].cpu().double() - sent / scale).abs() <= 0.502).all()
                else:
                    assert torch.equal(rows[place].cpu(), self.x[source][token]), (rank, place, row)
                place += 1
            assert not rows[place:].any()

    def experts_of(self, results: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        """The rows as the experts leave them."""
        made = []
        for rank, (rows, *_) in enumerate(results):
            factors = torch.ones(len(rows), 1)
            place = 0
            for expert, of in enumerate(self.rows(rank)):
                factors[place : place + len(of)] = self.factor(rank, expert)
                place += len(of)
            made.append((rows.cpu().float() * factors).to(self.dtype).to(rows.device))
        return made

    def combine(
        self,
        name: str,
        group: str,
        results: list[list[torch.Tensor]],
        quantized: int = 0,
        shared_x: list[torch.Tensor] | None = None,
        special: list[list[torch.Tensor]] | None = None,
        norm: tuple[list[torch.Tensor], torch.Tensor, float] | None = None,
        algorithm: str = "",
    ) -> list[list[torch.Tensor]]:
        """What each rank has at the end: its tokens, or what is made of them by a norm."""
        first = name == "aclnnMoeDistributeCombine"
        three = name[-2:] in ("V3", "V4") or name.endswith("NormV2")
        processed, calls, outs = self.experts_of(results), [], []
        for rank in range(self.ranks):
            device = f"npu:{rank}"
            _, _, assist, _, counts = results[rank]
            active = self.active[rank]
            tensors: list[Any] = [processed[rank], self.ids[rank].to(device), assist, counts]
            tensors.append(self.weights[rank].to(device))
            if norm is not None:
                tensors += [norm[0][rank].to(device), norm[1].to(device)]
            tensors += [None, None if active is None else active.to(device), None, None, None, None]
            if not first:
                tensors.append(None if shared_x is None else shared_x[rank].to(device))
            if three:
                tensors.append(None)
                tensors += [None] * 4 if special is None else [one.to(device) for one in special[rank]]
            if name.endswith("CombineV4"):
                tensors.append(None)
            numbers = [*self.numbers(rank, group), 0, 0, quantized, 0]
            numbers += [] if first else [algorithm]
            numbers += [] if norm is None else [norm[2]]
            numbers += list(self.special) if three else []
            shape = (self.tokens, self.width) if norm is None else (self.tokens, 1, self.width)
            made = [torch.full(shape, 7.0, dtype=self.dtype, device=device)]
            if norm is not None:
                made = [torch.zeros_like(made[0]), torch.zeros(self.tokens, 1, 1, device=device), made[0]]
            calls.append([*tensors, *numbers, *made])
            outs.append(made)
        run_ranks(name, calls)
        return outs

    def check_combined(self, outs: list[list[torch.Tensor]], expected: list[torch.Tensor], loose: float = 1) -> None:
        tolerance = (1e-3 if self.dtype == torch.float16 else 8e-3) * loose
        for rank, (out, *_) in enumerate(outs):
            for token in range(self.tokens):
                if self.takes_part(rank, token):
                    torch.testing.assert_close(
                        out[token].cpu().double(), expected[rank][token], rtol=tolerance, atol=tolerance
                    )
                else:
                    assert (out[token] == 7).all()
