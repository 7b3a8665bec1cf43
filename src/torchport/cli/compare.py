"""Judge two recordings of one script: does the second compute what the first computes?

examples:
  torchport compare torchport-out/train/reference torchport-out/train/npu --control torchport-out/train/control
  torchport compare A B --json > comparison.json
  torchport compare A B --tolerance 1e-3
  torchport compare base/ npu/ -o report.html --csv operators.csv     both recorded with --level tensor
  torchport compare one many                                          one device against the ranks of a distributed run
  torchport compare gpu.h5 npu.h5 --csv results.csv                   two files of torch.utils.dumper
  torchport compare gpu.log npu.log                                   two printed logs (or .gz, .jsonl, .json, .csv)
  torchport compare --model package.net:factory                       each module of a model by itself, on the NPU

Answers in the words of `torchport port`, which leaves such recordings, as `torchport run --record` does. Losses,
gradients, updates and data are compared step by step. How far they may differ, the control run says: the original once
more with rounding noise. Without one, losses in fp32 are held to 1e-4 relative for 50 steps and to 1e-2 after them,
and it is not known which faults would be noticed.

Where both have operators (`torchport run --record DIR --level tensor`), the operator that is wrong first is named: each
of B's is computed again in float64 from its own inputs, which needs torch; all else needs none.

Of one process and of several, the ranks are put together to one device: each gradient in its whole, and the loss
(docs/invariants.md). `torchport run --record C --control-of A` makes a control of such a run.

With --model nothing was recorded: FACTORY is called, which gives a module and a tuple of its inputs, and each module in
it is run by itself on the device (--device), forward and backward, in train and in eval mode, and held against float64.
GELU is computed in its tanh form then, as an NPU does. Exit code 1 where one is wrong.

Two files of the porting guide's torch.utils.dumper (`import torchport.legacy` has it) are compared as `msaccucmp.py
compare -m npu.h5 -g gpu.h5` did. The second is made with load_file_path=gpu.h5: then each operator has the same inputs
in both. A result is wrong where it is further off than CANN's bound for one operator and the rounding of its inputs
explain.

Two printed logs are paired by the names and steps in them, and their losses are held against the rule of thumb that the
mean relative difference is below 2 %. The answer is "within the rule of thumb" (exit code 0), "outside of it" (1) or
undecided (4), and never that the port holds: a log shows neither weights nor gradients nor data. --csv stores pairs.

Exit code 0: holds. 1: does not hold. 4: undecided, with what would decide it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from torchport.cli import UNDECIDED
from torchport.compare import compare_recordings
from torchport.compare.assembly import assemble_ranks, can_assemble
from torchport.errors import TorchportError
from torchport.findings import write_atomically
from torchport.record.recording import Recording
from torchport.report import render_compare
from torchport.report.html import render_page
from torchport.report.sarif import render_sarif

if TYPE_CHECKING:
    from torchport.compare.culprit import Culprit

FOLDER = "operators"  # of a recording that has some
EXIT = {"holds": 0, "does not hold": 1}
SUFFIXES = (".h5", ".hdf5")  # of the files of torch.utils.dumper
TOLERANCE = "relative difference allowed to every quantity, in place of what the original's own rounding allows"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torchport compare [options] A B  or  torchport compare [options] --model MODULE:FACTORY"
    parser.add_argument("reference", type=Path, nargs="?", metavar="A", help="recording of the original")
    parser.add_argument("port", type=Path, nargs="?", metavar="B", help="recording of the port")
    parser.add_argument(
        "--model", metavar="MODULE:FACTORY", help="judge the modules of the model that this function makes"
    )
    parser.add_argument(
        "--device", choices=("npu", "cuda", "cpu"), help="where the modules of --model run (default npu)"
    )
    parser.add_argument(
        "--control", type=Path, metavar="C", help="recording of the original with noise: what rounding does to it"
    )
    parser.add_argument(
        "--again", type=Path, metavar="B2", help="recording of B's run once more: what it does not repeat is noise"
    )
    parser.add_argument(
        "--rank", type=int, action="append", metavar="R", help="judge the operators of this rank; may be given again"
    )
    parser.add_argument(
        "--step", type=int, action="append", metavar="N", help="judge the operators of this step; may be given again"
    )
    parser.add_argument("--tolerance", type=parse_relative_tolerance, metavar="X", help=TOLERANCE)
    parser.add_argument("-o", "--html", type=Path, metavar="FILE", help="store a report as one HTML file here")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="store the operators that were judged here")
    parser.add_argument(
        "--tensors", type=Path, metavar="FILE", help="store how far each result of both is apart here, as CSV"
    )
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="store the findings as SARIF 2.1.0 here")


def run_command(arguments: argparse.Namespace) -> int:
    if arguments.model is not None:
        return _modules(arguments)
    if arguments.port is None or arguments.device:
        raise TorchportError(
            "--device is for --model" if arguments.port else "two recordings are compared, or --model is given",
            hint="torchport compare A B, or torchport compare --model MODULE:FACTORY",
        )
    if arguments.reference.suffix in SUFFIXES and arguments.port.suffix in SUFFIXES:
        return _dumper_files(arguments)
    if any(path.is_file() and path.suffix not in SUFFIXES for path in (arguments.reference, arguments.port)):
        return _logs(arguments)
    reference, port = Recording.from_directory(arguments.reference), Recording.from_directory(arguments.port)
    control = Recording.from_directory(arguments.control) if arguments.control else None
    assembly = None
    if can_assemble(reference, port):
        backwards = len(reference.trained) > 1
        one, many = (port, reference) if backwards else (reference, port)
        assembly = assemble_ranks(one, many)
        reference, port = (assembly.many, assembly.one) if backwards else (assembly.one, assembly.many)
        control = assembly.fit_control(control, of_ranks=one if backwards else None) if control else None
    judged: Culprit | None = None
    unjudged: list[str] = []

    def find_culprit(parted: int | None) -> Culprit | None:
        nonlocal judged
        try:
            judged = _find_culprit(arguments, parted)
        except TorchportError as error:
            if assembly is None:
                raise
            unjudged.append(f"operators: {error}")
        return judged

    result = compare_recordings(
        reference, port, control=control, given=arguments.tolerance, find_culprit=find_culprit, assembly=assembly
    )
    if unjudged:
        data = dataclasses.replace(result.data, unchecked=(*result.data.unchecked, *unjudged))
        result = dataclasses.replace(result, data=data)
    if arguments.csv:
        if judged is None or judged.replay is None:
            raise TorchportError(
                f"--csv has nothing to store: {arguments.port} has no tensors of operators",
                hint="Record them: torchport run --record DIR --level tensor SCRIPT",
            )
        write_atomically(arguments.csv, judged.replay.to_csv().encode())
    if arguments.tensors:
        if judged is None or judged.paired is None:
            raise TorchportError(
                "--tensors has nothing to store: these recordings have no operators of the same processes",
                hint="Record them: torchport run --record DIR --level tensor SCRIPT",
            )
        write_atomically(arguments.tensors, judged.paired.to_csv().encode())
    if arguments.sarif:
        write_atomically(arguments.sarif, render_sarif(result.findings).encode())
    if arguments.html:
        write_atomically(arguments.html, render_page(result).encode("utf-8", "backslashreplace"))
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        print(render_compare(result), end="")
    return EXIT.get(result.data.verdict, UNDECIDED)


def _dumper_files(arguments: argparse.Namespace) -> int:
    """The results in two files of torch.utils.dumper."""
    _refuse(
        arguments,
        ("control", "again", "rank", "step", "tolerance", "html", "tensors", "sarif"),
        "for two files of torch.utils.dumper",
        "--json prints the results for a program, --csv stores them.",
    )
    from torchport.compare.dumper_files import compare_dumper_files  # needs numpy and h5py
    from torchport.report.dumper_files import render_dumper_files

    found = compare_dumper_files(arguments.reference, arguments.port)
    if arguments.csv:
        write_atomically(arguments.csv, found.to_csv().encode())
    data = {
        "judged": len(found.judged),
        "unjudged": found.count_unjudged(),
        "alone": found.alone,
        "wrong": [dataclasses.asdict(row) for row in found.wrong],
    }
    if arguments.json:
        print(json.dumps(data))
    elif not arguments.quiet:
        print(render_dumper_files(data), end="")
    return int(bool(found.wrong)) if found.judged else UNDECIDED


def _logs(arguments: argparse.Namespace) -> int:
    """The numbers in two printed logs."""
    _refuse(
        arguments,
        ("control", "again", "rank", "step", "tolerance", "html", "tensors", "sarif"),
        "for two printed logs",
        "--json prints the result for a program, --csv stores the pairs.",
    )
    from torchport.compare.printed_logs import OUTSIDE, WITHIN, compare_logs, to_csv
    from torchport.report.printed_logs import render_printed_logs

    result, paired = compare_logs(arguments.reference, arguments.port)
    if arguments.csv:
        write_atomically(arguments.csv, to_csv(paired).encode())
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        print(render_printed_logs(result), end="")
    return {WITHIN: 0, OUTSIDE: 1}.get(result.data.answer, UNDECIDED)


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], where: str, hint: str) -> None:
    """Raises TorchportError for the first of these options that was given."""
    for name in names:
        if getattr(arguments, name) is not None:
            word = "a recording" if name == "reference" else f"--{name}"
            raise TorchportError(f"{word} is of no use {where}", hint=hint)


def _modules(arguments: argparse.Namespace) -> int:
    """The table of a model's modules."""
    _refuse(
        arguments,
        ("reference", "control", "again", "rank", "step", "tolerance", "html", "csv", "tensors", "sarif"),
        "beside --model",
        "--json prints the table for a program.",
    )
    from torchport import vnpu
    from torchport.compare.module_table import tabulate_modules
    from torchport.report.modules import render_modules

    device = arguments.device or "npu"
    environment = dict(os.environ)
    if device == "npu":
        environment |= vnpu.environment(environment)
    else:
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    rows = [dataclasses.asdict(row) for row in tabulate_modules(arguments.model, device, environment)]
    if arguments.json:
        print(json.dumps({"device": device, "modules": rows}))
    elif not arguments.quiet:
        print(render_modules(rows, device), end="")
    return int(any(row["wrong"] for row in rows))


def _find_culprit(arguments: argparse.Namespace, parted: int | None) -> Culprit | None:
    """The operators of both; in step `parted` the runs part."""
    reference, port, again = arguments.reference, arguments.port, arguments.again
    if again is not None and not (again / FOLDER).is_dir():
        raise TorchportError(
            f"--again {again} has no operators", hint="torchport run --record DIR --level tensor SCRIPT records them."
        )
    if not any((path / FOLDER).is_dir() for path in (reference, port)):
        return None
    from torchport.compare.culprit import find_culprit  # needs numpy and h5py

    return find_culprit(reference, port, again, steps=arguments.step, ranks=arguments.rank, parted=parted)


def parse_relative_tolerance(text: str) -> float:
    """A relative tolerance."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a relative difference between 0 and 1")
    return value
