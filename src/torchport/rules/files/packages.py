"""TP604: packages in requirement lists, images and setup files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge.libraries import Library, Support, load_libraries
from torchport.rules import Style
from torchport.rules.files import FileRule, Line, TextFile
from torchport.source.kinds import Kind

_PIN = re.compile(r"\b(?:torch|torchvision|torchaudio)\s*(?:==|>=|~=|<=|@)\s*[\w.]+((?:\+cu[\d.]+)+)")
_INDEX = re.compile(r"https?://download\.pytorch\.org/whl/(cu\d+)\S*")
_CONDA = re.compile(r"(?<![\w-])(pytorch-cuda|cudatoolkit|cuda-toolkit|cudnn|nccl)\b(?:\s*[=<>]+\s*[\w.*]+)?")
_NVIDIA = re.compile(r"\b(?!nvidia-(?:ml-py|dali))(nvidia-[a-z0-9-]+)(?=$|[\s=<>~!;\[\"',])")
# names on the package index that end in the CUDA version: cupy-cuda12x, nvidia-dali-cuda120
_FOR_CUDA = re.compile(r"-cuda[-\w]*$")
_NAME = re.compile(r"""(?:^\s*(?:-\s*)?|["']|\s)([A-Za-z][\w.-]*)(?=$|[\s=<>~!;@\[,"'])""")
# names on the package index that differ from the import name
_IMPORT_NAMES = {
    "megatron-core": "megatron",
    "mosaicml": "composer",
    "nvidia-ml-py": "pynvml",
    "nvidia-ml-py3": "pynvml",
    "nvidia-dali": "nvidia",
    "faiss-gpu": "faiss",
    "mmcv-full": "mmcv",
}
_INSTALL = re.compile(r"\b(?:pip3?|conda|mamba|uv)\b.*\b(?:install|add)\b")
# Settings that list packages to install, and their lines that hold other names.
_PROJECT = ("pyproject.toml", "setup.cfg", "Pipfile")
_OTHER_KEY = re.compile(r"\s*(?:\[|(?:name|description|keywords|packages|include|exclude|url|module)\b)")
_SEVERITY = {Support.UNSUPPORTED: Severity.ERROR, Support.WORKS: Severity.INFO}


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for every package that is made for CUDA; CUDA builds of torch lose their suffix."""
    for line in file.iter_lines():
        text = line.text.partition("#")[0] if file.kind is not Kind.YAML else line.text
        for found in _PIN.finditer(text):
            new = "" if style is Style.NPU else None
            yield RULE.make_finding(
                file,
                line,
                found.span(1),
                f"a CUDA build of torch is pinned ({found[1]})",
                new,
                hint="torch_npu needs the CPU build of torch of its own version: pin torch-npu too.",
                severity=Severity.WARNING,
            )
        for found in _INDEX.finditer(text):
            yield RULE.make_finding(
                file, line, found.span(1), "an index of CUDA builds of torch", "cpu" if style is Style.NPU else None
            )
        yield from _by_name(file, line, text)


def _by_name(file: TextFile, line: Line, text: str) -> Iterator[Finding]:
    if file.kind is Kind.SETTINGS:
        if not file.text.path.endswith(_PROJECT) or _OTHER_KEY.match(text):
            return
    elif file.kind is not Kind.PACKAGES and not _INSTALL.search(text):
        return
    for pattern in (_NVIDIA, _CONDA):
        for found in pattern.finditer(text):
            yield RULE.make_finding(
                file, line, found.span(), f"{found[1]} is a part of CUDA", hint="Drop it.", severity=Severity.WARNING
            )
    for found in _NAME.finditer(text):
        name = _FOR_CUDA.sub("", found[1].lower())
        library = load_libraries().get(_IMPORT_NAMES.get(name, name.replace("-", "_")))
        if library is not None and not _NVIDIA.match(found[1]):
            yield _about(file, line, found, library)


def _about(file: TextFile, line: Line, found: re.Match[str], library: Library) -> Finding:
    hint = f"{library.note} Install: {library.install}" if library.install else library.note
    severity = _SEVERITY.get(library.status, Severity.WARNING)
    return RULE.make_finding(
        file, line, found.span(1), f"{found[1]} on an NPU: {library.status.value}", hint=hint, severity=severity
    )


RULE = FileRule(
    code="TP604",
    title="packages made for CUDA in requirement lists",
    safety=Safety.REVIEW,
    severity=Severity.WARNING,
    why="torch_npu refuses to load beside a CUDA build of torch, and packages with CUDA kernels cannot be installed.",
    reference="https://github.com/Ascend/pytorch",
    kinds=frozenset({Kind.PACKAGES, Kind.SHELL, Kind.DOCKER, Kind.SETTINGS}),
    check=check_file,
    rewrites=(
        ("requirements.txt", "torch==2.1.0+cu121\n", "torch==2.1.0\n"),
        (
            "requirements.txt",
            "--extra-index-url https://download.pytorch.org/whl/cu118\n",
            "--extra-index-url https://download.pytorch.org/whl/cpu\n",
        ),
        ("Dockerfile", "RUN pip install torch==2.1.0+cu121\n", "RUN pip install torch==2.1.0\n"),
        ("pyproject.toml", 'dependencies = ["torch==2.1.0+cu121"]\n', 'dependencies = ["torch==2.1.0"]\n'),
    ),
    reports=(
        ("requirements.txt", "flash-attn==2.5.0\n"),
        ("environment.yml", "dependencies:\n  - pytorch-cuda=12.1\n"),
        ("requirements.txt", "nvidia-cublas-cu12\n"),
        ("pyproject.toml", 'dependencies = ["flash-attn>=2"]\n'),
    ),
    ignores=(("requirements.txt", "numpy>=1.20  # not +cu121\n"),),
)
