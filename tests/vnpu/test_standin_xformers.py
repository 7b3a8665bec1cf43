"""The stand-in for xformers, forward and backward, against float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from attention_oracle import DEVICES, check, exact, random

from torchport import standins

HALF = torch.float16


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    standins.install()
    yield
    standins.uninstall()


def operands(queries: int, keys: int, batch: int = 2) -> list[torch.Tensor]:
    return [random(batch, length, 4, 16, seed=i, dtype=HALF) for i, length in enumerate((queries, keys, keys))]


def masks(queries: int, keys: int) -> dict[str, tuple[Callable[[Any], Any], Callable[[int, int], bool]]]:
    shift = keys - queries
    return {
        "none": (lambda bias: None, lambda i, j: True),
        "causal": (lambda bias: bias.LowerTriangularMask(), lambda i, j: j <= i),
        "causal-right": (lambda bias: bias.LowerTriangularFromBottomRightMask(), lambda i, j: j <= i + shift),
        "local-causal": (
            lambda bias: bias.LowerTriangularFromBottomRightMask().make_local_attention(2),
            lambda i, j: i + shift - 2 < j <= i + shift,
        ),
        "local": (
            lambda bias: bias.LocalAttentionFromBottomRightMask(2, 1),
            lambda i, j: i + shift - 2 <= j <= i + shift + 1,
        ),
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 6), (6, 3)])
@pytest.mark.parametrize("name", masks(1, 1))
def test_masks(name: str, queries: int, keys: int, device: str) -> None:
    from xformers.ops import memory_efficient_attention
    from xformers.ops.fmha import attn_bias

    make, sees = masks(queries, keys)[name]
    mask = make(attn_bias)
    check(
        lambda q, k, v: memory_efficient_attention(q, k, v, mask, scale=0.3),
        lambda q, k, v: exact(q, k, v, sees, 0.3),
        operands(queries, keys),
        device,
    )
    if mask is not None:
        dense = mask.materialize((2, queries, keys))
        assert [[bool(dense[1, i, j] == 0) for j in range(keys)] for i in range(queries)] == [
            [sees(i, j) for j in range(keys)] for i in range(queries)
        ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(2, 4, 3, 5), (1, 4, 3, 5), (2, 1, 3, 5)])
@pytest.mark.parametrize("causal", [False, True])
def test_tensor_bias_and_its_gradient(shape: tuple[int, ...], causal: bool, device: str) -> None:
    import xformers.ops as xops

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        mask = xops.LowerTriangularMask().add_bias(bias) if causal else bias
        return xops.memory_efficient_attention(q, k, v, attn_bias=mask)

    check(
        attention,
        lambda q, k, v, bias: exact(
            q, k, v, (lambda i, j: j <= i) if causal else (lambda i, j: True), bias=bias.expand(2, 4, 3, 5)
        ),
        [*operands(3, 5), random(*shape, seed=7, dtype=HALF)],
        device,
    )


LENGTHS, KEY_LENGTHS = [3, 1, 4], [4, 2, 5]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("method", "sees"),
    [
        ("", lambda i, j, shift: True),
        ("make_causal", lambda i, j, shift: j <= i),
        ("make_causal_from_bottomright", lambda i, j, shift: j <= i + shift),
        ("make_local_attention", lambda i, j, shift: i - 2 < j <= i),
        ("make_local_attention_from_bottomright", lambda i, j, shift: i + shift - 2 < j <= i + shift),
    ],
)
def test_packed_sequences(method: str, sees: Any, device: str) -> None:
    from xformers.ops import memory_efficient_attention
    from xformers.ops.fmha.attn_bias import BlockDiagonalMask

    mask = BlockDiagonalMask.from_seqlens(LENGTHS, KEY_LENGTHS)
    if method:
        mask = getattr(mask, method)(*([2] if "local" in method else []))

    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        parts = zip(q.split(LENGTHS, 1), k.split(KEY_LENGTHS, 1), v.split(KEY_LENGTHS, 1), strict=True)
        return torch.cat([exact(a, b, c, lambda i, j: sees(i, j, b.shape[1] - a.shape[1])) for a, b, c in parts], 1)

    given = operands(sum(LENGTHS), sum(KEY_LENGTHS), batch=1)
    check(lambda q, k, v: memory_efficient_attention(q, k, v, attn_bias=mask), reference, given, device)
    dense = mask.materialize((1, 4, sum(LENGTHS), sum(KEY_LENGTHS)))
    q, k, v = (tensor.float() for tensor in given)
    same = memory_efficient_attention(q, k, v, attn_bias=dense)
    assert torch.allclose(same, reference(q, k, v), atol=1e-5)


def test_tensors_are_packed_and_split() -> None:
    from xformers.ops.fmha import BlockDiagonalMask

    tensors = [torch.randn(2, 3, 1, 4), torch.randn(1, 5, 1, 4)]
    mask, joined = BlockDiagonalMask.from_tensor_list(tensors)
    assert joined.shape == (1, 11, 1, 4)
    assert mask.q_seqinfo.seqstart_py == [0, 3, 6, 11]
    assert (mask.q_seqinfo.max_seqlen, mask.q_seqinfo.seqstart.tolist()) == (5, [0, 3, 6, 11])
    assert all(map(torch.equal, mask.split(joined), tensors))


@pytest.mark.parametrize("device", DEVICES)
def test_other_shapes_and_forms(device: str) -> None:
    import xformers.ops as xops

    q, k, v = operands(3, 5)
    flat = [tensor.transpose(1, 2).flatten(0, 1) for tensor in (q, k, v)]
    everything = exact(*(tensor.double() for tensor in (q, k, v)), lambda i, j: True)
    got = xops.memory_efficient_attention(
        *(tensor.to(device) for tensor in flat), op=xops.MemoryEfficientAttentionCutlassOp
    )
    assert torch.allclose(got.cpu().double(), everything.transpose(1, 2).flatten(0, 1), atol=4e-3)
    groups = [tensor.unflatten(2, (2, 2)).to(device) for tensor in (q, k, v)]
    got = xops.memory_efficient_attention(*groups, output_dtype=torch.float32)
    assert got.dtype == torch.float32
    assert torch.allclose(got.cpu().double(), everything.unflatten(2, (2, 2)), atol=4e-3)
    there = [tensor.to(device).requires_grad_() for tensor in (q, k, v)]
    output, sums = xops.memory_efficient_attention_forward_requires_grad(*there)
    assert not output.requires_grad
    scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) / 4
    assert torch.allclose(sums.cpu().double(), scores.logsumexp(-1), atol=1e-3)


def test_unknown_mask_is_refused() -> None:
    import xformers.ops as xops

    class Mine(xops.AttentionBias):
        pass

    with pytest.raises(NotImplementedError, match="has no Mine"):
        xops.memory_efficient_attention(*operands(2, 2), attn_bias=Mine())
    with pytest.raises(ValueError, match="window"):
        xops.fmha.attn_bias.LocalAttentionFromBottomRightMask(-1, 0)
