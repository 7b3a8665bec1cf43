"""The mutation operators: the ways to change a place, each a function from the place to changed text.

A mutant is an expression (or statement) of a kernel and another one of the same type in its stead; both stand in the
same build as `(::torchport::mutant(17) ? changed : original)`. What does not compile is found by compiling.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator

from cpp import ASSIGNMENTS, KEYWORDS, STATEMENTS, Region, Source

ON = "::torchport::mutant(@)"  # @ is the mutant's number

# Whose arguments may change places.
COMMUTATIVE = {
    *("add", "mul", "maximum", "minimum", "max", "min", "gcd", "eq", "ne", "logaddexp", "logaddexp2", "dot"),
    *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "fmax", "fmin"),
    *("same_shape", "same_dtype", "equal", "multiply"),
}
# Whose last argument has no default.
COMPLETE = {"select", "narrow", "transpose", "index_select", "parallel_for", "isIntegralType", "masked_fill"}
# Another function of the same kind: the wrong reduction, comparison, rounding, arithmetic.
# fmt: off
OTHER_FUNCTION = {
    "sum": "mean", "mean": "sum", "prod": "sum", "nansum": "sum", "any": "all", "all": "any", "var": "std",
    "amax": "amin", "amin": "amax", "argmax": "argmin", "argmin": "argmax", "max": "min", "min": "max", "std":
    "var", "cummax": "cummin", "cummin": "cummax", "cumsum": "cumprod", "cumprod": "cumsum", "median":
    "nanmedian", "nanmedian": "median", "maximum": "minimum", "minimum": "maximum", "lt": "le", "le": "lt",
    "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq", "floor": "ceil", "ceil": "floor", "round": "floor",
    "trunc": "floor", "add": "sub", "sub": "add", "mul": "div", "div": "mul", "exp": "expm1", "log": "log1p",
    "log1p": "log", "sqrt": "rsqrt", "rsqrt": "sqrt", "sin": "cos", "cos": "sin", "tanh": "sigmoid",
    "sigmoid": "tanh", "softmax": "log_softmax", "_softmax": "_log_softmax", "addcmul": "addcdiv", "addcdiv":
    "addcmul", "fmod": "remainder", "remainder": "fmod", "zeros": "ones", "ones": "zeros", "clamp_min":
    "clamp_max", "clamp_max": "clamp_min", "logical_and": "logical_or", "logical_or": "logical_and",
    "bitwise_and": "bitwise_or", "bitwise_or": "bitwise_xor", "triu": "tril", "tril": "triu", "index_add":
    "index_copy", "square": "abs", "abs": "neg", "copysign": "mul",
}
# fmt: on
# Methods without which a value has the same type: a mask, a bound, a sign, a dimension to broadcast over.
LEAVABLE = re.compile(
    r"(masked_fill|clamp(_min|_max)?|neg|abs|square|sqrt|rsqrt|exp|log|reciprocal|floor|ceil|round|trunc|sign|mul|div|add"
    r"|sub|logical_(not|and|or)|cumsum|flip|sigmoid|tanh|triu|tril|pow)_?|t|mT|transpose|unsqueeze|squeeze|to|remainder"
    r"|narrow|slice|expand|expand_as|repeat_interleave|sum|amax|mean|permute|select"
)
# fmt: off
OTHER_MARK = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-":
    "+", "*": "/", "/": "*", "%": "/", "^": "|", "|": "^", "&": "|",
}
# fmt: on
OTHER_ASSIGNMENT = {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}
SPOKEN = {"fail", "refuse", "format", "throw"}  # what only makes a message


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """[start, end) of the source becomes `schema`, which has both; the two texts are for people."""

    operator: str
    start: int
    end: int
    schema: str
    original: str
    mutated: str


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A token of a region that may be changed."""

    source: Source
    region: Region
    index: int
    booleans: frozenset[str]  # names of parameters that are bool in this region
    numbers: frozenset[str]  # ... double or float
    scalars: frozenset[str]  # ... aclScalar

    @property
    def text(self) -> str:
        return self.source.tokens[self.index].text

    def change(self, operator: str, first: int, last: int, mutated: str, schema: str = "") -> Change:
        """Of the tokens [first, last) into the expression `mutated`, or by a form of its own."""
        source = self.source
        original = source.slice(first, last)
        return Change(
            operator,
            source.tokens[first].start,
            source.tokens[last - 1].end,
            schema or f"({ON} ? {mutated} : {original})",
            original,
            mutated,
        )

    def call(self) -> tuple[int, int, list[tuple[int, int]]] | None:
        """Of the function named here: the first token of the call, one past its last, its arguments."""
        source, index = self.source, self.index
        token = source.tokens[index]
        if token.kind != "name" or token.text in KEYWORDS or not source.is_(index + 1, "("):
            return None
        first = source.chain(index)
        before = source.tokens[first - 1]
        declared = before.kind == "name" and before.text not in {"return", "else"}  # `DimVector sizes(a, b)`
        if declared or (before.text in {"&", "*", "~", "-", "!"} and not before.apart):
            return None
        return first, source.match[index + 1] + 1, source.arguments(index + 1)

    def in_call(self, range_: tuple[int, int], replacement: str, first: int, last: int) -> str:
        """The call [first, last) with the tokens of `range_` replaced."""
        source = self.source
        tokens = source.tokens
        apart = range_[0] > first and tokens[range_[0] - 1].end < tokens[range_[0]].start
        gap = " " if apart and replacement else ""
        return f"{source.slice(first, range_[0])}{gap}{replacement}{source.slice(range_[1], last)}"


def swap_arguments(place: Place) -> Iterator[Change]:
    call = place.call()
    name = _bare(place.text)
    if call is None:
        return
    first, last, arguments = call
    if name.removesuffix("_out") in COMMUTATIVE and len(arguments) == 2 + name.endswith("_out"):
        return  # with a third one, as in add_out(out, self, other, alpha), they are not alike
    source = place.source
    for one, two in itertools.pairwise(arguments):
        a, b = source.slice(*one), source.slice(*two)
        if a == b or (name.endswith("_out") and one is arguments[0]) or "[&" in a + b or '"' in a + b:
            continue
        yield place.change("swap arguments", first, last, place.in_call((one[0], two[1]), f"{b}, {a}", first, last))


def drop_argument(place: Place) -> Iterator[Change]:
    """The last one, such as alpha, where ATen's function has a default for it."""
    call = place.call()
    if call is None or len(call[2]) < 2:
        return
    method = place.source.is_(place.index - 1, ".", "->")
    if not (method or place.text.startswith("at::")) or _bare(place.text) in COMPLETE:
        return
    first, last, arguments = call
    range_ = (arguments[-2][1], arguments[-1][1])
    yield place.change("drop argument", first, last, place.in_call(range_, "", first, last))


def other_function(place: Place) -> Iterator[Change]:
    call = place.call()
    name = _bare(place.text)
    stem = next((name.removesuffix(end) for end in ("_out", "_") if name.endswith(end)), name)
    if call is None or stem not in OTHER_FUNCTION:
        return
    other = place.text[: -len(name)] + OTHER_FUNCTION[stem] + name[len(stem) :]
    yield place.change("other function", *call[:2], place.in_call((place.index, place.index + 1), other, *call[:2]))


def drop_call(place: Place) -> Iterator[Change]:
    """`x.masked_fill(mask, 0)` becomes `x`, `widened(x)` computes in the dtype of `x`."""
    call = place.call()
    source, index = place.source, place.index
    if call is None:
        return
    first, last, _ = call
    if source.is_(index - 1, ".") and LEAVABLE.fullmatch(place.text):
        yield place.change("drop call", first, last, f"at::Tensor({source.slice(first, index - 1)})")
    if place.text == "widened":
        yield place.change("drop widening", first, last, f"at::Tensor({source.slice(index + 2, last - 1)})")


def drop_statement(place: Place) -> Iterator[Change]:
    """A call that writes into an operand."""
    call = place.call()
    source = place.source
    if call is None or not (place.text.endswith("_") or _bare(place.text) in {"give", "swap", "fill_n", "copy_n"}):
        return
    first, last, _ = call
    begins = source.is_(first - 1, ";", "{", "}", "else") or (
        source.is_(first - 1, ")") and source.is_(source.match[first - 1] - 1, *STATEMENTS)
    )
    if begins and source.is_(last, ";"):
        original = source.slice(first, last)
        yield place.change("drop statement", first, last, "", f"({ON} ? void() : void({original}))")


def negate_condition(place: Place) -> Iterator[Change]:
    source, index = place.source, place.index
    if place.text == "if" and source.is_(index + 1, "("):
        first, last = index + 2, source.match[index + 1]
        if any(source.is_(i, ";") for i in range(first, last)):
            return
    elif place.text == "?":
        first, last = source.segment(index - 1)
        if first >= last or last != index:
            return
    else:
        return
    condition = source.slice(first, last)
    yield place.change(
        "negate condition", first, last, f"!({condition})", f"({ON} ? !({condition}) : static_cast<bool>({condition}))"
    )


def other_mark(place: Place) -> Iterator[Change]:
    """Another comparison, logical operator or arithmetic between the same operands."""
    source, index = place.source, place.index
    token = source.tokens[index]
    if not token.apart or token.text not in OTHER_MARK:
        return
    first, last = source.segment(index)
    lambdas = any(source.is_(i, "[") and source.is_(i + 1, "&", "]", "=") for i in range(first, last))
    if first >= index or last <= index + 1 or lambdas:
        return
    comparison = token.text in {"<", "<=", ">", ">=", "==", "!=", "&&", "||"}
    mutated = f"{source.slice(first, index)} {OTHER_MARK[token.text]} {source.slice(index + 1, last)}"
    original = source.slice(first, last)
    schema = f"({ON} ? ({mutated}) : ({original}))"
    yield place.change("other comparison" if comparison else "other arithmetic", first, last, mutated, schema)


def other_assignment(place: Place) -> Iterator[Change]:
    source, index = place.source, place.index
    if place.text not in OTHER_ASSIGNMENT:
        return
    first = source.chain(index - 1)
    while source.is_(first - 1, "*", "++"):
        first -= 1
    _, last = source.segment(index + 1)
    target, value = source.slice(first, index), source.slice(index + 1, last)
    mutated = f"{target} {OTHER_ASSIGNMENT[place.text]} {value}"
    schema = f"({ON} ? void({mutated}) : void({target} {place.text} {value}))"
    yield place.change("other assignment", first, last, mutated, schema)


def flip_boolean(place: Place) -> Iterator[Change]:
    """A literal, or a parameter such as keepdim."""
    index = place.index
    if place.text in {"true", "false"}:
        other = "false" if place.text == "true" else "true"
        yield place.change("flip boolean", index, index + 1, other, f"({place.text} != {ON})")
    elif place.text in place.booleans and _is_value(place):
        yield place.change("flip boolean", index, index + 1, f"!{place.text}", f"({place.text} != {ON})")


def wrong_constant(place: Place) -> Iterator[Change]:
    source, index = place.source, place.index
    token = source.tokens[index]
    if token.kind != "number" or source.is_(index - 1, "case"):
        return
    if re.fullmatch(r"\d+", token.text):
        mutated = str(int(token.text) + 1)
        yield place.change("wrong constant", index, index + 1, mutated, f"({token.text} + {ON})")
    elif re.fullmatch(r"\d*\.\d*F?", token.text):
        mutated = "1.0" if float(token.text.rstrip("F")) == 0 else f"{token.text} * 2"
        yield place.change("wrong constant", index, index + 1, mutated)


def wrong_number(place: Place) -> Iterator[Change]:
    """A factor, epsilon or exponent given by the caller is taken for 1."""
    if not _is_value(place):
        return
    if place.text in place.numbers:
        schema = f"({ON} ? decltype({place.text})(1) : {place.text})"
        yield place.change("ignore number", place.index, place.index + 1, "1", schema)
    if place.text in place.scalars:
        schema = f"({ON} ? at::Scalar(1) : {place.text}.get())"
        yield place.change("ignore number", place.index, place.index + 1, "at::Scalar(1)", schema)


def wrong_dimension(place: Place) -> Iterator[Change]:
    if re.fullmatch(r"dim|axis|dim0|dim1", place.text) and _is_value(place):
        yield place.change("wrong dimension", place.index, place.index + 1, "0", f"({ON} ? 0 : {place.text})")


OPERATORS: tuple[Callable[[Place], Iterator[Change]], ...] = (
    swap_arguments,
    drop_argument,
    other_function,
    drop_call,
    drop_statement,
    negate_condition,
    other_mark,
    other_assignment,
    flip_boolean,
    wrong_constant,
    wrong_number,
    wrong_dimension,
)


def _bare(name: str) -> str:
    return name.rpartition("::")[2]


def _is_value(place: Place) -> bool:
    """The name is read here: an operand, not a declaration, a member, a target or a function."""
    source, index = place.source, place.index
    before, after = source.tokens[index - 1], source.tokens[index + 1]
    if before.text in {".", "->"} or after.text in {"(", ".", "->", "{", "["} | ASSIGNMENTS:
        return False
    declarator = before.text in {"&", "*"} and not before.apart
    return not declarator and (before.kind != "name" or before.text in {"return", "case"})
