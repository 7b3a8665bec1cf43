"""TP602: devices and backends in configurations and on launch lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge.arguments import load_role
from torchport.rules import Style
from torchport.rules.files import FileRule, TextFile
from torchport.rules.plain_words import DEVICE_WORD
from torchport.source.kinds import Kind, is_comment

# device: cuda, "device": "cuda:0", device = 'cuda', --device cuda, --device=cuda:0, model.device=cuda
_VALUE = re.compile(
    r"""(?:(?<![\w-])(?P<dash>--)|(?<![\w.-]))(?P<key>[A-Za-z_][\w.-]*+)(?P<quote>["']?)\s*(?::=|\?=|[:=]|(?<=[\w"'])\s(?=["']?(?:\$\{\w+:?[-=])?(?:cuda|nccl)))\s*"""
    r"""(?:["']?\$\{\w+:?[-=])?(?P<open>["']?)(?P<value>cuda(?::\d+)?|nccl)(?P=open)(?=$|[\s,}\])#;\\])"""
)
# ${DEVICE:-cuda}: the name of a variable of the shell, and what it is where nothing is given.
_DEFAULT = re.compile(r"""\$\{(?P<key>[A-Za-z_]\w*):?[-=](?P<value>cuda(?::\d+)?|nccl)\}""")
# [python, train.py, --device, cuda] on one line, or with one word on each line.
_PAIR = re.compile(
    r"""(?<![\w-])--(?P<key>[A-Za-z_][\w.-]*+)(?P<quote>["']?)\s*,\s*(?P<open>["']?)"""
    r"""(?P<value>cuda(?::\d+)?|nccl)(?P=open)(?=\s*(?:$|[,\])]))"""
)
# --devices cuda:0 cuda:1: the further values of an option.
_MORE = re.compile(r"""[ \t]+(?P<value>cuda:\d+)(?=$|[\s\\])""")
_OPTION_ALONE = re.compile(r"""\s*(?:-\s+)?["']?--(?P<key>[A-Za-z_][\w.-]*)["']?\s*,?\s*""")
_VALUE_ALONE = re.compile(r"""\s*(?:-\s+)?(?P<open>["']?)(?P<value>cuda(?::\d+)?|nccl)(?P=open)\s*,?\s*""")
# A variable of a pod: - name: DEVICE, and value: cuda below it.
_NAME_ABOVE = re.compile(r"""\s*(?:-\s+)?name:\s*["']?(?P<key>[A-Z][A-Z0-9_]*)["']?\s*""")
_VALUE_BELOW = re.compile(r"""\s*value:\s*(?P<open>["']?)(?P<value>cuda(?::\d+)?|nccl)(?P=open)\s*""")
# A word of a launch line, and a value of a configuration, which is all that its key or its place in a list has.
_WORD = re.compile(r"""(?:[:=\s]["']?|\$\{\w+:?[-=])(cuda(?::\d+)?|nccl)["']?(?=$|[\s,}\])])""")
_ALONE = re.compile(r"""(?:[:=\[,(]|^\s*-)\s*["']?(cuda(?::\d+)?|nccl)["']?(?=\s*(?:$|[,}\])#;]))""")

_OF_SHELL = (Kind.SHELL, Kind.DOCKER)
_LABELS = re.compile(
    r"""(?:^|[\s{,"'])(?:\w+_)?(?:names|labels|tags|keywords|words|classes|titles|topics|legend)["']?\s*[:=]\s*$"""
)


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for every value that is a CUDA device or the backend nccl; an edit where its key says so.

    A configuration has one value for all machines, so that the agnostic style can only report it.
    """
    before = ""
    for line in file.iter_lines():
        above, before = before, line.text
        if ("cuda" not in line.text and "nccl" not in line.text) or is_comment(line.text, file.kind):
            continue
        taken: set[int] = set()
        for said, found in _with_keys(file.kind, above, line.text):
            if found.start("value") in taken:
                continue
            value, key = found["value"], said.replace("-", "_").rpartition(".")[2]
            wanted = load_role("backend" if value == "nccl" else "device")
            if not wanted.names.match(key.lower()):
                continue
            taken.add(found.start("value"))
            new = "hccl" if value == "nccl" else "npu" + value[4:]
            agnostic = style is Style.AGNOSTIC
            yield RULE.make_finding(
                file,
                line,
                found.span("value"),
                f"{said} is {new} on the NPU",
                None if agnostic else new,
                hint="Leave the key out or give it on the command line, so that the machine decides."
                if agnostic
                else "Only the name of the key says what this value is: check it.",
                severity=Severity.WARNING if agnostic else None,
            )
        alone = _WORD if file.kind in _OF_SHELL else _ALONE
        for other in alone.finditer(line.text):
            if other.start(1) not in taken and not _is_label(line.text, other.start(1)):
                yield RULE.make_finding(
                    file,
                    line,
                    other.span(1),
                    f"{other[1]!r} may be a device or a backend; the line does not say",
                    hint="If it is, write npu or hccl.",
                    severity=Severity.WARNING,
                    safety=Safety.REPORT,
                )


def _with_keys(kind: Kind, above: str, text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """The values in a line with the keys that they have there, or in the line above."""
    for found in _VALUE.finditer(text):
        if found["dash"] or kind is not Kind.SHELL or "=" in found[0]:
            yield found["key"], found
        more = _MORE.match(text, found.end()) if found["dash"] and kind in _OF_SHELL else None
        while more is not None:
            yield found["key"], more
            more = _MORE.match(text, more.end())
    for pattern in (_PAIR, *([_DEFAULT] if kind in _OF_SHELL else [])):
        yield from ((found["key"], found) for found in pattern.finditer(text))
    for over, under in ((_OPTION_ALONE, _VALUE_ALONE), (_NAME_ABOVE, _VALUE_BELOW)):
        key, value = over.fullmatch(above), under.fullmatch(text)
        if key is not None and value is not None and kind is not Kind.SHELL:
            yield key["key"], value


def _is_label(text: str, column: int) -> bool:
    """Whether a word stands in a list, on one line, of which the key or another word says that it is no device."""
    begin, end = text.rfind("[", 0, column), text.find("]", column)
    if begin < 0 or end < 0 or "]" in text[begin:column]:
        return False
    words = [word.strip(" \t'\"") for word in text[begin + 1 : end].split(",")]
    others = [word for word in words if not DEVICE_WORD.fullmatch(word)]
    return bool(others) or _LABELS.search(text[:begin]) is not None


RULE = FileRule(
    code="TP602",
    title="devices and backends in configurations and launch lines",
    safety=Safety.REVIEW,
    severity=Severity.INFO,
    why="A configuration that says cuda or nccl fails at its first use, or overrides what the converted code says.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    kinds=frozenset({Kind.SHELL, Kind.YAML, Kind.JSON, Kind.SETTINGS, Kind.DOCKER}),
    words=(b"cuda", b"nccl"),
    check=check_file,
    rewrites=(
        (
            "run.sh",
            "python t.py --devices cuda:0 cuda:1 \\\n  --lr 1\n",
            "python t.py --devices npu:0 npu:1 \\\n  --lr 1\n",
        ),
        (
            "c.yaml",
            "train:\n  device: cuda:0  # where\n  backend: nccl\n",
            "train:\n  device: npu:0  # where\n  backend: hccl\n",
        ),
        ("c.json", '{"device": "cuda", "n": 1}\n', '{"device": "npu", "n": 1}\n'),
        ("c.toml", 'device = "cuda:1"\n', 'device = "npu:1"\n'),
        (
            "run.sh",
            "python t.py --device cuda --dist-backend=nccl \\\n",
            "python t.py --device npu --dist-backend=hccl \\\n",
        ),
        ("run.sh", "python t.py trainer.device=cuda\n", "python t.py trainer.device=npu\n"),
        ("c.gin", "train.device = 'cuda'\n", "train.device = 'npu'\n"),
        (
            "run.sh",
            'device=${1:-cuda}\npython t.py --device "${DEVICE:-cuda:0}"\n: ${DIST_BACKEND:=nccl}\n',
            'device=${1:-npu}\npython t.py --device "${DEVICE:-npu:0}"\n: ${DIST_BACKEND:=hccl}\n',
        ),
        (
            "pod.yaml",
            "command: [python, train.py, --device, cuda, --name, cuda]\n"
            'args:\n  - --dist-backend\n  - nccl\nenv:\n  - name: DEVICE\n    value: "cuda:0"\n',
            "command: [python, train.py, --device, npu, --name, cuda]\n"
            'args:\n  - --dist-backend\n  - hccl\nenv:\n  - name: DEVICE\n    value: "npu:0"\n',
        ),
        (
            "Dockerfile",
            'CMD ["python", "train.py", "--device", "cuda"]\n',
            'CMD ["python", "train.py", "--device", "npu"]\n',
        ),
        ("launch.json", '{"args": [\n  "--device",\n  "cuda"\n]}\n', '{"args": [\n  "--device",\n  "npu"\n]}\n'),
        (
            "Makefile",
            "DEVICE ?= cuda\ntrain:\n\tpython t.py --device cuda\n",
            "DEVICE ?= npu\ntrain:\n\tpython t.py --device npu\n",
        ),
    ),
    reports=(
        ("c.yaml", "name: cuda\n"),
        ("run.sh", "name=${1:-cuda}\n"),
        ("run.sh", "echo device cuda is used\n"),
        ("pod.yaml", "args:\n  - --name\n  - cuda\n"),
        ("pod.yaml", "env:\n  - name: TITLE\n    value: cuda\n"),
        ("Makefile", "cuda:\n\tmake -C csrc cuda\n"),
    ),
    ignores=(
        ("c.yaml", "names: [cpu, cuda]\n"),
        ("c.json", '["cuda", "barracuda"]\n'),
        ("c.yaml", "# device: cuda\n"),
        ("c.yaml", "device: cudagraph\n"),
        ("c.yaml", "note: use cuda if you can\n"),
        ("c.ini", "; device = cuda\n"),
        ("c.json", '{"url": "https://x.org/cuda"}\n'),
        ("c.gin", "# train.device = 'cuda'\n"),
    ),
)
