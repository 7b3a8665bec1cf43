"""TP723: backends of `torch.compile`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

_COMPILE = frozenset({"torch.compile", "torch._dynamo.optimize"})
# Those that run on torch_npu 2.13.0, and its own, of which torchair brings the compiler.
_RUN = frozenset(
    {
        "eager",
        "eager_noexcept",
        "aot_eager",
        "aot_eager_decomp_partition",
        "aot_eager_default_partitioner",
        "cudagraphs",
        "npugraphs",
        "npu",
        "pre_dispatch_eager",
    }
)
_INDUCTOR = "inductor"
_HINT = (
    'Install triton-ascend, or write backend="aot_eager" on an NPU. `torchport run` and `port` compile with '
    "that backend where triton-ascend is missing."
)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every use whose backend is not one that runs on an NPU."""
    nodes: list[ast.Attribute | ast.Name] = [*module.iter_nodes(ast.Attribute), *module.iter_nodes(ast.Name)]
    for attribute in nodes:
        if module.resolve_name(attribute) not in _COMPILE or not isinstance(attribute.ctx, ast.Load):
            continue
        above = module.get_parent(attribute)
        call = above if isinstance(above, ast.Call) and above.func is attribute else None
        if call is None and not isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        backend = _backend(call)
        if backend is None or backend in _RUN:
            continue
        node: ast.expr = call or attribute
        if backend == _INDUCTOR:
            yield RULE.make_finding(module, node, "torch.compile's inductor needs triton-ascend on an NPU", hint=_HINT)
        else:
            yield RULE.make_finding(
                module,
                node,
                f"torch.compile has no backend {backend!r} on an NPU",
                hint='Use backend="aot_eager", or torchair\'s (backend=torchair.get_npu_backend()).',
            )


def _backend(call: ast.Call | None) -> str | None:
    """The backend that is named, inductor where none is; None where it is not known or nothing is compiled."""
    if call is None:
        return _INDUCTOR
    given = {word.arg: word.value for word in call.keywords}
    if None in given or (isinstance(given.get("disable"), ast.Constant) and given["disable"].value):  # type: ignore[attr-defined]
        return None
    first = call.args[0] if ast.unparse(call.func).endswith("optimize") and call.args else None
    backend = given.get("backend", first)
    if backend is None:
        return _INDUCTOR
    return backend.value if isinstance(backend, ast.Constant) and isinstance(backend.value, str) else None


RULE = Rule(
    code="TP723",
    title="backends of torch.compile",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="inductor writes Triton, which is there for an NPU as triton-ascend; without it compiling ends with an "
    "AssertionError or a LoweringException. The backends eager, aot_eager, cudagraphs and npugraphs run.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
    words=(b"compile", b"_dynamo"),
    check=check_module,
    rewrites=(),
    reports=("import torch\nm = torch.compile(m)\n", "import torch\n@torch.compile\ndef f(x):\n    return x\n"),
    ignores=("import torch\nm = torch.compile(m, backend='aot_eager')\n",),
)
