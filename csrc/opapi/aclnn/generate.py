"""Turn the table of aclnn signatures into C++: generate.py SOURCE_DIR OUTPUT_DIR

Reads the tables of SOURCE_DIR/aclnn: signatures.json (what torch_npu can ask libopapi for), signatures_mindspore.json
(what MindSpore asks for beside that), checks.json and
corrections.toml (what CANN's own checks refuse: check_rows.py), engines.json (which unit of the chip runs an operator),
work.toml (how the time model counts an operator's work),
unexported.toml (what we leave out, and why); and the operator lines of SOURCE_DIR/*/*.cpp: a macro in capitals at the
start of a line whose first argument is the operator, `OP(aclnnAdd, ...)`. Writes

    aclnn.h, aclnn_mindspore.h
                     per operator its parameters, how they are owned, what is checked of them and what it reads and
                     writes, used by the macros of op.h
    checks.cpp       the dtypes and ranks
    engines.cpp      the units
    work.inc         the classes of work
    gaps.cpp         an entry point for every operator without a line: it is missing, or of other chips
    operators.json   the support table: name, tier, status, family, reason, torch_ops, checks, unconfirmed

so an operator's one line in a family file and its name in work.toml are all there is to write. Runs at build, standard
library only.
"""

import difflib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import check_rows
import signatures
from check_rows import GENERATIONS, NO_LIMIT, Limit, Row

OPERATOR_LINE = re.compile(r"^[A-Z][A-Z0-9_]*\(\s*(acl[A-Za-z0-9_]+)", re.MULTILINE)
# A file's own macro for lines of the old API: LEGACY(NAME, ...), or LEGACY(Cust##NAME, ...).
ACLOP_MACRO = re.compile(r"^#define (\w+)\(NAME\b(?:[^\n]*\\\n)*?[^\n]*?LEGACY\((?:(\w+)##)?NAME,", re.MULTILINE)
CHECK = re.compile(r"^(?:inline )?void (\w+)\(", re.MULTILINE)  # a function of check.h
CHECKED_FOR_NULL = ("aclTensor*", "aclTensorList*", "aclScalar*")
# Files and families that move values without computing: infinities stay what they are where results saturate.
MOVING = {"movement", "index/index", "index/scatter"}
SCALAR_TYPES = {
    "bool": "Bool",
    "u8": "Byte",
    "i8": "Char",
    "i16": "Short",
    "i32": "Int",
    "i64": "Long",
    "u16": "UInt16",
    "u32": "UInt32",
    "u64": "UInt64",
    "f16": "Half",
    "bf16": "BFloat16",
    "f32": "Float",
    "f64": "Double",
    "c32": "ComplexHalf",
    "c64": "ComplexFloat",
    "c128": "ComplexDouble",
}
OWNED = {*CHECKED_FOR_NULL, "aclScalarList*", "aclIntArray*", "aclBoolArray*", "aclFloatArray*", "char*"}


class Line(NamedTuple):
    """Where an operator is written."""

    path: Path
    number: int

    @property
    def file(self) -> str:
        """Folder and stem: norm/layer."""
        return f"{self.path.parent.name}/{self.path.stem}"

    def error(self, text: str) -> ValueError:
        """As a compiler says it, so that an editor finds the line."""
        return ValueError(f"{self.path}:{self.number}: error: {text}")


def implemented(source: Path) -> dict[str, Line]:
    """The operators that have a line. Raises ValueError for a second line."""
    found: dict[str, Line] = {}
    for path in sorted(source.glob("*/*.cpp")):
        text = path.read_text(encoding="utf-8")
        for match in OPERATOR_LINE.finditer(text):
            name, line = match[1], Line(path, text.count("\n", 0, match.start()) + 1)
            if name in found:
                raise line.error(f"{name} stands in {found[name].path}:{found[name].number} already")
            found[name] = line
    return found


def implemented_aclops(source: Path) -> dict[str, Line]:
    """The types of the old API's operators that have a line."""
    found: dict[str, Line] = {}
    for path in sorted(source.glob("*/*.cpp")):
        text = path.read_text(encoding="utf-8")
        patterns = [("", r"^LEGACY\(\s*(\w+),")]
        patterns += [(word, rf"^{macro}\(\s*(\w+)[,)]") for macro, word in ACLOP_MACRO.findall(text)]
        for word, pattern in patterns:
            for match in re.finditer(pattern, text, re.MULTILINE):
                found[word + match[1]] = Line(path, text.count("\n", 0, match.start()) + 1)
    return found


def works(lists: dict[str, list[str]], lines: dict[str, Line]) -> str:
    """The table of work.cpp, sorted by name. Raises ValueError for an operator with a line that is in no list, and for
    one in two."""
    classes: dict[str, str] = {}
    for kind, names in lists.items():
        for name in names:
            if name in classes:
                raise ValueError(f"work.toml: {name} stands in {classes[name]} and in {kind}")
            classes[name] = kind
    for name, line in lines.items():
        if name not in classes:
            raise line.error(
                f"{name} is in no list of csrc/opapi/aclnn/work.toml: how its work follows from its tensors"
            )
    rows = [f'    {{"{name}", Rule::{classes[name]}}},' for name in sorted(lines)]
    head = f"constexpr std::array<Classified, {len(rows)}> kClassified = {{{{"
    return "\n".join(["// Generated from work.toml; do not edit.", head, *rows, "}};", ""])


def check_names(
    lines: dict[str, Line], signatures: dict[str, Any], unexported: dict[str, Any], elsewhere: dict[str, Any]
) -> None:
    """Raises ValueError for a line whose operator has no signature, or is listed as left out or as of other chips."""
    for name in elsewhere:
        if signatures.get(name, {}).get("params") is None or name in unexported:
            raise ValueError(f"elsewhere.toml: {name} has no signature in signatures.json, or is in unexported.toml")
    for name, line in lines.items():
        if name not in signatures:
            near = difflib.get_close_matches(name, signatures, 3)
            meant = f"; did you mean {', '.join(near)}?" if near else ""
            raise line.error(f"{name} has no signature in signatures.json{meant}")
        if name in unexported:
            raise line.error(f"{name} is listed in unexported.toml")
        if name in elsewhere:
            raise line.error(f"{name} is listed in elsewhere.toml")


def check_grammar(source: Path) -> None:
    """Raises ValueError for `OP(name, a check, a check, kernel)`: a comma ends the checks, so the second one would run
    in the kernel, where hardware has taken the call already."""
    checks = set(CHECK.findall((source / "aclnn/check.h").read_text(encoding="utf-8")))
    for path in sorted(source.glob("*/*.cpp")):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"^OP\(\s*(\w+)", text, re.MULTILINE):
            for part in arguments(text, match.start() + len("OP("))[2:-1]:
                word = re.match(r"\s*(\w+)\(", part)
                if word and (word[1] in checks or word[1].startswith("check_")):
                    line = Line(path, text.count("\n", 0, match.start()) + 1)
                    raise line.error(f"{match[1]}: {word[1]} stands behind a comma; `;` joins checks, `,` ends them")


def arguments(text: str, start: int) -> list[str]:
    """The arguments of a macro whose parenthesis opens before `start`, apart at commas outside of brackets."""
    found, depth, quote, begin = [], 0, "", start
    place = start
    while True:
        letter = text[place]
        if quote:
            place += letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}" and depth:
            depth -= 1
        elif letter in ",)" and not depth:
            found.append(text[begin:place])
            begin = place + 1
            if letter == ")":
                return found
        place += 1


def family(file: str) -> str:
    """The folder of a file of operators."""
    return file.partition("/")[0]


def bare(kind: str) -> str:
    """The parameter's type without const: `const aclTensor*` -> `aclTensor*`."""
    return kind.removeprefix("const ").strip()


def owning(kind: str, name: str) -> str:
    """The init-capture that keeps a parameter beyond the call."""
    if bare(kind) == "aclDataType":
        return f"{name} = aten_dtype({name})"
    return f'{name} = own({name}, "{name}")' if bare(kind) in OWNED else f"{name} = {name}"


def owned(params: list[tuple[str, str]], since: str) -> list[str]:
    """The init-captures; before the first of them the CANN is asked for from which on the parameters are these."""
    captures = [owning(kind, param) for kind, param in params]
    if since:
        name, _, value = captures[0].partition(" = ")
        captures[0] = f"{name} = (since({since.replace('.', ', ')}), {value})"
    return captures


def tensors(row: dict[str, Any]) -> dict[str, str]:
    """The tensor parameters, with their direction."""
    return {param: way for kind, param, way in row["params"] if "aclTensor" in kind}


def check_table(rows: dict[str, Row]) -> str:
    """The rows as C++."""
    lines = [
        "// Generated from checks.json and corrections.toml; do not edit.",
        '#include "opapi/aclnn/ranges.h"',
        "",
        '#include "aclnn.h"',
        "",
        "namespace vnpu::opapi {",
    ]
    for name, row in rows.items():
        if not row.parameters:
            continue
        columns = (
            ", ".join(taken(limits[generation]) for limits in row.parameters.values()) for generation in GENERATIONS
        )
        lines.append(
            f"constinit const Taken kTaken_{name}[kGenerations][{len(row.parameters)}] = "
            f"{{{', '.join(f'{{{column}}}' for column in columns)}}};"
        )
    for name, row in rows.items():
        if not row.numbers:
            continue
        columns = (
            ", ".join(number(param, said[generation]) for param, said in row.numbers.items())
            for generation in GENERATIONS
        )
        lines.append(
            f"constinit const Number kNumbers_{name}[kGenerations][{len(row.numbers)}] = "
            f"{{{', '.join(f'{{{column}}}' for column in columns)}}};"
        )
    return "\n".join([*lines, "}  // namespace vnpu::opapi", ""])


def taken(limit: Limit) -> str:
    """What one generation takes of one parameter, as C++. Dtypes that torch does not have are left out."""
    if limit.dtypes is None:
        dtypes = "kEveryDtype"
    else:
        known = [f"at::ScalarType::{SCALAR_TYPES[one]}" for one in limit.dtypes if one in SCALAR_TYPES]
        dtypes = f"DTypes{{{', '.join(known)}}}"
    return f"{{{dtypes}, {NO_LIMIT if limit.max_rank is None else limit.max_rank}}}"


def number(param: str, said: str) -> str:
    """What one generation takes of an attribute, as C++; `said` as in check_rows.Row."""
    ranges, words = [], []
    for one in said.split():
        low, apart, high = one.partition("..")
        high = high if apart else low
        above, low = low.endswith("<"), low.removesuffix("<")
        ranges.append(f"{{{low or '-kNoEnd'}, {high or 'kNoEnd'}, {str(above).lower()}}}")
        ends = [f"{'>' if above else '>='} {low}"] * bool(low) + [f"<= {high}"] * bool(high)
        closed = apart and low and high and not above
        words.append(low if not apart else f"{low} to {high}" if closed else " and ".join(ends))
    return f'{{"{param}", "{", ".join(words)}", {{{", ".join(ranges)}}}}}'


def checks(name: str, row: Row | None) -> str:
    """The statements of the first phase that look at the row."""
    if row is None:
        return "(void)0"
    said = []
    if row.parameters:
        said.append(f"taken(kTaken_{name}[generation()], {', '.join(row.parameters)})")
    if row.numbers:
        said.append(f"numbers(kNumbers_{name}[generation()], {', '.join(row.numbers)})")
    said += [f"equal_dtypes({a}, {b})" for a, b in row.same]
    said += [f"promotable({a}, {b})" for a, b in row.promotable]
    return "; ".join(said) or "(void)0"


def header(signatures: dict[str, Any], rows: dict[str, Row], files: dict[str, str]) -> str:
    lines = ["// Generated from signatures.json; do not edit.", "#pragma once", ""]
    # The table itself is a source of its own, so that a change of it compiles one file.
    lines += ['#include "opapi/aclnn/ranges.h"', "", "namespace vnpu::opapi {"]
    lines += [
        f"extern const Taken kTaken_{name}[kGenerations][{len(row.parameters)}];"
        for name, row in rows.items()
        if row.parameters
    ]
    lines += [
        f"extern const Number kNumbers_{name}[kGenerations][{len(row.numbers)}];"
        for name, row in rows.items()
        if row.numbers
    ]
    lines.append("}  // namespace vnpu::opapi")
    for name, row in signatures.items():
        if row["params"] is None:  # seen by name only: can be a gap, cannot be implemented
            continue
        params = [(kind, param) for kind, param, _ in row["params"]]
        checked = [param for kind, param in params if bare(kind) in CHECKED_FOR_NULL]
        names = [param for _, param in params]
        file = files.get(name, "")
        moves = not MOVING.isdisjoint((file, family(file)))
        results = [param for param, way in tensors(row).items() if way != "in" and not moves]
        lines += [
            f"#define PARAMS_{name} {', '.join(f'{kind} {param}' for kind, param in params)}",
            f"#define OWN_{name} {', '.join(owned(params, row.get('since', '')))}",
            f"#define OPERANDS_{name} {', '.join(checked)}",
            f"#define CHECKS_{name} {checks(name, rows.get(name))}",
            f"#define RESULTS_{name} {', '.join(results)}",
            f"#define ONLY_OUT_{name} {', '.join(param for param, way in tensors(row).items() if way == 'out')}",
            f"#define INPUTS_{name} {', '.join(param for param, way in tensors(row).items() if way != 'out')}",
            f"#define OUTPUTS_{name} {', '.join(param for param, way in tensors(row).items() if way != 'in')}",
            f'#define NAMES_{name} "{",".join(names)}", {", ".join(names)}',
        ]
    return "\n".join([*lines, ""])


ENGINES = {"cube": "Cube", "vector": "Vector", "device_cpu": "DeviceCpu", "unknown": "Unknown"}


def engine_table(engines: dict[str, dict[str, Any]]) -> str:
    """Raises KeyError for an unknown unit or dtype."""
    lines = [
        "// Generated from engines.json; do not edit.",
        '#include "opapi/aclnn/engine.h"',
        "",
        "namespace vnpu::opapi {",
        "const EngineRow kEngines[] = {",
    ]
    for name, row in sorted(engines.items()):
        dtypes = ", ".join(f"at::ScalarType::{SCALAR_TYPES[one]}" for one in row.get("device_cpu", "").split())
        lines.append(f'    {{"{name}", Engine::{ENGINES[row["engine"]]}, {{{dtypes}}}}},')
    lines += ["};", "const size_t kEngineCount = sizeof kEngines / sizeof *kEngines;"]
    return "\n".join([*lines, "}  // namespace vnpu::opapi", ""])


# What a first phase answers on a chip that its operator is not for (opbase: op_errno.h).
ABSENT = {"invalid": 161002, "runtime": 361001, "no kernel": 561003}


def gaps(names: list[str], elsewhere: dict[str, dict[str, str]]) -> str:
    """Raises KeyError for a row without chips, or of an unknown answer."""
    lines = [
        "// Generated: operators that the virtual NPU does not have yet, and those of elsewhere.toml.",
        '#include "opapi/aclnn/gap.h"',
        "",
    ]
    others = [f'ELSEWHERE({name}, "{row["chips"]}", {ABSENT[row["answer"]]})' for name, row in elsewhere.items()]
    return "\n".join([*lines, *(f"GAP({name})" for name in names), *others, ""])


def main(source: Path, output: Path) -> None:
    tables = source / "aclnn"
    asked = signatures.of_torch_npu(tables)
    known = signatures.of_all(tables)
    rows = check_rows.rows(tables, known)
    unexported = tomllib.loads((tables / "unexported.toml").read_text(encoding="utf-8"))
    elsewhere = tomllib.loads((tables / "elsewhere.toml").read_text(encoding="utf-8"))
    lines = implemented(source)
    check_names(lines, known, unexported, elsewhere)
    check_grammar(source)
    files = {name: line.file for name, line in lines.items()}
    placed = {*lines, *unexported, *elsewhere}
    missing = [name for name in known if name not in placed]

    table = []
    for name in sorted({*known, *unexported}):
        row, check = known.get(name, {}), rows.get(name)
        if name in lines:
            status, reason = "implemented", ""
        elif name in unexported:
            status, reason = "unexported", unexported[name]["reason"]
        elif name in elsewhere:
            status, reason = "elsewhere", f"CANN has it for {elsewhere[name]['chips']} only."
        else:
            status, reason = "gap", "The virtual NPU does not implement it yet."
        table.append(
            {
                "name": name,
                "tier": row.get("tier"),
                "status": status,
                "family": family(files.get(name, "")),
                "reason": reason,
                "torch_ops": row.get("torch", []),
                "checks": check.evidence if check else "unknown",
                "unconfirmed": check.unconfirmed if check else {},
            }
        )
    outputs = {
        "aclnn.h": header(asked, {name: row for name, row in rows.items() if name in asked}, files),
        "aclnn_mindspore.h": header(signatures.of_mindspore(tables), {}, files),
        "checks.cpp": check_table(rows),
        "engines.cpp": engine_table(json.loads((tables / "engines.json").read_text(encoding="utf-8"))),
        "gaps.cpp": gaps(missing, elsewhere),
        "work.inc": works(
            tomllib.loads((tables / "work.toml").read_text(encoding="utf-8")), {**lines, **implemented_aclops(source)}
        ),
        "operators.json": json.dumps(table, indent=0) + "\n",
    }
    for name, text in outputs.items():
        path = output / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # unchanged output rebuilds nothing
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except ValueError as wrong:
        sys.exit(str(wrong))
