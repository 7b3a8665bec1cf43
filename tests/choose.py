"""Prints the tests that `make test NAMES="index port"` and `make test CHANGED=1` run, a path a line.

A name chooses the folders of that name and the files with it in their names: `index` the folder tests/vnpu/ops/index and
others. With --changed the paths that git reports as changed against HEAD, or as new, choose: a test chooses itself, any
other file the tests that name its module or have its stem as a word of their names, and if there are none the tests
in HOMES: a source of C++ the tests of its library, a table the tests of its rows. A source of operators, csrc/opapi/<family>/*, chooses among the tests of its family alone. It is a
guess for the daily round; `make check` runs everything.

    python tests/choose.py [--changed] NAME...
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("tests/unit", "tests/vnpu")
# The tests of a folder's files, for a file that no test is named after. The first that fits counts.
HOMES = {
    "csrc/opapi/aclnn/work.toml": ("tests/unit/test_operator_table.py", "tests/vnpu/ops/test_counted_work.py"),
    "csrc/opapi": ("tests/vnpu/ops",),
    "csrc/hccl": ("tests/vnpu/distributed",),
    "csrc/msprof": ("tests/vnpu/profiler",),
    "src/torchport/rules/files": ("tests/unit/test_project_files.py", "tests/unit/test_formats.py"),
    "src/torchport/rules/stops": ("tests/unit/test_stops.py", "tests/unit/test_formats.py"),
    "src/torchport/rules/distribute": ("tests/unit/test_distribute_rules.py", "tests/unit/test_formats.py"),
    "src/torchport/rules": ("tests/unit/test_rules.py", "tests/unit/test_formats.py"),
    "src/torchport/knowledge/errors": ("tests/unit/test_error_rows.py", "tests/unit/test_error_table.py"),
    "src/torchport/knowledge/devices.toml": ("tests/unit/test_calibration.py", "tests/unit/test_tree.py"),
    "src/torchport/cli": ("tests/unit/test_cli.py",),
}


def by_name(name: str) -> list[Path]:
    """Folders called `name`, and test files with it in their names outside of these."""
    folders = [path for room in ROOMS for path in (ROOT / room).rglob(name) if path.is_dir()]
    folders += [ROOT / room for room in ROOMS if room.endswith(f"/{name}")]
    files = [path for room in ROOMS for path in (ROOT / room).rglob(f"test_*{name}*.py")]
    return sorted({*folders, *(path for path in files if not set(folders) & set(path.parents))})


def by_source(source: Path) -> list[Path]:
    """The tests of a file, by its path in the checkout."""
    if source.name.startswith("test_") and source.suffix == ".py":
        return [ROOT / source] if (ROOT / source).exists() and source.parts[1] in ("unit", "vnpu") else []
    named = set[Path]()
    if source.suffix in (".py", ".cpp", ".h") and source.stem != "__init__":
        # As a word of the test's name: op.h is not for test_options.py.
        word = re.compile(rf"_{re.escape(source.stem)}(_|$)")
        named = {path for path in by_name(source.stem) if path.is_file() and word.search(path.stem)}
    if source.parts[:2] == ("src", "torchport"):
        *rooms, last = source.with_suffix("").parts[1:]
        module = ".".join([*rooms] if last == "__init__" else [*rooms, last])
        parent, _, own = module.rpartition(".")
        uses = re.compile(rf"\b{re.escape(module)}\b|\bfrom {re.escape(parent)} import [^\n]*\b{re.escape(own)}\b")
        files = (path for room in ROOMS for path in (ROOT / room).rglob("test_*.py"))
        named |= {path for path in files if uses.search(path.read_text(encoding="utf-8"))}
    home = next((tests for folder, tests in HOMES.items() if str(source).startswith(folder)), ())
    if home and len(source.parts) > 3 and (family := ROOT / home[0] / source.parts[2]).is_dir():
        return sorted(path for path in named if family in path.parents) or [family]
    return sorted(named) or [ROOT / tests for tests in home]


def changed() -> list[Path]:
    """Paths in the checkout that differ from HEAD or are new."""
    said = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all", "--no-renames", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(entry[3:]) for entry in said.stdout.split("\0") if entry]


def main(words: list[str]) -> int:
    found: set[Path] = set()
    for name in (word for word in words if word != "--changed"):
        chosen = by_name(name)
        if not chosen:
            print(f"No test file or folder below {' and '.join(ROOMS)} is named after {name!r}.", file=sys.stderr)
            return 2
        found.update(chosen)
    sources = changed() if "--changed" in words else []
    found.update(path for source in sources for path in by_source(source))
    # A folder brings its files.
    for path in sorted(path for path in found if not found & set(path.parents)):
        print(path.relative_to(ROOT))
    if not found:
        said = "No test is named after a changed file." if sources else "Nothing has changed."
        print(f"{said} Everything: make check", file=sys.stderr)
    return 0 if found or all(source.suffix == ".md" for source in sources) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
