"""Operators whose aclnn function is generated from a definition (*_def.cpp): its dtypes, which the framework checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sources import Sources
from words import NAMES, in_order

CONFIGURATIONS = {"910B": "ascend910b", "910A": "ascend910", "310P": "ascend310p"}
GENERATED = re.compile(r"ACLNNTYPE\s+aclnn\b(?!_)")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
ADDED = re.compile(r"OP_ADD\(\s*(\w+)")
LIST = re.compile(r"(\w+)\s*=?\s*\{([^{}]*\bDT_[^{}]*)\}\s*;")
PARAMETER = re.compile(r'(\w+)\s*(?:->|\.)\s*(Input|Output)\s*\(\s*"(\w+)"\s*\)([^;]*);')
DTYPES = re.compile(r"\.\s*DataType(?:List)?\s*\(\s*(\{[^{}]*\}|\w+)")
CONFIGURED = re.compile(r'AddConfig\s*\(\s*"(\w+)"\s*(?:,\s*(\w+))?')
VERSIONED = re.compile(r"\.\s*Version\s*\(")


@dataclass
class Definition:
    """Per chip the dtypes of the parameters, inputs first: "" where there is no kernel, None where unread."""

    path: str
    names: list[str]
    dtypes: dict[str, list[str | None]] = field(default_factory=dict)
    versioned: bool = False


def definitions(sources: Sources) -> Iterator[tuple[str, Definition]]:
    """The definitions from which aclnn functions are generated, by the name of the function."""
    for path in sources.paths:
        if not path.endswith("_def.cpp"):
            continue
        lists = path.rsplit("/", 1)[0] + "/CMakeLists.txt"
        # Without that word the functions are generated for internal use, or not at all.
        if lists in sources.known and not GENERATED.search(sources.text(lists)):
            continue
        text = sources.text(path)
        for name in ADDED.findall(text):
            yield "aclnn" + name, read_definition(path, text)


def read_definition(path: str, text: str) -> Definition:
    """The definition in a file."""
    text = COMMENT.sub("", text)
    lists = {name: dtypes(values) for name, values in LIST.findall(text)}
    given: dict[str, dict[str, str | None]] = {}
    kinds: dict[str, str] = {}
    for owner, kind, name, rest in PARAMETER.findall(text):
        found = DTYPES.search(rest)
        if found:
            value = found.group(1)
            # What is put together by statements is not known; that is another thing than nothing.
            listed = dtypes(value) if value.startswith("{") else lists.get(value, [])
            given.setdefault(owner, {})[name] = in_order(listed) or None
            if owner == "this":
                kinds[name] = kind
    general = given.get("this", {})
    names = [name for kind in ("Input", "Output") for name in general if kinds[name] == kind]
    configured: dict[str, str] = dict(CONFIGURED.findall(text))
    result = Definition(path, names, versioned=bool(VERSIONED.search(text)))
    for chip, configuration in CONFIGURATIONS.items():
        own = {**general, **given.get(configured.get(configuration, ""), {})}
        result.dtypes[chip] = [own[name] if configuration in configured else "" for name in names]
    return result


def dtypes(text: str) -> list[str]:
    """The dtypes that a text names, as a row writes them."""
    return [NAMES[name] for name in re.findall(r"\bDT_\w+", text) if name in NAMES]


def for_parameters(definition: Definition, parameters: list[str]) -> dict[str, dict[str, str | None]]:
    """The dtypes per chip of the tensors of a signature: by their place, as both have inputs before outputs."""
    found: dict[str, dict[str, str | None]] = {}
    simple = {name.replace("_", "").lower(): place for place, name in enumerate(definition.names)}
    by_place = len(parameters) == len(definition.names)
    for place, parameter in enumerate(parameters):
        key = parameter.lower().removesuffix("optional")
        known = simple.get(key, simple.get(key.removesuffix("out"), place if by_place else None))
        if known is not None:
            found[parameter] = {chip: listed[known] for chip, listed in definition.dtypes.items()}
    return found
