"""attention/advance_step.cpp: vLLM's step."""

import pytest
import torch
import torch_npu
from aclnn import first_phase

TILING_REFUSED = 561002


def test_advance_step() -> None:
    """Three queries and two rows that fill up the batch, of which the first is cleared: CANN's kernel leaves the rest."""
    tokens, positions = torch.arange(5) + 10, torch.arange(5) + 20
    lengths, slots = torch.tensor([3, 8, 5, 7, 9]), torch.full((5,), 77)
    sampled, tables = torch.tensor([[1], [2], [3]]), torch.arange(15).view(5, 3) + 100
    device = [each.npu() for each in (tokens, sampled, positions, lengths, slots, tables)]
    torch_npu.npu_advance_step_flashattn(*device, 5, 3, 4)
    flat = tables.flatten()
    expected = [(int(flat[length // 4]) + 3 * row) * 4 + length % 4 for row, length in enumerate((3, 8, 5))]
    assert device[0].cpu().tolist() == [1, 2, 3, 0, 14]
    assert device[2].cpu().tolist() == [3, 8, 5, 0, 24]
    assert device[3].cpu().tolist() == [4, 9, 6, 7, 9]
    assert device[4].cpu().tolist() == [*expected, -1, 77]
    assert first_phase("aclnnAdvanceStep", *device, 5, 3, 4)[0] == 0
    assert first_phase("aclnnAdvanceStep", *device, 5, 5, 4)[0] == TILING_REFUSED


@pytest.mark.parametrize("guessed", [0, 2])
def test_advance_step_with_guesses(guessed: int) -> None:
    rows, each, block = 3, guessed + 1, 4
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 50, (rows * each,), generator=generator)
    sampled = torch.randint(1, 50, (rows, each), generator=generator)
    if guessed:
        sampled[0] = -1  # none at all
        sampled[1, 1:] = -1
        sampled[2, 2:] = -1
    positions = torch.randint(0, 9, (rows * each,), generator=generator)
    accepted, spec = torch.tensor([2, 0, 1]), torch.randint(1, 50, (rows, guessed), generator=generator)
    tables = torch.arange(rows * 4).view(rows, 4) + 100
    slots, lengths = torch.zeros(rows * each, dtype=torch.int64), torch.zeros(rows * each, dtype=torch.int64)
    device = [one.npu() for one in (tokens, sampled, positions, lengths, slots, tables)]
    torch_npu.npu_advance_step_flashattn(*device, rows, rows, block, spec_token=spec.npu(), accepted_num=accepted.npu())
    places = [int(positions[i]) + int(accepted[i // each]) + 1 for i in range(rows * each)]
    last = [int([*row, -1][[*row, -1].index(-1) - 1]) for row in sampled.tolist()]
    assert device[2].cpu().tolist() == places
    assert device[3].cpu().tolist() == [place + 1 for place in places]
    assert device[0].cpu().tolist() == [token for i in range(rows) for token in (last[i], *spec[i].tolist())]
    assert device[4].cpu().tolist() == [
        int(tables[i // each, place // block]) * block + place % block for i, place in enumerate(places)
    ]
