"""TP605: CUDA sources."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator, Mapping

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


# The features of a GPU that a kernel uses, by class, each with the words that it is told by.
_LARGE = {
    "assembly": r"\basm\b",
    "tensor cores": r"wmma|\bmma\b|\bmma_|ldmatrix|cute::|cutlass",
    "asynchronous copies": r"cp_async|cuda::(?:pipeline|barrier|memcpy_async)|__pipeline_",
    "textures": r"\btexture\b|\btex[123]D",
    "cooperative groups": r"cooperative_groups|\bcg::",
    "CUB or Thrust": r"\bcub::|thrust::|cuda::",
}
# Sets that are united by many threads at once: both words.
_UNION_FIND = (r"\b(?:union|find|unite|find_root|find_n_compress)_?\s*\(", r"\batomic(?:Min|Max|CAS)\s*\(")
_MEDIUM = {
    "atomics": r"\batomic\w+\s*\(|AtomicAdd\s*\(",
    "block reductions": r"(?i:(?:block|warp)_?(?:all)?_?reduce|reduce::|reduce_block|reduceblock|warp_?sum|block_?sum)",
    "block scans": r"(?:Block|Warp)(?:Scan|Exchange|RadixSort)|(?i:inclusive_?scan|exclusive_?scan)",
    "links that are followed": r"while\s*\(\s*\w+\[(\w+)\]\s*!=\s*\1\s*\)",
    "shared memory": r"__shared__|SharedMemory\s*<|\bsmem\w*\s*\[",
    "threads that wait for each other": r"__syncthreads|__syncwarp|__shfl|__ballot|__any_sync|__all_sync|__activemask",
}
_HELPER = re.compile(r"__device__\s+[\w\s:<>,*&]{1,200}?\b(\w+)\s*\(")
_MOST_HELPERS = 200
_HELPERS = 3  # calls deep that functions of the file are followed


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """One finding per kernel, with its name, its length, its effort class and what that rests on."""
    lines = list(file.iter_lines())
    helpers = _find_helpers([line.text for line in lines])
    for index, line in enumerate(lines):
        for start in (match.start() for match in re.finditer("__global__", line.text)):
            head = "\n".join([line.text[start:], *(one.text for one in lines[index + 1 : index + _HEAD])])
            found = _KERNEL.match(head)
            if found is None:
                continue
            body = list(_body([one.text for one in lines[index : index + _LONGEST]], start))
            effort, uses = judge_effort("\n".join(body), helpers)
            end = min(start + found.end(1), len(line.text))
            finding = RULE.make_finding(
                file,
                line,
                (min(start + found.start(1), end), end) if "\n" not in found[0] else (start, end),
                f"the CUDA kernel {found[1]} has to be replaced ({len(body)} lines, effort {effort.name.lower()}"
                + (f": {', '.join(uses)})" if uses else ")"),
                hint=f"Effort {effort}. Look for a torch or torch_npu operator that does it; else write it in Ascend C "
                "or triton-ascend.",
                source=found[1],
            )
            work = {"lines": len(body), "effort": effort.name.lower(), "uses": list(uses)}
            yield dataclasses.replace(finding, evidence={**finding.evidence, **work})


def judge_effort(body: str, helpers: Mapping[str, str] | None = None) -> tuple[Effort, tuple[str, ...]]:
    """The class of a kernel with this source, and what of a GPU it uses; `helpers` are the bodies of the functions of
    its file that kernels call, by name."""
    whole, waiting = body, [body]
    left = dict(helpers or {})
    for _ in range(_HELPERS):
        called = {name for text in waiting for name in re.findall(r"\b(\w+)\s*(?:<[^;(){}]*>)?\s*\(", text)} & set(left)
        waiting = [left.pop(name) for name in sorted(called)]
        whole += "\n".join(["", *waiting])
    large = tuple(what for what, words in _LARGE.items() if re.search(words, whole))
    large += ("union-find",) if all(re.search(words, whole) for words in _UNION_FIND) else ()
    medium = tuple(what for what, words in _MEDIUM.items() if re.search(words, whole))
    effort = Effort.LARGE if large else Effort.MEDIUM if medium else Effort.SMALL
    return effort, (*large, *medium)


def _find_helpers(lines: list[str]) -> dict[str, str]:
    """The functions of a file that its kernels may call."""
    found: dict[str, str] = {}
    for index, line in enumerate(lines):
        if "__device__" in line and "__global__" not in line:
            head = _HELPER.search("\n".join(lines[index : index + _HEAD]))
            if head is not None and len(found) < _MOST_HELPERS:
                body = "\n".join(_body(lines[index : index + _LONGEST], 0))
                found[head[1]] = f"{found.get(head[1], '')}{body}"
    return found


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
