"""Turn the table of aclnn signatures into C++: generate.py SOURCE_DIR OUTPUT_DIR

Reads signatures.json (what torch_npu can ask libopapi for), unexported.toml (what we leave out, and why)
and the operator lines of SOURCE_DIR/*.cpp: a macro in capitals at the start of a line whose first argument
is the operator, `OP(aclnnAdd, ...)`. Writes

    aclnn.h          per operator its parameters and how they are owned, used by the macros of op.h
    gaps.cpp         an entry point for every operator without a line, which answers that it is missing
    operators.json   the support table: name, tier, status, family, reason, torch_ops

so an operator's one line in a family file is all there is to write. Runs at build, standard library only.
"""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

OPERATOR_LINE = re.compile(r"^[A-Z][A-Z0-9_]*\(\s*(acl[A-Za-z0-9_]+)", re.MULTILINE)
CHECKED_FOR_NULL = ("aclTensor*", "aclTensorList*", "aclScalar*")
OWNED = {*CHECKED_FOR_NULL, "aclScalarList*", "aclIntArray*", "aclBoolArray*", "aclFloatArray*", "char*"}


def implemented(source: Path) -> dict[str, str]:
    """Operators that have a line, with the family file that has it. Raises ValueError for a second line."""
    found: dict[str, str] = {}
    for path in sorted(source.glob("*.cpp")):
        for name in OPERATOR_LINE.findall(path.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"{path.name}: {name} stands in {found[name]}.cpp already")
            found[name] = path.stem
    return found


def bare(kind: str) -> str:
    """The parameter's type without const: `const aclTensor*` -> `aclTensor*`."""
    return kind.removeprefix("const ").strip()


def owning(kind: str, name: str) -> str:
    """The init-capture that keeps a parameter beyond the call."""
    if bare(kind) == "aclDataType":
        return f"{name} = own({name})"
    return f'{name} = own({name}, "{name}")' if bare(kind) in OWNED else f"{name} = {name}"


def header(signatures: dict[str, Any]) -> str:
    lines = ["// Generated from signatures.json; do not edit.", "#pragma once", ""]
    for name, row in signatures.items():
        if row["params"] is None:  # seen by name only: can be a gap, cannot be implemented
            continue
        params = [(kind, param) for kind, param, _ in row["params"]]
        checked = [param for kind, param in params if bare(kind) in CHECKED_FOR_NULL]
        names = [param for _, param in params]
        lines += [
            f"#define PARAMS_{name} {', '.join(f'{kind} {param}' for kind, param in params)}",
            f"#define OWN_{name} {', '.join(owning(kind, param) for kind, param in params)}",
            f"#define OPERANDS_{name} {', '.join(checked)}",
            f'#define NAMES_{name} "{",".join(names)}", {", ".join(names)}',
        ]
    return "\n".join([*lines, ""])


def gaps(names: list[str]) -> str:
    lines = ["// Generated: operators that the virtual NPU does not have yet.", '#include "opapi/gap.h"', ""]
    return "\n".join([*lines, *(f"GAP({name})" for name in names), ""])


def main(source: Path, output: Path) -> None:
    signatures = json.loads((source / "signatures.json").read_text(encoding="utf-8"))
    unexported = tomllib.loads((source / "unexported.toml").read_text(encoding="utf-8"))
    lines = implemented(source)
    unknown = set(lines) - set(signatures)
    if unknown:
        raise ValueError(f"no signature in signatures.json for {', '.join(sorted(unknown))}")
    contradictory = set(lines) & set(unexported)
    if contradictory:
        raise ValueError(f"implemented and listed in unexported.toml: {', '.join(sorted(contradictory))}")
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
                "family": lines.get(name, ""),
                "reason": reason,
                "torch_ops": row.get("torch", []),
            }
        )
    outputs = {
        "aclnn.h": header(signatures),
        "gaps.cpp": gaps(missing),
        "operators.json": json.dumps(table, indent=0) + "\n",
    }
    for name, text in outputs.items():
        path = output / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # unchanged output rebuilds nothing
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
