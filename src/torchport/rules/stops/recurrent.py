"""TP724: LSTM, GRU and RNN: dropout between layers, projections, sequences of different lengths."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.calls import find_keyword
from torchport.source.module import Module

# Positions of the arguments that matter, after the sizes: num_layers, dropout, proj_size. The RNN drops as it should.
_LAYERS = {
    f"torch.nn.{inner}{name}": name for name in ("LSTM", "GRU", "RNN") for inner in ("", "modules.", "modules.rnn.")
}
_PACKS = frozenset(f"torch.nn.utils.rnn.{name}" for name in ("pack_padded_sequence", "pack_sequence"))


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every layer that does not compute what it says, and for packing where no LSTM takes it."""
    kinds = set()
    for call in module.iter_nodes(ast.Call):
        kind = _LAYERS.get(module.resolve_name(call.func) or "")
        if kind is None:
            continue
        kinds.add(kind)
        if kind == "RNN":
            continue
        layers, dropout = _given(call, 2, "num_layers"), _given(call, 5, "dropout")
        if dropout is not None and not _is(dropout, 0) and layers is not None and not _is(layers, 1):
            yield RULE.make_finding(
                module,
                call,
                f"the {kind} drops nothing between its layers on an NPU",
                hint=f"Make one {kind} for each layer and put torch.nn.Dropout between them.",
            )
        projection = _given(call, 7, "proj_size") if kind == "LSTM" else None
        if projection is not None and not _is(projection, 0):
            yield RULE.make_finding(
                module,
                call,
                "torch_npu's LSTM has no proj_size",
                severity=Severity.ERROR,
                hint="Put a torch.nn.Linear without bias behind it, or keep this layer on the CPU: the two differ, as "
                "the projection is fed back.",
            )
    if not kinds:
        return
    for call in module.iter_nodes(ast.Call):
        if module.resolve_name(call.func) not in _PACKS:
            continue
        if kinds == {"LSTM"}:
            yield RULE.make_finding(
                module,
                call,
                "the gradient of what is packed is wrong on an NPU if the sequences are not of one length",
                hint="If layers that learn lie in front of it (an Embedding, a CNN), give the padded batch to the LSTM "
                "and take the outputs at the lengths. Of features as they are there is no gradient to be wrong.",
            )
        else:
            others = " and ".join(sorted(kinds & {"GRU", "RNN"}))
            yield RULE.make_finding(
                module,
                call,
                f"packed sequences are wrong in a {others} on an NPU",
                hint="torch_npu packs for its LSTM, with the padding left in: give the padded batch to the layer and "
                "take the outputs at the lengths, or run this layer on the CPU.",
                severity=Severity.WARNING if "LSTM" in kinds else Severity.ERROR,
            )


def _given(call: ast.Call, position: int, name: str) -> ast.expr | None:
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    return find_keyword(call, name) or (call.args[position] if position < len(call.args) else None)


def _is(node: ast.expr, value: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


RULE = Rule(
    code="TP724",
    title="LSTM, GRU and RNN on an NPU",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="torch_npu 2.13.0 computes an LSTM and a GRU in one operator that knows no dropout between layers: it trains "
    "without, and says nothing. proj_size ends in an error of the device. Packed sequences are laid out for the LSTM "
    "alone, with their padding; a GRU or RNN reads them as another batch, and so does the gradient of the packing.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
    words=(b"lstm", b"gru", b"rnn"),
    check=check_module,
    rewrites=(),
    reports=(
        "import torch\nm = torch.nn.LSTM(8, 8, 2, dropout=0.5)\n",
        "import torch\nm = torch.nn.LSTM(8, 8, proj_size=4)\n",
        "import torch\nfrom torch.nn.utils.rnn import pack_padded_sequence\nm = torch.nn.LSTM(8, 8)\n"
        "m(pack_padded_sequence(x, lengths))\n",
    ),
    ignores=(
        "import torch\nm = torch.nn.LSTM(8, 8, 1, dropout=0.5)\n",
        "import torch\nm = torch.nn.RNN(8, 8, 2, dropout=0.5)\n",
    ),
)
