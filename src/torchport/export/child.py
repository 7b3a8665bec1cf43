"""The process in which the user's model is made, exported and checked; `driver` starts it, with the job on stdin."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError

NEWER = (13, 16, 18, 20)  # opsets that are tried if a model cannot be exported: ATC takes up to 18, torch.onnx up to 20
REFUSED = {"does not hold": "does not compute the same", "undecided": "may hold values that are no constants"}


def main() -> int:
    """Do what the job says; the answer goes into the file that it names. What the model prints goes to stderr."""
    job = json.load(sys.stdin)
    os.dup2(2, 1)
    try:
        answer = _work(job)
    except TorchportError as error:
        answer = {"error": error.message, "hint": error.hint}
    except MemoryError:
        answer = {"error": "there is not enough memory for the model", "hint": ""}
    Path(job["answer"]).write_text(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # whatever threads the model has started


def _work(job: dict[str, Any]) -> dict[str, Any]:
    try:
        import torch

        from torchport import cuda_builds
        from torchport.checkpoints.contents import from_json
        from torchport.export import cases, checking, exporting, loading, npu_forms
        from torchport.export.job import Job
    except ImportError as error:
        raise TorchportError(
            f"torchport export needs torch, onnx and onnxruntime: {error}", hint="pip install 'torchport[export]'"
        ) from error
    plan = Job.from_json(job["job"])
    npu_forms.install_npu_forms()
    cuda_builds.mend_when_imported()
    loading.add_folder(os.getcwd())
    torch.manual_seed(0)
    _say("making the model")
    model = loading.make_model(plan)
    contents = from_json(Path(job["checkpoint"]), job["contents"])
    _say("loading the weights")
    loaded = loading.load_weights(model, contents.parts[job["part"]], plan)
    if plan.half:
        model = model.half()
    if any(module.training for module in model.modules()):
        raise TorchportError(
            f"{plan.model} stays in training mode after eval()", hint="Let its train() call super().train()."
        )
    flat = exporting.Flat(model, [one.name for one in plan.inputs]).eval()
    made: dict[str, Any] = {"loaded": loaded}
    target = Path(job["target"])
    try:
        with torch.no_grad():
            flat(*cases.make_inputs(cases.Case(0), plan))
    except Exception as error:
        raise TorchportError(
            f"the model cannot be run with these inputs: {loading.locate_error(error)}{type(error).__name__}: {error}",
            hint="See --input: sizes, types, and names of forward's parameters.",
        ) from error
    made["outputs_left_out"] = list(flat.left_out)
    if not flat.outputs:
        raise TorchportError(f"{plan.model} gives no tensors")
    if not job["export"]:
        _say("checking with onnxruntime")
        return made | checking.check_onnx_model(target, flat, plan, _releasing(flat)).to_json()
    return made | _exported(flat, plan, target)


def _exported(flat: Any, plan: Any, target: Path) -> dict[str, Any]:
    """Export by the first exporter with a model that holds; if there is none, what the best of the others gave."""
    from torchport.export import checking, exporting
    from torchport.export.job import DYNAMO_FROM, FinalError

    order, refused = exporting.choose_exporters(plan)
    compared: dict[str, Any] | None = None
    release = _releasing(flat)
    for exporter in order:
        _say(f"exporting with {exporter}")
        try:
            made = exporting.export_onnx(exporter, flat, plan, target, large=release is not None)
            _say("checking with onnxruntime")
            checked = checking.check_onnx_model(target, flat, plan, release, traced=exporter == "torchscript")
        except FinalError:
            raise
        except TorchportError as error:
            refused[exporter] = error.message
            if release is not None and not exporting.is_large(flat):
                break  # its weights were given back: no other exporter can have them
            continue
        found = {"exporter": exporter, **made, **checked.to_json()}
        if checked.word == "holds" or compared is None or compared["word"] == "does not hold":
            compared = found
        if checked.word == "holds" or release is not None:
            break
        refused[exporter] = "its model " + REFUSED[checked.word]
    if compared is not None:
        refused.pop(compared["exporter"], None)
        frozen = any("frozen" in row for row in compared["rows"]) or compared["word"] == "undecided"
        frozen &= plan.exporter == "auto" and release is None
        # A trace freezes the same in every opset.
        newer = _find_newer_opset(flat, plan, target, "dynamo") if frozen and plan.opset < DYNAMO_FROM else ""
        return compared | {"refused": refused, "newer": newer}
    raise TorchportError(
        f"the model cannot be exported to opset {plan.opset}: "
        + "; ".join(f"{exporter}: {refused[exporter]}" for exporter in sorted(refused, key=order.count, reverse=True)),
        hint=_find_newer_opset(flat, plan, target) if release is None or exporting.is_large(flat) else "",
    )


def _find_newer_opset(flat: Any, plan: Any, target: Path, only: str = "") -> str:
    """The first of some newer opsets by which the model exports and holds, in words; by one exporter `only`."""
    from torchport.export import checking, exporting

    for opset in (number for number in NEWER if number > plan.opset):
        newer = dataclasses.replace(plan, opset=opset)
        for exporter in (name for name in exporting.choose_exporters(newer)[0] if only in ("", name)):
            _say(f"trying opset {opset} with {exporter}")
            try:
                exporting.export_onnx(exporter, flat, newer, target, large=exporting.is_large(flat))
                word = checking.check_onnx_model(target, flat, newer, traced=exporter == "torchscript").word
            except TorchportError:
                continue
            if word == "holds":
                return f"A newer opset holds it: --opset {opset}. ATC takes up to 18 (CANN 7.0 and newer)."
    return "No newer opset holds it either." if plan.opset < NEWER[-1] else ""


def _releasing(flat: Any) -> Callable[[], None] | None:
    """For a large model, give its weights back: onnxruntime is to have the memory."""
    from torchport.export import exporting

    if not exporting.is_large(flat):
        return None

    def release() -> None:
        for tensor in (*flat.parameters(), *flat.buffers()):
            tensor.data = tensor.new_empty(0)

    return release


def _say(text: str) -> None:
    """For the line that shows where it is: see `driver`."""
    with open(int(os.environ["TORCHPORT_EXPORT_PROGRESS"]), "w", closefd=False) as stream:
        stream.write(text + "\n")


if __name__ == "__main__":
    main()
