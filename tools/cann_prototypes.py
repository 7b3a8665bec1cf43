"""Read the parameters of libopapi's functions from C headers and from the pages of CANN's operator repositories.

A header declares `aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor* self, ..., aclOpExecutor** executor)`, a page
(aclnn*.md) quotes it. The last two parameters, workspaceSize and executor, belong to every operator and are left out.

A prototype does not say which tensors are written. `guess_direction` takes, in this order: a name that ends with Ref,
the page's table (输入, 输出), an `@param [out]` of the header, and the type and name of the parameter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Copies of other repositories, code that no release has, and files that only tests and examples include.
LEFT_OUT = {"experimental", "3rd", "third_party", "tests", "test", "examples", "op_kernel", "ut", "st"}
FIRST_PHASE = "GetWorkspaceSize"
OF_EVERY_OPERATOR = {"workspacesize", "executor", "opexecutor"}
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
PROTOTYPE = re.compile(r"\b(?:aclnnStatus|aclnn_status|aclError|int32_t)\s+(acl\w+)\s*\(([^;{}()`]*)\)")
PARAMETER = re.compile(r"((?:const )?(?:struct )?\w+ ?(?:\* ?)*)(?:const )?\b(\w+)(?: ?\[\])?")
# The documentation of a prototype: a block comment just in front of it.
TAGGED = re.compile(r"/\*((?:(?!\*/).)*)\*/\s*[\w\s]*?\b(acl\w+)\s*\(", re.DOTALL)
TAG = re.compile(r"@param\s*\[\s*out\s*\]\s*[:：]?\s*(\w+)")
SECTION = re.compile(r"(?m)^##\s+(acl\w+)\s*$")
# A row of a page's table of parameters, in HTML, in Markdown, or as a list.
ROWS = (
    re.compile(
        r"<td[^>]*>\s*(?:<[^>]*>)*\s*([A-Za-z_]\w*)\s*(?:[（(][^<]*?[）)])?\s*(?:</[^>]*>)*\s*</td>"
        r"\s*<td[^>]*>\s*([可选输入出/、& ]+?)\s*</td>"
    ),
    re.compile(r"(?m)^\s*\|\s*`?([A-Za-z_]\w*)`?\s*(?:[（(][^|]*?[）)])?\s*\|\s*([可选输入出/、& ]+?)\s*\|"),
    re.compile(r"(?m)^\s*-\s*\**([A-Za-z_]\w*)\**\s*[（(][^）)]*?[,，、]\s*(?:计算)?([可选输入出/]+)(?:参数)?[）)]"),
)

Parameter = tuple[str, str]  # type and name: ("const aclTensor*", "self")


@dataclass
class Prototype:
    """The parameters of one function as one file declares them."""

    source: str  # header or doc
    path: str  # below the folder that was read
    wheel: bool  # whether that folder is torch_npu's
    parameters: list[Parameter]


@dataclass
class Prototypes:
    """The declarations in some folders, by function without GetWorkspaceSize; the folder read first wins."""

    headers: dict[str, Prototype] = field(default_factory=dict)
    pages: dict[str, Prototype] = field(default_factory=dict)
    tagged: dict[str, set[str]] = field(default_factory=dict)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)

    def read_folder(self, folder: Path, wheel: bool = False) -> None:
        """Read every header and page below a folder. Bytes that are not UTF-8 are replaced."""
        for path in list_files(folder):
            text = path.read_text(encoding="utf-8", errors="replace")
            if "aclnnStatus" not in text and FIRST_PHASE not in text:
                continue
            where = path.relative_to(folder).as_posix()
            header = path.suffix == ".h"
            known, source = (self.headers, "header") if header else (self.pages, "doc")
            for name, listed in read_prototypes(text):
                known.setdefault(name, Prototype(source, where, wheel, listed))
            if header:
                for comment, name in TAGGED.findall(text):
                    written = set(TAG.findall(comment))
                    self.tagged.setdefault(name.removesuffix(FIRST_PHASE), set()).update(written)
            else:
                for name, directions in read_tables(text):
                    self.tables.setdefault(name, {}).update(directions)

    def find(self, name: str) -> Prototype | None:
        """The header's prototype of a function, else the page's."""
        return self.headers.get(name) or self.pages.get(name)

    def guess_direction(self, function: str, place: int, parameter: Parameter) -> str:
        """in, out or inout, for the parameter at an index."""
        kind, name = parameter
        if kind.removeprefix("const ") not in ("aclTensor*", "aclTensorList*"):
            numbers = kind.endswith("*") and not kind.startswith("const ") and "acl" not in kind
            return "out" if numbers and kind != "char*" else "in"
        if name.endswith("Ref") or (function.startswith("aclnnInplace") and place == 0):
            return "inout"
        listed = self.tables.get(function, {})
        plain = name.removesuffix("Optional")
        if known := listed.get(name) or listed.get(plain) or listed.get(plain + "Optional"):
            return known
        if name in self.tagged.get(function, ()) or not kind.startswith("const "):
            return "out"
        return "out" if re.search(r"^out$|Out\d*(Optional)?$", name) else "in"


def list_files(folder: Path) -> Iterator[Path]:
    """The headers and pages below a folder, sorted."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if name.endswith((".h", ".md")))


def read_prototypes(text: str) -> Iterator[tuple[str, list[Parameter]]]:
    """The functions that a text declares: first phases, and functions without phases. A list of parameters that is
    not C is passed over.
    """
    for name, listed in PROTOTYPE.findall(COMMENT.sub("", text)):
        found = read_parameters(listed)
        if found is None or "workspace" in {one for _, one in found}:  # the second phase
            continue
        if name.endswith("WorkspaceSize"):  # also GetMaxWorkspaceSize
            while found and found[-1][1].replace("_", "").lower() in OF_EVERY_OPERATOR:
                found.pop()
        yield name.removesuffix(FIRST_PHASE), found


def read_parameters(listed: str) -> list[Parameter] | None:
    """The types and names between the parentheses; None if one is no declaration. `const` of a number goes."""
    if listed.strip() in ("", "void"):
        return []
    found = []
    for text in listed.split(","):
        match = PARAMETER.fullmatch(" ".join(text.replace("*", " * ").split()))
        if match is None:
            return None
        kind = match[1].replace("struct ", "").replace(" ", "").replace("const", "const ", 1)
        found.append((kind if kind.endswith("*") else kind.removeprefix("const "), match[2]))
    return found


def read_tables(page: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The directions that a page's tables list, per function."""
    parts = SECTION.split(page)
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        section = re.split(r"(?m)^##\s+", body)[0].split("返回值")[0]
        found: dict[str, str] = {}
        for pattern in ROWS:
            for parameter, words in pattern.findall(section):
                read, written = "输入" in words, "输出" in words
                if read or written:
                    found.setdefault(parameter, "inout" if read and written else "out" if written else "in")
        yield name.removesuffix(FIRST_PHASE), found
