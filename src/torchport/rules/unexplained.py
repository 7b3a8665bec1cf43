"""TP195: names that say CUDA and of which no other rule speaks.

Every such name in code is either changed, the subject of another finding, proved harmless with the proof named (a
definition of the project's own), or a finding here. Nothing is left unsaid.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge.api import find_api, load_apis
from torchport.knowledge.libraries import load_libraries
from torchport.rules import CUDA, Rule, Style
from torchport.rules.cuda_library import is_optional
from torchport.rules.plain_words import DEVICE_WORD, PlainWords
from torchport.rules.receivers import FLAGS, Definition
from torchport.source.defined import find_defined_names, says_cuda
from torchport.source.module import Module
from torchport.source.names import Binds
from torchport.source.siblings import find_paired

_PATH = re.compile(
    r"[\w.:~{}*-]*[/\\][^\s]*|[\w.*-]*\.(?:cuh?|cc|cpp|cxx|hp?p?|so|py|pyx|sh|txt|md|json|ya?ml|whl|html?)"
)
_TORCH = re.compile(r"(?:torch|c10|at)(?:\.|::)\S*")


@dataclasses.dataclass(frozen=True, slots=True)
class Mention:
    """One name or word that says CUDA: `proof` that it is harmless, or what is to be said of it."""

    node: ast.expr | ast.stmt
    word: str
    proof: str = ""
    message: str = ""
    severity: Severity = Severity.WARNING


# Methods that optimizers outside of torch call (torch 2.13): they do nothing without a CUDA graph.
_OF_OPTIMIZERS = frozenset({"_cuda_graph_capture_health_check"})


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every mention without a proof; those of which another rule speaks are taken out afterwards."""
    for mention in find_mentions(module):
        if not mention.proof:
            yield RULE.make_finding(
                module,
                mention.node,
                mention.message,
                severity=mention.severity,
                hint="If it is torch's or a library's, find what it is on the NPU; if it is a word, leave it.",
            )


@functools.lru_cache(1)  # asked again for what is left in the file
def find_mentions(module: Module) -> tuple[Mention, ...]:
    """Every mention of CUDA in code: names, attributes, keywords, imports, and strings of one word."""
    return tuple(_mentions(module))


def _mentions(module: Module) -> Iterator[Mention]:
    seen = _Seen(module)
    for name in module.iter_nodes(ast.Name):
        if says_cuda(name.id):
            yield seen.examine_name(name)
    for attribute in module.iter_nodes(ast.Attribute):
        if says_cuda(attribute.attr):
            yield seen.examine_attribute(attribute)
    for call in module.iter_nodes(ast.Call):
        for keyword in call.keywords:
            if keyword.arg is not None and says_cuda(keyword.arg):
                yield seen.examine_keyword(call, keyword)
    for statement in module.iter_nodes(ast.Import):
        for alias in statement.names:
            if says_cuda(alias.name):
                yield seen.examine_import(statement, alias.name, alias.name)
    for origin in module.iter_nodes(ast.ImportFrom):
        source = "." * origin.level + (origin.module or "")
        paired = find_paired({alias.name for alias in origin.names})
        for alias in origin.names:
            if alias.name in paired:
                yield Mention(origin, alias.name, "imported beside its sibling for the NPU")
            elif says_cuda(alias.name) or says_cuda(source):
                joint = "" if source.endswith(".") else "."
                yield seen.examine_import(origin, f"{source}{joint}{alias.name}", source)
    for constant in module.iter_nodes(ast.Constant):
        if isinstance(constant.value, str) and says_cuda(constant.value):
            yield from seen.examine_text(constant)
    definitions: list[Definition] = [
        *module.iter_nodes(ast.FunctionDef),
        *module.iter_nodes(ast.AsyncFunctionDef),
        *module.iter_nodes(ast.ClassDef),
    ]
    for definition in definitions:
        if says_cuda(definition.name):
            yield Mention(definition, definition.name, _here(definition))
    for parameter in module.iter_nodes(ast.arg):
        if says_cuda(parameter.arg):
            yield Mention(parameter, parameter.arg, "a parameter")  # type: ignore[arg-type]


class _Seen:
    """What is known of names in one file."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._plain = PlainWords(module)
        own = module.project.defined
        self._defined: Mapping[str, str] = own or find_defined_names([(module.text.path, module.text.data)])

    def examine_name(self, node: ast.Name) -> Mention:
        bindings = self._module.names.find_bindings(node)
        imported = [binding.target for binding in bindings if binding.how is Binds.IMPORT]
        if len(bindings) > len(imported):
            own = next(binding for binding in bindings if binding.how is not Binds.IMPORT)
            return Mention(node, node.id, _here(own.node))
        if imported:
            return Mention(node, node.id, f"imported from {imported[0]}, of which its import speaks")
        if node.id in self._defined:
            return Mention(node, node.id, self._defined[node.id])
        return Mention(node, node.id, message=f"nothing in the project defines {node.id}")

    def examine_attribute(self, node: ast.Attribute) -> Mention:
        name = self._module.resolve_name(node)
        root = (name or "").partition(".")[0]
        if name is not None and root in load_libraries() and not self._module.project.has_package(root):
            return Mention(node, node.attr, f"{root} is spoken of where it is imported")
        if name is not None and _has_rows(name):
            return Mention(node, node.attr, f"what is used of {name} is spoken of where it is used")
        if name is not None and name.startswith("pytest.mark."):
            return Mention(node, node.attr, "the name of a test's mark")
        held = node.value.attr if isinstance(node.value, ast.Attribute) else ""
        if held in load_libraries():  # self.pynvml.nvmlShutdown()
            return Mention(node, node.attr, f"{held} is spoken of where it is imported")
        if node.attr in _OF_OPTIMIZERS:
            return Mention(node, node.attr, "of torch.optim.Optimizer, where it asks for CUDA first")
        if root != "torch" and node.attr in self._defined:
            return Mention(node, node.attr, self._defined[node.attr])
        what = name or f".{node.attr}"
        message = f"nothing is known about {what} on the NPU"
        return Mention(node, node.attr, message=message, severity=self._severity(node, name))

    def _severity(self, node: ast.Attribute, name: str | None) -> Severity:
        """A value that is only read from an object of the project is an option by all signs; what is called is not."""
        above = self._module.get_parent(node)
        called = isinstance(above, ast.Call) and above.func is node
        method = node.attr in ("cuda", "is_cuda") and FLAGS.fullmatch(self._module.get_source(node.value)) is None
        return Severity.WARNING if name is not None or called or method else Severity.INFO

    def examine_keyword(self, call: ast.Call, keyword: ast.keyword) -> Mention:
        word = str(keyword.arg)
        name = self._module.resolve_name(call.func) or ""
        root = name.partition(".")[0]
        if root != "torch" and self._defined.get(word, "").startswith("defined"):
            return Mention(keyword.value, word, self._defined[word])
        row = find_api(name)
        if row is not None and word in row[0].arguments:
            return Mention(keyword.value, word, f"an argument of {name}, of which its call speaks")
        if root == "builtins":
            return Mention(keyword.value, word, f"a key of {name.partition('.')[2]}")
        who = name or self._module.get_source(call.func)[:60]
        message = f"nothing is known about the argument {word} of {who} on the NPU"
        severity = Severity.WARNING if root == "torch" else Severity.INFO
        return Mention(keyword.value, word, message=message, severity=severity)

    def examine_import(self, node: ast.Import | ast.ImportFrom, name: str, source: str) -> Mention:
        root = name.partition(".")[0]
        project = self._module.project
        if root in load_libraries() and not project.has_package(root):
            return Mention(node, name, f"{root} has its own finding, or works")
        if _has_rows(name):
            return Mention(node, name, f"what is used of {name} is spoken of where it is used")
        own = project.outside is not None and project.outside.is_projects(self._module.text.path, source)
        last = name.rpartition(".")[2]
        if own or source.startswith("."):
            for dotted in (source, name):
                if says_cuda(dotted.rpartition(".")[2]) and self._is_compiled(dotted):
                    message = f"no file of the project defines {dotted.lstrip('.')}: an extension for CUDA, by its name"
                    optional = is_optional(self._module, node)
                    severity = Severity.INFO if optional else Severity.WARNING
                    return Mention(node, name, message=message, severity=severity)
        if own or source.startswith(".") or project.has_package(root) or (root != "torch" and last in self._defined):
            return Mention(node, name, "imported from the project itself")
        return Mention(node, name, message=f"nothing is known about {name} on the NPU")

    def _is_compiled(self, name: str) -> bool:
        """Whether a name that is imported from the project is neither a file of it nor bound in one."""
        outside, path = self._module.project.outside, self._module.text.path
        if outside is None:
            return False
        last = name.rpartition(".")[2]
        parent = name.removesuffix(last)
        parent = parent[:-1] if parent.strip(".") else parent
        found = outside.locate_name(path, name)
        if not parent or (found is not None and not found[1]):
            return False
        above = outside.locate_name(path, parent)
        if above is None or above[1]:
            return False  # nothing is known of what it is imported from
        module = next(outside.find_modules(self._module, parent), None)
        if module is None:
            return False  # it cannot be parsed
        bound = module.names.scopes[module.tree].bindings
        return not (
            last in bound or "__getattr__" in bound or module.names.stars or any(above[0].parent.glob(f"{last}.py*"))
        )

    def examine_text(self, node: ast.Constant) -> Iterator[Mention]:
        module, text = self._module, str(node.value)
        above = module.get_parent(node)
        around = above if isinstance(above, ast.JoinedStr) else node
        if isinstance(module.get_parent(around), ast.Expr):
            return  # a docstring
        whole = text if around is node else module.get_source(around)
        if len(whole.split()) > 1:
            yield Mention(around, text, "a part of a message")
            return
        word = re.sub(r"^-+", "", text).replace("-", "_")
        if shown := self._plain.explain_text(around):
            yield Mention(around, text, shown)
        elif _TORCH.match(text):
            message = f"{text!r} names a thing of torch's in a text, which nothing here looks up"
            yield Mention(around, text, message=message)
        elif word in self._defined and not DEVICE_WORD.fullmatch(text):
            yield Mention(around, text, self._defined[word])
        elif _PATH.fullmatch(text) or "://" in text:
            yield Mention(around, text, "a path")
        else:
            message = f"the text {text[:60]!r} says CUDA, and nothing shows that it reaches a device or a backend"
            yield Mention(around, text, message=message, severity=Severity.INFO)


@functools.cache
def _has_rows(module: str) -> bool:
    """Whether the interface table speaks of names in a module of torch's."""
    return any(name.startswith(f"{module}.") for name in load_apis())


def _here(node: ast.AST) -> str:
    return f"defined in line {getattr(node, 'lineno', 1)}"


RULE = Rule(
    code="TP195",
    title="names that say CUDA and of which nothing is known",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="A name that says CUDA and that the project does not define comes from somebody else, and nobody has looked at "
    "what it does on an NPU.",
    reference="https://github.com/Ascend/pytorch",
    words=CUDA,
    check=check_module,
    rewrites=(),
    reports=(
        "from torch.testing._internal.common_utils import TEST_CUDA\n",
        "import some_cuda_ext\nsome_cuda_ext.run()\n",
        "run(use_cuda=True)\n",
        "name = 'cuda_kernels'\n",
        "import torch\ntorch.utils.cuda_thing()\n",
    ),
    ignores=(
        "def use_cuda():\n    return False\nif use_cuda():\n    pass\n",
        "p.add_argument('--cuda', action='store_true')\nif p.parse_args().cuda:\n    pass\n",
    ),
)
