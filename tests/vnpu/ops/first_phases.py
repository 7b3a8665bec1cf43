"""Ask the first phase of every implemented operator for what its row of the table says (check_rows.py)."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from aclnn import INVALID_ARGUMENT, SIGNATURES, first_phase

from torchport import vnpu

TABLES = Path(__file__).parents[3] / "csrc/opapi/aclnn"
sys.path.insert(0, str(TABLES))

import check_rows  # noqa: E402

IMPLEMENTED = {row["name"] for row in vnpu.operators() if row["status"] == "implemented"}
ROWS = {name: row for name, row in check_rows.rows(TABLES, SIGNATURES).items() if name in IMPLEMENTED}
# The words of the table for what aclCreateTensor can be told here.
WORDS = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
WORDS |= {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}
WORDS |= {"u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64}
WORDS |= {"bool": torch.bool, "c64": torch.complex64, "c128": torch.complex128}
RANKS = "tensor cannot be larger than"
# Parameters of whose list something else leaves a part: with the other tensors given, some dtypes are refused.
RELATED = {
    "aclnnComplex out": "real and imag, of whose dtype it is the complex one",
    "aclnnCumsum out": "dtype",
    "aclnnQuantMatmulAllReduceV4 output": "x1, of which int8 is all that 910B has",
    "aclnnQuantMatmulAllReduceV5 output": "x1, of which int8 is all that 910B has",
    "aclnnSearchSorted out": "outInt32",
    "aclnnTanh out": "the result, which is no integer",
    # Of these nothing is known, and the virtual NPU has a list of its own.
    "aclnnFlashAttentionVarLenScoreV3 query": "what attention computes",
    "aclnnGroupedMatmul x": "the forms of products that are offered",
    "aclnnGroupedMatmulV4 groupListOptional": "what is read as int64",
    "aclnnGroupedMatmulV5 groupListOptional": "what is read as int64",
    "aclnnGroupedMatmulWeightNz groupListOptional": "what is read as int64",
}


def kind(name: str, parameter: str) -> str:
    """The parameter's C type."""
    return str(next(kind for kind, each, _ in SIGNATURES[name]["params"] if each == parameter))


def only(name: str, given: Mapping[str, Any]) -> list[Any]:
    """The arguments of the operator: these tensors, nothing and 0 for the others."""
    arguments: list[Any] = []
    for of, each, _ in SIGNATURES[name]["params"]:
        if each in given:
            arguments.append([given[each]] if "List" in of else given[each])
        else:
            empty = [1.0] if of == "const aclScalarList*" else None
            number = a_number(name, each) if "*" not in of else empty
            arguments.append(torch.float32 if of == "aclDataType" else number)
    return arguments


@functools.cache
def a_number(name: str, parameter: str) -> float:
    """One that every chip takes, where all are limited; 0 where none is."""
    said = ROWS[name].numbers.get(parameter, {}) if name in ROWS else {}
    ranges = [each for each in said.values() if each != check_rows.ANY_NUMBER]
    candidates = [number for each in ranges for number in ends(each)[0]]
    return next((n for n in candidates if all(holds(each, n) for each in ranges)), 0)


def holds(said: str, number: float) -> bool:
    """Whether a number is in one of the ranges."""
    for one in said.split():
        low, apart, high = one.partition("..")
        high = high if apart else low
        above = low.endswith("<"), high.startswith("<")
        least, most = float(low.strip("<") or "-inf"), float(high.strip("<") or "inf")
        if (least < number if above[0] else least <= number) and (number < most if above[1] else number <= most):
            return True
    return False


@functools.cache
def shaped(rank: int, dtype: torch.dtype) -> torch.Tensor:
    """One element in so many dimensions."""
    return torch.zeros([1] * rank, dtype=dtype).npu()


def ask(name: str, **given: Any) -> str:
    """What the first phase says against the given tensors and numbers; it may say other things of what is not given."""
    status, message = first_phase(name, *only(name, given))
    return message if status == INVALID_ARGUMENT else ""


def compared(rows: Mapping[str, check_rows.Row] = ROWS) -> int:
    """How many dtypes are asked for."""
    return len(WORDS) * sum(
        "aclTensor" in kind(name, parameter) for name, row in rows.items() for parameter in row.parameters
    )


def differences(generation: str, rows: Mapping[str, check_rows.Row] = ROWS) -> list[str]:
    """Where the library refuses what its row takes, or takes what it refuses."""
    device = {word: torch.empty(1, device="npu").view(torch.uint8)[:0].view(dtype) for word, dtype in WORDS.items()}
    return [
        difference
        for name, row in rows.items()
        for difference in (
            *dtypes(name, row, generation, device),
            *ranks(name, row, generation),
            *pairs(name, row, generation, device),
            *without_common_dtype(name, row, generation, device),
            *numbers(name, row, generation),
        )
    ]


def dtypes(name: str, row: check_rows.Row, generation: str, device: Mapping[str, torch.Tensor]) -> Iterator[str]:
    for parameter, limits in row.parameters.items():
        listed = limits[generation].dtypes
        if "aclTensor" not in kind(name, parameter):
            continue
        for word, tensor in device.items():
            if generation != "910B" and (listed is None or word == "bf16"):
                # Not known of that chip: the line's own checks, which are for 910B, are all there is. And some lists
                # of chips without bfloat16 have it.
                continue
            said = ask(name, **{parameter: tensor})
            refused = f"parameter {parameter} has dtype" in said
            if refused and listed is None and f"{name} {parameter}" in RELATED:
                continue
            if refused == (listed is None or word in listed):
                yield f"{name} {parameter} {word}: {'refused' if refused else 'accepted'}"
            elif not refused and generation == "910B" and f"{name} {parameter}" not in RELATED:
                said = ask(name, **{parameter: tensor}, **others(name, row, parameter, word, device))
                if re.search(rf"parameter {parameter} has dtype \w+, allowed are", said):
                    yield f"{name} {parameter} {word}: refused beside others"


def others(
    name: str, row: check_rows.Row, parameter: str, word: str, device: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Every other tensor, of that dtype or of one that its row takes: the first check is not the last."""
    given = {}
    for kind, each, _ in SIGNATURES[name]["params"]:
        listed = row.parameters[each]["910B"].dtypes if each in row.parameters else None
        words = [one for one in (word, *WORDS) if listed is None or one in listed]
        if "aclTensor" in kind and each != parameter and words:
            given[each] = device[words[0]]
    return given


def ends(said: str) -> tuple[list[float], list[float]]:
    """Numbers at the ends of such ranges, and numbers beside them: "0..2 27" or "0<..1"."""
    taken: list[float] = []
    beside: list[float] = []
    for one in said.split():
        low, apart, high = one.partition("..")
        high = high if apart else low
        for end, open_end, outwards in ((low, low.endswith("<"), -1), (high, high.startswith("<"), 1)):
            if end:
                number = int(end.strip("<"))
                taken.append(number - outwards if open_end else number)
                beside.append(number if open_end else number + outwards)
    return taken, [number for number in beside if number not in taken]


def numbers(name: str, row: check_rows.Row, generation: str) -> Iterator[str]:
    for parameter, said in row.numbers.items():
        taken, beside = ends(said[generation])
        for number in (*taken, *beside):
            answer = ask(name, **{parameter: number})
            if (f"parameter {parameter} is {number}," in answer) == (number in taken):
                yield f"{name} {parameter} {number}: {'refused' if number in taken else 'accepted'}"


def ranks(name: str, row: check_rows.Row, generation: str) -> Iterator[str]:
    for parameter, limits in row.parameters.items():
        most, listed = limits[generation].max_rank, limits[generation].dtypes
        if "aclTensor" not in kind(name, parameter) or listed == () or most is None:
            continue
        word = next((word for word in WORDS if listed is None or word in listed), None)
        if word is None:
            continue
        for rank in (most, most + 1):
            tensor = shaped(rank, WORDS[word])
            said = ask(name, **{parameter: tensor})
            if (f"The {parameter} {RANKS}" in said) != (rank > most):
                yield f"{name} {parameter} rank {rank}: {'accepted' if rank > most else 'refused'}"


def pairs(name: str, row: check_rows.Row, generation: str, device: Mapping[str, torch.Tensor]) -> Iterator[str]:
    for a, b in row.same:
        first, second = (row.parameters.get(each, {}).get(generation) for each in (a, b))
        words = [
            [word for word in WORDS if each is None or each.dtypes is None or word in each.dtypes]
            for each in (first, second)
        ]
        differing = next(((x, y) for x in words[0] for y in words[1] if x != y), None)
        if differing is None:
            continue
        said = ask(name, **{a: device[differing[0]], b: device[differing[1]]})
        if "the dtype of" not in said:
            yield f"{name} {a} {b}: {differing}, {said or 'accepted'}"


def without_common_dtype(
    name: str, row: check_rows.Row, generation: str, device: Mapping[str, torch.Tensor]
) -> Iterator[str]:
    """uint16 to uint64 beside int32 or, where a number is the other one, beside an int64."""
    for pair in row.promotable:
        lists = {each: row.parameters[each][generation].dtypes or () for each in pair if each in row.parameters}
        alone, word = next(
            ((each, word) for each in lists for word in lists[each] if word in check_rows.WITH_ITSELF_ONLY), ("", "")
        )
        if not alone:
            continue
        other = next(each for each in pair if each != alone)
        given: dict[str, Any] = {alone: device[word]}
        given[other] = 3 if "Scalar" in kind(name, other) else device["i32"]
        said = ask(name, **given)
        if "can not promote dtype" not in said:
            yield f"{name} {alone} {other}: {word} and another, {said or 'accepted'}"
