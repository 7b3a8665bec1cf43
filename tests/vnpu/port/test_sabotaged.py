"""A part of `make verdict`: three scripts as they are and with four faults each, and what `torchport port` says.
`make test` has one of the scripts, `make ports` all."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "verdict"))

import ports
from matrix import HOLDS, WRONG, Row, TableError

CELLS = {
    "mlp": ["step deleted", "optimizer setting", "dropout rate", "layer frozen"],
    "gan": ["rate x1.1", "rate x3", "loss term dropped", "wrong reduction"],
    "lstm": ["mask off", "smoothing off", "batch order", "clipping or schedule"],
}


IN_MAKE_TEST = "mlp"
SCRIPTS = [pytest.param(script, marks=[pytest.mark.ports] * (script != IN_MAKE_TEST)) for script in CELLS]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ports.Ports:
    return ports.Ports(tmp_path_factory.mktemp("verdict"), jobs=1)


@pytest.fixture(scope="module")
def healthy(made: ports.Ports) -> Callable[[str], Row]:
    """The row of a script's port, which is made once: its sabotaged copies go on from it."""
    return functools.cache(made.healthy)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_healthy_port_holds(healthy: Callable[[str], Row], script: str) -> None:
    assert healthy(script) == Row(HOLDS)


@pytest.mark.parametrize(
    ("script", "column"),
    [
        pytest.param(script, column, marks=[pytest.mark.ports] * (script != IN_MAKE_TEST))
        for script in CELLS
        for column in CELLS[script]
    ],
)
def test_a_faulty_port_does_not_hold(
    made: ports.Ports, healthy: Callable[[str], Row], script: str, column: str
) -> None:
    healthy(script)
    row = made.sabotaged(script, column)
    assert row.acts
    assert (row.word, row.code[:3]) == (WRONG, "TP3"), row


def test_neither_an_edit_that_breaks_the_port_nor_one_that_does_nothing_counts(
    made: ports.Ports, healthy: Callable[[str], Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy("mlp")
    step = "            optimizer.step()\n"
    edits = {
        "rate x1.1": (step, step + "            # nothing\n"),
        "rate x3": (step, "            raise SystemExit(7)\n"),
    }
    monkeypatch.setattr(made, "_edits", {"mlp": edits})
    assert made.sabotaged("mlp", "rate x1.1") == Row(HOLDS)
    with pytest.raises(TableError, match="ends with exit status 7"):
        made.sabotaged("mlp", "rate x3")
