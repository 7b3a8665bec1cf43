"""The process in which the user's model is made, exported and checked; `driver` starts it, with the job on stdin."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError


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
        from torchport.export import checking, exporting, loading, npu_forms
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
            flat(*(exporting.make_sample(one, None, 0, plan.half) for one in plan.inputs))
    except Exception as error:
        raise TorchportError(
            f"the model cannot be run with these inputs: {loading.locate_error(error)}{type(error).__name__}: {error}",
            hint="See --input: sizes, types, and names of forward's parameters.",
        ) from error
    if not flat.outputs:
        raise TorchportError(f"{plan.model} gives no tensors")
    if not job["export"]:
        _say("checking with onnxruntime")
        return made | {"rows": checking.check_onnx_model(target, flat, plan)}
    return made | _exported(flat, plan, target)


def _exported(flat: Any, plan: Any, target: Path) -> dict[str, Any]:
    """Export by the first exporter whose model holds; where none does, the rows of the last that could be compared."""
    from torchport.export import checking, exporting
    from torchport.export.job import NEWEST

    order, refused = exporting.choose_exporters(flat, plan)
    compared: dict[str, Any] | None = None
    for exporter in order:
        _say(f"exporting with {exporter}")
        try:
            made = exporting.export_onnx(exporter, flat, plan, target)
            _say("checking with onnxruntime")
            rows = checking.check_onnx_model(target, flat, plan)
        except exporting.FinalError:
            raise
        except TorchportError as error:
            refused[exporter] = error.message
            continue
        compared = {"exporter": exporter, "refused": dict(refused), **made, "rows": rows}
        if all(row["ok"] for row in rows):
            return compared
        refused[exporter] = "its model does not compute the same"
    if compared is None:
        raise TorchportError(
            f"the model cannot be exported to opset {plan.opset}: "
            + "; ".join(f"{exporter}: {why}" for exporter, why in refused.items()),
            hint=f"A newer opset may have the operator: --opset newest is {NEWEST}. ATC takes up to 18.",
        )
    return compared


def _say(text: str) -> None:
    """For the line that shows where it is: see `driver`."""
    with open(int(os.environ["TORCHPORT_EXPORT_PROGRESS"]), "w", closefd=False) as stream:
        stream.write(text + "\n")


if __name__ == "__main__":
    main()
