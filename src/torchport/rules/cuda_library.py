"""TP401: packages that are made for CUDA."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import TypeGuard

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge.libraries import Library, Support, load_libraries
from torchport.rules import CUDA, Rule, Style
from torchport.rules.branches import is_negated, leaves
from torchport.source.module import Module
from torchport.source.names import Binds

_SEVERITY = {
    Support.WORKS: Severity.INFO,
    Support.PORT: Severity.WARNING,
    Support.REPLACE: Severity.ERROR,  # nobody can install it, or each use of it fails
    Support.UNSUPPORTED: Severity.ERROR,
}
_SAYS = {
    Support.WORKS: "works on an NPU",
    Support.PORT: "needs its Ascend version",
    Support.REPLACE: "has to be replaced on an NPU",
    Support.UNSUPPORTED: "does not exist on an NPU",
}

_ANOTHER_DEVICE = re.compile(r"""['"](?:mlu|xpu|hpu|musa|mtia|mps|tpu|xla)\b|\bis_(?:mlu|xpu|hpu|musa|mps|tpu)_""")
_ASKS = re.compile(r"available|installed|find_spec|has_|TYPE_CHECKING", re.IGNORECASE)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """One finding per package at its first import, and one per use of a function that needs more to be said."""
    imports: dict[str, list[ast.stmt]] = {}
    for statement in module.iter_nodes(ast.Import):
        for root in {alias.name.partition(".")[0] for alias in statement.names}:
            imports.setdefault(root, []).append(statement)
    for origin in module.iter_nodes(ast.ImportFrom):
        if origin.level == 0:
            imports.setdefault((origin.module or "").partition(".")[0], []).append(origin)
    for root, statements in imports.items():
        library = load_libraries().get(root)
        if library is None or module.project.has_package(root):
            continue
        if library.status is not Support.WORKS or library.install:
            yield _import(module, sorted(statements, key=lambda one: one.lineno), library)
            for one in statements:
                yield from (_report(module, one, library, use) for use in _packages(one, library))
        else:  # only parts of it have to be spoken of
            for one in statements:
                for use in sorted(_imported(one) & set(library.uses)):
                    yield _report(module, one, library, use)
    for call in module.iter_nodes(ast.Call):
        yield from _use(module, call, call.func)
    for function in module.iter_nodes(ast.FunctionDef):
        for decorator in function.decorator_list:
            yield from _use(module, decorator, decorator)


def _import(module: Module, statements: list[ast.stmt], library: Library) -> Finding:
    severities = [_severity(module, statement, library) for statement in statements]
    severity = min(severities, key=list(Severity).index)
    optional = severity is Severity.INFO and library.status is not Support.WORKS
    first = statements[severities.index(severity)]
    times = f" (imported {len(statements)} times here)" if len(statements) > 1 else ""
    finding = RULE.make_finding(
        module,
        first,
        f"{library.name} {_SAYS[library.status]}" + (", and the script can do without it" if optional else "") + times,
        hint=_hint(library),
        severity=severity,
        link=library.link,
    )
    return dataclasses.replace(finding, evidence={**finding.evidence, "library": library.name})


def _severity(module: Module, node: ast.stmt, library: Library) -> Severity:
    if is_optional(module, node):
        return Severity.INFO
    severity = Severity.WARNING if library.monitors else _SEVERITY[library.status]
    if severity is Severity.ERROR and not module.names.scope_of(node).is_module:
        return Severity.WARNING  # only the function that imports it cannot run
    return severity


def _use(module: Module, node: ast.expr, function: ast.expr) -> Iterator[Finding]:
    name = module.resolve_name(function)
    library = load_libraries().get((name or "").partition(".")[0])
    if name is None or library is None or module.project.has_package(library.name):
        return
    for use in library.uses:
        # A name is found where its package defines it or re-exports it: flash_attn.flash_attn_interface.flash_attn_func
        # One that is a submodule's is no other's: numba.jit is not numba.cuda.jit.
        inside = set(use.split(".")[1:-1]) <= set(name.split("."))
        if name == use or (inside and name.rpartition(".")[2] == use.rpartition(".")[2]):
            yield _report(module, node, library, use, optional=_is_chosen(module, node, function))


def _is_chosen(module: Module, node: ast.expr, function: ast.expr) -> bool:
    """Whether a condition decides on the use that is false where the import failed: `if HAS_FLASH_ATTN:`."""
    while isinstance(function, ast.Attribute | ast.Call):
        function = function.value if isinstance(function, ast.Attribute) else function.func
    if not isinstance(function, ast.Name):
        return False
    told: set[str] = set()  # the names that tell whether the import succeeded
    for binding in module.names.find_bindings(function):
        tried = next((one for one in module.names.iter_ancestors(binding.node) if isinstance(one, ast.Try)), None)
        imported = isinstance(binding.node, ast.stmt) and binding.how is Binds.IMPORT
        if imported and (tried is None or not is_optional(module, binding.node)):
            return False
        parts = [tried, *tried.handlers] if tried is not None else []
        told |= {name.id for one in parts for name in ast.walk(one) if _is_set(name)} | {function.id}
    inner: ast.AST = node
    for above in module.names.iter_ancestors(node):
        if isinstance(above, ast.If | ast.IfExp):
            opened = above.body if isinstance(above, ast.If) else [above.body]
            if (inner in opened) != is_negated(above.test) and inner is not above.test and _asks(above.test, told):
                return True
        if isinstance(inner, ast.stmt):  # `if not HAS_FLASH_ATTN: return ...` further up
            block = module.find_block(inner)
            before = block[: block.index(inner)] if inner in block else []
            if any(_goes_on(one) and is_negated(one.test) and _asks(one.test, told) for one in before if _is_if(one)):
                return True
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        inner = above
    return False


def _is_if(node: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If)


def _goes_on(choice: ast.If) -> bool:
    """Whether the block ends by leaving for another way, not for an error."""
    return leaves(choice) and not isinstance(choice.body[-1], ast.Raise)


def _is_set(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _asks(test: ast.expr, names: set[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(test))


def _imported(statement: ast.stmt) -> set[str]:
    """The dotted names that an import statement brings."""
    if isinstance(statement, ast.ImportFrom):
        return {f"{statement.module}.{alias.name}" for alias in statement.names} | {statement.module or ""}
    return {alias.name for alias in statement.names} if isinstance(statement, ast.Import) else set()


def _packages(statement: ast.stmt, library: Library) -> list[str]:
    """The packages of the library of which `uses` speaks as a whole and that a statement imports from."""
    names = _imported(statement)
    return sorted(use for use in library.uses if any(name.startswith(f"{use}.") for name in names))


def _report(
    module: Module, node: ast.expr | ast.stmt, library: Library, use: str, *, optional: bool = False
) -> Finding:
    severity = Severity.INFO if optional else Severity.ERROR if use in library.blocks else Severity.WARNING
    says = "is different" if library.status is Support.WORKS else "is not there"
    otherwise = ", and the script can do without it" if optional else ""
    return RULE.make_finding(
        module,
        node,
        f"{use} {says} on an NPU{otherwise}",
        hint=library.uses[use],
        severity=severity,
        link=library.link,
        evidence={"library": library.name} if severity is Severity.ERROR else {},
    )


def _hint(library: Library) -> str:
    return f"{library.note} Install: {library.install}" if library.install else library.note


def is_optional(module: Module, node: ast.AST) -> bool:
    """Whether the script asks first (`if is_x_available()`) or goes on without (`try: import x`)."""
    inner: ast.AST = node
    for above in module.names.iter_ancestors(node):
        if isinstance(above, ast.If) and inner in above.body:
            test = ast.unparse(above.test)
            if _ASKS.search(test) or _ANOTHER_DEVICE.search(test):
                return True
        if isinstance(above, ast.Try) and inner in above.body:
            caught = " ".join(ast.unparse(handler.type) if handler.type else "Exception" for handler in above.handlers)
            if re.search("ImportError|ModuleNotFound|Exception", caught):
                return not any(isinstance(last, ast.Raise) for handler in above.handlers for last in handler.body)
        inner = above
    return False


_IMPORTED = re.compile(rb"import[ \t]+([^\r\n#;]*)")  # begins with a word, which makes the search quick
_FROM = re.compile(rb"from[ \t]+(\w+)")


def imports_library(data: bytes) -> bool:
    """Whether a line of source reads like an import of a library of the table."""
    tops = _tops()
    named = not tops.isdisjoint(_FROM.findall(data)) or any(
        not tops.isdisjoint(re.findall(rb"\w+", names)) for names in _IMPORTED.findall(data)
    )  # quicker than the pattern, which is right
    return named and _imports().search(data) is not None


@functools.cache
def _tops() -> frozenset[bytes]:
    return frozenset(name.partition(".")[0].encode() for name in load_libraries())


@functools.cache
def _imports() -> re.Pattern[bytes]:
    packages = "|".join(re.escape(name) for name in load_libraries())
    before = r"(?:^|\"|\\n)[ \t]*(?:import|from)[ \t]+"
    return re.compile(rf"{before}(?:{packages})\b|^[ \t]*import\b.*,[ \t]*(?:{packages})\b".encode(), re.MULTILINE)


RULE = Rule(
    code="TP401",
    title="packages made for CUDA",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="A package with CUDA kernels cannot be installed, or fails at its first call, where there is no GPU.",
    reference="https://github.com/Ascend/pytorch",
    words=CUDA,
    mentions=imports_library,
    check=check_module,
    rewrites=(),
    reports=(
        "import flash_attn\n",
        "from apex import amp\nmodel, opt = amp.initialize(model, opt)\n",
        "try:\n    import xformers.ops\nexcept ImportError:\n    xformers = None\n",
        "from numba import cuda\n",
        "import apex.contrib.layer_norm\n",
    ),
    ignores=("import torchvision\n# cuda\n", "import numpy\n"),
)
