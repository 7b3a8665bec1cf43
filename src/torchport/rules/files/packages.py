"""TP604: packages in requirement lists, images and setup files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge.libraries import Library, Support, load_libraries
from torchport.rules import Style
from torchport.rules.files import FileRule, Line, TextFile
from torchport.source.kinds import Kind

_COMMENT = re.compile(r"(?:^|\s)#")
_PIN = re.compile(r"\b(?:torch|torchvision|torchaudio)\s*(?:==|>=|~=|<=|@)\s*[\w.${}]+((?:\+cu[\d.]+)+)")
_INDEX = re.compile(r"https?://download\.pytorch\.org/whl/(?:(?:nightly|test)/)?(cu\d+)(?!\S*\.whl)\S*")
# https://download.pytorch.org/whl/cu118/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl
_WHEEL = re.compile(r"https?://download\.pytorch\.org/whl/(?:\w+/)?((cu\d+)/[\w.-]+(?:%2B|\+)\2)[\w.-]*\.whl")
_BACKEND = re.compile(r"\btorch-backend[= ]+[\"']?(cu\d+)\b")  # uv
# Indexes of others, and addresses that are put together when the line runs: .../whl/cu${CUDA}, .../cu121/torch2.3
_OTHER_INDEX = re.compile(
    r"https?://(?:pypi\.nvidia\.com|pypi\.ngc\.nvidia\.com|developer\.download\.nvidia\.com/compute/redist)\S*"
    r"|https?://[^\s\"'#]*[/+_.-]cu(?:\d{2,3}|[-_]?\$\{?\{?\(?[^\s\"']*)(?=[/\s\"'._-]|$)"
)
_SOURCE = re.compile(r"""\b(?:index|source)\s*=\s*["']([\w.-]*?cu(?:da)?[-_]?\d{2,3}[\w.-]*)["']""")  # of uv, of poetry
_CONDA = re.compile(r"(?<![\w-])(pytorch-cuda|cudatoolkit|cuda-toolkit|cudnn|nccl)\b(?:\s*[=<>]+\s*[\w.*]+)?")
_NVIDIA = re.compile(r"\b(?!nvidia-(?:ml-py|dali))(nvidia-[a-z0-9-]+)(?=$|[\s=<>~!;\[\"',])")
# names on the package index that end in the CUDA version: cupy-cuda12x, nvidia-dali-cuda120
_FOR_CUDA = re.compile(r"-cuda[-\w]*$")
_GPU_BUILD = re.compile(r"[\w.-]+-(?:gpu|cu\d{2,3})", re.IGNORECASE)  # onnxruntime-gpu, dgl-cu121, spconv-cu118
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
# A list of conda's that is not called environment.yml: conda/gpu.yaml
_CONDA_LIST = re.compile(r"\A(?=(?:.*\n)*?channels:)(?:.*\n)*?dependencies:[ \t]*\r?\n")
_INSTEAD = {"onnxruntime-gpu": "onnxruntime computes on the CPU, onnxruntime-cann on the NPU (CANNExecutionProvider)."}
_VERSION = re.compile(r"(?:\[[^\]]*\])?\s*((?:(?:==|>=|<=|~=|!=|=|<|>)\s*[\w.*+!-]+,?\s*)+)")
_INSTALL = re.compile(r"\b(?:pip3?|conda|mamba|uv)\b.*\b(?:install|add)\b")
# Where conda gets packages from: `-c nvidia`, `--channel nvidia/label/cuda-12.4.1`, `nvidia::cuda-toolkit`.
_CHANNEL = re.compile(
    r"(?<!\S)(?:-c|--channel|--override-channels\s+-c)(?:\s+|=)[^\s,;&|]+|(?<![\w-])[\w-]+::(?=[\w-])"
)
# Settings that list packages to install, and their lines that hold other names.
_PROJECT = ("pyproject.toml", "setup.cfg", "Pipfile")
_OTHER_KEY = re.compile(r"\s*(?:\[|(?:name|description|keywords|packages|include|exclude|url|module)\b)")
_SEVERITY = {Support.UNSUPPORTED: Severity.ERROR, Support.WORKS: Severity.INFO}


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for every package that is made for CUDA; CUDA builds of torch lose their suffix."""
    channels: int | None = None  # how far a list of conda's channels is indented, inside of it
    lists = _lists_packages(file)
    for line in file.iter_lines():
        text = _COMMENT.split(line.text, maxsplit=1)[0] if file.kind is Kind.YAML else line.text.partition("#")[0]
        if file.kind is Kind.PACKAGES:
            channels = _follow_channels(text, channels)
            if channels is not None:
                continue
        text = _CHANNEL.sub(lambda found: " " * len(found[0]), text)
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
        yield from _by_address(file, line, text, style)
        if lists or (file.kind is not Kind.SETTINGS and _INSTALL.search(text)):
            yield from _by_name(file, line, text)


def _lists_packages(file: TextFile) -> bool:
    """Whether every line may name a package to install; in other files only what an installer is given is one."""
    if file.kind is Kind.SETTINGS:
        return file.text.path.endswith(_PROJECT)
    return file.kind is Kind.PACKAGES or _CONDA_LIST.search(file.text.text) is not None


def _by_address(file: TextFile, line: Line, text: str, style: Style) -> Iterator[Finding]:
    """Findings on where packages come from; an address of torch's own becomes that of its CPU builds."""
    known: list[tuple[int, int]] = []
    for pattern, message in (
        (_INDEX, "an index of CUDA builds of torch"),
        (_WHEEL, "a CUDA build of torch"),
        (_BACKEND, "CUDA builds of torch are asked for"),
    ):
        for found in pattern.finditer(text):
            new = re.sub(r"cu\d+", "cpu", found[1])
            known.append(found.span())
            yield RULE.make_finding(file, line, found.span(1), message, new if style is Style.NPU else None)
    for found in _OTHER_INDEX.finditer(text):
        if not any(start < found.end() and found.start() < end for start, end in known):
            yield RULE.make_finding(
                file,
                line,
                found.span(),
                "packages for CUDA come from this address",
                hint="For torch: https://download.pytorch.org/whl/cpu. For another package, its build for the CPU.",
                severity=Severity.WARNING,
            )
    for found in _SOURCE.finditer(text) if file.kind is Kind.SETTINGS else ():
        yield RULE.make_finding(
            file,
            line,
            found.span(1),
            f"packages come from the index {found[1]}, by its name one for CUDA",
            hint="Take the index https://download.pytorch.org/whl/cpu for torch, and its name here.",
            severity=Severity.WARNING,
        )


def _follow_channels(text: str, channels: int | None) -> int | None:
    """Whether the line belongs to a list of channels, as the indentation of its key; None for none."""
    indent = len(text) - len(text.lstrip())
    if re.match(r"\s*channels\s*:", text):
        return indent
    if channels is None or not text.strip():
        return channels
    return channels if indent > channels or text.lstrip().startswith("- ") else None


def _by_name(file: TextFile, line: Line, text: str) -> Iterator[Finding]:
    if file.kind is Kind.SETTINGS and _OTHER_KEY.match(text):
        return
    for pattern in (_NVIDIA, _CONDA):
        for found in pattern.finditer(text):
            yield RULE.make_finding(
                file, line, found.span(), f"{found[1]} is a part of CUDA", hint="Drop it.", severity=Severity.WARNING
            )
    for found in _NAME.finditer(text):
        name = _FOR_CUDA.sub("", found[1].lower())
        library = load_libraries().get(_IMPORT_NAMES.get(name, name.replace("-", "_")))
        if library is not None and library.status is Support.WORKS and file.kind in (Kind.YAML, Kind.JSON):
            continue  # a workflow installs it anew in each job
        if library is not None and not _NVIDIA.match(found[1]):
            yield _about(file, line, found, library)
        elif _GPU_BUILD.fullmatch(found[1]) and not found[1].lower().startswith(("nvidia-", "pytorch-")):
            yield RULE.make_finding(
                file,
                line,
                found.span(1),
                f"{found[1]} is the build for CUDA",
                hint=_INSTEAD.get(name, "Install the package's build for the CPU, or leave it out."),
                severity=Severity.WARNING,
            )


def _about(file: TextFile, line: Line, found: re.Match[str], library: Library) -> Finding:
    hint = f"{library.note} Install: {library.install}" if library.install else library.note
    severity = _SEVERITY.get(library.status, Severity.WARNING)
    finding = RULE.make_finding(
        file, line, found.span(1), f"{found[1]} on an NPU: {library.status.value}", hint=hint, severity=severity
    )
    version = _VERSION.match(line.text, found.end(1))
    evidence = {**finding.evidence, "library": library.name, "version": version[1].replace(" ", "") if version else ""}
    return dataclasses.replace(finding, evidence=evidence)


RULE = FileRule(
    code="TP604",
    title="packages made for CUDA in requirement lists",
    safety=Safety.REVIEW,
    severity=Severity.WARNING,
    why="torch_npu refuses to load beside a CUDA build of torch, and packages with CUDA kernels cannot be installed.",
    reference="https://github.com/Ascend/pytorch",
    kinds=frozenset({Kind.PACKAGES, Kind.SHELL, Kind.DOCKER, Kind.SETTINGS, Kind.YAML, Kind.JSON}),
    words_of_kinds={
        Kind.YAML: (b" install ", b" add ", b"/cu", b"dependencies:"),
        Kind.JSON: (b" install ", b"/cu"),
        Kind.NOTEBOOK: (b"whl/cu", b"+cu1"),
    },
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
        (
            ".github/workflows/ci.yml",
            "- run: pip install torch --index-url https://download.pytorch.org/whl/nightly/cu124\n",
            "- run: pip install torch --index-url https://download.pytorch.org/whl/nightly/cpu\n",
        ),
        (
            "requirements/gpu.txt",
            "torch @ https://download.pytorch.org/whl/cu118/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl\n",
            "torch @ https://download.pytorch.org/whl/cpu/torch-2.0.1%2Bcpu-cp310-cp310-linux_x86_64.whl\n",
        ),
        ("run.sh", "uv pip install torch --torch-backend=cu126\n", "uv pip install torch --torch-backend=cpu\n"),
    ),
    reports=(
        ("requirements.txt", "flash-attn==2.5.0\n"),
        ("environment.yml", "dependencies:\n  - pytorch-cuda=12.1\n"),
        ("requirements.txt", "nvidia-cublas-cu12\n"),
        ("pyproject.toml", 'dependencies = ["flash-attn>=2"]\n'),
        ("requirements/gpu.txt", "onnxruntime-gpu\n"),
        ("reqs.txt", "dgl-cu121>=1\n"),
        ("ci.yml", "- run: pip install flash-attn\n"),
        ("Dockerfile", "RUN pip install torch --index-url https://download.pytorch.org/whl/cu${CUDA}\n"),
        ("ci.yml", "- run: pip install -f https://data.pyg.org/whl/torch-2.1.0+cu121.html torch_scatter\n"),
        ("pyproject.toml", '[tool.uv.sources]\ntorch = { index = "pytorch-cu124" }\n'),
        ("conda/gpu.yaml", "channels:\n  - x\ndependencies:\n  - pytorch-cuda=12.1\n"),
    ),
    ignores=(
        ("requirements.txt", "numpy>=1.20  # not +cu121\n"),
        ("ci.yml", "- run: pip install torch --index-url https://download.pytorch.org/whl/cpu\n"),
        ("ci.yml", "- run: apt-get install libcublas-dev\n"),
        ("c.yaml", "url: https://example.org/documents/cultures-12\nname: best-gpu\n"),
        ("pyproject.toml", '[tool.uv.sources]\ntorch = { index = "pytorch-cpu" }\n'),
        ("requirements/base.txt", "numpy\ngputil\n"),
        ("environment.yml", "channels:\n  - pytorch\n  - nvidia\ndependencies:\n  - numpy\n"),
        ("environment.yml", "channels: [pytorch, nvidia]\ndependencies:\n- numpy\n"),
        ("run.sh", "conda install -y -c nvidia --channel nvidia/label/cuda-12.4.1 numpy\n"),
    ),
)
