"""TP218: gradients are averaged once for each step of the optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule
from torchport.rules.distribute import on_script
from torchport.rules.distribute.model import find_wrap_point
from torchport.rules.distribute.script import Script

_SYNC = "require_backward_grad_sync"
# What a condition may consist of that is asked at the start of the body instead of at its end.
_PURE = (
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.operator,
    ast.boolop,
    ast.unaryop,
    ast.cmpop,
    ast.expr_context,
)
# What reads gradients, or steps by something else than the optimizer.
_READS = ("clip_grad_norm_", "clip_grad_value_", "unscale_", "grad")
_SCHEDULERS = ("sched", "lr", "warmup", "ema")


def check_script(script: Script) -> Iterator[Finding]:
    """A finding for every loop that calls `backward` for each batch and `step` for some."""
    found = None if script.is_distributed else find_wrap_point(script)
    if found is None:
        return
    for loop in script.iter_nodes(ast.For):
        guard = _guard(loop)
        if guard is None:
            continue
        name, why = _model(script, loop, found[0]), _why_not(script, loop, guard)
        if name and not why:
            line = f"{name}.{_SYNC} = {ast.unparse(guard.test)}"
            yield RULE.make_finding(
                script,
                guard.test,
                "gradients are averaged over the processes where the optimizer steps, not before",
                [script.insert_before(loop.body[0], line)],
            )
        else:
            yield RULE.make_finding(
                script,
                guard.test,
                "gradients are averaged over the processes for each batch, and used for some: "
                + (why or "the model is not called here"),
                safety=Safety.REPORT,
                hint="The result is right. To save time, put forward and backward of the other batches under "
                "model.no_sync().",
            )


def _guard(loop: ast.For) -> ast.If | None:
    """The `if` of a loop's body under which alone it steps, where `backward` comes before it under no condition."""
    seen = False
    for statement in loop.body:
        if isinstance(statement, ast.If) and not statement.orelse and seen and _calls(statement, "step"):
            return None if _calls(statement, "backward") else statement
        if isinstance(statement, ast.Expr | ast.With | ast.AsyncWith):
            seen = seen or (bool(_calls(statement, "backward")) and not _branches(statement))
    return None


def _branches(statement: ast.stmt) -> bool:
    return any(isinstance(part, ast.If | ast.For | ast.While | ast.Try) for part in ast.walk(statement))


def _calls(node: ast.AST, method: str) -> list[ast.Attribute]:
    """The methods of this name that are called, without those of what is no optimizer."""
    return [
        call.func
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == method
        and not (method == "step" and any(word in ast.unparse(call.func.value).lower() for word in _SCHEDULERS))
    ]


def _model(script: Script, loop: ast.For, wrapped: ast.expr) -> str:
    """The wrapped model as the loop's body calls it; empty where it does not."""
    for call in ast.walk(loop):
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute)
        if named and script.flow.is_same_value(call.func, wrapped):  # type: ignore[attr-defined]
            return ast.unparse(call.func)  # type: ignore[attr-defined]
    return ""


def _why_not(script: Script, loop: ast.For, guard: ast.If) -> str:
    """Why the condition cannot be asked at the start of the body; empty where it can."""
    parts = [part for part in ast.walk(guard.test) if not _is_length(script, part)]
    names = {ast.unparse(part) for part in parts if isinstance(part, ast.Name | ast.Attribute)}
    targets = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
    others = [part for statement in loop.body if statement is not guard for part in ast.walk(statement)]
    given = {ast.unparse(part) for part in others if isinstance(getattr(part, "ctx", None), ast.Store | ast.Del)}
    around = next(
        (above for above in script.names.iter_ancestors(loop) if isinstance(above, ast.FunctionDef)), script.tree
    )
    inside = _calls(guard, "step")
    if not all(isinstance(part, _PURE) for part in parts) or not names & targets:
        return "the condition is not one on the number of the batch"
    if names & given:
        return f"{sorted(names & given)[0]} changes before the condition"
    if any(isinstance(part, ast.Attribute) and part.attr in _READS for part in others):
        return "gradients are read before"
    if len(_calls(around, "step")) > len(inside):
        return "the optimizer steps elsewhere, too"
    return ""


def _is_length(script: Script, node: ast.AST) -> bool:
    """`len(loader)`, and the name in front of it."""
    call = node if isinstance(node, ast.Call) else script.get_parent(node)
    return (
        isinstance(call, ast.Call)
        and script.resolve_name(call.func) == "builtins.len"
        and (node is call or node is call.func)
    )


_NET = "net = Net().cuda()\n"
_LOOP = "for i, x in enumerate(data):\n    loss = net(x) / 4\n    loss.backward()\n"
_SET = f"for i, x in enumerate(data):\n    net.{_SYNC} = {{}}\n    loss = net(x) / 4\n    loss.backward()\n"
_STEP = "        optimizer.step()\n        optimizer.zero_grad()\n"
_ONE, _TWO = "(i + 1) % 4 == 0", "(i + 1) % n == 0 or i + 1 == len(data)"
RULE = Rule(
    code="TP218",
    title="gradients are averaged once for each step of the optimizer (--distributed)",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="Where gradients of several batches are added up, averaging them over the processes after each batch costs "
    "time and changes nothing: the mean of the sums is the sum of the means. The line does what no_sync() does.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    check=on_script(check_script),
    rewrites=(
        (
            f"model = Net().cuda()\n{_LOOP}    if {_ONE}:\n{_STEP}".replace("net", "model"),
            f"model = Net().cuda()\n{_SET.format(_ONE)}    if {_ONE}:\n{_STEP}".replace("net", "model"),
        ),
        (
            f"def train(net, data, n):\n    {_LOOP.replace(chr(10), chr(10) + '    ')}    if {_TWO}:\n"
            f"            optimizer.step()\nmodel = Net().cuda()\ntrain(model, data, 4)\n",
            f"def train(net, data, n):\n    {_SET.format(_TWO).replace(chr(10), chr(10) + '    ')}    if {_TWO}:\n"
            f"            optimizer.step()\nmodel = Net().cuda()\ntrain(model, data, 4)\n",
        ),
    ),
    reports=(
        f"{_NET}{_LOOP}    if {_ONE}:\n{_STEP}optimizer.step()\n".replace("net", "model"),
        f"{_NET}{_LOOP}    i += 1\n    if {_ONE}:\n{_STEP}".replace("net", "model"),
        f"{_NET}{_LOOP}    clip_grad_norm_(net.parameters(), 1)\n    if ready(i):\n{_STEP}".replace("net", "model"),
        f"{_NET}{_LOOP}    torch.nn.utils.clip_grad_norm_(p, 1)\n    if {_ONE}:\n{_STEP}".replace("net", "model"),
        f"{_NET}{_LOOP}    if done:\n{_STEP}".replace("net", "model"),
    ),
    ignores=(
        f"{_NET}{_LOOP}    if {_ONE}:\n{_STEP}",
        # the model is not the one that is wrapped
        f"{_NET}{_LOOP}    optimizer.step()\n".replace("net", "model"),
    ),
)
