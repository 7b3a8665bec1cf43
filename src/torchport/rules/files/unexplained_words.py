"""TP610: words that say CUDA in scripts and configurations, and of which nothing is known."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Style
from torchport.rules.files import FileRule, Line, TextFile
from torchport.rules.plain_words import DEVICE_WORD
from torchport.source.defined import says_cuda
from torchport.source.kinds import Kind, is_comment

KINDS = frozenset({Kind.SHELL, Kind.DOCKER, Kind.YAML, Kind.JSON, Kind.SETTINGS, Kind.PACKAGES})
_WORD = re.compile(r"[\w.-]{1,300}")
# Definitions: KEY: of YAML and JSON, NAME= and NAME := of a shell and of make, NAME(), target:, --option
_DEFINES = re.compile(
    r"""(?:^|[\s{,;"'(])(?:-D)?(?P<name>[A-Za-z_][\w.-]*)["']?(?:[ \t]*(?::(?![/\w])|[:?+]?=)|\(\))"""
    r"""|--(?P<option>[\w-]+)""",
    re.MULTILINE,
)
_OF_OTHERS = re.compile(r"\bsetup\.py\s+(?:install|build|develop|bdist)")  # its options are the package's
_ARGUMENT = re.compile(r"^[ \t]*(?:ARG|local|declare|read)[ \t]+(\w+)", re.MULTILINE)
# Variables that the libraries of CUDA read: that a file sets them does not make them its own.
_VENDORS = re.compile(r"(?:TORCH_|PYTORCH_)?(?:CUDA|CUDNN|CUBLAS|NCCL|NVIDIA|NVTE|NVSHMEM)_[A-Z0-9_]+")
_FILE = re.compile(r".*\.(?:cuh?|cc|cpp|cxx|hp?p?|py|pyx|sh|so|txt|md|rst|json|ya?ml|toml|whl|html?|patch|log|csv)")
_MESSAGE = re.compile(
    r"\b(?:echo|printf|log|warn|die|fail|err)\b|(?:^|[\s{\"'-])(?:name|description|title|run-name)[\"']?\s*[:=]"
)


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for the first such word of a line that has no proof; other rules' lines are left out afterwards."""
    known = find_own_names(file)
    for line in file.iter_lines():
        if not says_cuda(line.text) or is_comment(line.text, file.kind):
            continue
        for found in _WORD.finditer(line.text):
            if says_cuda(found[0]) and not prove_word(line.text, found.span(), known):
                yield _finding(file, line, found)
                break


def _finding(file: TextFile, line: Line, found: re.Match[str]) -> Finding:
    return RULE.make_finding(
        file,
        line,
        found.span(),
        f"{found[0]} says CUDA, and nothing in this file shows whose it is",
        hint="If a library or a tool reads it, find what it is on the NPU; if it is a word, leave it.",
    )


def find_own_names(file: TextFile) -> dict[str, int]:
    """The names that say CUDA and that the file defines, by their spelling with underscores, each with its line."""
    names: dict[str, int] = {}
    for number, line in enumerate(file.text.lines, 1):
        if not says_cuda(line) or is_comment(line, file.kind):
            continue
        for found in (*_DEFINES.finditer(line), *_ARGUMENT.finditer(line)):
            if found.groupdict().get("option") and _OF_OTHERS.search(line):
                continue
            name = next(group for group in found.groups() if group is not None)
            if says_cuda(name) and not DEVICE_WORD.fullmatch(name) and not _VENDORS.fullmatch(name):
                names.setdefault(_plain(name), number)
    return names


def prove_word(text: str, span: tuple[int, int], known: dict[str, int]) -> str:
    """Why the word at these columns of a line is harmless; empty where nothing shows it."""
    start, end = span
    word = text[start:end].strip("-.")
    before, after = text[:start], text[end:]
    if "://" in re.split(r"[\s\"'(]", before)[-1]:
        return "a part of an address"
    if before.endswith(("/", "\\")) or after.startswith("/") or _FILE.fullmatch(word):
        return "a path"
    line = known.get(_plain(word)) or known.get(_plain(word.rpartition(".")[2]))
    if line is not None:
        return f"defined in line {line}"
    if _MESSAGE.search(before) and "$" not in before[-2:]:
        return "a part of a message"
    return ""


def _plain(name: str) -> str:
    return name.replace("-", "_").strip("_").lower()


RULE = FileRule(
    code="TP610",
    title="words that say CUDA in scripts and configurations, and of which nothing is known",
    safety=Safety.REPORT,
    severity=Severity.INFO,
    why="A word that the file does not define is another program's, and nobody has looked at what it does on an NPU.",
    reference="https://github.com/Ascend/pytorch",
    kinds=KINDS,
    words=(*CUDA, b"cublas"),
    check=check_file,
    rewrites=(),
    reports=(
        ("ci.yml", "env:\n  RUN_TESTS: 1\n  MARK: only_cuda\n"),
        ("run.sh", "export NCCL_SOME_SWITCH=1\n"),
        ("c.yaml", "runs-on: [self-hosted, nvidia]\n"),
        ("Dockerfile", "RUN cd Engine; python setup.py install --force_cuda\n"),
    ),
    ignores=(
        ("ci.yml", "inputs:\n  cuda-version:\n    type: string\nrun: echo ${{ inputs.cuda-version }}\n"),
        ("run.sh", "WITH_CUDA=1\nif [ $WITH_CUDA = 1 ]; then\n  echo with CUDA\nfi\n"),
        ("run.sh", "python csrc/cuda/build.py --help\ncat kernels_cuda.cu\n"),
        ("ci.yml", "- name: Build with CUDA\n  run: make\n"),
        ("c.yaml", "# runs-on: nvidia\n"),
    ),
)
