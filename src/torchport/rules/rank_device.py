"""TP203: ranks that nothing gives a device of their own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

_INIT = ("torch.distributed.init_process_group", "torch.distributed.distributed_c10d.init_process_group")
_BARE = frozenset(("cuda", "npu"))
_CHOOSES = frozenset(("set_device", "set_device_index", "set_device_idx", "device_ids", "device_id"))
# Launchers and trainers choose the device of a rank themselves.
_LAUNCHERS = ("accelerate", "lightning", "pytorch_lightning", "deepspeed", "horovod", "transformers", "megatron", "ray")
_IMPORTS = "import os\nimport torch\nimport torch_npu\nimport torch.distributed as dist\n"
_VISIBLE = re.compile(r"VISIBLE_DEVICES|^(?:cuda|npu):")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for each process group of a file that moves something to the device and nothing to a rank's own."""
    groups = [
        call for call in module.iter_nodes(ast.Call) if module.resolve_name(call.func) in _INIT and _uses_devices(call)
    ]
    if not groups or not _moves(module) or _chooses(module):
        return
    for call in groups:
        yield RULE.make_finding(
            module,
            call,
            "nothing in this file gives a rank a device of its own: all ranks of a machine would share device 0, and "
            "HCCL refuses that (EI0015), as NCCL does",
            hint='Call torch.npu.set_device(int(os.environ["LOCAL_RANK"])) before it. If another file chooses the '
            "device, or a machine has one rank, nothing is to be done.",
            severity=Severity.INFO if _is_gloo_by_default(module, call) else None,
        )


def _uses_devices(call: ast.Call) -> bool:
    """Whether the backend is NCCL or HCCL, or may be, for more than one rank: gloo, MPI and the like have no device of
    a rank."""
    if any(keyword.arg == "world_size" and getattr(keyword.value, "value", 0) == 1 for keyword in call.keywords):
        return False
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "backend")]
    named = given[0].value if given and isinstance(given[0], ast.Constant) else None
    return not isinstance(named, str) or re.search("nccl|hccl", named, re.IGNORECASE) is not None


def _is_gloo_by_default(module: Module, call: ast.Call) -> bool:
    """Whether the backend is an option that is gloo, which has no device of a rank, unless somebody gives another."""
    given = next(iter([*call.args[:1], *(word.value for word in call.keywords if word.arg == "backend")]), None)
    return given is not None and any(
        word.arg == "default"
        and re.search(r"\bgloo\b", ast.unparse(word.value), re.IGNORECASE) is not None
        and module.flow.is_same_value(word.value, given)
        for option in module.iter_nodes(ast.Call)
        for word in option.keywords
    )


def _moves(module: Module) -> bool:
    """Whether the file names the device without an index, or calls `cuda()` or `npu()` without one."""
    return any(constant.value in ("cuda", "npu") for constant in module.iter_nodes(ast.Constant)) or any(
        isinstance(call.func, ast.Attribute) and call.func.attr in _BARE and not call.args
        for call in module.iter_nodes(ast.Call)
    )


def _chooses(module: Module) -> bool:
    """Whether something in the file may give a rank a device of its own."""
    return (
        any(_gives_index(call) for call in module.iter_nodes(ast.Call))
        or any(isinstance(c.value, str) and _VISIBLE.search(c.value) for c in module.iter_nodes(ast.Constant))
        or any(binding.target.partition(".")[0] in _LAUNCHERS for binding in module.names.iter_imports())
    )


def _gives_index(call: ast.Call) -> bool:
    """`set_device(x)`, `device_ids=x`, `.cuda(x)`, `.to(rank)`, `torch.device("cuda", x)`: anything but a bare name of
    the device, `None`, or what the file made of them."""
    function = call.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    if name in _CHOOSES:
        return True
    words = {keyword.arg: keyword.value for keyword in call.keywords}
    if any(ast.unparse(words[word]) != "None" for word in _CHOOSES & words.keys()):
        return True
    given = [*call.args, *(words[word] for word in ("device", "index") if word in words)]
    if name in _BARE:
        return bool(given)
    if name == "device":  # torch.device, torch.cuda.device, jax-like contexts
        return len(given) > 1 or not all(_is_bare(one) for one in given)
    return name == "to" and any(_is_index(one) for one in given)


def _is_bare(value: ast.expr) -> bool:
    """A name of the device, the CPU's too, or a choice between two."""
    if isinstance(value, ast.IfExp):
        return _is_bare(value.body) and _is_bare(value.orelse)
    return isinstance(value, ast.Constant) and isinstance(value.value, str) and ":" not in value.value


def _is_index(value: ast.expr) -> bool:
    """A number, a text that is put together, or a name that says rank, GPU or index."""
    if isinstance(value, ast.Constant):
        return type(value.value) is int
    if isinstance(value, ast.JoinedStr | ast.BinOp | ast.Call | ast.Subscript):
        return not (isinstance(value, ast.Call) and "device" in ast.unparse(value.func))
    return re.search(r"rank|gpu|index|idx|dev_?id", ast.unparse(value), re.IGNORECASE) is not None


RULE = Rule(
    code="TP203",
    title="ranks that share a device",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="Every process starts on device 0. HCCL refuses two ranks of one communicator on one device when the "
    "communicator is made: Ranktable_Detect_Failed(EI0015).",
    reference="https://docs.pytorch.org/docs/stable/distributed.html",
    words=(b"init_process_group",),
    check=check_module,
    rewrites=(),
    reports=(
        f"{_IMPORTS}p.add_argument('--backend', default='gloo')\ndist.init_process_group(p.parse_args().backend)\n"
        "net.npu()\n",
        f"{_IMPORTS}dist.init_process_group('hccl')\nnet.npu()\n",
        "from torch.distributed import init_process_group\ninit_process_group(backend='hccl')\nnet.to('npu')\n",
    ),
    ignores=(
        _IMPORTS + "dist.init_process_group('hccl', rank=0, world_size=1)\nx = torch.ones(1).npu()\n",
        f"{_IMPORTS}dist.init_process_group('gloo')\nnet.npu()\n",
        f"{_IMPORTS}dist.init_process_group('hccl')\n",
        f"{_IMPORTS}torch.npu.set_device(rank)\ndist.init_process_group('hccl')\nnet.npu()\n",
        f"{_IMPORTS}dist.init_process_group('hccl', device_id=device)\nnet.npu()\n",
        f"{_IMPORTS}dist.init_process_group('hccl')\nnet.npu(args.gpu)\n",
        f"{_IMPORTS}dist.init_process_group('hccl')\nnet.to(f'npu:{{rank}}')\nx.npu()\n",
        f"{_IMPORTS}dist.init_process_group('hccl')\nnet.to(rank)\nx.npu()\n",
        f"{_IMPORTS}os.environ['ASCEND_RT_VISIBLE_DEVICES'] = str(rank)\ndist.init_process_group('hccl')\nx.npu()\n",
    ),
)
