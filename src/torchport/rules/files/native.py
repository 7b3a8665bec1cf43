"""TP606: C++ sources that bind operators for Python or call CUDA's libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Style
from torchport.rules.files import FileRule, Line, TextFile
from torchport.source.kinds import Kind

_MODULE = re.compile(r"\b(?:PYBIND11_MODULE|TORCH_LIBRARY(?:_FRAGMENT|_IMPL)?)\s*\(\s*(\w+)")
_BOUND = re.compile(r'\.\s*(?:def|impl)\s*\(\s*(?:TORCH_SELECTIVE_\w+\(\s*)?"([\w.:]+)')
_CALL = re.compile(
    r"\b(?:cuda|cublas|cudnn|cufft|cusparse|curand|nccl)[A-Z]\w+\s*\(|\b(?:at|c10|torch)::cuda::\w+"
    r"|#\s*include\s*[<\"](?:ATen/cuda|c10/cuda|cuda|cub/|thrust/|nccl)[^>\"]*[>\"]"
)

_MOST = 6  # operators that the text of a finding names; its evidence has all


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for all operators that Python can call, at the first of them, and one for all calls of CUDA."""
    inside, called = False, []
    bound: dict[str, tuple[Line, tuple[int, int]]] = {}
    for line in file.iter_lines():
        code = line.text.partition("//")[0]
        inside = inside or _MODULE.search(code) is not None
        for found in _BOUND.finditer(code) if inside else ():
            bound.setdefault(found[1].rpartition("::")[2], (line, found.span(1)))
        called += [(line, found) for found in _CALL.finditer(code)]
    if bound:
        names = ", ".join(bound)
        short = names if len(bound) <= _MOST else ", ".join([*list(bound)[:_MOST], "..."])
        yield RULE.make_finding(
            file,
            *next(iter(bound.values())),
            f"C++ code gives Python {len(bound)} operators: {short}",
            hint="They have to be built again where Python calls them on the NPU.",
            source=names,
        )
    if called and file.kind is Kind.CPP_SOURCE:
        line, first = called[0]
        yield RULE.make_finding(
            file,
            line,
            first.span(),
            f"C++ code calls CUDA in {len({one.start for one, _ in called})} lines",
            hint="Write them with ATen operators, which run on any device, or with ACL (acl/acl.h) for streams and "
            "memory.",
            severity=Severity.WARNING,
        )


RULE = FileRule(
    code="TP606",
    title="C++ sources of extensions",
    safety=Safety.REPORT,
    severity=Severity.INFO,
    why="What Python calls through PYBIND11_MODULE or TORCH_LIBRARY is the list of operators to be offered again; C++ "
    "that only calls ATen builds as it is.",
    reference="https://docs.pytorch.org/docs/stable/cpp_extension.html",
    kinds=frozenset({Kind.CPP_SOURCE, Kind.CUDA_SOURCE}),
    words=(
        *CUDA,
        b"pybind11_module",
        b"torch_library",
        b"cublas",
        b"cufft",
        b"cusparse",
        b"curand",
        b"cub/",
        b"thrust/",
    ),
    check=check_file,
    rewrites=(),
    reports=(
        ("a.cpp", 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("add", &add); }\n'),
        ("a.cpp", "#include <cuda_runtime.h>\nvoid f() { cudaDeviceSynchronize(); }\n"),
    ),
    ignores=(),
)
