"""A script that is to run on several devices: which loader reaches which loop, and which loop trains."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

from torchport.findings import Edit
from torchport.source.definitions import Definitions
from torchport.source.module import Module
from torchport.source.names import Binding, Binds, Function

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
# What iterates over its arguments, or is them with something around.
_PASSES_ON = frozenset(
    {
        "builtins.enumerate",
        "builtins.iter",
        "builtins.zip",
        "builtins.next",
        "itertools.islice",
        "itertools.cycle",
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "tqdm.notebook.tqdm",
        "tqdm.std.tqdm",
        "rich.progress.track",
    }
)
_DEPTH = 6  # calls from an epoch loop down to the loop over batches


# What is known of the parameters of a function in one call of it: the constants that are passed, or their defaults.
Known = Mapping[str, object]
_UNKNOWN = object()


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """One way in which a place is reached: the call that runs its function, and what is known of its variables.

    `outer` is the way in which the call itself is reached, where that is known.
    """

    call: ast.Call | None = None
    known: Known = dataclasses.field(default_factory=dict)
    outer: Context | None = None


Loop = ast.For | ast.AsyncFor | ast.comprehension


@dataclasses.dataclass(frozen=True, slots=True)
class BatchLoop:
    """A loop over loaders, as one call of its function runs it; none in a generator, which is a part of another loop.

    `trains`: its body calls `backward` and `step`; `always`: `backward` under no condition that is left open.
    `made` are the loaders with the call that gives each: that of DataLoader itself, or of the function that has it.
    `call` runs the function that the loop stands in; None at module level and where nothing calls it.
    """

    node: Loop
    call: ast.Call | None
    made: frozenset[tuple[ast.Call, ast.Call]]
    trains: bool
    always: bool

    @property
    def loaders(self) -> frozenset[ast.Call]:
        return frozenset(loader for loader, _ in self.made)


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
        self.borrowed = 0  # bytes in front that are other files', which other scripts may import, too

    @property
    def is_distributed(self) -> bool:
        """Whether the script makes a process group itself."""
        return any(
            (self.resolve_name(call.func) or "").endswith("init_process_group") for call in self.iter_nodes(ast.Call)
        )

    @functools.cached_property
    def loaders(self) -> tuple[ast.Call, ...]:
        """Every place where a DataLoader is made."""
        return tuple(call for call in self.iter_nodes(ast.Call) if self.resolve_name(call.func) in LOADERS)

    @functools.cached_property
    def batch_loops(self) -> tuple[BatchLoop, ...]:
        """Every loop over a loader of this file, once for each call of its function that brings another loader."""
        loops: list[Loop] = [
            *self.iter_nodes(ast.For),
            *self.iter_nodes(ast.AsyncFor),
            *self.iter_nodes(ast.comprehension),
        ]
        return tuple(dict.fromkeys(found for loop in loops for found in self._as_called(loop)))

    def _as_called(self, loop: Loop) -> Iterator[BatchLoop]:
        around = self._function_around(loop)
        calls = [call for call, function in self.calls if function is around] if around else []
        if calls and loop.iter in self._yielded(around):
            return
        phases = [
            above for above in self.names.iter_ancestors(loop) if isinstance(above, ast.For) and _is_literal(above.iter)
        ]
        words = [[(phase.target, word.value) for word in phase.iter.elts] for phase in phases]  # type: ignore[attr-defined]
        for call, *chosen in itertools.product((*calls, None)[: len(calls) or 1], *words):
            known = self.bind_constants(call, around, {}) if call is not None and around is not None else {}
            known |= {target.id: word for target, word in chosen if isinstance(target, ast.Name)}
            made = frozenset(self._sources(loop.iter, set(), Context(call, known)))
            if made:
                names = list(self._calls(self._body(loop), False, (), known))
                backward = [sure for name, sure in names if name == "backward"]
                steps = any(name == "step" for name, _ in names)
                yield BatchLoop(loop, call, made, bool(backward) and steps, any(backward))

    def _function_around(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        return next((above for above in self.names.iter_ancestors(node) if isinstance(above, functions)), None)

    def _body(self, loop: Loop) -> Sequence[ast.AST]:
        """What runs for each element."""
        if not isinstance(loop, ast.comprehension):
            return loop.body
        whole = self.get_parent(loop)
        made = [whole.key, whole.value] if isinstance(whole, ast.DictComp) else [whole.elt]  # type: ignore[union-attr]
        return [*loop.ifs, *made]

    def _yielded(self, function: Function | None) -> list[ast.expr]:
        """What a generator iterates over to yield: of its loops in which it yields, and of `yield from`."""
        found: list[ast.expr] = []
        for one in ast.walk(function) if function is not None else ():
            if not isinstance(one, ast.Yield | ast.YieldFrom) or self._function_around(one) is not function:
                continue
            found += [one.value] if isinstance(one, ast.YieldFrom) else []
            around = itertools.takewhile(lambda above: above is not function, self.names.iter_ancestors(one))
            found += [above.iter for above in around if isinstance(above, ast.For | ast.AsyncFor)]
        return found

    def _calls(
        self, body: Sequence[ast.AST], conditional: bool, inside: tuple[Function, ...], known: Known
    ) -> Iterator[tuple[str, bool]]:
        """Names of the methods that the statements call, through functions of this file, and whether always."""
        for node in itertools.chain.from_iterable(map(ast.walk, body)):
            if not isinstance(node, ast.Call):
                continue
            around = [node, *itertools.takewhile(lambda above: above not in body, self.names.iter_ancestors(node))]
            around += [above for above in self.names.iter_ancestors(node) if above in body][:1]
            taken = [self._is_taken(one, part, known) for part, one in itertools.pairwise(around)]
            if False in taken:
                continue
            unsure = conditional or None in taken
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr, not unsure
            function = self.classes.function_called(node)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function not in inside:
                passed = self.bind_constants(node, function, known)
                yield from self._calls(function.body, unsure, (*inside, function), passed)

    def _is_taken(self, node: ast.AST, part: ast.AST, known: Known) -> bool | None:
        """Whether the part of a statement runs: only an `if` may leave it out. None where that is open."""
        if not isinstance(node, ast.If) or part is node.test:
            return True
        truth = self.evaluate_expression(node.test, known)
        return None if truth is _UNKNOWN else bool(truth) is (part in node.body)

    def bind_constants(self, call: ast.Call, function: Function, outside: Known) -> dict[str, object]:
        """The constants that a call passes to the function it runs, where `outside` is known at the call."""
        defaults: dict[str, ast.expr] = {}
        bound = self.names.scopes[function].bindings
        names = [*function.args.posonlyargs, *function.args.args]
        for name, default in zip(reversed(names), reversed(function.args.defaults), strict=False):
            defaults[name.arg] = default
        for name, optional in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            defaults |= {name.arg: optional} if optional is not None else {}
        starred = any(isinstance(arg, ast.Starred) for arg in call.args) or any(
            keyword.arg is None for keyword in call.keywords
        )
        found: dict[str, object] = {}
        for name in () if starred else (*names, *function.args.kwonlyargs):
            passed = self.find_argument(call, function, name)
            value = (
                self.evaluate_expression(passed, outside)
                if passed
                else self.evaluate_expression(defaults.get(name.arg), {})
            )
            if value is not _UNKNOWN and len(bound[name.arg]) == 1:
                found[name.arg] = value
        return found

    def find_maker_calls(self, loader: ast.Call) -> tuple[Function | None, list[ast.Call]]:
        """The function that makes a loader in several calls, and these; None where there is one loader only."""
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        around = next((above for above in self.names.iter_ancestors(loader) if isinstance(above, functions)), None)
        sites = [call for call, function in self.calls if function is around]
        given = [call for call in sites if any(loader is one for one, _ in self._sources(call, set(), Context()))]
        return (around, given) if len(given) > 1 else (None, [])

    def evaluate_expression(self, node: ast.expr | None, known: Known, depth: int = _DEPTH) -> object:
        """What an expression of constants, known parameters, `not` and comparisons is; `_UNKNOWN` for others.

        Follows up to `depth` variables that are given one value only.
        """
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                found = self.names.find_bindings(node)
                if node.id in known or not depth or len(found) != 1 or found[0].how is not Binds.VALUE:
                    return known.get(node.id, _UNKNOWN)
                return self.evaluate_expression(found[0].value, known, depth - 1)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.evaluate_expression(operand, known, depth)
                return inner if inner is _UNKNOWN else not inner
            case ast.Compare(
                left=left, ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() as op], comparators=[right]
            ):
                one, other = self.evaluate_expression(left, known, depth), self.evaluate_expression(right, known, depth)
                if _UNKNOWN in (one, other):
                    return _UNKNOWN
                return (one == other) is isinstance(op, ast.Eq | ast.Is)
            case _:
                return _UNKNOWN

    # -- where values come from ------------------------------------------------------------------------------------

    def find_loader_calls(self, node: ast.expr) -> frozenset[ast.Call]:
        """The calls of DataLoader whose result the expression may be, or iterate over."""
        return frozenset(loader for loader, _ in self._sources(node, set(), Context()))

    def _sources(self, node: ast.expr, seen: set[ast.expr], where: Context) -> Iterator[tuple[ast.Call, ast.Call]]:
        """Loaders with the calls that give them, as far as a place that is reached in one way sees them."""
        if node in seen:
            return
        seen.add(node)
        if isinstance(node, ast.Call):
            yield from self._sources_of_call(node, seen, where)
        elif isinstance(node, ast.IfExp):
            yield from self._sources(node.body, seen, where)
            yield from self._sources(node.orelse, seen, where)
        elif isinstance(node, ast.Subscript):
            yield from self._sources(self._entry(node, where.known) or node.value, seen, where)
        elif isinstance(node, ast.Dict | ast.List | ast.Tuple):
            for part in node.values if isinstance(node, ast.Dict) else node.elts:
                yield from self._sources(part, seen, where)
        elif isinstance(node, ast.DictComp):
            yield from self._sources(node.value, seen, where)
        elif isinstance(node, ast.Name):
            for binding in self.names.find_bindings(node):
                outside = (where.outer or Context()) if binding.how is Binds.PARAMETER else where
                for value in self._values(node, binding, where.call):
                    yield from self._sources(value, seen, outside)
        elif isinstance(node, ast.Attribute):
            for assign in self.iter_nodes(ast.Assign):
                for target in assign.targets:
                    for value in self._given(target, assign.value, node):
                        yield from self._sources(value, seen, where)

    def _entry(self, node: ast.Subscript, known: Known) -> ast.expr | None:
        """What `loaders[key]` is where the key is known and one literal gives the table; None where not."""
        key = self.evaluate_expression(node.slice, known)
        table = node.value
        found = self.names.find_bindings(table) if isinstance(table, ast.Name) else []
        if len(found) == 1 and found[0].how is Binds.VALUE and found[0].value is not None:
            table = found[0].value
        for name, entry in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
            if isinstance(name, ast.Constant) and name.value == key:
                return entry
        return None

    def _sources_of_call(
        self, node: ast.Call, seen: set[ast.expr], where: Context
    ) -> Iterator[tuple[ast.Call, ast.Call]]:
        if node in self.loaders:
            yield node, node
        elif self.resolve_name(node.func) in _PASSES_ON:
            for argument in node.args:
                yield from self._sources(argument, seen, where)
        elif yielded := self._yielded(function := self.classes.function_called(node)):
            assert function is not None
            inside = Context(node, self.bind_constants(node, function, where.known), where)
            for value in yielded:
                for loader, call in self._sources(value, set(seen), inside):
                    yield (loader, node if call is loader and self._function_around(loader) is function else call)
        else:
            for value in self._returned(node):
                # Another call of the function gives another loader, so what is seen in this one is its own.
                for loader, call in self._sources(value, set(seen), Context()):
                    yield loader, node if call is loader else call

    def _returned(self, node: ast.Call) -> Iterator[ast.expr]:
        function = self.classes.function_called(node)
        if isinstance(function, ast.FunctionDef) and function.name != "__init__":
            for part in ast.walk(function):
                if isinstance(part, ast.Return) and part.value is not None:
                    yield part.value

    def _values(self, name: ast.Name, binding: Binding, only: ast.Call | None) -> Iterator[ast.expr]:
        """The expressions that a binding may give to a name."""
        if binding.how in (Binds.VALUE, Binds.ELEMENT) and binding.value is not None:
            yield binding.value
        elif binding.how is Binds.PARAMETER and isinstance(binding.node, ast.arg):
            called = [function for call, function in self.calls if call is only]
            for call, function in self.calls:
                if function in called and call is not only:
                    continue
                if (value := self.find_argument(call, function, binding.node)) is not None:
                    yield value
        elif isinstance(binding.node, ast.Assign) and binding.value is not None:
            for target in binding.node.targets:
                yield from self._given(target, binding.value, name)

    def _given(self, target: ast.expr, value: ast.expr, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
        """What `target = value` gives to a name or attribute, which may be a part of the target: `a, b = f()`."""
        if isinstance(target, ast.Attribute) and self._is_same(target, node):
            yield value
        elif isinstance(target, ast.Tuple | ast.List):
            index = next((place for place, one in enumerate(target.elts) if self._is_same(one, node)), None)
            for whole in self._returned(value) if isinstance(value, ast.Call) else [value]:
                same = isinstance(whole, ast.Tuple | ast.List) and len(whole.elts) == len(target.elts)
                if index is not None and same:
                    yield whole.elts[index]  # type: ignore[attr-defined]

    def _is_same(self, target: ast.expr, node: ast.Name | ast.Attribute) -> bool:
        if isinstance(node, ast.Attribute):
            return isinstance(target, ast.Attribute) and self.flow.is_same_value(target, node)
        return isinstance(target, ast.Name) and target.id == node.id

    @functools.cached_property
    def calls(self) -> tuple[tuple[ast.Call, Function], ...]:
        """Every call that runs a function of this file, with the function."""
        pairs = [(call, self.classes.function_called(call)) for call in self.iter_nodes(ast.Call)]
        return tuple((call, function) for call, function in pairs if function is not None)

    def find_argument(self, call: ast.Call, function: Function, parameter: ast.arg) -> ast.expr | None:
        """What a call passes for a parameter of the function it runs."""
        for keyword in call.keywords:
            if keyword.arg == parameter.arg and parameter in (*function.args.args, *function.args.kwonlyargs):
                return keyword.value
        names = [*function.args.posonlyargs, *function.args.args]
        if isinstance(self.get_parent(function), ast.ClassDef):
            names = names[1:]
        index = names.index(parameter) if parameter in names else len(call.args)
        return call.args[index] if index < len(call.args) else None

    # -- epochs ----------------------------------------------------------------------------------------------------

    def epoch_loops(self, loop: BatchLoop, loader: ast.Call) -> tuple[EpochLoop, ...]:
        """The innermost loops around a loop over batches, through the functions that call it."""
        leaves = [node for node in ast.walk(loop.node.iter) if self._is_leaf(node, loader)]
        leaf = leaves[0] if leaves and isinstance(leaves[0], ast.expr) else None
        key = ""
        if leaf is not None and isinstance(self.get_parent(leaf), ast.Subscript):  # a table of loaders
            key = self._key(leaf, loader)
            leaf = leaf if key else None
        return tuple(self._around(loop.node, leaf, key, loader, _DEPTH, loop.call))

    def _is_leaf(self, node: ast.AST, loader: ast.Call) -> bool:
        return isinstance(node, ast.Name | ast.Attribute) and loader in self.find_loader_calls(node)

    def _key(self, table: ast.expr, loader: ast.Call) -> str:
        """`["train"]` for the entry of a table that is the loader; empty where that is not seen."""
        found = self.names.find_bindings(table) if isinstance(table, ast.Name) else []
        made = found[0].value if len(found) == 1 else None
        for name, entry in zip(made.keys, made.values, strict=True) if isinstance(made, ast.Dict) else ():
            if entry is loader and isinstance(name, ast.Constant) and isinstance(name.value, str):
                return f"[{json.dumps(name.value, ensure_ascii=False)}]"
        return ""

    def _around(
        self, node: ast.AST, leaf: ast.expr | None, key: str, loader: ast.Call, depth: int, only: ast.Call | None
    ) -> Iterator[EpochLoop]:
        for above in self.names.iter_ancestors(node):
            is_loop = isinstance(above, ast.For | ast.AsyncFor) and not _is_literal(above.iter)
            if is_loop and loader not in self.find_loader_calls(above.iter):  # type: ignore[attr-defined]
                visible = leaf is not None and not self._made_inside(above, leaf)  # type: ignore[arg-type]
                name = self.get_source(leaf) + key if visible and leaf is not None else None
                yield EpochLoop(above, name)  # type: ignore[arg-type]
                return
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
                for call, function in self.calls if depth else ():
                    if function is above and (only is None or call is only):
                        outside = self._outside(leaf, call, above)
                        yield from self._around(call, outside, key, loader, depth - 1, None)
                return

    def _made_inside(self, loop: ast.For | ast.AsyncFor, leaf: ast.expr) -> bool:
        """Whether a name gets its value in the loop, so that it does not mean the loader at the loop's head."""
        if not isinstance(leaf, ast.Name):
            return False
        return any(loop in self.names.iter_ancestors(binding.node) for binding in self.names.find_bindings(leaf))

    def _outside(self, leaf: ast.expr | None, call: ast.Call, function: Function) -> ast.expr | None:
        """What means the loader where the function is called; None where nothing does."""
        if isinstance(leaf, ast.Name):
            found = self.names.find_bindings(leaf)
            if len(found) == 1 and isinstance(found[0].node, ast.arg):
                return self.find_argument(call, function, found[0].node)
            owner = self.names.scope_of(leaf).find_owner_scope(leaf.id)
            return leaf if owner is not None and owner.is_module else None
        if isinstance(leaf, ast.Attribute) and isinstance(leaf.value, ast.Name) and leaf.value.id == "self":
            method = call.func
            own = isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name)
            return leaf if own and self.get_source(method.value) == "self" else None  # type: ignore[attr-defined]
        return None

    # -- text ------------------------------------------------------------------------------------------------------

    def find_indent(self, statement: ast.stmt) -> str | None:
        """The white space in front of a statement; None where it shares its line with another."""
        start, _ = self.text.span(statement)
        _, line = self.text.line_at(start)
        before = self.text.decode_range(line, start)
        last = self.text.lines[(statement.end_lineno or 1) - 1].encode(self.text.encoding, "replace")
        _, end = self.text.span(statement)
        _, end_line = self.text.line_at(end)
        rest = self.text.decode_range(end, end_line + len(last)).strip()
        return before if not before.strip() and (not rest or rest.startswith("#")) else None

    def append_argument(self, call: ast.Call, argument: str) -> Edit:
        """One more argument at the end of a call that has some, whether a comma follows them or not."""
        parts: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        end = max(self.text.span(part)[1] for part in parts)
        return Edit(end, end, f", {argument}".encode(self.text.encoding))

    def insert_before(self, statement: ast.stmt, *lines: str) -> Edit | None:
        """Lines of their own in front of a statement; None where it shares its line with another."""
        indent = self.find_indent(statement)
        if indent is None or getattr(statement, "decorator_list", None):
            return None
        start, _ = self.text.span(statement)
        text = "".join(line + self.text.newline + indent for line in lines)
        return Edit(start, start, text.encode(self.text.encoding))

    def insert_after(self, statement: ast.stmt, *lines: str) -> Edit | None:
        """Lines of their own after a statement; None where it shares its line with another."""
        indent = self.find_indent(statement)
        if indent is None:
            return None
        _, end = self.text.span(statement)
        _, line = self.text.line_at(end)
        last = self.text.lines[(statement.end_lineno or 1) - 1].rstrip("\r\n")
        end = line + len(last.encode(self.text.encoding))
        text = "".join(self.text.newline + indent + one for one in lines)
        return Edit(end, end, text.encode(self.text.encoding))


def _is_literal(node: ast.expr) -> bool:
    """Whether this is a list of words."""
    return isinstance(node, ast.List | ast.Tuple) and all(
        isinstance(elt, ast.Constant) and isinstance(elt.value, str) for elt in node.elts
    )
