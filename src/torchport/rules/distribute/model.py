"""TP213: the model becomes a DistributedDataParallel."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Rule
from torchport.rules.data_parallel import NAMES
from torchport.rules.distribute import on_script
from torchport.rules.distribute.script import Script

_DDP = "torch.nn.parallel.DistributedDataParallel"
_DEVICE = "device_ids=[torch.cuda.current_device()]"
# Methods of torch.nn.Module that mean the same on the wrapper; every other name is the model's own.
_SAME = frozenset(
    {
        "train",
        "eval",
        "training",
        "parameters",
        "buffers",
        "zero_grad",
        "requires_grad_",
        "modules",
        "apply",
        "forward",
        "no_sync",
        "module",
        "to",
        "cuda",
        "cpu",
        "half",
        "float",
        "double",
        "bfloat16",
        "type",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "share_memory",
        "compile",
        "__call__",
        "__class__",
        "__name__",
        "__dict__",
    }
)
# What keeps or copies the whole of a module: in a file or a copy the wrapper has no processes.
_WHOLE = frozenset(
    {
        "torch.save",
        "pickle.dump",
        "pickle.dumps",
        "cloudpickle.dump",
        "copy.deepcopy",
        "torch.jit.script",
        "torch.jit.trace",
        "torch.onnx.export",
        "torch.export.export",
    }
)


def check_script(script: Script) -> Iterator[Finding]:
    """The wrapper after the model has reached its device, and `.module` where the model itself is meant."""
    if script.is_distributed:
        return
    parallel = [call for call in script.iter_nodes(ast.Call) if script.resolve_name(call.func) in NAMES]
    for call in parallel:
        yield _replaced(script, call)
    if parallel:
        return  # the script names model.module itself
    moves = [statement for statement in _statements(script) if _moves(script, statement, script.model)]
    scopes = {script.names.scope_of(statement) for statement in moves}
    name, last = (script.model, None) if len(scopes) != 1 else _last(script, moves, script.model)
    if last is None:
        said = (
            "several functions move it to the device"
            if len(scopes) > 1
            else "the function that moves it does not make it"
            if moves
            else "no statement moves it to the device"
        )
        yield RULE.make_finding(
            script,
            (moves or script.tree.body)[0],
            f"the model {script.model!r} is not wrapped: {said}",
            hint=f"Name its variable with --model, or wrap it by hand after it reached its device: "
            f"model = {_DDP}(model, {_DEVICE.replace('cuda', 'npu')})",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
        )
        return
    yield RULE.make_finding(
        script,
        moves[-1],
        f"{name} is wrapped, so that its gradients are averaged over the processes",
        [_wrapped(script, name, last)],
        hint="If parts of the model get no gradient in some steps, add find_unused_parameters=True; batch "
        "normalisation sees the samples of one process only unless torch.nn.SyncBatchNorm replaces it.",
    )
    yield from _inner(script, name, last)


def find_wrap_point(script: Script) -> tuple[ast.expr, ast.stmt] | None:
    """The model as the statement names it after which it is wrapped, and that statement; None where it is not."""
    moves = [statement for statement in _statements(script) if _moves(script, statement, script.model)]
    if len({script.names.scope_of(statement) for statement in moves}) != 1:
        return None
    name, last = _last(script, moves, script.model)
    model = _named(last, name) if last is not None else None
    return (model, last) if model is not None and last is not None else None


def _named(statement: ast.stmt, name: str) -> ast.expr | None:
    parts = (node for node in ast.walk(statement) if isinstance(node, ast.Name | ast.Attribute))
    return next((node for node in parts if ast.unparse(node) == name), None)


def _wrapped(script: Script, name: str, last: ast.stmt) -> Edit | None:
    return script.insert_after(last, f"{name} = {_DDP}({name}, {_DEVICE})")


def _replaced(script: Script, call: ast.Call) -> Finding:
    """`DataParallel(model)` in one expression: the model has to be on its device before it is wrapped."""
    inner, outer = call.args[0] if call.args else None, script.get_parent(call)
    moved = outer if isinstance(outer, ast.Attribute) and outer.attr in ("cuda", "to") else None
    whole = script.get_parent(moved) if moved is not None else call
    if inner is None or not isinstance(whole, ast.Call) or isinstance(inner, ast.Starred):
        return RULE.make_finding(
            script,
            call,
            "DataParallel cannot be replaced here",
            safety=Safety.REPORT,
            severity=Severity.ERROR,
            hint=f"Write {_DDP}(model, device_ids=[device]) once the model is on its device.",
        )
    text = script.get_source(inner)
    if whole is not call:
        text += script.text.decode_range(script.text.span(call)[1], script.text.span(whole)[1])
    around = next(
        (ancestor for ancestor in script.names.iter_ancestors(call) if isinstance(ancestor, ast.Assign)), None
    )
    name = ast.unparse(around.targets[0]) if around is not None and around.value is whole else ""
    later = [
        statement
        for statement in _statements(script)
        if whole is call
        and statement.lineno > call.lineno
        and any(_moves(script, statement, one) for one in (name, ast.unparse(inner)))
    ]
    edits: list[Edit | None] = [
        Edit(*script.text.span(whole), f"{_DDP}({text}, {_DEVICE})".encode(script.text.encoding))
    ]
    if later:  # it is wrapped after the line that moves it
        same = all(script.names.scope_of(one) is script.names.scope_of(call) for one in later)
        wrapped, last = _last(script, later, name) if same and name else (name, None)
        if last is None or wrapped != name:
            return RULE.make_finding(
                script,
                call,
                "DataParallel becomes DistributedDataParallel, one process per device",
                safety=Safety.REPORT,
                severity=Severity.ERROR,
                hint="The model has to be on its device first: wrap it after the line that moves it.",
            )
        first = Edit(*script.text.span(call), text.encode(script.text.encoding))
        if around is not None and text == name:
            first = Edit(*script.text.span(around), b"pass")
        edits = [first, _wrapped(script, name, last)]
    return RULE.make_finding(
        script,
        call,
        "DataParallel becomes DistributedDataParallel, one process per device",
        edits,
        safety=Safety.REVIEW,
        hint="Check that the batch size is meant per process."
        if later
        else "Check that the model is on its device here, and that the batch size is meant per process.",
    )


def _statements(script: Script) -> list[ast.stmt]:
    found: list[ast.stmt] = [*script.iter_nodes(ast.Assign), *script.iter_nodes(ast.Expr)]
    return sorted(found, key=lambda statement: statement.lineno)


def _moves(script: Script, statement: ast.stmt, model: str) -> bool:
    """`model = Net().cuda()`, `model = model.to(device)`, `model.cuda()`, `model, o = amp.initialize(model, o)`."""
    value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    names = _targets(statement)
    if isinstance(value, ast.Call) and script.resolve_name(value.func) == "apex.amp.initialize":
        return model in names
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in ("cuda", "to"):
            return model in names or ast.unparse(value.func.value) == model
        value = value.func.value
    return False


def _targets(statement: ast.stmt) -> list[str]:
    """What an assignment gives a value to, as it is written."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [ast.unparse(part) for target in targets for part in getattr(target, "elts", [target])]


def _last(script: Script, moves: list[ast.stmt], model: str) -> tuple[str, ast.stmt | None]:
    """The statement after which the model is on its device whatever the branches were, and its name there."""
    scope = script.names.scope_of(moves[0])
    made = [
        statement
        for statement in script.iter_nodes(ast.Assign)
        if model in _targets(statement) and script.names.scope_of(statement) is scope
    ]
    if not made:
        # def __init__(self, model): self.model = model.cuda()
        kept = _targets(moves[0])
        alone = len(moves) == 1 and len(kept) == 1 and model in scope.bindings
        return (kept[0], moves[0]) if alone else (model, None)
    outermost = min(made, key=lambda statement: len(list(script.names.iter_ancestors(statement))))
    block = script.find_block(outermost)
    around = [[move, *script.names.iter_ancestors(move)] for move in moves]
    reached = [statement for statement in block if any(statement in above for above in around)]
    whole = reached and len(reached) == len({id(one) for one in reached})
    return model, reached[-1] if whole else None


def _inner(script: Script, name: str, last: ast.stmt) -> Iterator[Finding]:
    """What is meant of the model itself: its state, and names that torch.nn.Module does not have."""
    end = script.text.span(last)[1]
    model = _named(last, name)
    if model is None:
        return
    here = script.names.scope_of(model)
    asked = [
        (node.value, node, f"{node.attr} is asked of the model inside the wrapper")
        for node in script.iter_nodes(ast.Attribute)
        if node.attr not in _SAME
    ]
    for value, node, message in (*asked, *_kept_whole(script)):
        if not script.flow.is_same_value(value, model) or not _is_name(value):
            continue
        same_scope = script.names.scope_of(node) is here
        start = script.text.span(value)[1]
        if same_scope and start <= end:
            continue
        edit = Edit(start, start, b".module")
        yield RULE.make_finding(
            script,
            node,
            message,
            [edit],
            hint="" if same_scope else "This function has to be called with the wrapped model only.",
            safety=Safety.SAFE if same_scope else Safety.REVIEW,
        )


def _kept_whole(script: Script) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """Every value that a call keeps or copies as it is, alone or in a literal, and what to say of it."""
    for call in script.iter_nodes(ast.Call):
        name = script.resolve_name(call.func)
        if name not in _WHOLE:
            continue
        waiting = [*call.args, *(keyword.value for keyword in call.keywords)]
        while waiting:
            value = waiting.pop()
            if isinstance(value, ast.Dict):
                waiting += value.values
            elif isinstance(value, ast.List | ast.Tuple):
                waiting += value.elts
            elif isinstance(value, ast.Name | ast.Attribute):
                yield value, value, f"{name} is given the model inside the wrapper"


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))


_WRAP = f"model = {_DDP}(model, {_DEVICE})\n"
RULE = Rule(
    code="TP213",
    title="the model becomes a DistributedDataParallel (--distributed)",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="DistributedDataParallel averages the gradients of all processes. It wraps the model once that is on its "
    "device; state_dict then belongs to model.module.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    check=on_script(check_script),
    rewrites=(
        (
            "model = Net().cuda()\noptimizer = SGD(model.parameters())\nsave(model.state_dict())\n",
            f"model = Net().cuda()\n{_WRAP}optimizer = SGD(model.parameters())\nsave(model.module.state_dict())\n",
        ),
        (
            "model = Net()\nif gpu:\n    model = model.to(device)\nmodel.train()\nmodel.fc.bias\n",
            f"model = Net()\nif gpu:\n    model = model.to(device)\n{_WRAP}model.train()\nmodel.module.fc.bias\n",
        ),
        (
            "import torch\nmodel = torch.nn.DataParallel(Net()).cuda()\n",
            f"import torch\nmodel = {_DDP}(Net().cuda(), {_DEVICE})\n",
        ),
        (
            "def save(m):\n    store(m.state_dict())\nmodel = Net()\nmodel.cuda()\nsave(model)\n",
            f"def save(m):\n    store(m.module.state_dict())\nmodel = Net()\nmodel.cuda()\n{_WRAP}save(model)\n",
        ),
        (
            "import torch\nnet = Net()\nif many:\n    net = torch.nn.DataParallel(net)\nnet.to(device)\n",
            f"import torch\nnet = Net()\nif many:\n    pass\nnet.to(device)\nnet = {_DDP}(net, {_DEVICE})\n",
        ),
        (
            "import copy, torch\nmodel = Net().cuda()\nema = copy.deepcopy(model)\nema.state_dict()\n"
            "torch.save({'m': model, 'n': [1]}, p)\n",
            f"import copy, torch\nmodel = Net().cuda()\n{_WRAP}ema = copy.deepcopy(model.module)\nema.state_dict()\n"
            "torch.save({'m': model.module, 'n': [1]}, p)\n",
        ),
        (
            "class T:\n    def __init__(self, model):\n        self.net = model.cuda()\n"
            "        self.net.load_state_dict(x)\n",
            "class T:\n    def __init__(self, model):\n        self.net = model.cuda()\n"
            f"        self.net = {_DDP}(self.net, {_DEVICE})\n        self.net.module.load_state_dict(x)\n",
        ),
    ),
    reports=(
        "net = Net().cuda()\n",
        "model = Net()\n",
        "def a():\n    model = Net().cuda()\ndef b():\n    model = Net().cuda()\n",
        "import torch\nmodel = make(torch.nn.DataParallel(net))\nnet.cuda()\nmodel = torch.nn.DataParallel(*x)\n",
        "def f(model):\n    model.cuda()\n",
        "import torch\nmodel = Net()\ntorch.save(model, p)\n",
        "def f(model):\n    a = model.cuda()\n    b = model.to(device)\n",
    ),
    ignores=(),
)
