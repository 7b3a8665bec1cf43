"""The allocator's history, replayed: peak, whose it is, and the step's curve."""

from __future__ import annotations

from typing import Any

from torchport.predict.memory import compute_peak, round_allocation

MIB = 1 << 20


def notes(**changes: Any) -> dict[str, Any]:
    """A weight, an activation, its gradient, the optimizer's state; then the activation goes."""
    sizes = (4 * MIB, 8 * MIB, 4 * MIB, 16 * MIB)
    history = [("alloc", 100 + i, size) for i, size in enumerate(sizes[:3])]
    history += [("free_requested", 101, 8 * MIB), ("free_completed", 101, 8 * MIB), ("alloc", 103, sizes[3])]
    allocated = sum(map(round_allocation, (4 * MIB, 4 * MIB, 16 * MIB)))
    given = {
        "history": history,
        "peak": allocated,
        "reserved": allocated + MIB,
        "total": 1 << 30,
        "scopes": [[1, "layers.*"], [2, ""], [3, "optimizer"], [4, ""]],
        "ends": [4],
        "labels": [[3, 102, "gradients"], [4, 100, "weights"], [4, 103, "optimizer state"]],
    }
    return given | changes


def test_the_peak_is_the_highest_point_and_its_owners_are_what_was_alive_then() -> None:
    found = compute_peak(notes())
    assert found.owners == {"optimizer state": 16 * MIB, "weights": 4 * MIB, "gradients": 4 * MIB}
    assert sum(found.owners.values()) + found.rounding == found.allocated
    assert found.fragmentation == MIB
    assert found.curve == ()  # nothing is behind the only step
    assert max(compute_peak(notes(), 0).curve) == found.allocated
    assert len(compute_peak(notes(ends=[1, 3, 4]), 1).curve) == 2  # of the second step alone


def test_activations_have_the_module_that_computed_when_they_were_made() -> None:
    """The peak is before the step where the optimizer has no state."""
    shorter = notes()
    shorter["history"] = shorter["history"][:5]
    found = compute_peak(shorter)
    assert found.owners["activations"] == 8 * MIB
    assert found.modules == {"layers.*": 8 * MIB}


def test_what_was_freed_before_is_nobodys() -> None:
    """A label at an address that has been given out again is not of what was there first."""
    moved = notes(labels=[[4, 101, "weights"]])
    assert "weights" not in compute_peak(moved).owners


def test_gradients_that_the_step_frees_at_once_are_known() -> None:
    early = notes()
    early["history"] = [*early["history"][:3], ("free_requested", 102, 4 * MIB)]
    assert compute_peak(early).owners["gradients"] == 4 * MIB
