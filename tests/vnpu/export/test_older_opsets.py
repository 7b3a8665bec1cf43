"""The plain forms for old opsets compute what torch's functions do."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from torchport.export import older_opsets as plain

GENERATOR = torch.Generator().manual_seed(6)


def x(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=GENERATOR)


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("bqhd,bkhd->bhqk", ((2, 3, 4, 5), (2, 6, 4, 5))),
        ("bhqk,bkhd->bqhd", ((2, 4, 3, 6), (2, 6, 4, 5))),
        ("i,j->ij", ((3,), (4,))),
        ("bi,bi->b", ((3, 4), (3, 4))),
        ("bi , bi -> ib", ((3, 4), (3, 4))),
        ("ij,kj->ki", ((2, 3), (4, 3))),
        ("ii->i", ((3, 3),)),  # these stay torch's own
        ("ij,jk", ((2, 3), (3, 4))),
        ("ij,jk->k", ((2, 3), (3, 4))),
        ("...ij,...jk->...ik", ((2, 2, 3), (2, 3, 4))),
    ],
)
def test_einsum(equation: str, sizes: tuple[tuple[int, ...], ...]) -> None:
    given = [x(*size) for size in sizes]
    torch.testing.assert_close(plain.plain_einsum(equation, *given), torch.einsum(equation, *given))


def test_the_others() -> None:
    q, k, v, mask = x(2, 4, 5, 8), x(2, 2, 7, 8), x(2, 2, 7, 8), x(2, 1, 5, 7) > 0
    mask[..., 0] = True
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"attn_mask": x(5, 7)}, {"scale": 0.3}):
        wanted = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
        torch.testing.assert_close(plain.plain_attention(q, k, v, enable_gqa=True, **options), wanted)
    mask[0, 0, 2] = False
    away = torch.zeros(5, 7).index_fill(0, torch.tensor(1), float("-inf"))
    for lost in (mask, away):  # a query without a key
        wanted = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, attn_mask=lost)
        torch.testing.assert_close(plain.plain_attention(q, k, v, enable_gqa=True, attn_mask=lost), wanted)
    ids = torch.tensor([[3, 1, 2], [5, 5, 0]])
    for options in ({}, {"n": 2}, {"dim": 0}, {"prepend": ids[:, :1], "append": ids[:, 1:]}):
        assert plain.plain_diff(ids, **options).equal(torch.diff(ids, **options))
    assert plain.plain_diff(ids > 2).equal(torch.diff(ids > 2))
    assert plain.plain_cumsum(ids > 2, -1).equal(torch.cumsum(ids > 2, -1))
    assert plain.plain_min(ids, ids.flip(1)).equal(torch.min(ids, ids.flip(1)))
    assert plain.plain_max(ids, ids.flip(1)).equal(torch.max(ids, ids.flip(1)))
    assert plain.plain_max(ids, dim=1).values.equal(torch.max(ids, 1).values) and plain.plain_min(ids) == 0
    one = x(3, 4, 6)
    for diagonal in (-1, 0, 2):
        assert plain.plain_triu(one, diagonal).equal(one.triu(diagonal))
        assert plain.plain_tril(one, diagonal).equal(one.tril(diagonal))
    assert plain.plain_unflatten(one, -1, (2, -1)).equal(one.unflatten(-1, (2, -1)))
    assert plain.plain_tile(one, (2, 1)).equal(one.tile((2, 1))) and plain.plain_tile(one, 2).equal(one.tile(2))
    assert plain.plain_outer(one[0, 0], one[0, 1]).equal(torch.outer(one[0, 0], one[0, 1]))


def test_they_are_taken_back() -> None:
    before = [getattr(owner, name) for owner, name, _, _ in plain.FORMS]
    seen = []
    with pytest.raises(ZeroDivisionError), plain.plain_for(11):
        seen.append(torch.einsum is plain.plain_einsum) or 1 / 0
    assert seen == [True]
    with plain.plain_for(14):
        assert torch.einsum is plain.EINSUM and torch.Tensor.unflatten is plain.plain_unflatten
    assert [getattr(owner, name) for owner, name, _, _ in plain.FORMS] == before
