"""What expressions evaluate to, and what calls do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from conditions import COMPARE, FALSE, NOTHING, TRUE, Tested, among, both, compared, null_or_not, truth
from expressions import Parser, Tree
from sources import Unit
from states import State, Value, meeting
from words import CHIPS

if TYPE_CHECKING:
    pass

Evaluated = list[tuple[Value, State]]


def obj(kind: str, fields: dict[str, Value]) -> Value:
    """An object with its fields."""
    return ("object", kind, tuple(sorted(fields.items())))


class Evaluation(ABC):
    """Evaluates expressions of one unit on one chip."""

    most_steps = 400_000

    def __init__(self, unit: Unit, chip: str) -> None:
        self.unit = unit
        self.soc, self.architecture = CHIPS[chip]
        self.steps = 0
        self.depth = 0
        self.promoted: set[tuple[str, str]] = set()
        self.constants: dict[str, Value] = {}

    @abstractmethod
    def call(self, tree: Tree, state: State) -> Evaluated:
        """A call of a function or a method."""

    @abstractmethod
    def made(self, kind: str, arguments: Sequence[Tree], state: State) -> Evaluated:
        """An object of a class, a list, or a copy of what is given."""

    def condition(self, tree: Tree, state: State) -> Tested:
        """An expression as a condition."""
        kind = tree[0]
        if kind == "unary" and tree[1] == "!":
            return [(not held, after) for held, after in self.condition(tree[2], state)]
        if kind == "binary" and tree[1] in ("&&", "||"):
            stops = tree[1] == "||"
            found: Tested = []
            on: list[State] = []
            for held, after in self.condition(tree[2], state):
                if held == stops:
                    found.append((held, after))
                else:
                    on.append(after)
            for after in on if len(on) < 12 else meeting(on):
                for held, last in self.condition(tree[3], after):
                    # Two tensors together are refused: neither is for its own sake.
                    together = held != stops and limits_another(state, after) and limits_another(after, last)
                    found.append((held, last.blameless() if together else last))
            return found
        found = []
        for value, after in self.evaluate(tree, state):
            found += self.tested(value, after)
        return found

    def tested(self, value: Value, state: State) -> Tested:
        """A value as a condition."""
        known = truth(value)
        if known is not None:
            return [(known, state)]
        if value[0] == "tensor":
            return [(not null, after) for null, after in null_or_not(value, state)]
        if value[0] == "found":
            return among(value[1], value[2], state)
        if value[0] == "attribute":
            return compared("!=", value, ("number", 0), state)
        return both(state)

    def evaluate(self, tree: Tree, state: State) -> Evaluated:
        """What an expression can be, each with the state in which it is that."""
        self.steps += 1
        kind = tree[0]
        if kind == "number":
            return [(tree, state)]
        if kind == "name":
            return [(self.named(tree[1], state), state)]
        if kind == "binary":
            return self.binary(tree, state)
        if kind == "unary":
            return self.unary(tree, state)
        if kind == "choice":
            found: Evaluated = []
            for held, after in self.condition(tree[1], state):
                found += self.evaluate(tree[2] if held else tree[3], after)
            return found
        if kind == "call":
            return self.call(tree, state)
        if kind == "member":
            return [(self.member(value, tree[2]), after) for value, after in self.evaluate(tree[1], state)]
        if kind == "index":
            return [(self.at(value, tree[2], after), after) for value, after in self.evaluate(tree[1], state)]
        if kind == "assign":
            return self.assignment(tree, state)
        if kind == "list":
            return [(("list", values), after) for values, after in self.each(tree[1], state)]
        if kind == "made":
            return self.made(tree[1].split("::")[-1], tree[2], state)
        if kind == "lambda":
            return [(tree, state)]
        return [(NOTHING, state)]

    def each(self, trees: Sequence[Tree], state: State) -> list[tuple[tuple[Value, ...], State]]:
        """Several expressions, one after the other."""
        found: list[tuple[tuple[Value, ...], State]] = [((), state)]
        for tree in trees:
            found = [((*values, value), after) for values, one in found for value, after in self.evaluate(tree, one)]
            if len(found) > 32:
                found = [((*found[0][0],), one) for one in meeting([one for _, one in found])]
        return found

    def named(self, full: str, state: State) -> Value:
        """The value of a name."""
        name = full.rsplit("::", 1)[-1]
        if full in state.locals:
            return state.locals[full]
        if name in ("true", "false"):
            return TRUE if name == "true" else FALSE
        if name in ("nullptr", "NULL"):
            return ("null",)
        this = state.locals.get("this")
        if this is not None and this[0] == "object":
            for field, value in this[2]:
                if field == name:
                    return value  # type: ignore[no-any-return]
        if name not in self.constants:
            # Known before its value is, in case that uses it.
            self.constants[name] = ("constant", name) if name.upper() == name or "::" in full else NOTHING
            tokens = self.unit.variable(name)
            if tokens and not name.startswith(("DT_", "ACLNN_")):
                values = self.evaluate(Parser(tokens).expression(), State({}, {}))
                self.constants[name] = values[0][0] if len(values) == 1 else NOTHING
        return self.constants[name]

    def binary(self, tree: Tree, state: State) -> Evaluated:
        sign = tree[1]
        if sign in ("&&", "||"):
            return [(TRUE if held else FALSE, after) for held, after in self.condition(tree, state)]
        found: Evaluated = []
        for (a, b), after in self.each(tree[2:4], state):
            if sign in COMPARE:
                found += [(TRUE if held else FALSE, one) for held, one in self.compare(sign, a, b, after)]
            else:
                found.append((calculated(sign, a, b), after))
        return found

    def compare(self, sign: str, a: Value, b: Value, state: State) -> Tested:
        return compared(sign, a, b, state)

    def unary(self, tree: Tree, state: State) -> Evaluated:
        sign = tree[1]
        if sign == "!":
            return [(TRUE if held else FALSE, after) for held, after in self.condition(tree, state)]
        found: Evaluated = []
        for value, after in self.evaluate(tree[2], state):
            if sign in ("++", "--"):
                found += [(value, one) for one in self.assign(tree[2], NOTHING, after)]
            elif sign in ("&", "*"):
                found.append((value, after))
            else:
                negative = sign == "-" and value[0] == "number"
                found.append((("number", -value[1]) if negative else NOTHING, after))
        return found

    def member(self, value: Value, name: str) -> Value:
        """A field, or what `first` and `second` of a pair are."""
        if value[0] == "object":
            return next((found for field, found in value[2] if field == name), NOTHING)
        if value[0] == "list" and name in ("first", "second") and len(value[1]) == 2:
            return value[1][name == "second"]  # type: ignore[no-any-return]
        if value[0] == "found" and name in ("first", "second") and value[2][0] == "list":
            return value[1] if name == "first" else paired(value[2]).get(value[1], NOTHING)
        return NOTHING

    def item(self, value: Value) -> Value:
        """An item of which it is not known which one."""
        return value if value[0] == "tensor" else ("positive",) if value[0] == "shape" else NOTHING

    def at(self, value: Value, at: Tree, state: State) -> Value:
        if value[0] == "list":
            place = self.evaluate(at, state)[0][0]
            if place[0] == "number" and 0 <= place[1] < len(value[1]):
                return value[1][place[1]]  # type: ignore[no-any-return]
            if place in paired(value):
                return paired(value)[place]
            return value[1][0] if len(set(value[1])) == 1 else NOTHING
        return self.item(value)

    def assignment(self, tree: Tree, state: State) -> Evaluated:
        found: Evaluated = []
        for value, after in self.evaluate(tree[3], state):
            if tree[1] != "=":
                before = self.evaluate(tree[2], after)[0][0]
                value = calculated(tree[1][0], before, value)
            found += [(value, one) for one in self.assign(tree[2], value, after)]
        return found

    def assign(self, to: Tree, value: Value, state: State) -> list[State]:
        """The states after an assignment."""
        if to[0] == "name":
            this = state.locals.get("this")
            if to[1] not in state.locals and this is not None and this[0] == "object":
                return [state.having("this", obj(this[1], {**dict(this[2]), to[1]: value}))]
            return [state.having(to[1], value)]
        if to[0] == "member":
            states = []
            for owner, after in self.evaluate(to[1], state):
                if owner[0] == "object" or (owner[0] == "any" and to[1][0] in ("name", "member")):
                    fields = dict(owner[2]) if owner[0] == "object" else {}
                    kind = owner[1] if owner[0] == "object" else ""
                    states += self.assign(to[1], obj(kind, {**fields, to[2]: value}), after)
                else:
                    states.append(after)
            return states
        if to[0] == "unary" and to[1] in ("*", "&"):
            return self.assign(to[2], value, state)
        return [state]

    def initialised(self, name: str, tokens: list[str], state: State) -> State:
        """The state after `name(tokens)` of a constructor."""
        parser = Parser(["(", *tokens, ")"])
        values, after = self.each(parser.arguments(), state)[0]
        this = after.locals.get("this", obj("", {}))
        value = values[0] if values else NOTHING
        return after.having("this", obj(this[1], {**dict(this[2]), name: value})) if this[0] == "object" else after


def paired(value: Value) -> dict[Value, Value]:
    """A map given as a list of pairs."""
    return {item[1][0]: item[1][1] for item in value[1] if item[0] == "list" and len(item[1]) == 2}


def calculated(sign: str, a: Value, b: Value) -> Value:
    """A sum, difference or product as far as it is known."""
    if a[0] == b[0] == "number" and sign in "+-*":
        return ("number", {"+": a[1] + b[1], "-": a[1] - b[1], "*": a[1] * b[1]}[sign])
    if a[0] in ("rank", "attribute") and b[0] == "number" and sign in "+-":
        return (*a[:2], a[2] + (b[1] if sign == "+" else -b[1]))
    if a[0] == "number" and b[0] in ("rank", "attribute") and sign == "+":
        return (*b[:2], b[2] + a[1])
    return NOTHING


def limits_another(before: State, after: State) -> bool:
    """Whether a condition limited a tensor that the one before it did not."""
    return after.blame is not None and after.blame != before.blame and after.blame[0] != "null"
