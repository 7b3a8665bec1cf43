"""What calls do: of functions of the sources, of what the interface below them offers, and of constructors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from conditions import FALSE, NOTHING, TRUE, Tested, among, dtype_among, rank_where
from evaluation import Evaluated, Evaluation, obj, paired
from expressions import Parser, Tree
from states import State, Value
from syntax import Function, Parameter
from words import BIT, COMPLEX, FLOATING, INTEGRAL

KINDS_OF_DTYPES = {
    "IsComplexType": COMPLEX,
    "IsFloatingType": FLOATING,
    "IsIntegralType": INTEGRAL,
    "IsBasicType": COMPLEX | FLOATING | INTEGRAL | BIT["DT_BOOL"],
}
# What gives its first argument back, for what matters here.
TRANSPARENT = {"likely", "unlikely", "move", "forward", "ToOpDataType", "ToAclDataType", "ref", "cref", "as_const"}
TRANSPARENT |= {"__builtin_expect", "ToDataType", "ToFVector", "ToShapeVector"}
LISTS = {
    "initializer_list",
    "vector",
    "set",
    "unordered_set",
    "array",
    "map",
    "unordered_map",
    "tuple",
    "pair",
    "FVector",
}
SAME_RANK = {"Contiguous", "ReFormat", "Cast"}
DEEPEST = 24


class Calls(Evaluation):
    """Evaluates calls; what walking a function does is left to the walk."""

    @abstractmethod
    def run(
        self, function: Function, values: list[Value], this: Value | None, state: State
    ) -> list[tuple[Value, State, dict[str, Value]]]:
        """Walk a function."""

    def made(self, kind: str, arguments: Sequence[Tree], state: State) -> Evaluated:
        """An object of a class, a list, or a copy of what is given."""
        declared = self.unit.class_named(kind)
        found: Evaluated = []
        for values, after in self.each(arguments, state):
            copied = len(values) == 1 and values[0][0] not in ("list", "tensor", "number", "bool")
            if kind in LISTS:
                copied = len(arguments) == 1 and arguments[0][0] != "list" and values[0][0] == "list"
                found.append((values[0] if copied else ("list", values), after))
            elif declared is None:
                empty = obj(kind, {}) if kind and kind not in ("auto", "bool") else NOTHING
                found.append(((values[0] if len(values) == 1 else NOTHING) if values else empty, after))
            elif copied and values[0][0] == "object" and values[0][1] == kind:
                found.append((values[0], after))
            else:
                found += self.constructed(kind, values, after)
        return found

    def constructed(self, kind: str, values: tuple[Value, ...], state: State) -> Evaluated:
        """An object of a class that the sources declare."""
        fields: dict[str, Value] = {}
        named: list[str] = []
        for name in self.family(kind)[::-1]:
            declared = self.unit.class_named(name)
            for field, (of, tokens) in declared.fields.items() if declared else ():
                named.append(field)
                fields[field] = NOTHING
                if tokens:
                    fields[field] = self.evaluate(Parser(tokens).expression(), State({}, {}))[0][0]
                elif self.unit.class_named(of) and of not in self.family(kind):
                    fields[field] = self.constructed(of, (), State({}, {}))[0][0]
                elif of in LISTS:
                    fields[field] = ("list", ())
        makers = [f for f in self.unit.functions(kind, kind) if len(f.parameters) == len(values)]
        if makers and values:
            ran = self.run(makers[0], list(values), obj(kind, fields), state)
            return [(left["this"], after) for _, after, left in ran]
        return [(obj(kind, {**fields, **dict(zip(named, values, strict=False))}), state)]

    def family(self, kind: str) -> list[str]:
        """A class and what it derives from."""
        found = [kind]
        for name in found:
            declared = self.unit.class_named(name)
            found += [base for base in (declared.bases if declared else ()) if base not in found]
        return found

    def call(self, tree: Tree, state: State) -> Evaluated:
        """A call of a function or a method."""
        _, function, arguments = tree
        if function[0] == "member":
            found: Evaluated = []
            for owner, after in self.evaluate(function[1], state):
                found += self.method(owner, function, arguments, after)
            return found
        if function[0] != "name":
            return [(NOTHING, state)]
        full = function[1]
        name = full.rsplit("::", 1)[-1]
        if name.startswith(("OP_LOG", "L2_DFX", "DFX_", "OP_CHECK_BROADCAST")):
            return [(NOTHING, state)]
        if "l0op::" in full:
            return self.below(name, arguments, state)
        if name.startswith(("make_unique<", "make_shared<")):
            return self.made(name[12:-1], arguments, state)
        found = []
        for values, after in self.each(arguments, state):
            found += self.called(full, values, arguments, after)
        return found

    def below(self, name: str, arguments: Sequence[Tree], state: State) -> Evaluated:
        """A call of the layer below, which adds kernels: some of them leave a tensor's dtype and rank as they are."""
        if name not in SAME_RANK or not arguments:
            return [(NOTHING, state)]
        found: Evaluated = []
        for values, after in self.each(arguments[:2], state):
            value = values[0] if values[0][0] == "tensor" else NOTHING
            if name == "Cast" and value != NOTHING:
                value = (*value[:3], values[1] if len(values) > 1 and values[1][0] == "constant" else NOTHING)
            found.append((value, after))
        return found

    def called(self, full: str, values: tuple[Value, ...], arguments: Sequence[Tree], state: State) -> Evaluated:
        """A call with its arguments evaluated."""
        name = full.rsplit("::", 1)[-1]
        held = state.locals.get(full)
        if held is not None and held[0] == "lambda":
            return self.unnamed(held, values, state)
        if name == "CheckType" and len(values) == 2:
            return answers(among(values[0], values[1], state))
        if name in KINDS_OF_DTYPES and values and values[0][0] == "dtype":
            dtypes = KINDS_OF_DTYPES[name] | (BIT["DT_BOOL"] if values[1:] == (TRUE,) else 0)
            return answers(dtype_among(values[0][1], dtypes, state))
        if name == "PromoteType" and len(values) == 2:
            if values[0][0] == values[1][0] == "dtype" and values[0] != values[1]:
                self.promoted.add((values[0][1], values[1][1]))
            return [(NOTHING, state)]
        if name in TRANSPARENT and values:
            return [(values[0], state)]
        if name in ("tie", "make_tuple", "make_pair"):
            return [(("list", values), state)]
        if name.startswith("get<") and values and values[0][0] == "list":
            place = self.named(name[4:-1], state) if not name[4:-1].isdigit() else ("number", int(name[4:-1]))
            known = place[0] == "number" and place[1] < len(values[0][1])
            return [(values[0][1][place[1]] if known else NOTHING, state)]
        if name == "find" and len(values) == 3 and values[0][0] == "begin":
            return [(("found", values[2], values[0][1]), state)]
        if name in ("GetCurNpuArch", "GetCurrentNpuArch"):
            return [(("constant", self.architecture), state)]
        this = state.locals.get("this")
        if this is not None and this[0] == "object":
            for owner in self.family(this[1]):
                functions = self.unit.functions(name, owner)
                if functions:
                    return self.walked(functions, values, arguments, this, ("name", "this"), state)
        functions = [f for f in self.unit.functions(name) if not f.owner or f.owner in full.split("::")]
        return self.walked(functions, values, arguments, None, None, state)

    def unnamed(self, held: Value, values: tuple[Value, ...], state: State) -> Evaluated:
        """A call of a lambda, which sees the local variables."""
        function = Function("", "", [Parameter(name, "", False) for name in held[1]], list(held[2]))
        inside = [Parameter(name, "", False) for name in state.locals if name not in held[1]]
        function.parameters += inside
        seen = [*values[: len(held[1])], *([NOTHING] * (len(held[1]) - len(values)))]
        ran = self.run(function, seen + [state.locals[p.name] for p in inside], None, state)
        return [(value, after) for value, after, _ in ran]

    def walked(
        self,
        functions: list[Function],
        values: tuple[Value, ...],
        arguments: Sequence[Tree],
        this: Value | None,
        owner: Tree | None,
        state: State,
    ) -> Evaluated:
        """A call of one of these functions: that with the right number of parameters and the best types."""
        fitting = [
            f
            for f in functions
            if len(f.parameters) >= len(values) >= sum(not parameter.default for parameter in f.parameters)
        ]
        if not fitting or self.depth > DEEPEST or self.steps > self.most_steps:
            return [(NOTHING, state)]
        function = max(fitting, key=lambda f: sum(map(alike, values, (p.kind for p in f.parameters))))
        self.depth += 1
        ran = self.run(function, list(values), this, state)
        self.depth -= 1
        given = {p.name: a for p, a in zip(function.parameters, arguments, strict=False) if p.shared}
        found: Evaluated = []
        for value, after, left in ran:
            states = [after]
            for name, now in left.items():
                to = owner if name == "this" else given.get(name)
                if to is not None:
                    states = [one for before in states for one in self.assign(to, now, before)]
            found += [(value, one) for one in states]
        return found

    def method(self, owner: Value, function: Tree, arguments: Sequence[Tree], state: State) -> Evaluated:
        """A call of a method."""
        name = function[2].rsplit("::", 1)[-1]
        if name == "GetSocVersion":
            return [(("constant", self.soc), state)]
        if name in ("GetCurNpuArch", "GetNpuArch"):
            return [(("constant", self.architecture), state)]
        if name == "get" and not arguments:
            return [(owner, state)]
        if name == "AllocTensorList" and arguments:
            # A list of an operator's tensors stands for them where they are all of one parameter.
            listed = self.evaluate(arguments[0], state)[0][0]
            alike = listed[0] == "list" and len(set(listed[1])) == 1
            return [(listed[1][0] if alike else NOTHING, state)]
        if name == "CreateView" and arguments:
            # Another view of a tensor has its dtype, and is refused in its stead.
            return [
                (seen if seen[0] == "tensor" else NOTHING, after) for seen, after in self.evaluate(arguments[0], state)
            ]
        if owner[0] == "tensor" and name == "SetDataType" and arguments:
            dtype = self.evaluate(arguments[0], state)[0][0]
            return [(NOTHING, after) for after in self.assign(function[1], (*owner[:3], dtype), state)]
        if owner[0] == "tensor":
            return [(of_tensor(owner, name), state)]
        if owner[0] == "shape":
            if name in ("GetDimNum", "GetDims", "size"):
                return [(("rank", owner[1], 0), state)]
            if name == "IsScalar":
                return answers(rank_where(("rank", owner[1], 0), lambda rank: rank == 0, state))
            return [(("positive",) if name in ("GetShapeSize", "GetDim", "at") else NOTHING, state)]
        if owner[0] == "list":
            return self.of_list(owner, name, function, arguments, state)
        if owner[0] == "object":
            for kind in self.family(owner[1]):
                functions = self.unit.functions(name, kind)
                if functions:
                    found: Evaluated = []
                    for values, after in self.each(arguments, state):
                        found += self.walked(functions, values, arguments, owner, function[1], after)
                    return found
        return [(NOTHING, state)]

    def of_list(self, owner: Value, name: str, function: Tree, arguments: Sequence[Tree], state: State) -> Evaluated:
        """A call of a method of a list, a set or a map."""
        if name in ("begin", "cbegin"):
            return [(("begin", owner), state)]
        if name in ("end", "cend"):
            return [(("end",), state)]
        if name in ("size", "length"):
            return [(("positive",) if len(owner) > 2 else ("number", len(owner[1])), state)]
        if name in ("data", "c_str"):
            return [(owner, state)]
        if name == "empty":
            return [(FALSE if owner[1] else TRUE, state)]
        found: Evaluated = []
        for values, after in self.each(arguments, state):
            if name in ("find", "count", "contains") and values:
                found.append((("found", values[0], owner), after))
            elif name in ("push_back", "emplace_back", "insert", "emplace") and len(values) == 1:
                found += [(NOTHING, one) for one in self.assign(function[1], ("list", (*owner[1], values[0])), after)]
            elif name == "at" and len(values) == 1:
                found.append((paired(owner).get(values[0], NOTHING), after))
            else:
                found.append((NOTHING, after))
        return found


def of_tensor(tensor: Value, name: str) -> Value:
    """What a tensor, a scalar or a list of tensors says of itself."""
    if name in ("GetDataType", "GetDtype"):
        return tensor[3] if len(tensor) > 3 else ("dtype", tensor[1])
    if name in ("GetViewShape", "GetShape"):
        return ("shape", tensor[1])
    if name == "IsEmpty":
        return FALSE
    if name in ("Size", "Numel", "GetShapeSize"):
        return ("positive",)
    return NOTHING


def answers(tested: Tested) -> Evaluated:
    """A condition's ways as values."""
    return [(TRUE if held else FALSE, state) for held, state in tested]


def alike(value: Value, kind: str) -> int:
    """How well a value fits a parameter's type."""
    if value[0] == "tensor":
        return 2 if value[2] == kind else -2 if kind.startswith("acl") else 0
    if value[0] == "dtype" or (value[0] == "constant" and str(value[1]).startswith("DT_")):
        return 2 if "DataType" in kind else -1 if kind.startswith("acl") else 0
    return 0
