"""TP607: settings of launchers and trainers that ask for GPUs: accelerate, lightning, DeepSpeed, hydra."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Style
from torchport.rules.files import FileRule, TextFile
from torchport.rules.torch_cuda_api import convert_name
from torchport.source.kinds import Kind, is_comment

_END = r"[\"']?(?=\s*(?:$|[,}\])#;]))"
_LIGHTNING = (
    "lightning knows no NPU: with torch_npu's transfer_to_npu, which `torchport convert` puts where a Trainer is made "
    "(TP403), its GPU accelerator uses the NPU, and this stays as it is. Where the Trainer is made from this file "
    "alone (LightningCLI, hydra), import torch_npu.contrib.transfer_to_npu in the script."
)
# What is found, the group that is the place, what to say, what to do.
_SETTINGS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(rf"(?<![\w.-])(?:\w+\.)*accelerator[\"']?\s*[:=]\s*[\"']?(gpu|cuda){_END}"),
        "lightning is asked for a GPU",
        _LIGHTNING,
    ),
    (
        re.compile(r"(?<![\w.-])(enable_cuda_graph)[\"']?\s*[:=]\s*[\"']?[Tt]rue"),
        "CUDA graphs are asked for",
        "Set it to false: DeepSpeed captures no graph on an NPU.",
    ),
)
_COUNT = re.compile(r"(?<![\w.-])(?:\w+\.)*(n?_?gpus)[\"']?\s*[:=]\s*[\"']?(?:-?[1-9][\d, ]*|\[[\d, ]+\]|auto)")
_TRAINER = re.compile(r"trainer|lightning|max_epochs", re.IGNORECASE)
_DISTRIBUTED = re.compile(rf"(?<![\w.-])distributed_type[\"']?\s*[:=]\s*[\"']?(MULTI_GPU){_END}")
_TARGET = re.compile(r"_target_[\"']?\s*:\s*[\"']?(torch\.cuda(?:\.\w+)+)")


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for every such setting outside comments; an edit for accelerate's kind of launch."""
    npu, trains = style is Style.NPU, _TRAINER.search(file.text.text) is not None
    for line in file.iter_lines():
        if is_comment(line.text, file.kind):
            continue
        for found in _DISTRIBUTED.finditer(line.text):
            yield RULE.make_finding(
                file,
                line,
                found.span(1),
                "accelerate calls several NPUs MULTI_NPU",
                "MULTI_NPU" if npu else None,
                hint="accelerate takes the NPU that it finds: check the number of processes.",
            )
        for found in _TARGET.finditer(line.text):
            target = convert_name(found[1], style)
            edit = target if npu and target != found[1] else None
            yield RULE.make_finding(
                file,
                line,
                found.span(1),
                f"{found[1]} is {target} on the NPU" if edit else f"{found[1]} is CUDA's",
                edit,
                hint="The script has to import torch_npu before this is made.",
            )
        for found in _COUNT.finditer(line.text):
            yield RULE.make_finding(
                file,
                line,
                found.span(1),
                "a number of GPUs is asked for",
                hint=f"Where lightning's Trainer is given it: {_LIGHTNING}",
                severity=None if trains else Severity.INFO,
            )
        for pattern, message, hint in _SETTINGS:
            for found in pattern.finditer(line.text):
                yield RULE.make_finding(file, line, found.span(1), message, hint=hint)


RULE = FileRule(
    code="TP607",
    title="settings of launchers and trainers that ask for GPUs",
    safety=Safety.REVIEW,
    severity=Severity.WARNING,
    why="accelerate, lightning and DeepSpeed take from a file which devices they use. One that says GPU ends the run, "
    "or leaves it on the CPU.",
    reference="https://huggingface.co/docs/accelerate/package_reference/cli",
    kinds=frozenset({Kind.YAML, Kind.JSON, Kind.SETTINGS}),
    words=(*CUDA, b"gpus", b"accelerator", b"multi_gpu"),
    check=check_file,
    rewrites=(
        (
            "acc.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\ngpu_ids: all\n",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_NPU\ngpu_ids: all\n",
        ),
        (
            "c.yaml",
            "scaler:\n  _target_: torch.cuda.amp.GradScaler\n",
            "scaler:\n  _target_: torch.npu.amp.GradScaler\n",
        ),
    ),
    reports=(
        ("c.yaml", "trainer:\n  accelerator: gpu\n  devices: 1\n"),
        ("c.yaml", "trainer:\n  gpus: 1\n"),
        ("ds.json", '{"enable_cuda_graph": true}\n'),
        ("c.gin", "Trainer.accelerator = 'gpu'\n"),
    ),
    ignores=(
        ("c.yaml", "trainer:\n  accelerator: cpu\n  gpus: 0\n  # gpus: 1\n"),
        ("acc.yaml", "distributed_type: MULTI_CPU\n"),
    ),
)
