"""Export a checkpoint to ONNX, compare it with PyTorch by onnxruntime, and give the atc command for a chip.

examples:
  torchport export best.pth.tar --model models.resnet:resnet50 --input 1,3,224,224 -o model.onnx
  torchport export bert.safetensors --model net:Encoder --input ids:1,128:int64:30522 --dynamic ids:0,1 -o bert.onnx
  torchport export best.pth --model net:make --arguments '{"classes": 10}' --input 1,3,32,32 --soc Ascend310P3 -o m.onnx
  torchport export best.pth --model net:make --input 1,3,32,32 --check model.onnx    compare a file that is there

--model is your code and is run, in a process of its own without torch_npu and with the current folder in sys.path. What
it calls of torch_npu (npu_rms_norm, npu_rotary_mul, npu_fusion_attention ...) is exported as plain operators. The file
is written only where onnxruntime agrees with PyTorch for batches of 1, 3 and 8, and for inputs with other contents if
the model takes Python values from tensors (`.item()`, `if mask.any()`), which tracing makes constants of. Exit code 1:
it does not agree; 4: undecided, since such a value was the same for all inputs that were tried.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from torchport.checkpoints.waiting import Waiting
from torchport.checkpoints.writing import require_target
from torchport.errors import TorchportError
from torchport.export import atc, driver
from torchport.export.job import NEWEST, Job, parse_input, with_dynamic
from torchport.report.wording import escape_unprintable, format_count

SOC = "Ascend910B1"
FEW = 3  # lines that are shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchport export`."""
    parser.add_argument("checkpoint", type=Path, metavar="CKPT", help="as for `torchport checkpoint`")
    parser.add_argument("--model", required=True, metavar="MODULE:FACTORY", help="what makes the model; it is run")
    parser.add_argument("--arguments", default="{}", metavar="JSON", help="keyword arguments for the factory")
    parser.add_argument(
        "--input",
        action="append",
        required=True,
        metavar="SPEC",
        help="[NAME:]SIZES[:DTYPE[:BELOW]], once for each input; BELOW bounds the integers that are tried",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the .onnx file to write")
    parser.add_argument("--check", type=Path, metavar="FILE", help="export nothing, and compare this .onnx file")
    parser.add_argument("--force", action="store_true", help="replace FILE where it exists")
    parser.add_argument("--part", help="which part of the checkpoint holds the weights")
    parser.add_argument(
        "--allow-missing", action="store_true", help="keep what the factory has put where names are missing"
    )
    parser.add_argument("--allow-unexpected", action="store_true", help="leave out what the model has no name for")
    compared = parser.add_argument_group("what is compared")
    compared.add_argument(
        "--sample", action="append", metavar="FILE", help="an .npz file with an array for each input, to compare too"
    )
    compared.add_argument(
        "--assume",
        action="append",
        metavar="FILE:LINE",
        help="the Python value taken from a tensor at this line is always the same",
    )
    shape = parser.add_argument_group("the ONNX model")
    shape.add_argument(
        "--opset", default="11", help=f"number, or newest ({NEWEST}) (default: 11, which every ATC takes)"
    )
    shape.add_argument(
        "--exporter", choices=["auto", "torchscript", "dynamo"], default="auto", help="auto takes the first that works"
    )
    shape.add_argument("--fp16", action="store_true", help="weights and computation in half precision")
    shape.add_argument("--static", action="store_true", help="no dynamic axes (default: the first of each input)")
    shape.add_argument("--dynamic", action="append", metavar="NAME:AXES", help="dynamic axes of an input, e.g. ids:0,1")
    shape.add_argument("--output-names", metavar="A,B", help="names of the outputs (default: from the model's keys)")
    chip = parser.add_argument_group("for the chip")
    chip.add_argument("--soc", default=SOC, metavar="NAME", help=f"as aclrtGetSocName gives it (default: {SOC})")
    chip.add_argument(
        "--cann", metavar="VERSION", help="judge opset and operators for this CANN (default: the newest known)"
    )
    chip.add_argument("--precision", choices=atc.PRECISIONS, help="--precision_mode for atc (default: by the chip)")
    chip.add_argument("--om", type=Path, metavar="FILE", help="run atc, where there is one, and write this .om file")


def run_command(arguments: argparse.Namespace) -> int:
    """Export, check, print; 0 where the check holds, else 1."""
    job, target = _job(arguments), arguments.check or arguments.output
    if (arguments.check is None) == (arguments.output is None):
        raise TorchportError("give either -o FILE or --check FILE")
    atc.require_soc(arguments.soc)
    if arguments.check is None:
        require_target(target, arguments.force)
    elif not target.is_file():
        raise TorchportError(f"there is no {target}", hint="--check takes an .onnx file that is there.")
    if arguments.om is not None:
        require_target(arguments.om, arguments.force)
    waiting = Waiting(sys.stderr, arguments.quiet)
    try:
        done = driver.export_checkpoint(
            arguments.checkpoint, arguments.part, job, target, waiting, existing=arguments.check is not None
        )
    finally:
        waiting.clear_line()
    word = done["word"]
    words = atc.build_atc_command(
        target, arguments.om or target.with_suffix(""), job.inputs, arguments.soc, arguments.precision
    )
    taken = atc.judge_operators(done["operators"], done["opset"], arguments.cann) if "operators" in done else None
    if arguments.json:
        print(
            json.dumps(done | {"holds": word == "holds", "file": str(target), "atc": words, "taken": taken}, indent=1)
        )
    elif not arguments.quiet:
        _print(done, target, words, taken, arguments.soc)
    if word != "holds":
        kept = "" if arguments.check else f"; {target} was not written"
        print(f"torchport export: {_say_why(done, job)}{kept}", file=sys.stderr)
        return 1 if word == "does not hold" else 4
    if arguments.om is not None:
        atc.run_atc(words)
    return 0


def _say_why(done: dict[str, Any], job: Job) -> str:
    if done["word"] == "does not hold":
        return f"onnxruntime and PyTorch do not agree within {job.tolerance:.0e} of the largest output"
    if done["unseen"]:
        return f"undecided: whether the model holds constants that are none was not seen: {done['unseen']}"
    return "undecided: all that was compared agrees, and Python values that may be other ones were always the same"


def _job(arguments: argparse.Namespace) -> Job:
    if ":" not in arguments.model:
        raise TorchportError(
            f"--model {arguments.model} is not MODULE:FACTORY", hint="For example models.resnet:resnet50."
        )
    try:
        given = json.loads(arguments.arguments)
        opset = NEWEST if arguments.opset == "newest" else int(arguments.opset)
        if not isinstance(given, dict) or not 7 <= opset <= 25:
            raise ValueError
    except ValueError:
        raise TorchportError(
            f"--arguments {arguments.arguments} is no JSON object, or --opset {arguments.opset} no opset",
            hint="For example --arguments '{\"num_classes\": 10}' --opset 13.",
        ) from None
    inputs = [parse_input(text, number) for number, text in enumerate(arguments.input)]
    if len({one.name for one in inputs}) < len(inputs):
        raise TorchportError("two inputs have the same name")
    return Job(
        model=arguments.model,
        inputs=with_dynamic(inputs, arguments.dynamic, arguments.static),
        opset=opset,
        exporter=arguments.exporter,
        half=arguments.fp16,
        outputs=tuple(arguments.output_names.split(",")) if arguments.output_names else (),
        arguments=given,
        allow_missing=arguments.allow_missing,
        allow_unexpected=arguments.allow_unexpected,
        samples=tuple(str(Path(path).absolute()) for path in arguments.sample or ()),
        assumed=tuple(arguments.assume or ()),
    )


def _print(done: dict[str, Any], target: Path, words: list[str], taken: dict[str, Any] | None, soc: str) -> None:
    loaded = done["loaded"]
    stripped = f", without {' '.join(loaded['removed'])}" if loaded["removed"] else ""
    print(escape_unprintable(f"weights    {loaded['loaded']} tensors of {done['part'] or 'the checkpoint'}{stripped}"))
    for what in ("missing", "unexpected"):
        if loaded[what]:
            print(escape_unprintable(f"           {what}, as allowed: {', '.join(loaded[what][:5])}"))
    if "exporter" in done:
        print(f"exporter   {done['exporter']}, opset {done['opset']}, {format_count(done['nodes'], 'node')}")
        for name, why in done["refused"].items():
            print(escape_unprintable(f"           {name} was not taken: {why}"))
    if done["outputs_left_out"]:
        print(escape_unprintable(f"outputs    left out are objects: {', '.join(done['outputs_left_out'])}"))
    _print_rows(done)
    _print_places(done)
    if taken is not None:
        _print_taken(taken)
    if done["word"] != "holds":
        return
    print(escape_unprintable(f"atc        {shlex.join(words)}"))
    print(f"           for {soc}; it makes a .om, which runs on hardware alone")


def _print_rows(done: dict[str, Any]) -> None:
    print("check      onnxruntime against PyTorch, relative to the largest output")
    said: set[str] = set()
    for row in done["rows"]:
        if row["ok"] and row["contents"]:
            continue
        shapes = f", shape {row['shapes'][1]} for {row['shapes'][0]}" if "shapes" in row else ""
        apart = "" if row["relative"] is None else f"{row['relative']:.1e}"
        given = f"{row['sizes']}{' ' if row['inputs'] else ''}{row['inputs']}"
        word = "holds" if row["ok"] else f"DOES NOT HOLD{shapes}{', ' if 'error' in row else ''}{row.get('error', '')}"
        print(escape_unprintable(f"           {given:<24} {row['output']:<16} {apart:<7}  {word}"))
        for text in row.get("frozen", ()):
            if text not in said:
                print(escape_unprintable(f"             frozen: {text}"))
            said.add(text)
    held = [row for row in done["rows"] if row["ok"] and row["contents"]]
    if held:
        kinds = list(dict.fromkeys(row["inputs"] for row in held))
        print(f"           other contents hold, {max(row['relative'] for row in held):.1e}: {'; '.join(kinds)}")
    for case in done["left_out"]:
        given = f"{case['sizes']}{' ' if case['inputs'] else ''}{case['inputs']}"
        print(escape_unprintable(f"           {given:<24} not compared: {case['why']}"))


def _print_places(done: dict[str, Any]) -> None:
    """The lines that hold the word up, and what to do; the lines that the file does not have."""
    guards = list(dict.fromkeys(place["where"] for place in done["places"] if place["state"] == "guard"))
    if guards:
        print(
            f"           not in the file: {format_count(len(guards), 'line')} that only check or report, "
            + escape_unprintable(", ".join(guards[:FEW]) + (" ..." if len(guards) > FEW else ""))
        )
    places = [place for place in done["places"] if place["state"] == "open" and done["word"] == "undecided"]
    if places:
        print("undecided  Python values taken from tensors became constants, and no input that was tried changes them:")
    for place in places:
        always = f"{place['what']} from {place['from']} of inputs, always {place['traced']}"
        print(escape_unprintable(f"           {place['where']}  {always}"))
    if places:
        print(
            "           Write them as tensors (torch.where, masks), or give inputs with other ones (--sample FILE.npz,"
        )
        print("           --dynamic); if a value is always the same, say so: --assume FILE:LINE.")
    elif any("frozen" in row for row in done["rows"]):
        print("           A value that a tensor gave to Python is a constant in the file: write it as a tensor.")
    if done.get("newer"):
        print(f"           {done['newer']}")


def _print_taken(taken: dict[str, Any]) -> None:
    if taken["opset_taken"] is None:
        print("ATC        which opsets this CANN takes is not known")
    elif not taken["opset_taken"]:
        first, last = taken["opsets"]
        print(f"ATC        takes opsets {first} to {last}, not {taken['opset']}: export with one of these (--opset)")
    for name, why in taken["refused"].items():
        print(escape_unprintable(f"           {name}: not taken: {why}"))
    for name, why in taken["unknown"].items():
        print(escape_unprintable(f"           {name}: not known: {why}"))
    if taken["opset_taken"] and not taken["refused"] and not taken["unknown"]:
        print("ATC        has a parser for every operator in this opset")
