"""Compare csrc/opapi/aclnn/signatures.json with a torch_npu wheel, or bring it up to date.

  python tools/read_signatures.py                        the installed torch_npu: which functions it asks libopapi for
  python tools/read_signatures.py --wheel FOLDER         another one, installed or unpacked
  python tools/read_signatures.py --sources FOLDER       their parameters too, from CANN's public repositories
  python tools/read_signatures.py --sources FOLDER --write

The names come from the wheel's libraries, which look functions up by name. Parameters come from the wheel's headers as
far as they declare any (the headers of 2.13.0 declare nothing of libopapi), then from SOURCES, the folder that
derive_checks takes: the trees ops-math, ops-nn, ops-cv and ops-transformer, a header before a page. A row without
either is kept.

Each difference is one line: added, gone, parameters or direction, here in the table and there in the file in brackets.
Neither of these is a difference:

  numbers   torch_npu passes a number of another type than the header names (PASSED): the call decides
  kept      signatures_kept.toml lists the parameter, with the reason

--write adds, drops and replaces rows. New rows have tier 3 and no `torch`; both are filled in by hand. Exit code 0 if
nothing differs or everything was written, 1 if something differs or has no signature, 2 without a wheel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import mmap
import re
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cann_prototypes import FIRST_PHASE, Prototype, Prototypes

TABLES = Path(__file__).resolve().parents[1] / "csrc/opapi/aclnn"
KEPT = Path(__file__).with_name("signatures_kept.toml")
NAME = re.compile(rb"\0(aclnn[A-Z][A-Za-z0-9]{1,100}|acl[A-Z][A-Za-z0-9]{1,80}GetWorkspaceSize)(?=\0)")
# Left to torch_npu's own way, which works: tests/vnpu/test_functions_asked_for.py.
NOT_OFFERED = {"aclRfft1D"}
# Types of the headers for which torch_npu passes another: what op-plugin's call has is what a function receives.
PASSED = {
    ("int64_t", "aclDataType"),
    ("int64_t", "int"),
    ("int64_t", "uint64_t"),
    ("uint64_t", "int64_t"),
    ("float", "double"),
}

Row = dict[str, Any]
Rows = dict[str, Row]


@dataclass
class Comparison:
    """The differences between the table and the wheel, and the rows that the wheel and the sources give."""

    lines: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)
    without: list[str] = field(default_factory=list)  # asked for, but no signature anywhere
    agreeing: Counter[str] = field(default_factory=Counter)  # by where the parameters come from
    numbers: int = 0
    kept: Counter[str] = field(default_factory=Counter)  # by the row's source


def read_names(wheel: Path) -> set[str]:
    """The functions that the wheel's libraries look up: operators by their plain name, others as they are called.

    Raises ValueError if the folder has no library.
    """
    libraries = sorted((wheel / "lib").glob("*.so*"))
    if not libraries:
        raise ValueError(f"{wheel}/lib has no library: name the folder torch_npu of an installed or unpacked wheel")
    found: set[str] = set()
    for path in libraries:
        if path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                found |= {match.decode() for match in NAME.findall(content)}
    operators = {name.removesuffix(FIRST_PHASE) for name in found if name.endswith(FIRST_PHASE)}
    return operators | {name for name in found if not name.endswith(FIRST_PHASE)}


def find_wheel(given: Path | None) -> Path:
    """The folder torch_npu: given itself or by its parent, else the installed one. Raises ValueError for none."""
    if given is not None:
        return given / "torch_npu" if (given / "torch_npu/lib").is_dir() else given
    spec = importlib.util.find_spec("torch_npu")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("torch_npu is not installed here: name its folder with --wheel")
    return Path(spec.submodule_search_locations[0])


def make_row(name: str, prototype: Prototype, declared: Prototypes, old: Row, kept: list[str]) -> Row:
    """The row of a function; types in PASSED and parameters in `kept` stay as the old row has them."""
    before = {parameter: (kind, way) for kind, parameter, way in old.get("params") or ()}
    params = []
    for place, (kind, parameter) in enumerate(prototype.parameters):
        way = declared.guess_direction(name, place, (kind, parameter))
        old_kind, old_way = before.get(parameter, (kind, way))
        keeps = parameter in kept
        params.append([old_kind if keeps or (kind, old_kind) in PASSED else kind, parameter, old_way if keeps else way])
    row = {**old} or {"tier": 3, "source": prototype.source, "torch": []}
    if params != old.get("params"):
        row |= {"source": prototype.source, "params": params}
    return row


def describe_change(name: str, old: Row, new: Row, prototype: Prototype) -> str:
    """The line about a row that changes: every direction, or the first parameter that differs."""
    before, after, path = old["params"], new["params"], prototype.path
    if [one[:2] for one in before] == [one[:2] for one in after]:
        words = (f"{b[1]} is {b[2]} here, {a[2]} there" for a, b in zip(after, before, strict=True) if a != b)
        return f"direction: {name}: {', '.join(words)} ({path})"
    first = next((i for i, (a, b) in enumerate(zip(after, before, strict=False)) if a[:2] != b[:2]), None)
    if first is None:
        return f"parameters: {name}: {len(before)} here, {len(after)} there ({path})"
    here, there = (" ".join(rows[first][:2]) for rows in (before, after))
    return f"parameters: {name}: number {first + 1} is {here} here, {there} there ({path})"


def compare_rows(
    rows: Rows,
    asked: set[str],
    left_out: set[str],
    declared: Prototypes,
    elsewhere: Rows,
    kept: dict[str, dict[str, Any]],
) -> Comparison:
    """Compare the table's rows with the names asked for and what is declared of them.

    `left_out` are names without a row on purpose, `elsewhere` MindSpore's rows, `kept` the signatures_kept.toml.
    """
    result = Comparison()
    for name in sorted(asked | rows.keys()):
        old, prototype = rows.get(name), declared.find(name)
        if old is None:
            if name in left_out:
                continue
            if name in elsewhere:
                result.rows[name] = {**elsewhere[name], "tier": 3}
                result.lines.append(f"added: {name}: signatures_mindspore.json has its row, which moves")
            elif prototype:
                result.rows[name] = make_row(name, prototype, declared, {}, [])
                result.lines.append(f"added: {name}: {len(prototype.parameters)} parameters ({prototype.path})")
            else:
                result.without.append(name)
                result.lines.append(f"added: {name}: no signature found; no operator? then unexported.toml")
        elif name not in asked:
            result.lines.append(f"gone: {name}: the wheel does not ask for it")
        elif prototype is None or old["params"] is None:
            result.kept[old["source"]] += 1
            result.rows[name] = old
        else:
            new = make_row(name, prototype, declared, old, kept.get(name, {}).get("parameters", []))
            result.rows[name] = new
            if new["params"] != old["params"]:
                result.lines.append(describe_change(name, old, new, prototype))
                continue
            result.agreeing["wheel" if prototype.wheel else prototype.source] += 1
            types = [kind for kind, _ in prototype.parameters]
            result.numbers += types != [kind for kind, *_ in old["params"]]
    return result


def summarize(result: Comparison, rows: Rows, asked: set[str]) -> str:
    """The last line: how many rows the wheel gives, and where the others come from."""
    agreeing = result.agreeing
    parts = [
        f"{agreeing['wheel']} of {len(rows)} rows come from the wheel and agree "
        f"(it asks for {len(asked & rows.keys())} of their names)"
    ]
    if agreeing["header"] or agreeing["doc"]:
        parts.append(
            f"{agreeing['header']} agree with a header of the sources and {agreeing['doc']} with a page, "
            f"{result.numbers} of these but for the type of a number"
        )
    kept = ", ".join(f"{count} from {source}" for source, count in result.kept.most_common())
    parts += [f"{result.kept.total()} kept ({kept or 'none'})", f"{len(result.lines)} differences"]
    return "; ".join(parts)


def read_table(path: Path) -> Rows:
    """The rows of signatures.json or signatures_mindspore.json."""
    rows: Rows = json.loads(path.read_text(encoding="utf-8"))
    return rows


def write_table(path: Path, rows: Rows) -> None:
    """Write rows as these files have them: sorted, one a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(rows[name], ensure_ascii=False)}" for name in sorted(rows))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main(argv: list[str] | None = None, tables: Path = TABLES, kept: Path = KEPT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="the folder torch_npu; default: the installed one")
    parser.add_argument("--sources", type=Path, help="a folder with CANN's public repositories of operators")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="compare only (the default)")
    mode.add_argument("--write", action="store_true", help="bring signatures.json up to date")
    arguments = parser.parse_args(argv)
    try:
        wheel = find_wheel(arguments.wheel)
        asked = read_names(wheel)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    declared = Prototypes()
    declared.read_folder(wheel / "include", wheel=True)
    if arguments.sources:
        declared.read_folder(arguments.sources)
    rows, elsewhere = (read_table(tables / f"signatures{of}.json") for of in ("", "_mindspore"))
    unexported = tomllib.loads((tables / "unexported.toml").read_text(encoding="utf-8"))
    reasons = tomllib.loads(kept.read_text(encoding="utf-8"))
    result = compare_rows(rows, asked, NOT_OFFERED | unexported.keys(), declared, elsewhere, reasons)
    for line in result.lines:
        print(line)
    for name in sorted(unexported.keys() - asked - rows.keys()):
        print(f"note: unexported.toml has {name}, for which the wheel does not ask")
    print(summarize(result, rows, asked))
    if not arguments.write:
        return 1 if result.lines else 0
    write_table(tables / "signatures.json", result.rows)
    if moved := elsewhere.keys() & result.rows.keys():
        rest = {name: row for name, row in elsewhere.items() if name not in moved}
        write_table(tables / "signatures_mindspore.json", rest)
    return 1 if result.without else 0


if __name__ == "__main__":
    sys.exit(main())
