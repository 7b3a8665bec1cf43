"""What a comparison rests on, made by hand: quantities, first differences, controls, the yardstick."""

from __future__ import annotations

from typing import Any

NOISE = "one unit in the last place of every weight, on one thread"
SMALLEST = "the smallest change that was noticed is 1 % of the gradient of fc1.weight, in step 19"
HF32 = {"name": "HF32 convolution", "roundoff": 4.9e-4, "source": "torch_npu, torch.npu.conv.allow_hf32"}
DRAWN = {
    "operator": "normal_",
    "site": "train.py:12",
    "dtype": "float32",
    "count": 5120,
    "mean": 0.001,
    "expected_mean": 0.0,
    "holds": True,
}
DRAWN_OFF = DRAWN | {"operator": "bernoulli_", "mean": 0.4, "expected_mean": 0.5, "holds": False}


def quantity(kind: str, compared: int, worst: float | None = None, **changes: Any) -> dict[str, Any]:
    """A row of `quantities`; what has a worst difference has bounds and a place too."""
    row = {"kind": kind, "compared": compared, "steps": 20, "worst": worst, "at": None, "allowed": None, "noise": None}
    if worst is not None:
        row |= {"at": {"step": 17, "name": "fc1.weight"}, "allowed": 3e-5, "noise": 1.5e-6}
    return row | changes


def quantities(**worst: float) -> list[dict[str, Any]]:
    """The quantities of 20 steps with ten parameters, by kind with other worst differences."""
    place = {"step": 19, "name": "train.py:20"}
    return [
        quantity("loss", 20, worst.get("loss", 1e-7), at=place, allowed=1e-4),
        quantity("gradient", 200, worst.get("gradient", 2.1e-6)),
        quantity("change", 200, worst.get("change", 4e-6)),
        quantity("setting", 6),
        quantity("upload", 40),
    ]


def difference(step: int, kind: str, name: str, error: float | None = 1e-2, **changes: Any) -> dict[str, Any]:
    """A row of `first`; without an error it is of what is equal or not."""
    row = {"step": step, "kind": kind, "name": name, "reference": 0.0125, "port": 0.0126, "error": error}
    bounds = {"noise": 1.5e-7, "allowed": 3e-6} if error is not None else {"noise": None, "allowed": None}
    return row | bounds | changes


def noticed(kind: str = "gradient", name: str = "fc1.weight", error: float = 1e-2) -> dict[str, Any]:
    """A quantity that showed a fault."""
    return {"kind": kind, "name": name, "error": error, "allowed": 3e-6}


def control(name: str, *by: dict[str, Any], possible: bool = True) -> dict[str, Any]:
    """A row of the controls, noticed by what is given."""
    words = {
        "update": "5 % of one update",
        "gradient": "1 % of one layer's gradient",
        "sample": "one sample of a batch replaced",
    }
    where = "train.py:18" if name == "sample" else "fc1.weight"
    return {"name": name, "words": words[name], "step": 19, "where": where, "possible": possible, "noticed": list(by)}


def controls(*rows: dict[str, Any]) -> dict[str, Any]:
    """Controls that were measured; all three noticed where none is given."""
    found = rows or (
        control("update", noticed("change", error=5e-2)),
        control("gradient", noticed()),
        control("sample", noticed("inputs", "train.py:18", 2e-3), noticed("loss", "train.py:20", 4e-3)),
    )
    return {"measured": True, "why": "", "rows": list(found), "smallest": SMALLEST}


def without_power(why: str = "--no-control") -> dict[str, Any]:
    """Controls that nobody measured."""
    return {"measured": False, "why": why, "rows": [], "smallest": ""}


def yardstick(**changes: Any) -> dict[str, Any]:
    """A run of the original with noise."""
    spread = {"loss": 3e-8, "gradient": 1.1e-6, "change": 2e-6}
    return {"steps": 20, "noise": NOISE, "spread": spread, "chaotic": None, "declared": []} | changes


def evidence() -> dict[str, Any]:
    """All of it, for a comparison that holds."""
    return {
        "quantities": quantities(),
        "first": [],
        "controls": controls(),
        "yardstick": yardstick(),
        "forced": None,
        "draws": [],
    }
