"""Walks the first phase of an operator (aclnnXGetWorkspaceSize) on one chip, with nothing known of its arguments.

Where a condition depends on the chip, one way is taken. Where it depends on a dtype, a rank or a null pointer, both
are, each with what the condition says of it. Where nothing is known, both. What is left where the function returns
success is what it accepts. Loops are walked once, for tensors that are not empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from conditions import NOTHING, truth
from expressions import Tree
from functions import Calls
from sources import Unit
from states import NUMBER, State, Value, joined, meeting
from syntax import Function

Returned = list[tuple[Value, State]]


@dataclass
class Ways:
    """Where the walk of statements can lead: on, out of the function, out of a loop."""

    on: list[State] = field(default_factory=list)
    returned: Returned = field(default_factory=list)
    left: list[tuple[str, State]] = field(default_factory=list)

    def add(self, other: Ways) -> None:
        self.on += other.on
        self.returned += other.returned
        self.left += other.left


class Walk(Calls):
    """The walk of one first phase."""

    def block(self, statements: Iterable[Tree], states: list[State]) -> Ways:
        ways = Ways()
        for statement in statements:
            if not states:
                break
            states = meeting(states)
            following: list[State] = []
            for state in states:
                found = self.statement(statement, state)
                following += found.on
                ways.returned += found.returned
                ways.left += found.left
            states = following
        ways.on = meeting(states)
        return ways

    def statement(self, tree: Tree, state: State) -> Ways:
        kind = tree[0]
        if kind == "do":
            return Ways([after for _, after in self.evaluate(tree[1], state)])
        if kind == "declare":
            return Ways(self.declare(tree[1], tree[2], tree[3], state))
        if kind == "return":
            return Ways(returned=self.evaluate(tree[1], state) if tree[1] else [(NOTHING, state)])
        if kind == "block":
            return self.block(tree[1], [state])
        if kind == "if":
            return self.choose(tree, state)
        if kind == "loop":
            return self.loop(tree, state)
        if kind == "switch":
            return self.switch(tree, state)
        return Ways(left=[(tree[1], state)])

    def choose(self, tree: Tree, state: State) -> Ways:
        _, condition, yes, no = tree
        ways = Ways()
        taken: dict[bool, list[State]] = {True: [], False: []}
        for held, after in self.condition(condition, state):
            taken[held].append(after)
        for held, branch in ((True, yes), (False, no)):
            if branch is None:
                ways.on += taken[held]
                continue
            # Apart: what a refusal in the branch refuses is told by the state that comes to it.
            for after in taken[held] if len(taken[held]) <= 40 else meeting(taken[held]):
                ways.add(self.statement(branch, after))
        return ways

    def loop(self, tree: Tree, state: State) -> Ways:
        _, kind, head, body = tree
        states = [state]
        if kind == "each":
            name, over = head
            values = self.evaluate(over, state)
            ways = Ways()
            for value, after in values[:4]:
                items = value[1] if value[0] == "list" and value[1] else (self.item(value),)
                states = [after]
                for item in items[:16]:
                    found = self.body(body, [one.having(name, item) for one in states])
                    ways.returned += found.returned
                    states = found.on
                ways.on += states
            return ways
        if head is not None:
            states = [after.having(head[2], NOTHING) if head[0] == "declare" else after for after in states]
        ways = self.body(body, states)
        return Ways([repeated(one, state) for one in ways.on], ways.returned)

    def body(self, body: Tree | None, states: list[State]) -> Ways:
        ways = self.block([body], states) if body else Ways(states)
        return Ways(meeting(ways.on + [state for _, state in ways.left]), ways.returned)

    def switch(self, tree: Tree, state: State) -> Ways:
        _, on, sections = tree
        ways = Ways()
        for value, after in self.evaluate(on, state):
            entered: list[list[State]] = [[] for _ in sections]
            rest = [after]
            for place, (labels, _) in enumerate(sections):
                for label in labels:
                    if label is None:
                        continue
                    label_value = self.evaluate(label, after)[0][0]
                    tested = [found for one in rest for found in self.compare("==", value, label_value, one)]
                    entered[place] += [one for held, one in tested if held]
                    rest = [one for held, one in tested if not held]
            defaults = [place for place, (labels, _) in enumerate(sections) if None in labels]
            if defaults:
                entered[defaults[0]] += rest
                rest = []
            running: list[State] = []
            for place, (_, statements) in enumerate(sections):
                found = self.block(statements, meeting(running + entered[place]))
                running = found.on
                ways.returned += found.returned
                rest += [one for kind, one in found.left if kind == "break"]
                ways.left += [(kind, one) for kind, one in found.left if kind != "break"]
            ways.on += running + rest
        ways.on = meeting(ways.on)
        return ways

    def declare(self, kind: str, name: str, value: Tree | None, state: State) -> list[State]:
        if value is None:
            return [after.having(name, made) for made, after in self.made(kind, (), state)]
        if value[0] in ("list", "made") and kind:
            return [after.having(name, made) for made, after in self.made(kind, value[-1], state)]
        return [after.having(name, found) for found, after in self.evaluate(value, state)]

    def run(
        self, function: Function, values: list[Value], this: Value | None, state: State
    ) -> list[tuple[Value, State, dict[str, Value]]]:
        """What a function can return, with the state of its caller after it, and what it leaves in its parameters."""
        given: dict[str, Value] = {p.name: v for p, v in zip(function.parameters, values, strict=False) if p.name}
        if this is not None:
            given["this"] = this
        states = [state.within(given)]
        for name, tokens in function.starts:
            states = [self.initialised(name, tokens, one) for one in states]
        ways = self.block(function.body(), states)
        returned = ways.returned + [(NOTHING, one) for one in ways.on]
        shared = [p.name for p in function.parameters if p.shared] + (["this"] if this is not None else [])
        groups: dict[tuple[Value, tuple[Value, ...], tuple[str, ...] | None], list[State]] = {}
        for value, one in returned:
            left = tuple(one.locals.get(name, NOTHING) for name in shared)
            # Refusals stay apart by what they refuse.
            blame = one.blame if truth(value) is False else None
            groups.setdefault((value, left, blame), []).append(one)
        return [
            (group[0], joined(states).within(state.locals), dict(zip(shared, group[1], strict=True)))
            for group, states in groups.items()
        ]


def repeated(after: State, before: State) -> State:
    """The state after a loop that was walked once: what it counts and how much it collects is not known."""
    changed: dict[str, Value] = {}
    for name, value in after.locals.items():
        if name in before.locals and before.locals[name] != value and value[0] in ("number", "list"):
            # A list keeps what is in it, for what is said of each item.
            changed[name] = NOTHING if value[0] == "number" else (*value[:2], "more")
    return after.within({**after.locals, **changed}) if changed else after


WHOLE = {"int64_t", "int32_t", "int8_t", "uint64_t", "uint32_t", "int"}
FRACTIONS = {"double", "float"}


@dataclass
class Outcome:
    """What one first phase accepts on one chip: states of success, and of refusal."""

    accepted: list[State]
    refused: list[State]
    promoted: set[tuple[str, str]]
    complete: bool


def outcome(unit: Unit, function: Function, chip: str, *, telling_numbers: bool = False) -> Outcome:
    """Walk a first phase on a chip.

    `telling_numbers`: ways that the value of a number decides are told apart too. That is a walk of its own: a dtype
    that is refused beside some values would count as refused.
    """
    walk = Walk(unit, chip)
    numbers = {p.name for p in function.parameters if telling_numbers and p.kind in WHOLE | FRACTIONS}
    values: list[Value] = [
        ("tensor", p.name, p.kind)
        if p.kind.startswith("aclTensor") or p.kind.startswith("aclScalar")
        else ("attribute", p.name, 0)
        if p.name in numbers
        else NOTHING
        for p in function.parameters
    ]
    accepted: list[State] = []
    refused: list[State] = []
    for value, state, _ in walk.run(function, values, None, State({}, dict.fromkeys(numbers, NUMBER))):
        # A code of 0 is that of success, and false is none.
        success = value == ("number", 0) or (value[0] != "number" and truth(value) is not False)
        (accepted if success else refused).append(state)
    return Outcome(accepted, refused, walk.promoted, walk.steps < walk.most_steps)
