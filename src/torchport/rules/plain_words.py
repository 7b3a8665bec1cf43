"""What the word "cuda" is where it is no device: a label, a message, the name of a parameter.

Only what the file proves. A word whose value leaves the file may be a device there, and a person has to look.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import sys
from collections.abc import Hashable, Iterator, Mapping

from torchport.source.flow import is_command_line
from torchport.source.module import Module

# Words that stand beside "cuda" where devices or backends are meant.
DEVICE_WORD = re.compile(
    r"(?:cpu|gpu|cuda|mps|xpu|hpu|npu|mlu|musa|mtia|xla|tpu|meta|hip|rocm|vulkan|privateuseone|auto|any|all|none|"
    r"default|native|nccl|gloo|mpi|ucc|hccl|)(?::.*)?",
    re.IGNORECASE,
)
_SHOWN = frozenset({"label", "title", "id", "ids", "desc", "description", "help", "metavar", "msg", "message"})
_LOGGERS = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "fatal"})
_SHOWS = frozenset({"builtins.print", "warnings.warn", "pytest.skip", "pytest.fail", "pytest.xfail", "sys.exit"})
_PATHS = ("os.path.", "pathlib.", "glob.", "shutil.", "builtins.open", "os.listdir", "os.makedirs", "os.mkdir")
_NAME_LISTS = frozenset({"__all__", "__slots__", "__match_args__"})
_SETTERS = frozenset({"setattr", "delattr"})
_BUILDERS = frozenset({"setuptools", "distutils", "skbuild"})
# Modules by which a word may reach another program, or a file that one reads.
_LEAVES = frozenset(
    {"argparse", "asyncio", "builtins", "concurrent", "configparser", "csv", "importlib", "json", "multiprocessing"}
    | {"os", "pathlib", "pickle", "runpy", "shelve", "socket", "sqlite3", "subprocess", "sys"}
)


class PlainWords:
    """The words of one file that name no device."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def explain_word(self, node: ast.expr) -> str:
        """What the word at `node` is, such as "the text of an error"; empty where it may be a device."""
        reason = self.explain_text(node) or self._collected(node) or self._compared(node)
        if not reason and self._builds:
            reason = "a variant of the build"
        elif not reason and self._is_alone:
            reason = "the file uses no torch, and no other file uses it"
        return reason

    def explain_text(self, node: ast.expr) -> str:
        """What the text at `node` is for where it goes right to a person, a path or a name; empty elsewhere."""
        module, inner, above = self._module, node, self._module.get_parent(node)
        while isinstance(above, ast.IfExp | ast.JoinedStr | ast.FormattedValue | ast.BinOp) or (
            isinstance(above, ast.List | ast.Tuple) and isinstance(module.get_parent(above), ast.Call | ast.keyword)
        ):
            if isinstance(above, ast.IfExp) and above.test is inner:
                break
            inner, above = above, module.get_parent(above)
        match above:
            case ast.Assert(msg=message) if message is inner:
                return "the text of an error"
            case ast.keyword(arg=str(name)) if name in _SHOWN:
                return "a text that is shown"
            case ast.Subscript(slice=word) if word is inner and f"--{_text(word)}" in self._options:
                return "the name of an option"  # vars(args)["cuda"]
            case ast.Call():
                return self._argument(above, inner)
            case _:
                return ""

    @functools.cached_property
    def _options(self) -> frozenset[str]:
        """The options that the file gives a command line."""
        calls = self._module.iter_nodes(ast.Call)
        return frozenset(_text(word) for call in calls if _is_add_argument(call) for word in call.args)

    @functools.cached_property
    def _builds(self) -> bool:
        """Whether the file builds a package: `setup.py`."""
        return any(binding.target.split(".")[0] in _BUILDERS for binding in self._module.names.iter_imports())

    @functools.cached_property
    def _is_alone(self) -> bool:
        """Whether nothing of the file reaches torch: it is a script that imports the standard library only, nothing of
        it that starts programs or writes files, and no other file imports it."""
        module = self._module
        if module.project.outside is None or module.project.importers.get(module.text.path):
            return False  # a text without its project may be a part of anything
        if not any(isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) for one in _run(module.tree)):
            return False  # settings, which somebody reads
        roots = {binding.target.lstrip(".").partition(".")[0] for binding in module.names.iter_imports()}
        if not roots <= sys.stdlib_module_names - _LEAVES or roots & module.project.provided:
            return False
        return not any(module.resolve_name(call.func) == "builtins.open" for call in module.iter_nodes(ast.Call))

    def _argument(self, call: ast.Call, node: ast.AST) -> str:
        module = self._module
        name = module.resolve_name(call.func) or ""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if node not in call.args:
            return ""
        if name in _SHOWS or (method in _LOGGERS and not name.startswith("torch.")):
            return "a text that is shown"
        if _is_exception(name):
            return "the text of an error"
        if name == "logging.getLogger":
            return "the name of a logger"
        if name.startswith(_PATHS):
            return "a part of a path"
        if method == "add_argument" and isinstance(node, ast.Constant):
            return "the name of an option"
        sets = name.removeprefix("builtins.") in _SETTERS or method in _SETTERS
        if sets and node in call.args[1:2] and not (module.resolve_name(call.args[0]) or "").startswith("torch"):
            return "the name of an attribute"
        if name.startswith("pytest.mark.") and "parametrize" not in name:
            return "the name of a test's mark"
        return ""

    def _collected(self, node: ast.expr) -> str:
        """A word of a list of names, or a key of a table of parameters."""
        module, above = self._module, self._module.get_parent(node)
        if isinstance(above, ast.List | ast.Tuple | ast.Set):
            outer = module.get_parent(above)
            if isinstance(outer, ast.Assign | ast.AugAssign):
                targets = outer.targets if isinstance(outer, ast.Assign) else [outer.target]
                if any(isinstance(target, ast.Name) and target.id in _NAME_LISTS for target in targets):
                    return "a name of this module"
            if not is_command_line(above) and _other_things(above.elts):
                return "one of several names"
        if isinstance(above, ast.Dict) and node in above.keys:
            if any(self._is_unpacked(above)):
                return "the name of a parameter"
            words = [key for key in above.keys if key is not None]
            if _other_things(words):
                return "one of several names"
            value = above.values[above.keys.index(node)]
            if len(words) == 1 and isinstance(value, ast.Constant) and isinstance(value.value, bool):
                return "the name of a switch"
        return ""

    def _is_unpacked(self, table: ast.Dict) -> list[ast.AST]:
        """The calls that are given the table's values as keywords: `f(**table)`."""
        module = self._module
        root = module.flow.find(table)
        return [
            keyword
            for keyword in module.iter_nodes(ast.keyword)
            if keyword.arg is None and (keyword.value is table or module.flow.find(keyword.value) == root)
        ]

    def _compared(self, node: ast.expr) -> str:
        """A word whose value is one of several things that are no devices, as an option's choices say."""
        words = self._values.get(self._module.flow.find(node), frozenset())
        others = [word for word in words if not DEVICE_WORD.fullmatch(word)]
        devices = [word for word in words if DEVICE_WORD.fullmatch(word) and not word.startswith("cuda")]
        return "one of several names" if others and not devices else ""

    @functools.cached_property
    def _values(self) -> Mapping[Hashable, frozenset[str]]:
        found: dict[Hashable, set[str]] = {}
        for constant in self._module.iter_nodes(ast.Constant):
            if isinstance(constant.value, str):
                found.setdefault(self._module.flow.find(constant), set()).add(constant.value)
        return {key: frozenset(words) for key, words in found.items()}


def _run(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run when the file does."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        for one in ast.iter_child_nodes(waiting.pop()):
            if isinstance(one, ast.stmt) and not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield one
                waiting.append(one)


def _other_things(nodes: list[ast.expr]) -> bool:
    """Whether words stand beside each other of which some are no devices, and none is one but "cuda"."""
    words = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if len(words) < len(nodes):
        return False
    others = [word for word in words if not word.startswith("cuda")]
    return bool(others) and not any(DEVICE_WORD.fullmatch(word) for word in others)


def _is_exception(name: str) -> bool:
    if name.rpartition(".")[2].endswith(("Error", "Exception", "Warning", "Exit")):
        return True
    kind = getattr(builtins, name.removeprefix("builtins."), None)
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _is_add_argument(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
