"""TP402: extensions with CUDA sources: where they are built, and where Python uses them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.files.kernels import find_kernel_names
from torchport.source.module import Module

_ROOT = "torch.utils.cpp_extension"
_CUDA = (".cu", ".cuh")
_INSTEAD = (
    "Write the kernels in Ascend C and build them with torch_npu.utils.cpp_extension.NpuExtension, or replace them by "
    "torch and torch_npu operators."
)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every place that builds an extension, and one per extension that the file imports."""
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func)
        if name == f"{_ROOT}.CUDAExtension":
            yield _built(module, call, Severity.ERROR)
        elif name == f"{_ROOT}.load":
            sources = _sources(call)
            cuda = any(source.endswith(_CUDA) for source in sources)
            severity = Severity.ERROR if cuda else Severity.INFO if sources else Severity.WARNING
            yield _built(module, call, severity)
        elif name == f"{_ROOT}.load_inline":
            inline = any(keyword.arg == "cuda_sources" for keyword in call.keywords) or len(call.args) > 2
            yield _built(module, call, Severity.ERROR if inline else Severity.INFO)
        elif name in ("torch.ops.load_library", "torch.classes.load_library"):
            yield RULE.make_finding(
                module,
                call,
                "a compiled library of operators is loaded",
                hint="If it has CUDA kernels, it does not load here. Build it again without them, or for the NPU with "
                "torch_npu.utils.cpp_extension.NpuExtension.",
                severity=Severity.WARNING,
            )
    imports: list[ast.Import | ast.ImportFrom] = [*module.iter_nodes(ast.Import), *module.iter_nodes(ast.ImportFrom)]
    for statement in imports:
        for name in _names(statement):
            if name.rpartition(".")[2] in module.project.extensions:
                yield _used(module, statement, name)


def _built(module: Module, call: ast.Call, severity: Severity) -> Finding:
    sources = _sources(call)
    inside = [kernel for text in _texts(call) for kernel in find_kernel_names(text)]
    what = (
        f"{sum(source.endswith(_CUDA) for source in sources)} CUDA sources of {len(sources)}"
        if sources
        else (f"the kernels {', '.join(inside)}" if inside else "sources that are named elsewhere")
    )
    if severity is Severity.INFO:
        return RULE.make_finding(module, call, "an extension in C++ builds as before", severity=severity)
    called = _sites(module, lambda site: _is_of(module, site, call))
    return RULE.make_finding(
        module,
        call,
        f"an extension is built from {what}",
        hint=(f"It is called: {called}. " if called else "") + _INSTEAD + " The .cu files have a finding per kernel.",
        severity=severity,
    )


def _sites(module: Module, wanted: Callable[[ast.Call], bool]) -> str:
    """Where the calls that are wanted stand, the first twelve of them; empty for none."""
    calls = sorted((call.lineno, module.get_source(call.func)) for call in module.iter_nodes(ast.Call) if wanted(call))
    return "; ".join(f"{function} in line {line}" for line, function in calls[:12])


def _is_of(module: Module, site: ast.Call, built: ast.Call) -> bool:
    """Whether a call is one of a function of the module that `m = load(...)` gives."""
    owner = site.func.value if isinstance(site.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and any(binding.value is built for binding in module.names.find_bindings(owner))


def _sources(call: ast.Call) -> list[str]:
    """The names of files among the arguments."""
    suffixes = (".cpp", ".cc", ".cxx", ".c", *_CUDA)
    return [text for text in _texts(call) if text.endswith(suffixes) and "\n" not in text]


def _texts(call: ast.Call) -> list[str]:
    return [node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _names(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that a statement may import, as they are written."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    module = statement.module or ""
    return [module, *(f"{module}.{alias.name}".lstrip(".") for alias in statement.names)]


def _used(module: Module, statement: ast.Import | ast.ImportFrom, name: str) -> Finding:
    last = name.rpartition(".")[2]
    where = _sites(module, lambda site: last in (module.resolve_name(site.func) or "").split("."))
    return RULE.make_finding(
        module,
        statement,
        f"{last} is built by this project from CUDA sources",
        hint=f"It is called: {where or 'nowhere in this file'}. {_INSTEAD}",
    )


RULE = Rule(
    code="TP402",
    title="extensions with CUDA sources",
    safety=Safety.REPORT,
    severity=Severity.ERROR,
    why="There is no nvcc for an NPU: an extension with CUDA kernels cannot be built, and what imports it cannot run.",
    reference="https://docs.pytorch.org/docs/stable/cpp_extension.html",
    words=(*CUDA, b"cpp_extension", b"load_library"),
    check=check_module,
    rewrites=(),
    reports=(
        "from torch.utils.cpp_extension import load\nm = load('m', ['m.cpp', 'm_kernel.cu'])\n",
        "from torch.utils.cpp_extension import load_inline\nm = load_inline('m', cpp_sources='int f();')\n",
        "from torch.utils import cpp_extension\ncpp_extension.CUDAExtension('foo_cuda', ['foo.cu'])\n",
        "import torch\ntorch.ops.load_library('build/libops.so')\n",
    ),
    ignores=("import foo_cuda\nfoo_cuda.forward(x)\n",),
)
