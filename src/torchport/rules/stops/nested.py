"""TP725: nested tensors with strides, which nn.TransformerEncoder makes as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.calls import find_keyword, keyword_is
from torchport.source.module import Module

_MAKES = frozenset({"torch.nested.nested_tensor", "torch.nested.as_nested_tensor"})
_ENCODERS = frozenset({"torch.nn.TransformerEncoder", "torch.nn.Transformer"})
_LAYERS = frozenset({"torch.nn.TransformerEncoderLayer", "torch.nn.Transformer"})


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every nested tensor with strides, and for an encoder that makes one of a padded batch."""
    calls = list(module.iter_nodes(ast.Call))
    padded = any(word.arg == "src_key_padding_mask" for call in calls for word in call.keywords)
    first = any(
        module.resolve_name(call.func) in _LAYERS
        and keyword_is(call, "batch_first", True)
        and not keyword_is(call, "norm_first", True)
        for call in calls
    )
    for call in calls:
        name = module.resolve_name(call.func)
        if name in _MAKES:
            layout = find_keyword(call, "layout")
            if layout is None or module.resolve_name(layout) == "torch.strided":
                yield RULE.make_finding(
                    module,
                    call,
                    "torch_npu computes nothing with a nested tensor that has strides",
                    hint="Write layout=torch.jagged: that one takes linear layers, arithmetic and softmax.",
                )
        elif name in _ENCODERS and padded and first and not keyword_is(call, "enable_nested_tensor", False):
            yield RULE.make_finding(
                module,
                call,
                "in eval() the encoder makes a nested tensor of a padded batch, which torch_npu refuses",
                hint="Write enable_nested_tensor=False, or torch.backends.mha.set_fastpath_enabled(False) before it.",
            )


RULE = Rule(
    code="TP725",
    title="nested tensors",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="A nested tensor with strides can be made, unbound and padded on an NPU; moving it there, arithmetic and "
    "layers are refused. nn.TransformerEncoder makes one in eval(), without gradients, where batch_first=True and it "
    "is given a src_key_padding_mask.",
    reference="https://docs.pytorch.org/docs/stable/nested.html",
    words=(b"nested", b"transformer"),
    check=check_module,
    rewrites=(),
    reports=("import torch\nn = torch.nested.nested_tensor([a, b])\n",),
    ignores=("import torch\nn = torch.nested.nested_tensor([a, b], layout=torch.jagged)\n",),
)
