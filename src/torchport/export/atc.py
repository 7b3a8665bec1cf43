"""The `atc` command that makes an OM of an ONNX model for a chip, and what ATC is known to take."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.export.job import Input
from torchport.knowledge import onnx
from torchport.vnpu.chips import load_chips

PRECISIONS = ("force_fp16", "allow_fp32_to_fp16", "must_keep_origin_dtype", "allow_mix_precision", "force_fp32")
BUILT_IN = {"Constant"}  # of the parser itself: it becomes a weight


def build_atc_command(model: Path, output: Path, inputs: Sequence[Input], soc: str, precision: str | None) -> list[str]:
    """The words. Shapes are those that were given: an OM has fixed ones unless --dynamic_batch_size says otherwise."""
    chip = load_chips().get(soc)
    mode = precision or (onnx.find_precision_mode(chip["operators"]) if chip else None)
    images = all(len(one.shape) == 4 for one in inputs)
    shapes = ";".join(f"{one.name}:{','.join(map(str, one.shape))}" for one in inputs)
    words = [
        "atc",
        "--framework=5",
        f"--model={model}",
        f"--output={output.with_suffix('') if output.suffix == '.om' else output}",
        f"--input_format={'NCHW' if images else 'ND'}",
        f"--input_shape={shapes}",
        f"--soc_version={soc}",
    ]
    return [*words, f"--precision_mode={mode}"] if mode else words


def judge_operators(operators: Mapping[str, int], opset: int, cann: str | None) -> dict[str, Any]:
    """What is known of how ATC takes these operators in this opset: `refused` and `unknown`, each with a sentence."""
    known, parsers = onnx.find_opsets(cann), onnx.load_parser_opsets()
    fits = None if known is None else known.first <= opset <= known.last
    refused: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for name in operators:
        if name in BUILT_IN:
            continue
        advice = onnx.find_replacement(name)
        if "::" in name:
            refused[name] = "an operator of another domain than ONNX's"
        elif name not in parsers:
            unknown[name] = "CANN's public operator sources have no parser for it" + (f"; {advice}" if advice else "")
        elif fits is not False and opset not in parsers[name]:  # else it is the opset, not the operator
            taken = sorted(parsers[name])
            refused[name] = f"taken in opsets {taken[0]} to {taken[-1]}, not in {opset}" + (
                f"; {advice}" if advice else ""
            )
    return {
        "opset": opset,
        "opset_taken": fits,
        "opsets": None if known is None else [known.first, known.last],
        "opsets_source": None if known is None else known.source,
        "refused": refused,
        "unknown": unknown,
        "source": onnx.parsers_source(),
    }


def require_soc(soc: str) -> None:
    """Raise TorchportError for a name that is none of a chip's."""
    if not soc.startswith("Ascend"):
        raise TorchportError(
            f"--soc {soc} is no name of a chip", hint=f"As aclrtGetSocName gives it: {', '.join(load_chips())}."
        )


def run_atc(words: Sequence[str]) -> None:
    """Run the command. Raises TorchportError where there is no atc, or it fails."""
    if shutil.which(words[0]) is None:
        raise TorchportError(
            "there is no atc on this machine: it is part of CANN's toolkit, and nothing else makes an OM",
            hint="The ONNX model is there. Run the command that was printed where CANN is installed.",
        )
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        fault = next((line for line in lines if line.lstrip().startswith("E")), lines[-1] if lines else "no word")
        raise TorchportError(
            f"atc has ended with status {done.returncode}: {fault.strip()[:400]}",
            hint="`torchport diagnose` explains CANN's codes.",
        )
