"""TP603: programs of the CUDA world in launch scripts and images."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Style
from torchport.rules.files import FileRule, TextFile
from torchport.source.kinds import Kind, is_comment

# Programs that Python may start as well (TP170): what is in their place, and what to know.
PROGRAMS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"\bnvidia-smi\b(?:[ \t]+-[^|;&)\n]*)?"),
        "nvidia-smi is npu-smi info",
        "Its queries differ: npu-smi info -t usages -i <id>, npu-smi info watch.",
    ),
    (re.compile(r"\bnvcc\b"), "there is no nvcc", "Kernels for the NPU are built by CANN's compiler."),
    (
        re.compile(r"\b(?:nsys|ncu|nvprof)(?:\s+\w+|$)"),
        "NVIDIA's profilers do not see an NPU",
        "Use torch_npu.profiler in the script, or msprof.",
    ),
)
_TOOLS: tuple[tuple[re.Pattern[str], str, str, Severity], ...] = (
    *((pattern, message, hint, Severity.WARNING) for pattern, message, hint in PROGRAMS),
    (
        re.compile(
            r"\b(?:FROM|ARG)\s+\S*(?:nvidia/|nvcr\.io|cuda\S*:)\S*|\bFROM\s+\S*(?:nvidia|cuda)\S*", re.IGNORECASE
        ),
        "this image holds CUDA",
        "Start from an image with CANN, such as quay.io/ascend/cann, and mount the driver.",
        Severity.WARNING,
    ),
    (
        re.compile(r"(?:\bimage|\bcontainer|\buses)[\"']?\s*:\s*[\"']?(?:docker://)?\S*(?:nvidia|nvcr\.io|cuda)\S*"),
        "this image holds CUDA",
        "Start from an image with CANN, such as quay.io/ascend/cann, on a runner with an NPU.",
        Severity.WARNING,
    ),
    (
        re.compile(
            r"(?:\bruntime|default-runtime|\bruntimeClassName)[\"']?\s*:\s*[\"']?nvidia\b|--runtime[= ]nvidia\b"
        ),
        "this container runtime gives NVIDIA's devices",
        "The Ascend container runtime is called ascend; "
        "or mount /dev/davinci0, davinci_manager, devmm_svm and hisi_hdc.",
        Severity.WARNING,
    ),
    (
        re.compile(r"\bdriver[\"']?\s*:\s*[\"']?nvidia\b"),
        "this reserves NVIDIA's devices",
        "Mount /dev/davinci0, davinci_manager, devmm_svm and hisi_hdc as devices instead.",
        Severity.WARNING,
    ),
    (
        re.compile(r"--gpus[= ]\S+"),
        "docker --gpus knows NVIDIA's devices only",
        "Use --device=/dev/davinci0 with davinci_manager, devmm_svm and hisi_hdc, or the Ascend container runtime.",
        Severity.WARNING,
    ),
    (
        re.compile(r"--gres[= ]gpu\S*|--gpus-per-\S+"),
        "Slurm is asked for GPUs",
        "The name of the NPU resource is the site's own, often --gres=npu:8.",
        Severity.WARNING,
    ),
    (
        re.compile(r"\baccelerator[\"']?\s*:\s*[\"']?nvidia-[\w-]+"),
        "nodes with a GPU are asked for",
        "Ask for the label that your cluster gives nodes with NPUs.",
        Severity.WARNING,
    ),
    (
        re.compile(r"\bnvidia\.com/gpu\b"),
        "Kubernetes is asked for GPUs",
        "The resource of the Ascend device plugin is huawei.com/Ascend910.",
        Severity.WARNING,
    ),
    (
        re.compile(r"\bmodule\s+load\s+\S*(?:cuda|cudnn|nccl)\S*"),
        "a CUDA module is loaded",
        "Load CANN instead: source /usr/local/Ascend/ascend-toolkit/set_env.sh.",
        Severity.WARNING,
    ),
)

_LABEL = re.compile(r"\s*(?:-\s*)?[\"']?name[\"']?\s*:")  # what a step of a workflow is called


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for every mention outside comments."""
    for line in file.iter_lines():
        if is_comment(line.text, file.kind):
            continue
        for pattern, message, hint, severity in _TOOLS:
            for found in pattern.finditer(line.text):
                whole = found[0]
                if whole == "nvidia-smi" and file.kind is Kind.YAML and _LABEL.match(line.text):
                    continue
                if whole == "nvidia-smi" and style is Style.NPU:
                    span = (found.start(), found.start() + len(whole))
                    yield RULE.make_finding(file, line, span, message, "npu-smi info", severity=Severity.INFO)
                else:
                    yield RULE.make_finding(file, line, found.span(), message, hint=hint, severity=severity)


RULE = FileRule(
    code="TP603",
    title="programs and resources of the CUDA world",
    safety=Safety.REVIEW,
    severity=Severity.WARNING,
    why="A launch script that calls nvidia-smi or asks for GPUs fails before the training starts.",
    reference="https://github.com/Ascend/pytorch",
    kinds=frozenset({Kind.SHELL, Kind.DOCKER, Kind.YAML, Kind.JSON}),
    words=(*CUDA, b"ncu", b"nvprof", b"nvcr.io", b"--gpus", b"--gres"),
    check=check_file,
    rewrites=(
        ("run.sh", "nvidia-smi\npython t.py\n", "npu-smi info\npython t.py\n"),
        ("run.sh", "nvidia-smi | head\n", "npu-smi info | head\n"),
    ),
    reports=(
        ("run.sh", "nvidia-smi -L\n"),
        ("Dockerfile", "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04\n"),
        ("job.sbatch", "#SBATCH --gres=gpu:8\n"),
        ("docker-compose.yml", "services:\n  a:\n    runtime: nvidia\n    image: x\n"),
        ("docker-compose.yml", "devices:\n  - driver: nvidia\n    count: 1\n"),
        ("pod.yaml", "spec:\n  runtimeClassName: nvidia\n"),
        ("pod.yaml", "nodeSelector:\n  cloud.google.com/gke-accelerator: nvidia-tesla-t4\n"),
        ("ci.yml", "container:\n  image: nvcr.io/nvidia/pytorch:24.01-py3\n"),
        ("Makefile", "ops: k.cu\n\tnvcc -c k.cu\n"),
    ),
    ignores=(
        ("run.sh", "# nvidia-smi\n"),
        ("ci.yml", "- name: Print nvidia-smi\n  run: python t.py\n"),
        ("run.sh", "npu-smi info\n"),
    ),
)
