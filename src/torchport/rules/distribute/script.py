"""A script that is to run on several devices: which loader reaches which loop, and which loop trains."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
from collections.abc import Iterator

from torchport.findings import Edit
from torchport.source.definitions import Definitions
from torchport.source.module import Module
from torchport.source.names import Binding, Binds, Function

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
# What iterates over its arguments, or is them with something around.
_PASSES_ON = frozenset(
    {
        "builtins.enumerate", "builtins.iter", "builtins.zip", "builtins.next", "itertools.islice", "itertools.cycle",
        "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.std.tqdm", "rich.progress.track",
    }
)  # fmt: skip
_DEPTH = 6  # calls from an epoch loop down to the loop over batches


@dataclasses.dataclass(frozen=True, slots=True)
class BatchLoop:
    """A loop over loaders. `trains`: its body calls `backward` and `step`; `always`: `backward` under no condition."""

    node: ast.For | ast.AsyncFor
    loaders: frozenset[ast.Call]
    trains: bool
    always: bool


@dataclasses.dataclass(frozen=True, slots=True)
class EpochLoop:
    """A loop around a loop over batches, and the text that means the loader in its body; None where none does."""

    node: ast.For | ast.AsyncFor
    loader: str | None


class Script(Module):
    """The parsed main file. `model` is the variable (or attribute) that holds the model."""

    def __init__(self, path: str, data: bytes, model: str, project: Definitions | None = None) -> None:
        super().__init__(path, data, project)
        self.model = model

    @property
    def is_distributed(self) -> bool:
        """Whether the script makes a process group itself."""
        return any(
            (self.qualified(call.func) or "").endswith("init_process_group") for call in self.all(ast.Call)
        )

    @functools.cached_property
    def loaders(self) -> tuple[ast.Call, ...]:
        """Every place where a DataLoader is made."""
        return tuple(call for call in self.all(ast.Call) if self.qualified(call.func) in LOADERS)

    @functools.cached_property
    def batch_loops(self) -> tuple[BatchLoop, ...]:
        """Every loop over a loader of this file."""
        loops: list[ast.For | ast.AsyncFor] = [*self.all(ast.For), *self.all(ast.AsyncFor)]
        found = []
        for loop in loops:
            if loaders := self.sources(loop.iter):
                calls = list(self._calls(loop.body, False, ()))
                backward = [sure for name, sure in calls if name == "backward"]
                steps = any(name == "step" for name, _ in calls)
                found.append(BatchLoop(loop, loaders, bool(backward) and steps, any(backward)))
        return tuple(found)

    def _calls(
        self, body: list[ast.stmt], conditional: bool, inside: tuple[Function, ...]
    ) -> Iterator[tuple[str, bool]]:
        """Names of the methods that the statements call, through functions of this file, and whether always."""
        for node in itertools.chain.from_iterable(map(ast.walk, body)):
            if not isinstance(node, ast.Call):
                continue
            around = itertools.takewhile(lambda above: above not in body, self.names.ancestors(node))
            top = [above for above in self.names.ancestors(node) if above in body]
            unsure = conditional or any(isinstance(above, ast.If) for above in [*around, *top[:1]])
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr, not unsure
            function = self.flow.function_called(node)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function not in inside:
                yield from self._calls(function.body, unsure, (*inside, function))

    # -- where values come from ------------------------------------------------------------------------------------

    def sources(self, node: ast.expr) -> frozenset[ast.Call]:
        """The calls of DataLoader whose result the expression may be, or iterate over."""
        return frozenset(self._sources(node, set()))

    def _sources(self, node: ast.expr, seen: set[ast.expr]) -> Iterator[ast.Call]:
        if node in seen:
            return
        seen.add(node)
        if isinstance(node, ast.Call):
            yield from self._sources_of_call(node, seen)
        elif isinstance(node, ast.IfExp):
            yield from self._sources(node.body, seen)
            yield from self._sources(node.orelse, seen)
        elif isinstance(node, ast.Subscript):
            yield from self._sources(node.value, seen)
        elif isinstance(node, ast.Dict | ast.List | ast.Tuple):
            for part in node.values if isinstance(node, ast.Dict) else node.elts:
                yield from self._sources(part, seen)
        elif isinstance(node, ast.DictComp):
            yield from self._sources(node.value, seen)
        elif isinstance(node, ast.Name):
            for binding in self.names.bindings(node):
                for value in self._values(node, binding):
                    yield from self._sources(value, seen)
        elif isinstance(node, ast.Attribute):
            for assign in self.all(ast.Assign):
                for target in assign.targets:
                    if isinstance(target, ast.Attribute) and self.flow.same(target, node):
                        yield from self._sources(assign.value, seen)

    def _sources_of_call(self, node: ast.Call, seen: set[ast.expr]) -> Iterator[ast.Call]:
        if node in self.loaders:
            yield node
        elif self.qualified(node.func) in _PASSES_ON:
            for argument in node.args:
                yield from self._sources(argument, seen)
        else:
            for value in self._returned(node):
                yield from self._sources(value, seen)

    def _returned(self, node: ast.Call) -> Iterator[ast.expr]:
        function = self.flow.function_called(node)
        if isinstance(function, ast.FunctionDef) and function.name != "__init__":
            for part in ast.walk(function):
                if isinstance(part, ast.Return) and part.value is not None:
                    yield part.value

    def _values(self, name: ast.Name, binding: Binding) -> Iterator[ast.expr]:
        """The expressions that a binding may give to a name."""
        if binding.how in (Binds.VALUE, Binds.ELEMENT) and binding.value is not None:
            yield binding.value
        elif binding.how is Binds.PARAMETER and isinstance(binding.node, ast.arg):
            for call, function in self.calls:
                if (value := self.argument(call, function, binding.node)) is not None:
                    yield value
        elif isinstance(binding.node, ast.Assign) and isinstance(binding.value, ast.Call):
            yield from self._parts(name.id, binding.node.targets[0], binding.value)

    def _parts(self, name: str, target: ast.expr, call: ast.Call) -> Iterator[ast.expr]:
        """`a, b = f()`: what `f` gives back at the place of a name."""
        names = [part.id if isinstance(part, ast.Name) else "" for part in getattr(target, "elts", [])]
        if name in names:
            for value in self._returned(call):
                if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(names):
                    yield value.elts[names.index(name)]

    @functools.cached_property
    def calls(self) -> tuple[tuple[ast.Call, Function], ...]:
        """Every call that runs a function of this file, with the function."""
        pairs = [(call, self.flow.function_called(call)) for call in self.all(ast.Call)]
        return tuple((call, function) for call, function in pairs if function is not None)

    def argument(self, call: ast.Call, function: Function, parameter: ast.arg) -> ast.expr | None:
        """What a call passes for a parameter of the function it runs."""
        for keyword in call.keywords:
            if keyword.arg == parameter.arg and parameter in (*function.args.args, *function.args.kwonlyargs):
                return keyword.value
        names = [*function.args.posonlyargs, *function.args.args]
        if isinstance(self.parent(function), ast.ClassDef):
            names = names[1:]
        index = names.index(parameter) if parameter in names else len(call.args)
        return call.args[index] if index < len(call.args) else None

    # -- epochs ----------------------------------------------------------------------------------------------------

    def epoch_loops(self, loop: BatchLoop, loader: ast.Call) -> tuple[EpochLoop, ...]:
        """The innermost loops around a loop over batches, through the functions that call it."""
        leaves = [node for node in ast.walk(loop.node.iter) if self._is_leaf(node, loader)]
        leaf = leaves[0] if leaves and isinstance(leaves[0], ast.expr) else None
        return tuple(self._around(loop.node, leaf, loader, _DEPTH))

    def _is_leaf(self, node: ast.AST, loader: ast.Call) -> bool:
        return isinstance(node, ast.Name | ast.Attribute) and loader in self.sources(node)

    def _around(
        self, node: ast.AST, leaf: ast.expr | None, loader: ast.Call, depth: int
    ) -> Iterator[EpochLoop]:
        for above in self.names.ancestors(node):
            if isinstance(above, ast.For | ast.AsyncFor) and loader not in self.sources(above.iter):
                visible = leaf is not None and not self._made_inside(above, leaf)
                yield EpochLoop(above, self.source(leaf) if visible and leaf is not None else None)
                return
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
                for call, function in self.calls if depth else ():
                    if function is above:
                        yield from self._around(call, self._outside(leaf, call, above), loader, depth - 1)
                return

    def _made_inside(self, loop: ast.For | ast.AsyncFor, leaf: ast.expr) -> bool:
        """Whether a name gets its value in the loop, so that it does not mean the loader at the loop's head."""
        if not isinstance(leaf, ast.Name):
            return False
        return any(loop in self.names.ancestors(binding.node) for binding in self.names.bindings(leaf))

    def _outside(self, leaf: ast.expr | None, call: ast.Call, function: Function) -> ast.expr | None:
        """What means the loader where the function is called; None where nothing does."""
        if isinstance(leaf, ast.Name):
            found = self.names.bindings(leaf)
            if len(found) == 1 and isinstance(found[0].node, ast.arg):
                return self.argument(call, function, found[0].node)
            owner = self.names.scope_of(leaf).owner(leaf.id)
            return leaf if owner is not None and owner.is_module else None
        if isinstance(leaf, ast.Attribute) and isinstance(leaf.value, ast.Name) and leaf.value.id == "self":
            method = call.func
            own = isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name)
            return leaf if own and self.source(method.value) == "self" else None  # type: ignore[attr-defined]
        return None

    # -- text ------------------------------------------------------------------------------------------------------

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements among which a statement stands."""
        above = self.parent(statement)
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(above, name, None)
            if isinstance(statements, list) and statement in statements:
                return statements
        return [statement]

    def indent(self, statement: ast.stmt) -> str | None:
        """The white space in front of a statement; None where it shares its line with another."""
        start, _ = self.text.span(statement)
        _, line = self.text.line_at(start)
        before = self.text.slice(line, start)
        last = self.text.lines[(statement.end_lineno or 1) - 1].encode(self.text.encoding, "replace")
        _, end = self.text.span(statement)
        _, end_line = self.text.line_at(end)
        rest = self.text.slice(end, end_line + len(last)).strip()
        return before if not before.strip() and (not rest or rest.startswith("#")) else None

    def append_argument(self, call: ast.Call, argument: str) -> Edit:
        """One more argument at the end of a call that has some, whether a comma follows them or not."""
        parts: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        end = max(self.text.span(part)[1] for part in parts)
        return Edit(end, end, f", {argument}".encode(self.text.encoding))

    def insert_before(self, statement: ast.stmt, *lines: str) -> Edit | None:
        """Lines of their own in front of a statement; None where it shares its line with another."""
        indent = self.indent(statement)
        if indent is None or getattr(statement, "decorator_list", None):
            return None
        start, _ = self.text.span(statement)
        text = "".join(line + self.text.newline + indent for line in lines)
        return Edit(start, start, text.encode(self.text.encoding))

    def insert_after(self, statement: ast.stmt, *lines: str) -> Edit | None:
        """Lines of their own after a statement; None where it shares its line with another."""
        indent = self.indent(statement)
        if indent is None:
            return None
        _, end = self.text.span(statement)
        _, line = self.text.line_at(end)
        last = self.text.lines[(statement.end_lineno or 1) - 1].rstrip("\r\n")
        end = line + len(last.encode(self.text.encoding))
        text = "".join(self.text.newline + indent + one for one in lines)
        return Edit(end, end, text.encode(self.text.encoding))
