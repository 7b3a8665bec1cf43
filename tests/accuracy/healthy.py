"""Pairs of recordings in which nothing is wrong: no operator may be named, and no cause.

`python tests/accuracy/healthy.py [NAME ...]` records one step of each, compares it with its reference as `torchport
compare` does, and stores in `healthy.json` how many calls were judged, the highest score, the share of the bytes that
was judged and what was named. Exit status 1 where something is named, or less than 95 % was judged.

A pair is a model family of tests/vnpu/models, the device of the port's side, and what is done otherwise there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STORED = HERE / "healthy.json"
LEAST = 0.95


@dataclasses.dataclass(frozen=True)
class Pair:
    name: str
    family: str
    device: str = "npu"
    threads: int = 1
    foreach: bool | None = None
    autocast: bool = False
    reference: str = ""  # the family of the reference, where it is another form of the same model


PAIRS = (
    Pair("resnet18 on the NPU", "resnet18"),
    Pair("bert on the NPU", "bert"),
    Pair("gpt, fused attention on the NPU", "gpt.fused"),
    Pair("gpt, written-out attention on the NPU", "gpt.written_out"),
    Pair("lstm on the NPU", "lstm"),
    Pair("unet on the NPU", "unet.transposed"),
    Pair("bert with two threads", "bert", "cpu", threads=2),
    Pair("bert with another optimizer loop", "bert", "cpu", foreach=True),
    Pair("resnet18 with bfloat16 autocast on the NPU", "resnet18", autocast=True),
    Pair("gpt, fused against written-out attention", "gpt.fused", "cpu", reference="gpt.written_out"),
)


def record(folder: Path, pair: Pair, side: str) -> None:
    """One step of a pair's side: "reference" (the CPU, one thread) or "port"."""
    import torch
    from models import FAMILIES
    from recording_run import recorded

    other = side == "port"
    family = FAMILIES[pair.reference if pair.reference and not other else pair.family]
    device = pair.device if other else "cpu"
    torch.set_num_threads(pair.threads if other else 1)
    torch.manual_seed(0)
    model = family.initial().to(device)
    foreach = pair.foreach if other else False if pair.foreach is not None else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)
    batch = tuple(one.to(device) for one in family.batch_of(0))
    with recorded(folder, device) as made:
        cast = torch.autocast(device, torch.bfloat16) if pair.autocast else contextlib.nullcontext()
        with cast:
            loss = family.loss(model, batch)
        loss.backward()
        made.on_step_begin(optimizer, 0, 0, False)
        optimizer.step()
        made.on_step_end(optimizer, 0, 0)
        made.step_done()


def judge(reference: Path, port: Path) -> dict[str, Any]:
    """What a comparison says."""
    from torchport.compare.culprit import find_culprit

    start = time.process_time()
    found = find_culprit(reference, port)
    assert found is not None and found.replay is not None
    rows = [row for row in found.replay.rows if row.kind == "judged"]
    return {
        "calls": len(found.replay.rows),
        "judged": len(rows),
        "highest": float(f"{max(row.score for row in rows):.3g}"),
        "share": round(found.replay.share, 4),
        "wrong": [f"{row.operator} in {row.module}" for row in found.replay.wrong],
        "causes": [f"{cause.kind}: {cause.text}" for cause in found.causes],
        "not judged": [list(one) for one in found.replay.unjudged],
        "seconds": round(time.process_time() - start, 1),
    }


def main() -> int:
    """Record and judge the pairs that are named, or all."""
    if sys.argv[1:2] == ["--record"]:
        folder, name, side = Path(sys.argv[2]), sys.argv[3], sys.argv[4]
        sys.path[:0] = [str(HERE), str(HERE.parent / "vnpu")]
        from torchport import vnpu

        pair = next(pair for pair in PAIRS if pair.name == name)
        if side == "port" and pair.device == "npu":
            vnpu.activate()
            import torch_npu  # noqa: F401 - the device
        import torch

        from torchport.patches import Patches
        from torchport.record import gelu

        if side == "reference" and pair.device == "npu":  # as in the reference of a port
            patches = Patches()  # held: torch forgets the kernels of a library that nobody holds
            gelu.replace_gelu_kernels(torch, "CPU", patches, lambda note: None)
        record(folder, pair, side)
        return 0
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    bad = 0
    for pair in PAIRS:
        if sys.argv[1:] and pair.name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folders = {side: Path(temporary, side) for side in ("reference", "port")}
            for side, folder in folders.items():
                of_npu = side == "port" and pair.device == "npu"
                environment = {**os.environ, "OMP_NUM_THREADS": str(pair.threads)}
                if not of_npu:
                    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
                subprocess.run(
                    [sys.executable, __file__, "--record", str(folder), pair.name, side], check=True, env=environment
                )
            row = judge(folders["reference"], folders["port"])
        good = not row["wrong"] and not row["causes"] and row["share"] >= LEAST
        bad += not good
        print(f"{'' if good else 'NAMED '}{pair.name}: {json.dumps(row)}", flush=True)
        stored[pair.name] = row
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
