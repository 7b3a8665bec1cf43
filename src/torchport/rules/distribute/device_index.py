"""TP215: a device with a fixed index becomes the process's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.arguments import role
from torchport.rules import Rule
from torchport.rules.distribute import on_script
from torchport.rules.distribute.script import Script
from torchport.rules.distribute.start import LOCAL_RANK
from torchport.rules.receivers import Owner, Receivers
from torchport.rules.roles import Proof, Roles

_INDEXED = re.compile(r"cuda:(\d+)")


def check(script: Script) -> Iterator[Finding]:
    """A finding for every place that names one device."""
    if script.is_distributed:
        return
    yield from _strings(script)
    methods = Receivers(script, "cuda")
    for call in script.all(ast.Call):
        name = script.qualified(call.func)
        if name == "torch.cuda.set_device" and call.args and script.source(call.args[0]) != LOCAL_RANK:
            edit = Edit(*script.text.span(call.args[0]), LOCAL_RANK.encode())
            yield RULE.finding(script, call, "each process chooses the device of its local rank", [edit])
        elif name == "torch.device" and len(call.args) == 2:
            start, end = script.text.span(call.args[0])[1], script.text.span(call.args[1])[1]
            yield RULE.finding(
                script, call, "a device without index is the process's own", [Edit(start, end, b"")]
            )
        elif (
            isinstance(call.func, ast.Attribute) and call.func.attr == "cuda" and len(call.args) == 1
            and name is None and methods.owner(call.func.value) is Owner.TORCH
        ):  # fmt: skip
            yield _without_index(script, call, call.args[0])
    for assign in script.all(ast.Assign):
        if any("CUDA_VISIBLE_DEVICES" in script.source(target) for target in assign.targets):
            yield RULE.finding(
                script, assign, "the script hides all devices but some: every process would see those only",
                [Edit(*script.text.span(assign), b"pass")], safety=Safety.REVIEW,
                hint="Choose the devices where the processes are started.",
            )  # fmt: skip


def _without_index(script: Script, call: ast.Call, argument: ast.expr) -> Finding:
    device = isinstance(argument, ast.Name | ast.Attribute) and "device" in script.source(argument).lower()
    if device:
        return RULE.finding(
            script, call, "this has to be the process's own device", safety=Safety.REPORT, severity=Severity.INFO,
            hint="It is, where the device has no index.",
        )  # fmt: skip
    return RULE.finding(
        script, call, "a device without index is the process's own", [Edit(*script.text.span(argument), b"")],
        safety=Safety.SAFE if isinstance(argument, ast.Constant) else Safety.REVIEW,
    )  # fmt: skip


def _strings(script: Script) -> Iterator[Finding]:
    roles: Roles | None = None
    for constant in script.all(ast.Constant):
        text = constant.value if isinstance(constant.value, str) else ""
        found = _INDEXED.fullmatch(text)
        if found is None or isinstance(script.parent(constant), ast.JoinedStr | ast.Expr | ast.Dict):
            continue
        roles = roles or Roles(script, role("device"))
        proof = roles.proof(constant)
        if proof is Proof.NONE or found[1] != "0":
            yield RULE.finding(
                script, constant, f"{text!r} is one device, whichever process asks for it",
                hint="Leave the index away where the process's own device is meant.",
                safety=Safety.REPORT, severity=Severity.WARNING,
            )  # fmt: skip
        else:
            safety = Safety.SAFE if proof is Proof.PROVEN else Safety.REVIEW
            edits = [script.string_edit(constant, text, "cuda")]
            yield RULE.finding(
                script, constant, "a device without index is the process's own", edits, safety=safety
            )


RULE = Rule(
    code="TP215",
    title="a fixed device becomes the process's own (--distributed)",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="After set_device a device without index is that of the process; an index would put all on one device.",
    reference="https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.device",
    check=on_script(check),
    rewrites=(
        ("import torch\nd = torch.device('cuda:0')\n", "import torch\nd = torch.device('cuda')\n"),
        ("import torch\ntorch.cuda.set_device(args.gpu)\n", f"import torch\ntorch.cuda.set_device({LOCAL_RANK})\n"),
        ("import torch\nd = torch.device('cuda', 0)\nx.cuda(0)\n",
         "import torch\nd = torch.device('cuda')\nx.cuda()\n"),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n", "import os\npass\n"),
    ),
    unchanged=(
        "import torch\nd = torch.device('cuda')\nx.cuda()\n",
        "import torch\nd = torch.device('cuda:1')\n",
        "print('cuda:0')\n",
        "import torch\nd = torch.device('cpu')\n",
    ),
)  # fmt: skip
