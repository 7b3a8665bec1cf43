"""What the pages of the operators (aclnn*.md) list: dtypes per parameter on a 910B.

A page has a table of parameters per function; notes below it say what one product does not take, or takes instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from words import PAGE_NAMES, in_order

WORD = re.compile(r"(?<![A-Za-z0-9_])(" + "|".join(sorted(PAGE_NAMES, key=len, reverse=True)) + r")(?![A-Za-z0-9_])")
SECTION = re.compile(r"(?m)^##\s+(acl\w+?)GetWorkspaceSize\s*$")
MARKED = re.compile(r'<!--\s*npu="([^"]*)"[^>]*-->(.*?)<!--\s*end[^>]*-->', re.DOTALL)
PRODUCT, PRODUCT_NAME = "910b", "Atlas A2"


@dataclass
class Page:
    """What the page of one function says: dtypes per parameter, and parameters whose notes have conditions."""

    path: str
    dtypes: dict[str, list[str]] = field(default_factory=dict)
    conditional: set[str] = field(default_factory=set)


def listed(text: str) -> list[str]:
    """The dtypes that a text names."""
    return [PAGE_NAMES[name] for name in WORD.findall(text)]


class Tables(HTMLParser):
    """The tables of a page that are written as HTML: rows of (text, rows spanned, columns spanned)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[tuple[str, int, int]]]] = []
        self.row: list[tuple[str, int, int]] | None = None
        self.cell: str | None = None
        self.spans = (1, 1)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.row = []
        elif tag in ("td", "th") and self.row is not None:
            self.cell = ""
            self.spans = (int(given.get("rowspan") or 1), int(given.get("colspan") or 1))
        elif tag in ("br", "li", "p") and self.cell is not None:
            self.cell += " ; "

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self.cell is not None and self.row is not None:
            self.row.append((self.cell.strip(), *self.spans))
            self.cell = None
        elif tag == "tr" and self.row is not None and self.tables:
            self.tables[-1].append(self.row)
            self.row = None

    def handle_data(self, data: str) -> None:
        if self.cell is not None:
            self.cell += data


def filled(table: list[list[tuple[str, int, int]]]) -> list[list[str]]:
    """The rows of a table with what spans several repeated in each."""
    rows = []
    pending: dict[int, tuple[str, int]] = {}
    for cells in table:
        row: list[str] = []
        left = list(cells)
        while left or len(row) in pending:
            if len(row) in pending:
                text, more = pending.pop(len(row))
                if more > 1:
                    pending[len(row)] = (text, more - 1)
                row.append(text)
                continue
            text, down, across = left.pop(0)
            for _ in range(across):
                if down > 1:
                    pending[len(row)] = (text, down - 1)
                row.append(text)
        rows.append(row)
    return rows


def tables(text: str) -> Iterator[list[list[str]]]:
    """The tables of a page, written either way."""
    parser = Tables()
    parser.feed(text)
    yield from map(filled, parser.tables)
    lines: list[list[str]] = []
    for line in [*re.sub(r"<table.*?</table>", "", text, flags=re.DOTALL).split("\n"), ""]:
        if line.strip().startswith("|"):
            lines.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif lines:
            yield lines
            lines = []


def pages(path: str, text: str) -> Iterator[tuple[str, Page]]:
    """The functions that a page describes."""
    parts = SECTION.split(text)
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        section = re.split(r"(?m)^##\s+", body)[0].split("返回值")[0]
        page = Page(path)
        for table in tables(section):
            read_table(table, page)
        for note in notes(section):
            apply_note(note, page)
        yield name, page


def read_table(table: list[list[str]], page: Page) -> None:
    """The dtypes that a table of parameters has, where it is one."""
    columns = [place for place, head in enumerate(table[0]) if "数据类型" in head] if table else []
    if not columns or "参数" not in table[0][0]:
        return
    for row in table[1:]:
        names = re.findall(r"[A-Za-z_]\w*", re.sub(r"[（(].*?[)）]", "", row[0])) if len(row) > columns[0] else []
        dtypes = listed(row[columns[0]]) if names else []
        if dtypes:
            page.dtypes[names[0]] = dtypes


def notes(section: str) -> list[str]:
    """What is said of this product alone."""
    marked = [
        match.group(2)
        for match in MARKED.finditer(section)
        if PRODUCT in [product.strip() for product in match.group(1).split(",")]
    ]
    if marked:
        return marked
    points = re.split(r"\n\s*-\s+(?=<term>)", section)
    return [point for point in points if PRODUCT_NAME in point.split("：")[0]]


def apply_note(note: str, page: Page) -> None:
    """Take away what a note says is not supported, or keep what it says is."""
    for sentence in re.split(r"[。\n；;]", re.sub(r"<term>.*?</term>[、：:]*", "", note)):
        dtypes = listed(sentence)
        named = [name for name in page.dtypes if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence)]
        if not dtypes:
            continue
        if "当" in sentence and "时" in sentence:
            page.conditional.update(named)
        elif "不支持" in sentence:
            refused = set(listed(sentence.split("不支持", 1)[1]))
            if "的数据类型" not in sentence:
                refused |= set(dtypes)
            for name in named or page.dtypes:
                page.dtypes[name] = [word for word in page.dtypes[name] if word not in refused]
        elif "支持" in sentence and "数据类型" in sentence:
            chosen = named or [name for name, found in page.dtypes.items() if len(found) > 1]
            for name in chosen:
                page.dtypes[name] = [*page.dtypes[name], *dtypes] if "额外" in sentence else dtypes
            if not named:
                page.conditional.update(chosen)
        else:
            page.conditional.update(named)


def for_parameters(page: Page, parameters: list[str]) -> dict[str, str]:
    """The dtypes of a page for the parameters of a signature, which may be called otherwise there."""
    simple = {name.lower().replace("optional", ""): name for name in page.dtypes}
    found = {}
    for parameter in parameters:
        name = parameter if parameter in page.dtypes else simple.get(parameter.lower().replace("optional", ""))
        if name is None and f"{parameter.removesuffix('Out')}" in page.dtypes:
            name = parameter.removesuffix("Out")
        if name is not None:
            found[parameter] = in_order(page.dtypes[name])
    return found
