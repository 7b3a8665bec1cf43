"""Run a script's first steps on the CPU and judge each operator that it would call on the NPU."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchport.analyze import layouts
from torchport.analyze.project import analyze_tree
from torchport.convert.project import summarize_findings
from torchport.errors import TorchportError
from torchport.findings import Finding, Location, Result, Safety, Severity
from torchport.knowledge import support
from torchport.knowledge.support import How
from torchport.source.settings import settings_of

# What torch calls on the CPU in place of what it calls on the NPU.
_ON_THE_NPU = {
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "scaled_dot_product_attention",
    "mkldnn_rnn_layer": "lstm.input",
    "mkldnn_rnn_layer_backward": "lstm.input",
}
# What only asks, views or moves; it says nothing about a port.
_PLUMBING = frozenset(
    {
        "detach",
        "alias",
        "lift_fresh",
        "_to_copy",
        "copy_",
        "is_same_size",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "sym_storage_offset",
        "prim::layout",
        "prim::device",
        "prim::dtype",
    }
)


def analyze_run(script: Path, arguments: Sequence[str], steps: int) -> Result:
    """The findings of `analyze_tree` for the script, and those of its operators in the first `steps` training steps.

    `data["operators"]` has `steps` (how many were seen), `precision` (what autocast would use on the NPU) and `rows`:
    operator, phase, dtypes, calls, shapes per step, the place of the call, and `how` the NPU takes it. Runs the
    script in the current folder, its output on our stderr. Raises TorchportError where there is no script or no torch.
    """
    if not script.is_file():
        raise TorchportError(f"{script} is not a script that can be run", hint="Give the Python file that trains.")
    static = analyze_tree(script)
    seen = _watched(script, arguments, steps)
    rows = [
        _judged(row, script.parent)
        for row in seen["rows"]
        if row["operator"] not in _PLUMBING or layouts.is_layout_refused(row["operator"], row["layout"])
    ]
    ignored = settings_of(script).ignore
    found = [
        finding for finding in (*_ending(seen), *_unused(seen, rows), *_findings(rows)) if finding.code not in ignored
    ]
    findings = (*static.findings, *found)
    data = {
        **static.data,
        "summary": summarize_findings(findings, static.data["summary"].files),
        "operators": {
            "steps": seen["steps"],
            "precision": seen["precision"],
            "counts": dict(Counter(row["how"] for row in {row["operator"]: row for row in rows}.values())),
            "rows": rows,
        },
    }
    return dataclasses.replace(static, findings=findings, data=data)


def _watched(script: Path, arguments: Sequence[str], steps: int) -> Mapping[str, Any]:
    # As for the reference run of a port: an installed torch_npu must not load, and a GPU is not what we measure.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory(prefix="torchport-") as folder:
        out = Path(folder, "operators.json")
        command = [sys.executable, "-P", "-m", "torchport.analyze.watch", "--out", str(out), "--steps", str(steps)]
        done = subprocess.run(
            [*command, "--", str(script), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            check=False,
        )
        if not out.exists():
            raise TorchportError(
                f"the process that ran {script} ended with status {done.returncode} and left nothing",
                hint="Is torch installed? `torchport doctor` tells.",
            )
        return Result.read(out).data


def _judged(row: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The row with what happens on the NPU, its path as the other findings name it."""
    operator = support.judge_operator(_ON_THE_NPU.get(row["operator"], row["operator"]))
    dtype = row["dtypes"][0]  # of the first tensor, as the limits were measured
    path = row["path"] and os.path.relpath(row["path"], folder)
    refused = layouts.is_layout_refused(row["operator"], row["layout"])
    return {**row, "path": path, "how": How.REFUSED if refused else operator.with_dtype(dtype).value}


def _ending(seen: Mapping[str, Any]) -> Iterator[Finding]:
    if seen["status"] not in (0, None):
        place = Location(seen["path"], seen["line"], 1, seen["line"], 1) if seen["path"] else None
        cause = f": {seen['error']}" if seen["error"] else ""
        yield _finding(
            "TP715",
            Severity.WARNING,
            place,
            f"the script ended with exit status {seen['status']} after {seen['steps']} steps{cause}",
            "The operators up to there are judged. Give it arguments with which it trains a few steps on the CPU.",
        )


def _unused(seen: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    if not rows:
        yield _finding(
            "TP716",
            Severity.WARNING,
            None,
            f"the script ran no operator on a CUDA device in {seen['steps']} steps: nothing is known of its operators",
            "Give it the arguments with which it uses the GPU, and look where it chooses its device.",
        )


def _findings(rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    version = support.read_measured_versions()[1]
    said: set[tuple[str, str, int, str]] = set()
    for row in rows:
        name, how = row["operator"], How(row["how"])
        place = Location(row["path"], row["line"], 1, row["line"], 1) if row["path"] else None
        key = (name, row["path"], row["line"], row["layout"])
        if how in (How.NATIVE, How.COMPOSITE) or key in said:
            continue
        said.add(key)
        full, evidence = name if "::" in name else f"aten::{name}", dict(row)
        if layouts.is_layout_refused(name, row["layout"]):
            message = f"{full} does not {layouts.describe_refusal(row['layout'])} on the NPU ({row['phase']})"
            yield _finding("TP717", Severity.ERROR, place, message, layouts.suggest_fix(row["layout"]), evidence)
        elif how is How.REFUSED:
            message = f"{full} does not take {row['dtypes'][0]} on the NPU ({row['phase']})"
            hint = "Convert to float32 before the call, or compute this part on the CPU."
            yield _finding("TP712", Severity.ERROR, place, message, hint, evidence)
        elif how is How.UNKNOWN or "::" in name:
            message = f"{full} is of another library: nothing is known about it on the NPU ({row['phase']})"
            yield _finding("TP714", Severity.WARNING, place, message, "See whether it has an NPU build.", evidence)
        else:
            often = row["calls"] / max(len(row["shapes"]), 1)
            message = f"{full} is computed on the CPU by torch_npu {version} ({row['phase']}, {often:g} calls per step)"
            hint = "Each call copies to the CPU and back and waits for the device: compute it another way in the loop."
            yield _finding("TP711", Severity.WARNING, place, message, hint, evidence)
    yield from _changing(rows)


def _changing(rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """One finding for the first line whose shapes are not those of the step before, with all others as evidence."""
    changing = [
        row
        for row in rows
        if row["phase"] == "forward" and row["path"] and len({tuple(some) for some in row["shapes"]}) > 1
    ]
    if not changing:
        return
    first = changing[0]
    shapes = " -> ".join(dict.fromkeys(some[0] for some in first["shapes"]))
    names = list(dict.fromkeys(row["operator"] for row in changing))
    yield _finding(
        "TP713",
        Severity.INFO,
        Location(first["path"], first["line"], 1, first["line"], 1),
        f"shapes change from step to step, first at aten::{first['operator']}: {shapes} ({len(names)} operators do)",
        "The NPU prepares each new shape: pad to a few fixed lengths, use drop_last=True.",
        {"operators": names},
    )


def _finding(
    code: str,
    severity: Severity,
    place: Location | None,
    message: str,
    hint: str,
    evidence: Mapping[str, Any] | None = None,
) -> Finding:
    return Finding(code, severity, Safety.REPORT, place, message, hint, evidence or {})
