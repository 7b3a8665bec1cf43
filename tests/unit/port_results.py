"""Results of `torchport port` in many shapes, made by hand: what the reports are tried with."""

from __future__ import annotations

import math
from typing import Any

import evidence_results as made

from torchport.findings import Finding, Location, Result, Safety, Severity
from torchport.results.codec import from_json
from torchport.results.comparison import Comparison
from torchport.results.port import Port

DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n import torch\n-x.cuda()\n+x.npu()\n"
SUMMARY = {"files": 1, "automatic": 2, "review": 0, "decisions": 0, "blockers": 0}


def falling(steps: int, start: float = 2.4) -> list[float]:
    """A loss that falls, with some noise."""
    return [start * math.exp(-4 * step / steps) + 0.03 * math.sin(7 * step) + 0.05 for step in range(steps)]


def curve(name: str = "train.py:20", steps: int = 20, apart: float = 1e-7, **changes: Any) -> dict[str, Any]:
    """One curve; `apart` is the relative difference of its last step, smaller before."""
    reference = falling(steps)
    errors = [apart * (step / max(steps - 1, 1)) ** 3 for step in range(steps)]
    row = {
        "name": name,
        "what": "loss",
        "reference": reference,
        "port": [value * (1 + error) for value, error in zip(reference, errors, strict=True)],
        "errors": errors,
        "allowed": [1e-4] * steps,
        "noise": [2e-8 * (step + 1) for step in range(steps)],
        "windows": [],
    }
    return row | changes


def comparison(*curves: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A comparison of some curves, of one where none is given, with the first differences of the losses."""
    shown = list(curves) or [curve()]
    errors = [max(map(float, some)) for some in zip(*(row["errors"] for row in shown), strict=False)]
    steps = len(shown[0]["reference"])
    data = {
        "verdict": "holds",
        "reason": f"{steps} optimizer steps compared step by step, float32; every step ran on the NPU",
        "decide": [],
        "method": "step by step",
        "chance": [],
        "tolerance": {"dtype": "float32", "first": 1e-4, "first_steps": 50, "run": 1e-2, "floor": 1e-3},
        "statistical": {},
        "steps": {"kind": "optimizer step", "reference": steps, "port": steps},
        "worst": {"first": max(errors, default=None), "run": max(errors, default=None)},
        "seconds": {"reference": 0.031, "port": 7.78},
        "curves": shown,
        "errors": errors,
        "metrics": [metric("accuracy", 97.0, 96.5, allowed=0.5)],
        "culprit": None,
        "layers": [],
        "evidence": [],
    }
    return data | made.evidence() | {"first": first(shown)} | changes


def first(curves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps of some curves that differ by more than is allowed, earliest first."""
    rows = []
    for row in curves:
        sides = zip(row["reference"], row["port"], row["errors"], row["allowed"], strict=False)
        for step, (reference, port, error, allowed) in enumerate(sides):
            if not float(error) <= allowed:
                known = {"error": error, "noise": None, "allowed": allowed, "reference": reference, "port": port}
                rows.append({"step": step, "kind": "loss", "name": row["name"]} | known)
    return sorted(rows, key=lambda row: row["step"])[:20]


def metric(name: str, reference: float, port: float, *, allowed: float | None, holds: bool = True) -> dict[str, Any]:
    """A number that both runs print, in percent."""
    return {
        "name": name,
        "unit": "percent",
        "total": None,
        "port_total": None,
        "reference": reference,
        "port": port,
        "percent": True,
        "allowed": allowed,
        "holds": holds,
    }


def run(*, npu: bool = False, **changes: Any) -> dict[str, Any]:
    """How one of the runs went."""
    place = "npu" if npu else "cpu"
    evidence = {"launches": 5412 if npu else None, "steps_with": 20 if npu else None, "outputs": place}
    data = {
        "command": ["python", "train.py"],
        "status": 0,
        "skipped": False,
        "timed_out": False,
        "ended": "",
        "seconds": 155.6 if npu else 2.4,
        "steps": 20,
        "device": "npu:0" if npu else "the CPU",
        "ranks": 1,
        "files": [],
        "modules": [],
        "notes": [],
        "outside": [],
        "evidence": evidence | dict.fromkeys(("loss", "parameters", "gradients"), place),
    }
    return data | changes


def compare(**changes: Any) -> Result[Comparison]:
    """A comparison that holds, with `changes` in its data."""
    return Result("compare", (), from_json(Comparison, comparison(**changes)))


def port(findings: tuple[Finding, ...] = (), **changes: Any) -> Result[Port]:
    """A port that holds, with `changes` in its data."""
    compared = changes.get("comparison", comparison())
    data = {
        "verdict": "holds",
        "reason": (compared or {}).get("reason", ""),
        "decide": [],
        "script": "train.py",
        "command": ["train.py", "--epochs", "3"],
        "folder": "/project",
        "port": "torchport-out/train/convert/tree/train.py",
        "backend": "virtual NPU Ascend910B1",
        "summary": SUMMARY,
        "diff": DIFF,
        "comparison": compared,
        "runs": {"reference": run(), "npu": run(npu=True)},
        "files": [],
        "modules": [],
        "notes": [],
    }
    return Result("port", findings, from_json(Port, data | changes))


def left(name: str, equal: bool | None, **changes: Any) -> dict[str, Any]:
    """A file that both runs wrote."""
    row = {"name": name, "kind": "text", "reference": "1.2 kB", "port": "1.2 kB", "equal": equal, "difference": None}
    return row | {"note": ""} | changes


DIFFERENT = Finding(
    "TP301",
    Severity.ERROR,
    Safety.REPORT,
    None,
    "the loss differs from step 7 on: 1.2 against 0.9, 3.3e-01 relative where 0.0001 is allowed",
    "Up to step 6 the runs agree: look at the backward pass and the optimizer.",
)
CRASHED = Finding(
    "TP310",
    Severity.ERROR,
    Safety.REPORT,
    Location("train.py", 12, 1, 12, 1),
    "the original ended with exit status 1 before the first step: ModuleNotFoundError: No module named 'tokenizers'",
    "",
    {
        "stderr": [
            "Traceback (most recent call last):",
            '  File "train.py", line 12, in <module>',
            "    import tokenizers",
            "    ^^^^^^^^^^^^^^^^^",
            "ModuleNotFoundError: No module named 'tokenizers', which this project wants for everything that it "
            "reads from the folder of its data before it can start with the first of its steps",
        ]
    },
)


def gan() -> Result[Port]:
    """Three losses, of which one parts; files that differ, modules that were left as they are."""
    curves = [
        curve("train.py:61"),
        curve("train.py:66", apart=0.33),
        curve("models/very/deep/package/generator.py:172"),
    ]
    return port(
        (DIFFERENT,),
        verdict="does not hold",
        reason="the loss at train.py:66 differs from step 3 on, by 1.3e-03 where 0.0001 is allowed",
        comparison=comparison(*curves, metrics=[metric("accuracy", 97, 61.5, allowed=0.5, holds=False)]),
        files=[
            left("samples/epoch_0.png", None, kind="image", note="images are not compared"),
            left("model.pt", False, kind="checkpoint", difference=0.31, note="3 of 14 tensors differ"),
            left("log.txt", True),
            left("extra.json", False, kind="json", port="", note="only the original wrote it"),
        ],
        modules=[
            {"path": "library/mylib/__init__.py", "line": 3, "why": "torch.cuda.is_available() decides the device"}
        ],
        notes=["both runs were ended after 50 steps and 60 s: --steps N for more"],
        runs={
            "reference": run(ended="enough", outside=["/data/cache/index.bin"]),
            "npu": run(npu=True, ended="enough"),
        },
    )


def parted() -> Result[Port]:
    """A port whose gradients part from the original's in step 2; the loss shows it later."""
    rows = [
        made.difference(2, "gradient", "module.encoder.layers.11.attention.output.dense.LayerNorm.weight"),
        made.difference(2, "change", "fc1.weight", 5e-2),
        made.difference(2, "setting", "optimizer 0: lr", None, reference=0.001, port=0.002),
        made.difference(3, "upload", "train.py:14", None, reference="0f3a77c2d41b9e60", port="9bc2d41b9e600f3a"),
        made.difference(4, "gradient", "fc1.bias", math.inf, port=math.nan),
    ]
    found = made.quantities(gradient=math.inf, change=5e-2)
    found[3]["at"] = {"step": 2, "name": "optimizer 0: lr"}
    found[4]["at"] = {"step": 3, "name": "train.py:14"}
    return port(
        (DIFFERENT,),
        verdict="does not hold",
        reason="the gradient of a parameter differs in step 2, by 1.0e-02 where 3e-06 is allowed",
        comparison=comparison(first=rows, quantities=found),
    )


def blind() -> Result[Port]:
    """A comparison that did not notice one of the faults, and could not be given another."""
    rows = [
        made.control("update", made.noticed("change", error=5e-2)),
        made.control("gradient"),
        made.control("sample", possible=False),
    ]
    smallest = "the smallest change that was noticed is 5 % of the update of fc1.weight, in step 19"
    controls = made.controls(*rows) | {"smallest": smallest}
    reason = "the comparison does not notice 1 % of one layer's gradient"
    return port(verdict="undecided", reason=reason, comparison=comparison(controls=controls))


def without_power() -> Result[Port]:
    """A port that holds with --no-control."""
    return port(comparison=comparison(controls=made.without_power(), yardstick=None))


def forced() -> Result[Port]:
    """A chaotic training, its steps compared one by one from the original's own state, on a device with roundings and
    random numbers of its own."""
    measured = made.yardstick(chaotic=6, declared=[made.HF32])
    return port(comparison=comparison(yardstick=measured, forced={"steps": 20, "bytes": 1_234_567}, draws=[made.DRAWN]))


def unused() -> Result[Port]:
    """A port that never touched the NPU."""
    used = {"launches": 0, "steps_with": 0, **dict.fromkeys(("loss", "gradients", "parameters", "outputs"), "cpu")}
    reason = "the port did not use the NPU: no operator was launched there in any of 20 steps"
    return port(verdict="does not hold", reason=reason, runs={"reference": run(), "npu": run(npu=True, evidence=used)})


def crashed() -> Result[Port]:
    """An original that fails by itself."""
    skipped = run(status=None, skipped=True, steps=0, seconds=0.0, device="", evidence=None)
    return port(
        (CRASHED,),
        verdict="undecided",
        reason="the original fails on this machine before its first step: No module named 'tokenizers'",
        decide=["pip install tokenizers", "make the original run here to its end, then do the same again"],
        comparison=None,
        runs={"reference": run(status=1, steps=0, evidence={}), "npu": skipped},
    )


def odd() -> dict[str, Result[Port]]:
    """Shapes that a report has to live with, by name."""
    nan = [1.0, math.nan, "inf", 2.0, "nan"]
    window = {"start": 0, "end": 10, "reference": 1.0, "port": 1.5, "allowed": 0.1, "holds": False}
    by_chance = comparison(
        curve(windows=[window]), method="statistically", chance=["dropout draws on the device"], verdict="does not hold"
    )
    long = "the machine has too little memory for the first step of this script, which " + "wants more of it " * 12
    return {
        "no steps": port(
            comparison=comparison(curve(steps=0, apart=0), worst={"first": None, "run": None}, metrics=[]),
            verdict="undecided",
            reason="no step was reached",
        ),
        "one step": port(comparison=comparison(curve(steps=1, apart=0.0))),
        "nan": port(
            comparison=comparison(
                curve(reference=[1.0] * 5, port=nan, errors=[0.0, "inf", "inf", 1.0, "inf"]),
                worst={"first": "inf", "run": "inf"},
            ),
            verdict="does not hold",
            reason="the port's loss is NaN at step 1",
        ),
        "ranks": port(runs={"reference": run(ranks=8), "npu": run(npu=True, ranks=8, device="npu:0 to npu:7")}),
        "by chance": port(comparison=by_chance, verdict="does not hold", reason="the means differ"),
        "long": port(comparison=None, verdict="undecided", reason=long, decide=[long]),
        "chinese": port(
            comparison=None,
            verdict="undecided",
            reason="原始脚本在本机无法运行:缺少数据集。请先下载数据集,然后用同样的参数再次运行迁移命令,这样两次运行才能逐步比较。"
            * 2,
            script="训练.py",
        ),
        "no runs": port(comparison=None, runs={}),
        "bare evidence": port(
            comparison=comparison(
                quantities=[{"kind": "", "compared": 0}, {"kind": "loss", "compared": 1}],
                first=[made.difference(1, "", "", None)],
                controls={"measured": True},
                yardstick={"steps": 1, "noise": "", "spread": {}},
                forced={"steps": 1},
            )
        ),
        "many curves": port(comparison=comparison(*(curve(f"train.py:{line}") for line in range(8)))),
        "killed": port(runs={"reference": run(status=-9, steps=3), "npu": run(npu=True, status=3, timed_out=True)}),
        "gan": gan(),
        "parted": parted(),
        "blind": blind(),
        "without power": without_power(),
        "forced": forced(),
        "unused": unused(),
        "crashed": crashed(),
        "holds": port(),
    }
