"""Arguments of calls that have another name, or no counterpart, on the NPU: the interface table says which."""

from __future__ import annotations

import ast

from torchport.findings import Edit
from torchport.knowledge.api import Api
from torchport.source.module import Module


def argument_edits(module: Module, call: ast.Call, row: Api) -> tuple[list[Edit | None], str]:
    """The edits that give a call of a row's name the NPU's arguments, and what cannot be said there (else empty)."""
    edits: list[Edit | None] = []
    positional = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    if row.fills and (len(call.args) > 1 or call.keywords):
        return _filled(module, call)
    if row.positions is not None and len(positional) > row.positions:
        return [], f"its {_ORDINALS[min(row.positions, 4)]} argument is another one there"
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg not in row.arguments:
            continue
        new = row.arguments[keyword.arg]
        if not new:
            return [], f"it takes no {keyword.arg}"
        start, _ = module.text.span(keyword.value)
        edits.append(_word_before(module, start, keyword.arg, new))
    return edits, ""


_ORDINALS = ("first", "second", "third", "fourth", "fifth")


def _filled(module: Module, call: ast.Call) -> tuple[list[Edit | None], str]:
    """`range("step {}", 3)` as `annotate("step {}".format(3))`: what follows the text fills it."""
    text = call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else None
    rest = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    if text is None:
        words = {keyword.arg: keyword.value for keyword in call.keywords}
        if list(words) == ["msg"]:
            return [_word_before(module, module.text.span(words["msg"])[0], "msg", "message")], ""
        return [], "what fills its text would be its stream"
    _, end = module.text.span(text)
    _, last = module.text.span(call)
    between = module.text.decode_range(end, module.text.span(rest[0])[0])
    comma = between.find(",")
    if comma < 0 or between[:comma].strip() or not isinstance(text, ast.Constant | ast.JoinedStr | ast.Name):
        return [], "what fills its text would be its stream"
    start = end + comma
    width = len(between[comma:]) - len(between[comma + 1 :].lstrip())
    return [Edit(end, start + width, b".format("), Edit(last - 1, last - 1, b")")], ""


def _word_before(module: Module, start: int, old: str, new: str) -> Edit | None:
    """Replace the keyword `old` of the value that starts at `start`."""
    before = module.text.decode_range(max(0, start - 200), start).rstrip()
    if not before.endswith("="):
        return None
    name = before[:-1].rstrip()
    if not name.endswith(old):
        return None
    text = module.text.decode_range(max(0, start - 200), start)
    place = start - len(text[len(name) - len(old) :].encode(module.text.encoding))
    return Edit(place, place + len(old), new.encode())
