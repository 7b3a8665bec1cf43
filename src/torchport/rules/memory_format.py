"""TP720: memory formats other than the contiguous one, which torch_npu does not make."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.rules.stops.seen_values import made_on_cpu
from torchport.source.module import Module

FORMATS = frozenset({"torch.channels_last", "torch.channels_last_3d"})
# What takes a format and leaves it unused (torch_npu 2.13.0), and what only asks.
_TAKES_ANY = frozenset(
    {
        "clone",
        "empty_like",
        "zeros_like",
        "ones_like",
        "full_like",
        "rand_like",
        "randn_like",
        "randint_like",
        "resize_",
        "is_contiguous",
        "convert_conv2d_weight_memory_format",
        "convert_conv3d_weight_memory_format",
    }
)
_CONTIGUOUS = "contiguous_format"
# What makes tensors on another device than the CPU although a call names none; `with torch.device(...)` does as well.
_DEFAULT_DEVICE = frozenset({"torch.set_default_device", "torch.set_default_tensor_type", "torch.device"})
_MOVES = frozenset({"cuda", "npu", "to"})


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every such format that an operator may be given."""
    if "channels_last" not in module.text.text:
        return
    nodes: list[ast.Attribute | ast.Name] = [*module.iter_nodes(ast.Attribute), *module.iter_nodes(ast.Name)]
    for node in nodes:
        name = module.resolve_name(node) if isinstance(node.ctx, ast.Load) else None
        if name not in FORMATS or _is_harmless(module, node):
            continue
        if _is_on_host(module, node):
            yield RULE.make_finding(
                module,
                node,
                f"{name} stays: nothing moves this tensor from the CPU, which has the order",
                safety=Safety.REPORT,
            )
            continue
        direct = isinstance(module.get_parent(node), ast.keyword)
        yield RULE.make_finding(
            module,
            node,
            f"torch_npu makes no tensor in the order {name}",
            [_edit(module, node, style)],
            hint="" if direct else "The value is used elsewhere: check that nothing is decided by it.",
            safety=None if direct else Safety.REVIEW,
            severity=None if direct else Severity.WARNING,
        )


def _is_harmless(module: Module, node: ast.expr) -> bool:
    """Whether it is only compared, given to what does not mind, or chosen where there is no NPU."""
    above = module.get_parent(node)
    call = module.get_parent(above) if isinstance(above, ast.keyword) else above
    outer = module.get_parent(above) if isinstance(above, ast.Tuple | ast.List | ast.Set) else above
    if isinstance(outer, ast.Compare | ast.MatchValue):
        return True
    if isinstance(call, ast.IfExp) and "npu" in ast.unparse(call.test):
        return True
    if not isinstance(call, ast.Call):
        return False
    last = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    return last in _TAKES_ANY


def _is_on_host(module: Module, node: ast.expr) -> bool:
    """Whether the tensor that gets the format is seen to be made on the CPU, and not to leave it by its own name."""
    above = module.get_parent(node)
    call = module.get_parent(above) if isinstance(above, ast.keyword) else above
    if not isinstance(call, ast.Call) or any(
        _sets_default_device(module, other) for other in module.iter_nodes(ast.Call)
    ):
        return False
    if not made_on_cpu(module, call):
        return False
    root = module.flow.find(call)
    return not any(
        isinstance(other.func, ast.Attribute)
        and other.func.attr in _MOVES
        and module.flow.find(other.func.value) == root
        for other in module.iter_nodes(ast.Call)
    )


def _sets_default_device(module: Module, call: ast.Call) -> bool:
    name = module.resolve_name(call.func)
    return name in _DEFAULT_DEVICE and (name != "torch.device" or isinstance(module.get_parent(call), ast.withitem))


def _edit(module: Module, node: ast.Attribute | ast.Name, style: Style) -> Edit | None:
    if not isinstance(node, ast.Attribute):
        return None
    if style is Style.NPU:
        return module.attribute_edit(node, _CONTIGUOUS)
    torch = module.get_source(node.value)
    start, end = module.text.span(node)
    text = f'({torch}.{_CONTIGUOUS} if hasattr({torch}, "npu") else {torch}.{node.attr})'
    return Edit(start, end, text.encode(module.text.encoding))


RULE = Rule(
    code="TP720",
    title="memory formats that torch_npu does not make",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="On an NPU x.to(memory_format=torch.channels_last) fails, as contiguous() and empty() with it do: `Only "
    "contiguous_format or preserve_format is supported`. A format is an order in memory and changes no value; CANN "
    "chooses its own inside of operators. In the agnostic style CUDA keeps it.",
    reference="https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.memory_format",
    words=(b"channels_last",),
    check=check_module,
    rewrites=(
        (
            "import torch\nx = x.cuda().to(memory_format=torch.channels_last)\n",
            "import torch\nx = x.npu().to(memory_format=torch.contiguous_format)\n",
        ),
        (
            "import torch\nmodel = model.to('cuda', memory_format=torch.channels_last)\n",
            "import torch\nmodel = model.to('npu', memory_format=torch.contiguous_format)\n",
        ),
        (
            "import torch\nfmt = torch.channels_last if nhwc else torch.contiguous_format\n"
            "x = x.contiguous(memory_format=fmt)\n",
            "import torch\nfmt = torch.contiguous_format if nhwc else torch.contiguous_format\n"
            "x = x.contiguous(memory_format=fmt)\n",
        ),
        (
            "import torch\nx = x.contiguous(memory_format=torch.channels_last_3d)\n",
            "import torch\nx = x.contiguous(memory_format=torch.contiguous_format)\n",
        ),
    ),
    reports=("import torch\nx = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)\n",),
    ignores=(
        "import torch\nx = x.clone(memory_format=torch.channels_last)\n",
        "import torch\nok = x.is_contiguous(memory_format=torch.channels_last)\n",
        "import torch\ny = torch.empty_like(x, memory_format=torch.channels_last)\n",
        "import torch\nif fmt == torch.channels_last:\n    pass\n",
        "import torch\nif fmt in (torch.channels_last, torch.channels_last_3d):\n    pass\n",
        "import torch\nx = x.to(memory_format=torch.preserve_format)  # channels_last\n",
        "channels_last = 1\nuse(memory_format=channels_last)\n",
    ),
)
