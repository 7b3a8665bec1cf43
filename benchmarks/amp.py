"""What combine_grad saves: the time from the end of a backward pass to the next forward pass, with it and without.

    python benchmarks/amp.py
    python benchmarks/amp.py --json

A deep narrow network (many small parameters) trains under O1 and O2 on npu:0 of the virtual NPU, once with separate
gradients and once with combined ones, in turn. Timed is what follows `backward()`: unscaling with the check for
overflow, clipping, the optimizer's step, zero_grad, up to and including the synchronisation. Time is the processor time
of all threads, which other programs on the machine disturb least. The median of the paired ratios (combined / separate)
counts, with its interval from the 10th to the 90th percentile.
Exit status 0 when every median is below 1, 1 otherwise.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

LIMIT = 1.0


def updates(level: str, name: str, layers: int, combine: bool) -> Callable[[], float]:
    """A function that trains one step and gives the processor seconds of its update."""
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
        start = time.process_time()
        scaling.__exit__(None, None, None)
        if combine:
            optimizer.clip_grad_norm_fused_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.npu.synchronize()  # type: ignore[attr-defined]
        return time.process_time() - start

    return step


def measure(level: str, name: str, layers: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of both sides and the ratio's median and interval.

    Both sides are initialized after one another, and O1's casts belong to the last one: they are the same.
    """
    separate, combined = (updates(level, name, layers, combine) for combine in (False, True))
    for step in (separate, combined) * 3:  # states are made in the first steps
        step()
    pairs = [(separate(), combined()) for _ in range(rounds)]
    ratios = sorted(after / before for before, after in pairs)
    return {
        "level": level,
        "optimizer": name,
        "parameters": layers * 4,
        "separate_ms": statistics.median(before for before, _ in pairs) * 1e3,
        "combined_ms": statistics.median(after for _, after in pairs) * 1e3,
        "ratio": statistics.median(ratios),
        "ratio_p10": ratios[len(ratios) // 10],
        "ratio_p90": ratios[len(ratios) * 9 // 10],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30, help="pairs of steps (default %(default)s)")
    parser.add_argument(
        "--layers", type=int, default=40, help="layers, 4 parameters each (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    import torchport.vnpu

    torchport.vnpu.activate()
    results = [
        measure(level, name, args.layers, args.rounds) for level in ("O1", "O2") for name in ("SGD", "AdamW")
    ]
    if args.json:
        print(json.dumps(results, indent=2))
    else:
        for row in results:
            print(
                f"{row['level']} {row['optimizer']:5}  {row['parameters']} parameters: separate "
                f"{row['separate_ms']:.2f} ms, combined {row['combined_ms']:.2f} ms, ratio {row['ratio']:.2f} "
                f"({row['ratio_p10']:.2f} to {row['ratio_p90']:.2f})"
            )
    return 0 if all(row["ratio"] < LIMIT for row in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
