"""What the first phase of each operator checks, from checks.json and corrections.toml: rows().

checks.json is derived from CANN's sources (tools/derive_checks). Of each parameter it knows what the executed check
takes and what the operator's page lists. What counts, in this order:

    corrections.toml   what people have read where the derivation is wrong or does not see it, each with its source
    the code           its list, which the page may confirm
    the page           where the code has no list, or one that is not looked at on every call and is not the page's

and without any of them every dtype passes. Runs at build, standard library only.
"""

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

# In the order of vnpu::Generation (device/chip.h): whose operators the chips of devices.toml have.
GENERATIONS = ("910B", "910A", "310P")
WITHOUT_BFLOAT16 = {"910A", "310P"}
NO_LIMIT = 127
ANY_NUMBER = ".."
# Dtypes that have a common one with themselves only (opbase: data_type_utils.h).
WITH_ITSELF_ONLY = {"u16", "u32", "u64"}


class Limit(NamedTuple):
    """What one generation takes of one parameter. Empty `dtypes`: the operator does not run there."""

    dtypes: tuple[str, ...] | None  # None: all
    max_rank: int | None
    evidence: str  # code, page, correction, or "" where nothing is known


class Row(NamedTuple):
    """What the first phase of an operator checks before anything else."""

    parameters: dict[str, dict[str, Limit]]  # in the order of the signature; by generation
    same: list[tuple[str, str]]  # pairs whose dtypes have to be equal where both are given
    promotable: list[tuple[str, str]]  # pairs that have to have a common dtype, where a row takes one that has none
    numbers: dict[str, dict[str, str]]  # what is taken of attributes, "0..2 27" or "0<..1"; by generation
    evidence: str  # what is known of its checks: see EVIDENCE
    unconfirmed: dict[str, str]  # dtypes that the code takes and the page does not list, on 910B


# What `torchport vnpu ops` says of an operator's checks, by what checks.json says.
EVIDENCE = {
    "code+page": "code and page",
    "code": "code",
    "definition": "definition",  # the interface is generated from it
    "page": "page",
    None: "unknown",
}


def known(kind: str) -> bool:
    """Whether a parameter of this type is one tensor, a list of them or one scalar."""
    return kind.removeprefix("const ").strip() in ("aclTensor*", "aclTensorList*", "aclScalar*")


def rows(tables: Path, signatures: dict[str, Any]) -> dict[str, Row]:
    """The row of each operator whose parameters are known.

    Raises ValueError for a parameter that the operator does not have and for a correction without a source.
    """
    checks = json.loads((tables / "checks.json").read_text(encoding="utf-8"))
    corrections = tomllib.loads((tables / "corrections.toml").read_text(encoding="utf-8"))
    for name, correction in corrections.items():
        if not correction.get("source"):
            raise ValueError(f"corrections.toml: {name} has no source")
        params = {param for _, param, _ in signatures.get(name, {}).get("params") or ()}
        if strangers := correction.keys() - {"source"} - params:
            raise ValueError(f"corrections.toml: {name} has no parameter {', '.join(sorted(strangers))}")
    found = {}
    for name, check in checks.items():
        params = signatures.get(name, {}).get("params")
        if params is None:
            continue
        kinds = {param: kind for kind, param, _ in params}
        if strangers := check["parameters"].keys() - kinds.keys():
            raise ValueError(f"checks.json: {name} has no parameter {', '.join(sorted(strangers))}")
        row = row_of(check, corrections.get(name, {}), {p: kind for p, kind in kinds.items() if known(kind)})
        found[name] = row
    return found


def row_of(check: dict[str, Any], correction: dict[str, Any], kinds: dict[str, str]) -> Row:
    """The row of one operator."""
    generated = check["evidence"] == "definition"
    parameters = {}
    for param, kind in kinds.items():
        of = check["parameters"].get(param, {})
        if "Scalar" in kind:  # pages list what they are converted to, as definitions do
            of = {} if generated or of.get("sometimes") else {**of, "page": None}
        limits = {each: limit(of, correction.get(param, {}), each, generated) for each in GENERATIONS}
        for each, one in limits.items():
            if one.evidence == "page":  # which is behind the code for the other parameters as well
                more = {
                    dtype
                    for other in check["parameters"].values()
                    if not other.get("sometimes")
                    for dtype in beyond_page(other, each)
                }
                limits[each] = one._replace(dtypes=(*(one.dtypes or ()), *sorted(more - set(one.dtypes or ()))))
        if any(one.dtypes is not None or one.max_rank is not None for one in limits.values()):
            parameters[param] = limits
    tensors = {param for param, kind in kinds.items() if "aclTensor" in kind}
    pairs = [(a, b) for a, b in check.get("same", ()) if a in tensors and b in tensors]
    alone = {param for param, limits in parameters.items() if not WITH_ITSELF_ONLY.isdisjoint(all_of(limits))}
    common = [(a, b) for a, b in check.get("promotable", ()) if {a, b} <= kinds.keys() and not alone.isdisjoint((a, b))]
    beyond = {param: beyond_page(check["parameters"].get(param, {}), GENERATIONS[0]) for param in parameters}
    unconfirmed = {param: " ".join(more) for param, more in beyond.items() if more}
    evidence = "incomplete" if check.get("incomplete") else EVIDENCE[check["evidence"]]
    return Row(parameters, pairs, common, numbers(check, correction), evidence, unconfirmed)


def numbers(check: dict[str, Any], correction: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What is taken of the attributes that are limited."""
    derived = {
        param: {each: on(said, each) or ANY_NUMBER if isinstance(said, dict) else said for each in GENERATIONS}
        for param, said in check.get("attributes", {}).items()
    }
    read = {
        param: dict.fromkeys(GENERATIONS, said["numbers"])
        for param, said in correction.items()
        if param != "source" and "numbers" in said
    }
    return {
        param: said
        for param, said in sorted((derived | read).items())
        if any(one != ANY_NUMBER for one in said.values())
    }


def all_of(limits: dict[str, Limit]) -> set[str]:
    """What any generation takes."""
    return {dtype for one in limits.values() for dtype in (one.dtypes or ())}


def beyond_page(of: dict[str, Any], generation: str) -> list[str]:
    """The dtypes of a parameter that the code takes and the operator's page does not list."""
    if not of.get("differs"):
        return []
    listed = of.get(generation, of["dtypes"]) or ""
    return [dtype for dtype in listed.split() if dtype not in of["page"].split()]


def limit(of: dict[str, Any], corrected: dict[str, Any], generation: str, generated: bool) -> Limit:
    """What a generation takes of a parameter of checks.json."""
    # A rank of 0 is one of results that are reduced, which an attribute decides.
    rank = corrected.get("max_rank", on(of.get("max_rank"), generation) or None)
    listed = of.get(generation, of.get("dtypes"))
    if listed == "" and generated:  # kernels of an earlier package may be there all the same
        listed = None
    if "dtypes" in corrected:
        dtypes = None if corrected["dtypes"] == "any" else on_chip(corrected["dtypes"], generation)
        return Limit(dtypes, rank, "correction")
    # A list that an attribute or another tensor can pass by counts where the page agrees with it, or is silent.
    if listed is not None and not (of.get("sometimes") and of.get("page")):
        return Limit(tuple(listed.split()), rank, "code")
    if of.get("page"):
        refused = set((on(of.get("except"), generation) or "").split())
        dtypes = on_chip(of["page"], generation)
        return Limit(tuple(each for each in dtypes if each not in refused), rank, "page")
    return Limit(None, rank, "code" if rank is not None else "")


def on(value: Any, generation: str) -> Any:
    """A value of a parameter, which may be one for each generation."""
    return value.get(generation) if isinstance(value, dict) else value


def on_chip(listed: str, generation: str) -> tuple[str, ...]:
    """What a page that does not tell the generations apart lists, without what the chip does not have."""
    without = {"bf16"} if generation in WITHOUT_BFLOAT16 else set()
    return tuple(each for each in listed.split() if each not in without)
