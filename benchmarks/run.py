"""What `torchport run` costs a training step, over the same script converted by hand (`torchport convert`).

    python benchmarks/run.py
    python benchmarks/run.py --rounds 40 --json

Both scripts run at once, each in a process of its own, and train a round of steps in turn: each pair of rounds gives
one ratio. The median counts; its interval is that of the order statistics, with 95 % confidence. The small model is the
worst case: its steps are all dispatch; a step of the large one takes more than 50 ms. Limit: the interval's lower end
is at most 1.02. Exit status 0 where it holds for each model, else 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from turns import asked

from torchport.convert import convert_source

LIMIT = 1.02
# Name: channels, image side, batch, steps in a round.
MODELS = {"small": (8, 8, 32, 20), "large": (32, 32, 32, 3)}
SCRIPT = """\
import sys
import time

import torch
import torch.nn as nn

channels, side, batch, steps = map(int, sys.argv[1:])
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(
    nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
    nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
    nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16 * channels, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scaler = torch.cuda.amp.GradScaler()
images, labels = torch.rand(batch, 1, side, side), torch.randint(0, 10, (batch,))
losses = torch.zeros(1, device="cuda")


def step():
    x, y = images.cuda(non_blocking=True), labels.to("cuda", non_blocking=True)
    noise = torch.randn(x.shape, device=x.device) * 0.01
    weights = torch.ones(10, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x + noise), y, weight=weights)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.add_(loss.detach())
    if x.is_cuda and next(model.parameters()).device.type == "cuda":
        torch.cuda.memory_allocated()


step()
for _ in sys.stdin:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    print(f"seconds {(time.perf_counter() - start) / steps}", flush=True)
"""


def side(script: Path, options: list[str], model: str) -> contextlib.AbstractContextManager[Callable[[], float]]:
    """One of the two scripts, waiting for its turn."""
    words = [sys.executable, "-m", "torchport", "run", *options, str(script), "--", *map(str, MODELS[model])]
    return asked(words, {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"})


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % confidence interval of the median: order statistics, binomial with p = 1/2 in its normal approximation."""
    ordered, count = sorted(ratios), len(ratios)
    reach = 1.96 * math.sqrt(count) / 2
    low, high = math.floor(count / 2 - reach), math.ceil(count / 2 + reach)
    return ordered[max(low, 0)], ordered[min(high, count - 1)]


def measure(model: str, rounds: int, folder: Path) -> dict[str, object]:
    original, converted = folder / "original.py", folder / "converted.py"
    original.write_text(SCRIPT)
    converted.write_bytes(convert_source(SCRIPT.encode(), "original.py").output)
    with side(converted, ["--as-is"], model) as plain, side(original, ["-q"], model) as redirected:
        plain(), redirected()  # the first round loads kernels
        # Neither side is always the first.
        pairs = [(plain(), redirected()) if turn % 2 else (redirected(), plain())[::-1] for turn in range(rounds)]
    ratios = [ours / base for base, ours in pairs]
    low, high = interval(ratios)
    return {
        "model": model,
        "converted_ms": statistics.median(base for base, _ in pairs) * 1e3,
        "run_ms": statistics.median(ours for _, ours in pairs) * 1e3,
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "limit": LIMIT,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default all)")
    parser.add_argument("--rounds", type=int, default=30, help="pairs of rounds (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    if unknown := set(arguments.models) - MODELS.keys():
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(model, arguments.rounds, Path(folder)) for model in arguments.models or MODELS]
    if arguments.json:
        print(json.dumps({"benchmark": "run", "rows": rows}))
    else:
        print(f"{'model':8} {'converted ms':>12} {'run ms':>8} {'ratio':>7} {'95 %':>15}")
        for row in rows:
            spread = f"{row['low']:.3f} to {row['high']:.3f}"
            print(f"{row['model']:8} {row['converted_ms']:12.2f} {row['run_ms']:8.2f} {row['ratio']:7.3f} {spread:>15}")
    return 0 if all(float(str(row["low"])) <= LIMIT for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
