"""Sparse tensors: coalesce() and what training makes of it."""

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import random

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32)


def entries(count: int, *rest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Entries of a 4 by 5 matrix, some of them at one place; values are small integers, whose sums are exact."""
    generator = torch.Generator().manual_seed(count)
    places = torch.stack([torch.randint(0, size, (count,), generator=generator) for size in (4, 5)])
    return places, torch.randint(-4, 5, (count, *rest), generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 17])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_coalesce(dtype: torch.dtype, count: int, rest: tuple[int, ...]) -> None:
    places, values = entries(count, *rest)
    expected = torch.sparse_coo_tensor(places, values.double(), (4, 5, *rest)).coalesce()
    found = torch.sparse_coo_tensor(places.npu(), values.to(dtype).npu(), (4, 5, *rest)).coalesce()
    assert found.is_coalesced() and found.values().dtype == dtype
    assert torch.equal(found.indices().cpu(), expected.indices())
    assert torch.equal(found.values().cpu().double(), expected.values())


def test_a_sparse_embedding_learns() -> None:
    """Not with SparseAdam: torch_npu's sparse_mask leaves entries out whose value is 0, as a new state's is."""
    weight, rows = random(6, 3).float(), torch.tensor([1, 4, 1, 0])
    results = []
    for device in ("cpu", "npu"):
        table = torch.nn.Embedding.from_pretrained(weight.clone(), freeze=False, sparse=True).to(device)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            (table(rows.to(device)) * (step + 1)).square().sum().backward()
            optimizer.step()
        assert table.weight.grad is not None and table.weight.grad.is_sparse
        results.append(table.weight.detach().cpu())
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_by_name() -> None:
    """Values are added to what the result holds."""
    places = torch.tensor([1, 0, 1])
    indices, values = torch.tensor([[7, 8], [1, 2], [7, 8]]), torch.tensor([1.0, 2.0, 4.0])
    new_indices, new_values = torch.zeros(2, 2, dtype=torch.int64).npu(), torch.ones(2).npu()
    run(
        "aclnnCoalesceSparse",
        torch.zeros(2, dtype=torch.int64).npu(),
        places.npu(),
        indices.npu(),
        values.npu(),
        new_indices,
        new_values,
    )
    assert new_indices.cpu().tolist() == [[1, 2], [7, 8]] and new_values.cpu().tolist() == [3, 6]


def test_what_does_not_fit_is_refused() -> None:
    def said(values: int, rows: int) -> int:
        integers = [torch.zeros(*shape, dtype=torch.int64).npu() for shape in ((2,), (3,), (3, 2), (rows, 2))]
        floats = torch.zeros(values).npu(), torch.zeros(rows).npu()
        return first_phase("aclnnCoalesceSparse", *integers[:3], floats[0], integers[3], floats[1])[0]

    assert said(3, 2) == 0
    assert said(4, 2) == INVALID_ARGUMENT and said(3, 1) == INVALID_ARGUMENT
