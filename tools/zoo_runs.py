"""Run published models dry on an Ascend910A and keep what their steps are made of: zoo_runs.py ROWS.json [NAME ...]

ROWS.json has the models with their published throughput, split, and the `workers` of their data loader, as the row's
script starts them (its default where the script says none; 192 cores where it asks `nproc`). Writes the rows that
calibrate into src/torchport/knowledge/zoo.json and the held-out ones into tests/prediction/holdout.json, which only the
evaluation reads. Needs timm and torchvision. A row that is there already is kept unless it is named.

Each runs as its maker's port did, as far as is published: float16 weights with float32 batch normalisation (O2) or
autocast (O1), one fused optimizer over flat tensors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CALIBRATE = ROOT / "src/torchport/knowledge/zoo.json"
HOLDOUT = ROOT / "tests/prediction/holdout.json"
# The first that matches: an Inception-ResNet is no ResNet.
FAMILIES = (
    ("inception", ("inception", "googlenet", "xception")),
    ("repvgg", ("repvgg",)),
    ("tresnet", ("tresnet",)),
    ("densenet", ("densenet",)),
    ("efficientnet", ("efficientnet",)),
    ("mobile", ("mobilenet", "mnas", "spnas", "ghost", "shuffle")),
    ("regnet", ("regnet",)),
    ("resnet", ("resnet", "resnext", "skres", "resnest", "res2net")),
    ("vgg", ("vgg",)),
    ("transformer", ("vit", "swin", "deit", "twins", "beit", "xcit", "tnt")),
)
STEPS = """
import gc, json, sys, torch

# Tensors stay row-major: private formats lead to operators of the old API that the virtual NPU lacks.
torch.npu.config.allow_internal_format = False

def made(row):
    name = row["builder"]
    with torch.device("npu"):
        if name.startswith("tv:"):
            import torchvision
            extra = {"init_weights": False} if name in ("tv:googlenet", "tv:inception_v3") else {}
            return getattr(torchvision.models, name[3:])(weights=None, **extra)
        import timm, timm.layers
        timm.layers.set_fused_attn(False)  # those ports are older
        return timm.create_model(name, pretrained=False)

# torch 1.8 and those ports write them out.
functional = torch.nn.functional
functional.hardsigmoid = lambda x, inplace=False: functional.relu6(x + 3) / 6
functional.hardswish = lambda x, inplace=False: x * functional.hardsigmoid(x)
functional.silu = lambda x, inplace=False: x * torch.sigmoid(x)

def wide(module):
    # O1 of apex keeps it in float32, which autocast does not.
    forward = module.forward
    module.forward = lambda x: forward(x.float())

def marked():
    event = torch.npu.Event(enable_timing=True)
    event.record()
    return event

def steps(row, batch):
    model = made(row)
    half = row["amp"] == "O2"
    if half:
        model.half()
        for module in model.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.float()
    else:
        for module in model.modules():
            if isinstance(module, torch.nn.GELU):
                wide(module)
    model.npu().train()
    parameters = [each for each in model.parameters() if each.requires_grad]
    count = sum(each.numel() for each in parameters)
    dtype = torch.float16 if half else torch.float32
    master, momentum = (torch.zeros(count, device="npu") for _ in range(2))
    flat, gradient = (torch.zeros(count, device="npu", dtype=dtype) for _ in range(2))
    image = torch.zeros(batch, 3, row["img"], row["img"], device="npu", dtype=dtype)
    label = torch.zeros(batch, device="npu", dtype=torch.int64)
    loss_of = torch.nn.CrossEntropyLoss()
    for _ in range(2):
        begin = marked()
        with torch.autocast("npu", dtype=torch.float16, enabled=not half):
            output = model(image)
            outputs = [each for each in (output if isinstance(output, tuple) else (output,)) if each is not None]
            loss = sum(loss_of(each.float(), label) for each in outputs)
        (loss * 128.0).backward()
        momentum.mul_(0.9).add_(gradient.float() if half else gradient)
        master.add_(momentum, alpha=-0.1)
        if half:
            flat.copy_(master)
        for parameter in parameters:
            parameter.grad = None
        end = marked()
    torch.npu.synchronize()
    return begin.recorded_time(), end.recorded_time()

for row in json.loads(sys.argv[1]):
    batch = row["bs"]
    while batch:
        try:
            begin, end = steps(row, batch)
        except torch.OutOfMemoryError:
            batch //= 2
            gc.collect()
            torch.npu.empty_cache()
            continue
        except Exception as error:
            print("FAILED", row["id"], repr(error)[:600], file=sys.stderr, flush=True)
            break
        print("MARKS", json.dumps([row["id"], batch, begin, end]), flush=True)
        break
    gc.collect()
    torch.npu.empty_cache()
"""


def family(builder: str) -> str:
    """Its architecture's, by the builder's name."""
    return next(
        (name for name, parts in FAMILIES if any(part in builder.removeprefix("tv:") for part in parts)), "other"
    )


def kernels(rows: list[dict[str, Any]]) -> dict[str, tuple[int, list[list[Any]]]]:
    """By name the batch that fits and the kernels of the second step, alike ones counted."""
    from torchport.predict.timeline import read_timeline

    # The built-in EfficientNets do not say; the one of them that does is O1.
    rows = [row | {"amp": "O1" if row["amp"] in ("O1", "?") else "O2"} for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        log, script = Path(folder, "log"), Path(folder, "steps.py")
        environment = {
            **os.environ,
            "VNPU_MODE": "dry",
            "VNPU_TIME": "model",
            "VNPU_SOC": "Ascend910A",
            "VNPU_TIMELINE": str(log),
            "OMP_NUM_THREADS": "1",
        }
        script.write_text(STEPS)
        command = [sys.executable, "-m", "torchport", "run", "--as-is", str(script), json.dumps(rows)]
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        marks = [json.loads(line[6:]) for line in ran.stdout.splitlines() if line.startswith("MARKS ")]
        tasks = [task for task in read_timeline(log).tasks if task.unit != "none"]
    found = {}
    for name, batch, begin, end in marks:
        counts = Counter(
            (task.unit, float(f"{task.flops:.4g}"), float(f"{task.bytes:.4g}"), float(f"{task.converted:.4g}"))
            for task in tasks
            if begin * 1e3 < task.virtual_ended <= end * 1e3
        )
        found[name] = batch, [[*key, count] for key, count in sorted(counts.items())]
    return found


def main(source: str, names: list[str]) -> None:
    """Run what is missing, or what is named."""
    wanted = [row for row in json.loads(Path(source).read_text()) if not row["flags"]]
    for split, place in (("calibrate", CALIBRATE), ("holdout", HOLDOUT)):
        place.parent.mkdir(exist_ok=True)
        kept = {row["name"]: row for row in json.loads(place.read_text())["rows"]} if place.exists() else {}
        mine = [row for row in wanted if row["split"] == split]
        to_run = [row for row in mine if (row["id"] in names if names else row["id"] not in kept)]
        found = kernels(to_run) if to_run else {}
        for row in to_run:
            if row["id"] not in found:
                continue
            batch, kinds = found[row["id"]]
            kept[row["id"]] = {
                "name": row["id"],
                "family": family(row["builder"]),
                "builder": row["builder"],
                "amp": row["amp"],
                "published": row["fps_1p"],
                "published_batch": row["bs"],
                "batch": batch,
                "workers": row.get("workers", kept.get(row["id"], {}).get("workers", 0)),
                "kernels": kinds,
            }
        rows = [kept[row["id"]] for row in mine if row["id"] in kept]
        lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in rows)
        part = place.with_suffix(".part")
        part.write_text('{"chip": "Ascend910A", "rows": [\n' + lines + "\n]}\n")
        part.replace(place)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
