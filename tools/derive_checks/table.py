"""The table: one row per operator of the signatures, put together from walks, definitions and pages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import definitions
import documents
from interpreter import outcome
from rows import Limits, limits, numbers, same
from sources import Sources, Unit
from syntax import Function
from words import CHIPS

Row = dict[str, Any]
CHECKED = ("aclTensor", "aclScalar")
EVERYWHERE = next(iter(CHIPS))


def table(sources: Sources, signatures: dict[str, Any], only: Iterable[str] = ()) -> dict[str, Row]:
    """The rows of these operators, or of all."""
    phases: dict[str, str] = {}
    for path, names in sources.first_phases():
        for name in names:
            phases.setdefault(name, path)
    defined = dict(definitions.definitions(sources))
    pages = read_pages(sources)
    return {
        name: row_of(sources, name, signatures[name], phases.get(name), defined, pages.get(name))
        for name in sorted(only or signatures)
    }


def read_pages(sources: Sources) -> dict[str, documents.Page]:
    """The page of each function; where two describe it, that which describes more parameters."""
    found: dict[str, documents.Page] = {}
    for path in sources.paths:
        if path.endswith(".md") and path.rsplit("/", 1)[-1].startswith("aclnn"):
            for name, page in documents.pages(path, sources.text(path)):
                if name not in found or len(found[name].dtypes) < len(page.dtypes):
                    found[name] = page
    return found


def row_of(
    sources: Sources,
    name: str,
    signature: dict[str, Any],
    path: str | None,
    defined: dict[str, definitions.Definition],
    page: documents.Page | None,
) -> Row:
    """The row of one operator."""
    checked = [parameter for kind, parameter, _ in signature["params"] or () if any(word in kind for word in CHECKED)]
    row: Row = {"source": path, "evidence": None}
    parameters: dict[str, dict[str, Any]] = {parameter: {} for parameter in checked}
    definition = None if path else definition_of(name, defined)
    if path:
        row |= from_code(sources, name, path, parameters, [p[1] for p in signature["params"] or ()])
    elif definition:
        row |= {"source": definition.path, "evidence": "definition"}
        for parameter, dtypes in definitions.for_parameters(definition, checked).items():
            parameters[parameter] |= compact(dtypes)
    if page:
        row["page"] = page.path
        add_page(row, page, parameters, checked)
    return row | {"parameters": parameters}


def definition_of(name: str, defined: dict[str, definitions.Definition]) -> definitions.Definition | None:
    """The definition that a function is generated from; V2 is one with an attribute that came later."""
    if name in defined:
        return defined[name]
    earlier = defined.get(name.removesuffix("V2"))
    return earlier if earlier and earlier.versioned and name.endswith("V2") else None


def from_code(sources: Sources, name: str, path: str, parameters: dict[str, dict[str, Any]], order: list[str]) -> Row:
    """What the walks of a first phase say; the parameters get their limits."""
    unit = sources.unit(path)
    function = unit.functions(name + "GetWorkspaceSize")[0]
    names = [parameter.name for parameter in function.parameters]
    # By place: the source of a first phase may call a parameter otherwise than its declaration.
    called = dict(zip(names, order, strict=False))
    outcomes = {chip: outcome(unit, function, chip) for chip in CHIPS}
    found = {chip: limits(walked, names) for chip, walked in outcomes.items()}
    for inner, parameter in called.items():
        if parameter in parameters:
            parameters[parameter] |= of_chips({chip: found[chip][inner] for chip in CHIPS})
    row: Row = {"evidence": "code"}
    if not all(walked.complete for walked in outcomes.values()):
        row["incomplete"] = True
    attributes = {called.get(name, name): said for name, said in numbers_on_chips(unit, function).items()}
    if attributes:
        row["attributes"] = attributes
    walked = outcomes[EVERYWHERE]
    relations = {
        "same": sorted([called.get(a, a), called.get(b, b)] for a, b in same(walked)),
        "promotable": sorted([called.get(a, a), called.get(b, b)] for a, b in walked.promoted),
    }
    return row | {key: pairs for key, pairs in relations.items() if pairs}


def numbers_on_chips(unit: Unit, function: Function) -> dict[str, Any]:
    """The ranges of the numbers that are limited: one of all chips, or one for each."""
    kinds = {parameter.name: parameter.kind for parameter in function.parameters}
    outcomes = {chip: outcome(unit, function, chip, telling_numbers=True) for chip in CHIPS}
    # A chip that refuses the operator says nothing of numbers.
    taken = {chip: numbers(walked, kinds) for chip, walked in outcomes.items() if walked.accepted}
    found: dict[str, Any] = {}
    for name in kinds:
        said = {chip: of_chip.get(name, "..") for chip, of_chip in taken.items()}
        if set(said.values()) - {".."}:
            found[name] = said if len(set(said.values())) > 1 else next(iter(said.values()))
    return found


def of_chips(found: dict[str, Limits]) -> dict[str, Any]:
    """A parameter's limits."""
    result = compact({chip: limit.dtypes for chip, limit in found.items()})
    for key, values in (
        ("max_rank", {chip: limit.max_rank for chip, limit in found.items()}),
        ("except", {chip: limit.except_for or None for chip, limit in found.items()}),
    ):
        # A chip that refuses the operator says nothing of ranks.
        told = {chip: value for chip, value in values.items() if found[chip].dtypes != ""}
        if any(value is not None for value in told.values()):
            result[key] = next(iter(told.values())) if len(set(told.values())) == 1 else told
    if any(limit.sometimes for limit in found.values()):
        result["sometimes"] = True
    return result


def compact(dtypes: dict[str, str | None]) -> dict[str, Any]:
    """The dtypes of the first chip, and those of the others where they differ."""
    first = dtypes[EVERYWHERE]
    others = {chip: value for chip, value in dtypes.items() if value != first}
    return {"dtypes": first, **others}


def add_page(row: Row, page: documents.Page, parameters: dict[str, dict[str, Any]], checked: list[str]) -> None:
    """What the page says, where that is something else, and that it confirms the rest."""
    listed = documents.for_parameters(page, checked)
    confirmed = False
    for parameter, dtypes in listed.items():
        known = parameters[parameter]
        if known.get("dtypes") == dtypes:
            confirmed = True
            continue
        known["page"] = dtypes
        if known.get("dtypes") is not None:
            known["differs"] = True
    if row["evidence"] == "code" and (confirmed or listed):
        row["evidence"] = "code+page"
    elif row["evidence"] is None and listed:
        row["evidence"] = "page"


def written(rows: dict[str, Row]) -> str:
    """The table as text, an operator per line."""
    lines = [f"{json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in sorted(rows.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def dtypes_on(parameter: dict[str, Any], chip: str) -> str | None:
    """The dtypes that a row gives a parameter on a chip."""
    value = parameter.get(chip, parameter.get("dtypes"))
    return value if value is None else str(value)


def read_table(path: Path) -> dict[str, Row]:
    """The rows of a table that was written."""
    rows: dict[str, Row] = json.loads(path.read_text(encoding="utf-8"))
    return rows
