"""TP605: CUDA sources."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Style
from torchport.rules.files import FileRule, TextFile
from torchport.source.kinds import Kind

# Between __global__ and the name: static, void, a launch bound, each of them on a line of its own, perhaps.
_KERNEL = re.compile(
    r"__global__\s+(?:(?:(?!__launch_bounds__)\w{1,40}|__launch_bounds__\([^()]*\))\s+){0,4}?"
    r"(?!__launch_bounds__)(\w+)\s*\("
)
_HEAD = 5  # lines from __global__ to the name
_LONGEST = 2_000  # lines that are looked at for the end of a kernel


class Effort(enum.StrEnum):
    """How much work it is to write a kernel again, by what it uses of a GPU: the class and what it means."""

    SMALL = "small: each element on its own, so torch operators or a few lines of triton-ascend do it"
    MEDIUM = "medium: threads work together, so the tiling has to be thought of again"
    LARGE = "large: it is built on the hardware of a GPU, so it is a kernel to design anew"


_LARGE = re.compile(
    r"\basm\b|wmma|\bmma\b|ldmatrix|cp_async|cuda::|cute::|cutlass|texture|tex[123]D|cooperative_groups|\bcub::|thrust::"
)
_MEDIUM = re.compile(r"__shared__|atomic\w+\s*\(|__shfl|__ballot|__syncthreads|__syncwarp|extern\s+__shared__")


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """One finding per kernel, with its name, its length and its effort class."""
    lines = list(file.iter_lines())
    for index, line in enumerate(lines):
        for start in (match.start() for match in re.finditer("__global__", line.text)):
            head = "\n".join([line.text[start:], *(one.text for one in lines[index + 1 : index + _HEAD])])
            found = _KERNEL.match(head)
            if found is None:
                continue
            body = list(_body([one.text for one in lines[index : index + _LONGEST]], start))
            effort = effort_of("\n".join(body))
            end = min(start + found.end(1), len(line.text))
            yield RULE.make_finding(
                file,
                line,
                (min(start + found.start(1), end), end) if "\n" not in found[0] else (start, end),
                f"the CUDA kernel {found[1]} has to be replaced ({len(body)} lines, effort {effort.name.lower()})",
                hint=f"Effort {effort}. Look for a torch or torch_npu operator that does it; else write it in Ascend C "
                "or triton-ascend.",
                source=found[1],
            )


def effort_of(body: str) -> Effort:
    """The class of a kernel with this source."""
    return Effort.LARGE if _LARGE.search(body) else Effort.MEDIUM if _MEDIUM.search(body) else Effort.SMALL


def find_kernel_names(source: str) -> tuple[str, ...]:
    """The names of the kernels in CUDA source."""
    return tuple(_KERNEL.findall(source))


def _body(lines: list[str], start: int) -> Iterator[str]:
    """The lines of a function from `start` in the first one up to the brace that closes it, or `;` of a declaration."""
    depth = 0
    for number, text in enumerate(lines):
        text = text[start:] if number == 0 else text
        yield text
        depth += text.count("{") - text.count("}")
        if depth <= 0 and ("}" in text or text.rstrip().endswith(");")):
            return


RULE = FileRule(
    code="TP605",
    title="CUDA kernels",
    safety=Safety.REPORT,
    severity=Severity.ERROR,
    why="nvcc code does not run on an NPU. Each kernel is work of its own.",
    reference="https://github.com/Ascend/pytorch",
    kinds=frozenset({Kind.CUDA_SOURCE}),
    words=(b"__global__",),
    check=check_file,
    rewrites=(),
    reports=(("k.cu", "__global__ void add(float* a) {}\n"),),
    ignores=(("k.cu", "__host__ void f() {}\n"),),
)
