"""What combine_grad saves: between the end of a backward pass and the next forward pass, with it and without.

    python benchmarks/amp.py
    python benchmarks/amp.py --json

A deep narrow network (many small parameters) trains under O1 and O2 on npu:0 of the virtual NPU, with separate and with
combined gradients. Measured is what follows `backward()`: unscaling with the check for overflow, clipping, the
optimizer's step, zero_grad, up to and including the synchronisation.

launches: tasks that reach the device, counted from the virtual NPU's trace. This is what hardware pays for.
time: wall time of steps in turn; the median of the paired ratios (combined / separate), 10th to 90th percentile.

Exit status 0 when in each case combined gradients need fewer launches and the median ratio of the times is below 1,
else 1. (Time was the first criterion, and had been replaced by launches alone after times were seen. Both count again;
other work on the machine disturbs the times.)
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CASES = [(level, name) for level in ("O1", "O2") for name in ("SGD", "AdamW")]


def updates(level: str, name: str, layers: int, combine: bool) -> Callable[[], float]:
    """A function that trains one step and gives the seconds of its update."""
    import torch

    from torchport import amp

    torch.manual_seed(0)
    parts = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32)) for _ in range(layers)]
    model = torch.nn.Sequential(*parts).to("npu")
    make: Any = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}[name]
    optimizer = make(model.parameters(), lr=1e-3, **({"momentum": 0.9} if name == "SGD" else {}))
    model, optimizer = amp.initialize(
        model, optimizer, opt_level=level, loss_scale="dynamic", combine_grad=combine, verbosity=0
    )
    x = torch.ones(4, 32, device="npu")

    def step() -> float:
        scaling = amp.scale_loss(model(x).square().mean() * 1e-3, optimizer)
        scaling.__enter__().backward()
        torch.npu.synchronize()  # type: ignore[attr-defined]
        start = time.perf_counter()
        scaling.__exit__(None, None, None)
        if combine:
            optimizer.clip_grad_norm_fused_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.npu.synchronize()  # type: ignore[attr-defined]
        return time.perf_counter() - start

    return step


def times(level: str, name: str, layers: int, rounds: int) -> dict[str, float]:
    """Milliseconds of both sides, and the ratio's median and interval."""
    separate, combined = (updates(level, name, layers, combine) for combine in (False, True))
    for step in (separate, combined) * 3:  # states are made in the first steps
        step()
    pairs = [(separate(), combined()) for _ in range(rounds)]
    ratios = sorted(after / before for before, after in pairs)
    return {
        "separate_ms": statistics.median(before for before, _ in pairs) * 1e3,
        "combined_ms": statistics.median(after for _, after in pairs) * 1e3,
        "ratio": statistics.median(ratios),
        "ratio_p10": ratios[len(ratios) // 10],
        "ratio_p90": ratios[len(ratios) * 9 // 10],
    }


def launches(level: str, name: str, layers: int, combine: bool, trace: Path) -> int:
    """Tasks that one update sends to the device; `trace` is the file that VNPU_TRACE names."""
    import torch

    step = updates(level, name, layers, combine)
    for _ in range(3):
        step()
    sizes = []
    synchronize = torch.npu.synchronize  # type: ignore[attr-defined]

    def marked() -> None:
        synchronize()
        sizes.append(trace.stat().st_size)

    torch.npu.synchronize = marked  # type: ignore[attr-defined]
    step()
    torch.npu.synchronize = synchronize  # type: ignore[attr-defined]
    with trace.open() as lines:
        lines.seek(sizes[0])
        return lines.read(sizes[1] - sizes[0]).count(" run aclnn")


def traced(layers: int) -> list[int]:
    """`launches` for each case, separate and combined, from a process that traces."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "VNPU_TRACE": f"{folder}/trace"}
        command = [sys.executable, __file__, "--launches", f"--layers={layers}"]
        child = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(child.stdout)  # type: ignore[no-any-return]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="pairs of steps (default %(default)s)")
    parser.add_argument("--layers", type=int, default=40, help="layers, 4 parameters each (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--launches", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    import torchport.vnpu

    torchport.vnpu.activate()
    if args.launches:
        trace = Path(os.environ["VNPU_TRACE"])
        print(json.dumps([launches(*case, args.layers, c, trace) for case in CASES for c in (False, True)]))
        return 0
    counts = traced(args.layers)
    results = []
    for index, (level, name) in enumerate(CASES):
        row: dict[str, Any] = {"level": level, "optimizer": name, "parameters": args.layers * 4}
        row["separate_launches"], row["combined_launches"] = counts[2 * index : 2 * index + 2]
        results.append(row | times(level, name, args.layers, args.rounds))
    if args.json:
        print(json.dumps(results, indent=2))
    else:
        for row in results:
            print(
                f"{row['level']} {row['optimizer']:5}  {row['parameters']} parameters: "
                f"{row['separate_launches']} launches become {row['combined_launches']}; "
                f"{row['separate_ms']:.2f} ms become {row['combined_ms']:.2f} ms, "
                f"ratio {row['ratio']:.2f} ({row['ratio_p10']:.2f} to {row['ratio_p90']:.2f})"
            )
    met = [row["combined_launches"] < row["separate_launches"] and row["ratio"] < 1 for row in results]
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
