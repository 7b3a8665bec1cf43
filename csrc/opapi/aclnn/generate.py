"""Turn the table of aclnn signatures into C++: generate.py SOURCE_DIR OUTPUT_DIR

Reads the tables of SOURCE_DIR/aclnn: signatures.json (what torch_npu can ask libopapi for), dtypes.json (what CANN's
documentation offers for each parameter on Ascend 910B; where it lists none, nothing is checked), checks.json (what
CANN's own checks refuse, by tools/derive_checks: of it the general limit of dimensions), unexported.toml (what we leave
out, and why); and the operator lines of SOURCE_DIR/*/*.cpp: a macro in capitals at the start of a line whose first
argument is the operator, `OP(aclnnAdd, ...)`. Writes

    aclnn.h          per operator its parameters, how they are owned, their dtypes and ranks and what it reads and
                     writes, used by the macros of op.h
    dtypes.cpp       the dtypes
    gaps.cpp         an entry point for every operator without a line, which answers that it is missing
    operators.json   the support table: name, tier, status, family, reason, torch_ops

so an operator's one line in a family file is all there is to write. Runs at build, standard library only.
"""

import difflib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

OPERATOR_LINE = re.compile(r"^[A-Z][A-Z0-9_]*\(\s*(acl[A-Za-z0-9_]+)", re.MULTILINE)
CHECKED_FOR_NULL = ("aclTensor*", "aclTensorList*", "aclScalar*")
# Files and families that move values without computing: infinities stay what they are where results saturate.
MOVING = {"movement", "index/index"}
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


def check_names(lines: dict[str, Line], signatures: dict[str, Any], unexported: dict[str, Any]) -> None:
    """Raises ValueError for a line whose operator has no signature, or is listed as left out."""
    for name, line in lines.items():
        if name not in signatures:
            near = difflib.get_close_matches(name, signatures, 3)
            meant = f"; did you mean {', '.join(near)}?" if near else ""
            raise line.error(f"{name} has no signature in signatures.json{meant}")
        if name in unexported:
            raise line.error(f"{name} is listed in unexported.toml")


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


def tensors(row: dict[str, Any]) -> dict[str, str]:
    """The tensor parameters, with their direction."""
    return {param: way for kind, param, way in row["params"] if "aclTensor" in kind}


def dtype_rows(
    signatures: dict[str, Any], dtypes: dict[str, dict[str, str]]
) -> dict[str, dict[str, list[str]]]:
    """Per operator the documented dtypes of its tensors, in the order of its parameters.

    Raises ValueError for a parameter that is no tensor of the operator.
    """
    rows = {}
    for name, sets in dtypes.items():
        offers = {param: each.split() for each, group in sets.items() for param in group.split()}
        if strangers := set(offers) - set(tensors(signatures[name])):
            raise ValueError(f"dtypes.json: {name} has no tensor {', '.join(sorted(strangers))}")
        rows[name] = {param: offers[param] for param in tensors(signatures[name]) if param in offers}
    return rows


GENERAL_RANK = 8  # MAX_SUPPORT_DIMS_NUMS of CANN's checks


def rank_limited(signatures: dict[str, Any], checks: dict[str, Any]) -> dict[str, list[str]]:
    """Per operator the tensor parameters that CANN refuses with more than GENERAL_RANK dimensions.

    Tighter limits depend on what an operator computes: they are checked in its line.

    Raises ValueError for a parameter that the operator does not have.
    """
    limited = {}
    for name, check in checks.items():
        found = {param for param, row in check["parameters"].items() if row.get("max_rank") == GENERAL_RANK}
        if found and name in signatures and signatures[name]["params"] is not None:
            if strangers := found - {param for _, param, _ in signatures[name]["params"]}:
                raise ValueError(f"checks.json: {name} has no parameter {', '.join(sorted(strangers))}")
            limited[name] = [param for param in tensors(signatures[name]) if param in found]
    return limited


def dtype_table(rows: dict[str, dict[str, list[str]]]) -> str:
    """Raises KeyError for an unknown dtype."""
    lines = [
        "// Generated from dtypes.json; do not edit.",
        '#include "opapi/aclnn/check.h"',
        "",
        '#include "aclnn.h"',
        "",
    ]
    lines += ["namespace vnpu::opapi {"]
    for name, row in rows.items():
        sets = (", ".join(f"at::ScalarType::{SCALAR_TYPES[one]}" for one in each) for each in row.values())
        lines.append(
            f"constinit const DTypes kOffered_{name}[] = {{{', '.join(f'{{{one}}}' for one in sets)}}};"
        )
    return "\n".join([*lines, "}  // namespace vnpu::opapi", ""])


def header(
    signatures: dict[str, Any],
    rows: dict[str, dict[str, list[str]]],
    limited: dict[str, list[str]],
    files: dict[str, str],
) -> str:
    lines = ["// Generated from signatures.json; do not edit.", "#pragma once", ""]
    # The table itself is a source of its own, so that a change of it compiles one file.
    lines += ['#include "opapi/aclnn/check.h"', "", "namespace vnpu::opapi {"]
    lines += [f"extern const DTypes kOffered_{name}[{len(row)}];" for name, row in rows.items()]
    lines.append("}  // namespace vnpu::opapi")
    for name, row in signatures.items():
        if row["params"] is None:  # seen by name only: can be a gap, cannot be implemented
            continue
        params = [(kind, param) for kind, param, _ in row["params"]]
        checked = [param for kind, param in params if bare(kind) in CHECKED_FOR_NULL]
        names = [param for _, param in params]
        offered = f"offered(kOffered_{name}, {', '.join(rows[name])})" if name in rows else "(void)0"
        ranks = "; ".join(f"at_most({GENERAL_RANK}, {param})" for param in limited.get(name, []))
        file = files.get(name, "")
        moves = not MOVING.isdisjoint((file, family(file)))
        results = [param for param, way in tensors(row).items() if way != "in" and not moves]
        lines += [
            f"#define PARAMS_{name} {', '.join(f'{kind} {param}' for kind, param in params)}",
            f"#define OWN_{name} {', '.join(owning(kind, param) for kind, param in params)}",
            f"#define OPERANDS_{name} {', '.join(checked)}",
            f"#define DTYPES_{name} {offered}",
            f"#define RANKS_{name} {ranks or '(void)0'}",
            f"#define RESULTS_{name} {', '.join(results)}",
            f"#define INPUTS_{name} {', '.join(param for param, way in tensors(row).items() if way != 'out')}",
            f"#define OUTPUTS_{name} {', '.join(param for param, way in tensors(row).items() if way != 'in')}",
            f'#define NAMES_{name} "{",".join(names)}", {", ".join(names)}',
        ]
    return "\n".join([*lines, ""])


def gaps(names: list[str]) -> str:
    lines = [
        "// Generated: operators that the virtual NPU does not have yet.",
        '#include "opapi/aclnn/gap.h"',
        "",
    ]
    return "\n".join([*lines, *(f"GAP({name})" for name in names), ""])


def main(source: Path, output: Path) -> None:
    tables = source / "aclnn"
    signatures = json.loads((tables / "signatures.json").read_text(encoding="utf-8"))
    rows = dtype_rows(signatures, json.loads((tables / "dtypes.json").read_text(encoding="utf-8")))
    limited = rank_limited(signatures, json.loads((tables / "checks.json").read_text(encoding="utf-8")))
    unexported = tomllib.loads((tables / "unexported.toml").read_text(encoding="utf-8"))
    lines = implemented(source)
    check_names(lines, signatures, unexported)
    files = {name: line.file for name, line in lines.items()}
    missing = [name for name in signatures if name not in lines and name not in unexported]

    table = []
    for name in sorted({*signatures, *unexported}):
        row = signatures.get(name, {})
        status = "implemented" if name in lines else "unexported" if name in unexported else "gap"
        reason = unexported.get(name, {}).get("reason", "") if status != "implemented" else ""
        if status == "gap":
            reason = "The virtual NPU does not implement it yet."
        table.append(
            {
                "name": name,
                "tier": row.get("tier"),
                "status": status,
                "family": family(files.get(name, "")),
                "reason": reason,
                "torch_ops": row.get("torch", []),
            }
        )
    outputs = {
        "aclnn.h": header(signatures, rows, limited, files),
        "dtypes.cpp": dtype_table(rows),
        "gaps.cpp": gaps(missing),
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
