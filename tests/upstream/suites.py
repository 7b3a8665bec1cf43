"""The tests' sources, in build/upstream/sources: fetched once at the commits that suites.toml names."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FETCHED = ROOT / "build/upstream/sources"
TABLE: dict[str, Any] = tomllib.loads((HERE / "suites.toml").read_text(encoding="utf-8"))
SUITES = [name for name in TABLE if name != "sources"]


def source(suite: str) -> dict[str, str]:
    """The row of suites.toml that says where a suite comes from."""
    row: dict[str, str] = TABLE["sources"][TABLE[suite]["source"]]
    return row


def judge_of(suite: str) -> list[Path]:
    """The interpreter and the program that run a suite's files, where these are not ours and judge.py."""
    return [ROOT / word for word in TABLE[suite].get("judge", ())]


def tests(source: str, given: Path | None) -> Path:
    """The folder of tests of a source (`test` unless its row says otherwise): below `given`, where somebody has put `op-plugin` and `pytorch`, or fetched. Raises
    SystemExit where it is not there."""
    about = TABLE["sources"][source]
    name = about.get("folder", "test")
    if given is not None:
        folder = given / source / name
        if not folder.is_dir():
            raise SystemExit(f"{folder} does not exist: UPSTREAM has to hold {source}/{name}")
        return folder
    folder = FETCHED / source
    stamp = folder / ".commit"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != about["commit"]:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for command in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth", "1", about["url"], about["commit"]],
            ["checkout", "--quiet", "FETCH_HEAD", "--", name, *about.get("also", ())],
        ):
            if subprocess.run(["git", "-C", str(folder), *command], check=False).returncode != 0:
                raise SystemExit(
                    f"{about['url']} could not be fetched. Where there is no network, UPSTREAM=FOLDER names a folder "
                    f"with {source}/{name} in it (commit {about['commit']})."
                )
        stamp.write_text(about["commit"], encoding="utf-8")
    return folder / name


def files(suite: str, folder: Path) -> list[str]:
    """The test files of a suite, relative to `folder`, in the order in which they are run; a suite may be of one file,
    which the others leave out. With `holds` those whose text has it: the others have no test for this chip."""
    alone = {part for row in TABLE.values() for part in row.get("folders", ()) if part.endswith(".py")}
    row, found = TABLE[suite], []
    for part in row["folders"]:
        paths = [folder / part] if part in alone else (folder / part).rglob("test_*.py")
        found += [str(path.relative_to(folder)) for path in paths]
    names = sorted(name for name in found if name in row["folders"] or name not in alone)
    if "holds" not in row:
        return names
    texts = {name: (folder / name).read_text(encoding="utf-8", errors="replace") for name in names}
    names = [name for name in names if re.search(row["holds"], texts[name])]
    return sorted(names, key=lambda name: (not re.search(row["first"], texts[name]), _scattered(name)))


def _scattered(name: str) -> str:
    """By which files are in an order that follows neither their subject nor what was found."""
    return hashlib.sha256(name.encode()).hexdigest()
