"""TP201: the communication backend "nccl"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.accelerator_name import ACCELERATOR, OWN_TORCH
from torchport.rules.roles import Proof, Roles, find_roles
from torchport.source.module import Module

_PER_DEVICE = re.compile(r"(?:\w+:\w+,)*cuda:nccl(?:,\w+:\w+)*")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every string that is the name of the backend, or may be."""
    roles: Roles | None = None
    for constant in module.iter_nodes(ast.Constant):
        text = constant.value
        if not isinstance(text, str) or isinstance(module.get_parent(constant), ast.Expr | ast.JoinedStr):
            continue
        per_device = _PER_DEVICE.fullmatch(text) is not None
        if text not in ("nccl", "NCCL") and not per_device:
            continue
        roles = roles or find_roles(module, "backend")
        proof = roles.find_proof(constant)
        if proof is Proof.NONE and not per_device:
            yield RULE.make_finding(
                module,
                constant,
                f"{text!r} names CUDA's communication library, but nothing here uses it as a backend",
                hint="If it is the backend of torch.distributed, write hccl.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
            continue
        new = text.replace("cuda:nccl", "npu:hccl").replace("nccl", "hccl").replace("NCCL", "HCCL")
        named = proof is Proof.NAMED
        edits: list[Edit | None] = [module.string_edit(constant, text, new)]
        if style is Style.AGNOSTIC:
            edits = [_agnostic(module, constant)] if text == "nccl" else [None]
        yield RULE.make_finding(
            module,
            constant,
            f"the backend {text!r} is {new!r} on the NPU",
            edits,
            hint="Only the name says that this is the backend: check it." if named else "",
            safety=Safety.REVIEW if named else Safety.SAFE,
        )


def find_backend_literals(module: Module) -> Iterator[tuple[ast.Constant, Edit | None]]:
    """Every string that spells the backend, with the edit that makes it the NPU's."""
    for constant in module.iter_nodes(ast.Constant):
        text, above = constant.value, module.get_parent(constant)
        if text in ("nccl", "NCCL") and isinstance(text, str) and not isinstance(above, ast.Expr | ast.JoinedStr):
            new = text.replace("nccl", "hccl").replace("NCCL", "HCCL")
            yield constant, module.string_edit(constant, text, new)


def _agnostic(module: Module, node: ast.Constant) -> Edit | None:
    """The backend that torch prefers for the accelerator, by a name of torch that the file imports itself."""
    bindings = module.names.scopes[module.tree].bindings
    for wanted, function in (
        ("torch", "distributed.get_default_backend_for_device"),
        ("torch.distributed", "get_default_backend_for_device"),
    ):
        for name, found in bindings.items():
            if name != OWN_TORCH and [binding.target for binding in found] == [wanted]:
                return Edit(*module.text.span(node), f"{name}.{function}({ACCELERATOR})".encode())
    return None


RULE = Rule(
    code="TP201",
    title="the communication backend nccl becomes hccl",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="torch_npu registers HCCL as the backend hccl; get_backend() then answers hccl, so comparisons change with it.",
    reference="https://hiascend.com/document/detail/zh/Pytorch/60RC3/ptmoddevg/trainingmigrguide/PT_LMTMOG_0013.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "import torch.distributed as dist\ndist.init_process_group('nccl')\n",
            "import torch.distributed as dist\ndist.init_process_group('hccl')\n",
        ),
        (
            "import torch.distributed as dist\ndist.init_process_group(backend='cpu:gloo,cuda:nccl')\n",
            "import torch.distributed as dist\ndist.init_process_group(backend='cpu:gloo,npu:hccl')\n",
        ),
        (
            "import torch.distributed as dist\nassert dist.get_backend() == 'nccl'\n",
            "import torch.distributed as dist\nassert dist.get_backend() == 'hccl'\n",
        ),
        (
            "import torch.distributed as d\np.add_argument('--b', default='nccl')\nd.new_group(backend=args.b)\n",
            "import torch.distributed as d\np.add_argument('--b', default='hccl')\nd.new_group(backend=args.b)\n",
        ),
    ),
    reports=("print('nccl')\n",),
    ignores=(
        "import torch.distributed as dist\ndist.init_process_group('gloo')\n",
        "'nccl'\n",
        "log('nccl error: see https://x/nccl')\n",
        "import torch.distributed as dist\ndist.init_process_group('hccl')\n",
    ),
)
