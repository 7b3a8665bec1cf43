"""What recording costs: a recorded training step relative to a plain one, on the CPU device and on npu:0.

    python benchmarks/record.py
    python benchmarks/record.py gpt --on npu --rounds 30 --json
    python benchmarks/record.py --plain                   # plain against plain: how far the ratios can be trusted
    python benchmarks/record.py --processor --threads 1   # processor time, on a machine that does other things too

The recorded steps run in a process that is started as `torchport port` starts one, with everything but the random
streams: losses, settings, norms of gradients and changes, inputs and checksums of what is uploaded. The plain steps run
in a process without it. The two take turns, a round of steps each, and wait for the device at the end of a round. Each
pair of rounds gives one ratio; the median counts, p10 and p90 show the spread. Limit: 1.10 for each model and device.
Exit status 0 when all hold, 1 when one does not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable

from step import MODELS, ROOT, summary
from turns import answer, asked

CHOSEN = ("resnet18", "gpt")
DEVICES = ("cpu", "npu")
LIMIT = 1.10
STEPS = 3  # in a round
WARM = 3  # rounds that do not count: they load kernels


def serve(name: str, device: str, threads: int, clock: Callable[[], float]) -> None:
    """Train; print the seconds of a step of one round for each line that comes in."""
    if device == "npu":
        from torchport import vnpu

        vnpu.activate()
    sys.path.insert(0, str(ROOT / "tests" / "vnpu"))  # the model families of the tests
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    build, _, _ = MODELS[name]
    model, (inputs, target) = build()
    model = model.to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=5e-4)
    wait: Callable[[], None] = torch.npu.synchronize if device == "npu" else lambda: None

    def a_round() -> float:
        start = clock()
        for _ in range(STEPS):
            x, y = inputs.to(device), target.to(device).flatten()
            loss = functional.cross_entropy(model(x).flatten(0, -2), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        wait()
        return (clock() - start) / STEPS

    answer(a_round)


def training(
    name: str, device: str, threads: int, recording: str, processor: bool
) -> contextlib.AbstractContextManager[Callable[[], float]]:
    """A process that trains, recorded into the folder `recording` ("": not); each call runs a round and gives the
    seconds of a step."""
    from torchport import startup
    from torchport.record.session import Options

    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if device == "cpu":
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if recording:
        environment |= {"PYTHONPATH": startup.FOLDER, "TORCHPORT_RECORD": Options(recording).to_variable()}
    words = [sys.executable, __file__, name, "--on", device, "--threads", str(threads), "--serve"]
    words += ["--processor"] * processor
    return asked(words, environment)


def compare(name: str, device: str, threads: int, rounds: int, plain: bool, processor: bool) -> dict[str, object]:
    """Recorded (`plain`: other plain) steps relative to plain ones, in turn."""
    with (
        tempfile.TemporaryDirectory() as folder,
        training(name, device, threads, "", processor) as base,
        training(name, device, threads, "" if plain else folder, processor) as other,
    ):
        for _ in range(WARM):
            base(), other()
        # Whoever comes second finds a warmer machine: they change places.
        pairs = [(base(), other()) if turn % 2 else (other(), base())[::-1] for turn in range(rounds)]
    return {"model": name, "device": device, **summary(pairs), "limit": LIMIT}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"(default {', '.join(CHOSEN)})")
    parser.add_argument("--on", choices=DEVICES, help="one device only")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of rounds (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of computation (default %(default)s)")
    parser.add_argument("--plain", action="store_true", help="compare plain steps with plain steps")
    parser.add_argument("--processor", action="store_true", help="processor time of all threads, not time")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.models) - MODELS.keys():
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    if args.serve:
        serve(args.models[0], args.on, args.threads, time.process_time if args.processor else time.perf_counter)
        return 0
    rows = []
    for name in args.models or CHOSEN:
        for device in [args.on] if args.on else DEVICES:
            rows.append(row := compare(name, device, args.threads, args.rounds, args.plain, args.processor))
            if not args.json:
                print(
                    f"{row['model']:10} {row['device']:4} {row['ms']:8.2f} ms / {row['base_ms']:8.2f} ms: ratio "
                    f"{row['ratio']:.3f} (p10 {row['ratio_p10']:.3f}, p90 {row['ratio_p90']:.3f}), limit {LIMIT:.2f}",
                    flush=True,
                )
    if args.json:
        print(json.dumps({"benchmark": "record", "threads": args.threads, "rows": rows}))
    return int(any(float(str(row["ratio"])) > LIMIT for row in rows))


if __name__ == "__main__":
    sys.exit(main())
