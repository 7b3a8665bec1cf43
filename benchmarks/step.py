"""What a training step costs on the virtual NPU, relative to the CPU device and to its own float32.

    python benchmarks/step.py
    python benchmarks/step.py resnet18 gpt --threads 2 --rounds 15 --json
    python benchmarks/step.py --half                      # float16 and bfloat16 against float32, on npu:0

Rounds of steps are run on the two sides in turn, in one process with the same number of threads; a round on the NPU
includes the synchronisation at its end. Each pair of rounds gives one ratio; the median counts, p10 and p90 show the
spread. Limits: 1.05 of the CPU for the digits example, ResNet-18 (batch 8, 64x64) and a GPT of at least 50 ms a step;
1.5 of float32 for a step in float16 (with GradScaler) or bfloat16. Exit status 0 when all hold, 1 when one does not.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

ROOT = Path(__file__).parents[1]


def digits() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model of examples/digits/train.py on a batch of 32."""
    import torch

    spec = importlib.util.spec_from_file_location("digits", ROOT / "examples" / "digits" / "train.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.Net(), (torch.rand(32, 1, 8, 8), torch.randint(0, 10, (32,)))


def resnet18() -> tuple[nn.Module, tuple[Tensor, ...]]:
    from models import FAMILIES

    return FAMILIES["resnet18"].initial(), FAMILIES["resnet18"].batch_of(0)


def gpt(fused: bool) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """4 layers of width 256 over 4 x 128 tokens: about 100 ms a step on two cores."""
    import torch
    from models.language import Gpt, next_tokens

    model = Gpt(fused=fused, width=256, layers=4, heads=8, length=128, vocabulary=2000)
    return model, next_tokens(4, 128, 2000)(torch.Generator().manual_seed(0))


# name: (model and batch, limit of the ratio to the CPU, steps in a round)
MODELS: dict[str, tuple[Callable[[], tuple[nn.Module, tuple[Tensor, ...]]], float | None, int]] = {
    "digits": (digits, 1.05, 20),
    "resnet18": (resnet18, 1.05, 2),
    "gpt": (functools.partial(gpt, fused=False), 1.05, 2),
    "gpt.fused": (functools.partial(gpt, fused=True), 1.05, 2),
}
HALF_LIMIT = 1.5


class Training:
    """A model that trains on one device, in float32 or under autocast."""

    def __init__(self, name: str, device: str, dtype: str = "float32") -> None:
        import torch

        torch.manual_seed(0)
        build, _, self._steps = MODELS[name]
        model, batch = build()
        self._model = model.to(device).train()
        self._inputs, self._target = batch[0].to(device), batch[1].to(device).flatten()
        self._optimizer = torch.optim.SGD(self._model.parameters(), 0.02, momentum=0.9, weight_decay=5e-4)
        self._scaler = torch.amp.GradScaler(device, enabled=dtype == "float16")
        half = dtype != "float32"
        self._autocast = lambda: torch.autocast(device, getattr(torch, dtype) if half else None, enabled=half)
        self._wait: Callable[[], None] = torch.npu.synchronize if device == "npu" else lambda: None
        self.seconds()  # the first steps load kernels and start the worker

    def seconds(self) -> float:
        """Seconds per step over one round."""
        from torch.nn import functional

        start = time.perf_counter()
        for _ in range(self._steps):
            with self._autocast():
                loss = functional.cross_entropy(self._model(self._inputs).flatten(0, -2), self._target)
            self._optimizer.zero_grad()
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._wait()
        return (time.perf_counter() - start) / self._steps


def compare(
    name: str, base: Training, other: Training, sides: str, limit: float | None, rounds: int
) -> dict[str, object]:
    """`other` relative to `base`, measured in turn."""
    pairs = [(base.seconds(), other.seconds()) for _ in range(rounds)]
    return {"model": name, "sides": sides, **summary(pairs), "limit": limit}


def summary(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Medians of both sides in ms and of the ratio of the second to the first, and its 10th and 90th percentile."""
    ratios = sorted(slow / fast for fast, slow in pairs)
    return {
        "base_ms": statistics.median(fast for fast, _ in pairs) * 1e3,
        "ms": statistics.median(slow for _, slow in pairs) * 1e3,
        "ratio": statistics.median(ratios),
        "ratio_p10": ratios[len(ratios) // 10],
        "ratio_p90": ratios[len(ratios) * 9 // 10],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default all)")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of rounds (default %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=2, help="threads of computation, both sides (default %(default)s)"
    )
    parser.add_argument("--half", action="store_true", help="float16 and bfloat16 against float32, both on npu:0")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    if unknown := set(args.models) - MODELS.keys():
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")

    from torchport import vnpu

    vnpu.activate()
    sys.path.insert(0, str(ROOT / "tests" / "vnpu"))  # the model families of the tests
    import torch

    torch.set_num_threads(args.threads)
    rows = []
    for name in args.models or MODELS:
        if args.half:
            base = Training(name, "npu")
            for dtype in ("float16", "bfloat16"):
                sides = f"npu {dtype} / float32"
                rows.append(compare(name, base, Training(name, "npu", dtype), sides, HALF_LIMIT, args.rounds))
        else:
            cpu, npu = Training(name, "cpu"), Training(name, "npu")
            rows.append(compare(name, cpu, npu, "npu / cpu", MODELS[name][1], args.rounds))
    if args.json:
        print(json.dumps({"benchmark": "step", "threads": args.threads, "rows": rows}))
    else:
        for row in rows:
            print(
                f"{row['model']:10} {row['sides']:22} {row['ms']:8.2f} ms / {row['base_ms']:8.2f} ms: "
                f"ratio {row['ratio']:.2f} (p10 {row['ratio_p10']:.2f}, p90 {row['ratio_p90']:.2f})"
                + (f", limit {row['limit']:.2f}" if row["limit"] else "")
            )
    return int(any(row["limit"] and row["ratio"] > row["limit"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
