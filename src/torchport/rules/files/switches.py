"""TP608: switches of libraries that work with CUDA alone, in configurations and on launch lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Style
from torchport.rules.files import FileRule, TextFile
from torchport.rules.library_switch import BITSANDBYTES, OF_BITSANDBYTES, OPTIMIZER, RAY, TF32, XFORMERS
from torchport.source.kinds import Kind, is_comment

_IS = r"[\"']?(?:\s*[:=]\s*|\s+)[\"']?"
_ON = rf"{_IS}(?:[Tt]rue|TRUE|yes|on)\b"
_BITS = "weights in few bits are bitsandbytes'"
_XFORMERS = r"enable_xformers_memory_efficient_attention|enable_xformers|use_xformers|xformers_attention"
_SWITCHES = (
    (re.compile(rf"(?<![\w.])(load_in_[48]bit){_ON}"), _BITS, BITSANDBYTES),
    (re.compile(r"(?<=--)(load_in_[48]bit)(?=\s*(?:\\?$|--|[\"',\]]))"), _BITS, BITSANDBYTES),
    (re.compile(rf"(?<![\w.])(tf32){_ON}"), "TF32 is NVIDIA's", TF32),
    (re.compile(rf"(?<![\w.])({_XFORMERS}){_ON}"), "xformers has no NPU kernels", XFORMERS),
    (re.compile(rf"(?<=--)({_XFORMERS})(?=\s*(?:\\?$|--|[\"',\]]))"), "xformers has no NPU kernels", XFORMERS),
    (re.compile(r"(?<=--)(use_8bit_adam)(?![\w-])"), "the optimizer is bitsandbytes'", BITSANDBYTES),
    (re.compile(rf"(?<![\w.])optim(?:izer)?{_IS}({OF_BITSANDBYTES.pattern})\b"), "it is bitsandbytes'", OPTIMIZER),
    (re.compile(r"\bray\s+start\b.*?(--num-gpus[= ]\S+)"), "ray is asked for GPUs", RAY),
)


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for every such switch that is on, outside of comments."""
    for line in file.iter_lines():
        if is_comment(line.text, file.kind):
            continue
        for pattern, message, hint in _SWITCHES:
            for found in pattern.finditer(line.text):
                yield RULE.make_finding(file, line, found.span(1), message, hint=hint)


RULE = FileRule(
    code="TP608",
    title="switches of libraries that are for CUDA, in configurations and launch lines",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="A trainer takes them from its configuration or its command line: the run ends where bitsandbytes or xformers "
    "is called, and transformers refuses TF32 without a CUDA device.",
    reference="https://github.com/Ascend/pytorch",
    kinds=frozenset({Kind.SHELL, Kind.DOCKER, Kind.YAML, Kind.JSON, Kind.SETTINGS}),
    words=(b"load_in_", b"tf32", b"xformers", b"8bit", b"32bit", b"num-gpus"),
    check=check_file,
    rewrites=(),
    reports=(
        ("qlora.yml", "load_in_4bit: true\n"),
        ("train.sh", "python train.py --tf32 True --bf16 True\n"),
        ("train.sh", "accelerate launch t.py \\\n  --enable_xformers_memory_efficient_attention \\\n  --seed 1\n"),
        ("train.sh", "accelerate launch t.py --use_8bit_adam\n"),
        ("c.json", '{"optim": "paged_adamw_8bit"}\n'),
        ("job.slurm", "srun ray start --address=$H --num-gpus=8 --block\n"),
    ),
    ignores=(
        ("qlora.yml", "load_in_4bit: false\n# tf32: true\n"),
        ("train.sh", "python train.py --tf32 False --optim adamw_torch\n"),
        ("train.sh", "deepspeed --num_gpus=8 train.py\n"),
        ("c.yaml", "note: tf32 is off\n"),
        ("run.sh", "pip install xformers_stubs_none\n"),
    ),
)
