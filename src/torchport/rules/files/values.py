"""TP602: devices and backends in configurations and on launch lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge.arguments import role
from torchport.rules import Style
from torchport.rules.files import FileRule, TextFile
from torchport.source.kinds import Kind

# device: cuda, "device": "cuda:0", device = 'cuda', --device cuda, --device=cuda:0, model.device=cuda
_VALUE = re.compile(
    r"""(?:(?<![\w-])(?P<dash>--)|(?<![\w.-]))(?P<key>[A-Za-z_][\w.-]*+)(?P<quote>["']?)\s*(?:[:=]|(?<=[\w"'])\s(?=["']?(?:cuda|nccl)))\s*"""
    r"""(?P<open>["']?)(?P<value>cuda(?::\d+)?|nccl)(?P=open)(?=$|[\s,}\])#;\\])""",
)
_COMMENT = re.compile(r"\s*(?:#|//)")
_OTHER = re.compile(r"""[:=\s]["']?(cuda(?::\d+)?|nccl)["']?(?=$|[\s,}\])])""")


def check(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for every value that is a CUDA device or the backend nccl; an edit where its key says so."""
    if style is not Style.NPU:
        return
    for line in file.lines():
        if ("cuda" not in line.text and "nccl" not in line.text) or _COMMENT.match(line.text):
            continue
        taken: set[int] = set()
        for found in _VALUE.finditer(line.text):
            if not found["dash"] and file.kind is Kind.SHELL and "=" not in found[0]:
                continue
            value, key = found["value"], found["key"].replace("-", "_").rpartition(".")[2]
            wanted = role("backend" if value == "nccl" else "device")
            if not wanted.names.match(key.lower()):
                continue
            taken.add(found.start("value"))
            new = "hccl" if value == "nccl" else "npu" + value[4:]
            yield RULE.finding(
                file, line, found.span("value"), f"{found['key']} is {new} on the NPU", new,
                hint="Only the name of the key says what this value is: check it.",
            )  # fmt: skip
        for other in _OTHER.finditer(line.text):
            if other.start(1) not in taken:
                yield RULE.finding(
                    file, line, other.span(1), f"{other[1]!r} may be a device or a backend; the line does not say",
                    hint="If it is, write npu or hccl.", severity=Severity.WARNING, safety=Safety.REPORT,
                )  # fmt: skip


RULE = FileRule(
    code="TP602",
    title="devices and backends in configurations and launch lines",
    safety=Safety.REVIEW,
    severity=Severity.INFO,
    why="A configuration that says cuda or nccl fails at its first use, or overrides what the converted code says.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    kinds=frozenset({Kind.SHELL, Kind.YAML, Kind.JSON, Kind.SETTINGS, Kind.DOCKER}),
    check=check,
    rewrites=(
        ("c.yaml", "train:\n  device: cuda:0  # where\n  backend: nccl\n",
         "train:\n  device: npu:0  # where\n  backend: hccl\n"),
        ("c.json", '{"device": "cuda", "n": 1}\n', '{"device": "npu", "n": 1}\n'),
        ("c.toml", 'device = "cuda:1"\n', 'device = "npu:1"\n'),
        ("run.sh", "python t.py --device cuda --dist-backend=nccl \\\n",
         "python t.py --device npu --dist-backend=hccl \\\n"),
        ("run.sh", "python t.py trainer.device=cuda\n", "python t.py trainer.device=npu\n"),
    ),
    unchanged=(
        ("c.yaml", "name: cuda\n"),
        ("c.yaml", "# device: cuda\n"),
        ("c.yaml", "device: cudagraph\n"),
        ("c.json", '{"url": "https://x.org/cuda"}\n'),
        ("run.sh", "echo device cuda is used\n"),
    ),
)  # fmt: skip
