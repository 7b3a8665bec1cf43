"""One build of the operators with all mutants in it, in build/mutation: `mutant(17)` says which one is switched on.

The sources are copied; `build/release` and the installed libraries are left alone.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

from changes import Change
from mutants import Mutant, candidates, chosen, rewritten

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build/mutation"
SOURCE, BUILD, LIBRARIES, TABLE = FOLDER / "source", FOLDER / "build", FOLDER / "lib", FOLDER / "mutants.json"
OPAPI, REFUSED, PLACES = SOURCE / "csrc/opapi", FOLDER / "refused.json", FOLDER / "places.json"
BATCH = 8  # files a time
SPARE = 3  # times as many are tried as are wanted: some do not compile
FLAGS = "-O0 -w"  # compiling is what takes the time; mutants compare and compute what warnings would warn of

HEADER = """// Generated: whether a mutant is switched on. Notes that it has been reached.
#pragma once
#pragma GCC visibility push(default)
extern "C" {
extern int vnpu_mutant, vnpu_mutants;
extern volatile unsigned char *vnpu_mutants_reached;
}
#pragma GCC visibility pop
namespace torchport {
inline bool mutant(int number) {
    vnpu_mutants_reached[number] = 1;
    return vnpu_mutant == number;
}
}  // namespace torchport
"""
# A test's own programs have the mutant of the test, and note what they reach where it does.
DEFINITION = """// Generated.
#include "opapi/aclnn/mutant.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
namespace {{
volatile unsigned char own[{count} + 1];
}}
int vnpu_mutant = 0, vnpu_mutants = {count};
volatile unsigned char *vnpu_mutants_reached = own;
extern "C" __attribute__((visibility("default"))) bool vnpu_mutants_note(const char *name) {{
    const int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof own) != 0) return false;
    void *const shared = mmap(nullptr, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared != MAP_FAILED) vnpu_mutants_reached = static_cast<volatile unsigned char *>(shared);
    return shared != MAP_FAILED;
}}
__attribute__((constructor)) static void inherit() {{
    if (const char *number = std::getenv("VNPU_MUTANT")) vnpu_mutant = std::atoi(number);
    if (const char *name = std::getenv("VNPU_MUTANTS_REACHED")) vnpu_mutants_note(name);
}}
"""


def build(seed: int, per_file: int, jobs: int) -> dict[int, Mutant]:
    """Make the libraries; returns the mutants in them by number. Raises RuntimeError where the sources do not
    build, with or without mutants."""
    found = sorted(candidates(ROOT / "csrc/opapi").items())
    own = {OPAPI / name for name in ("aclnn/mutant.h", "aclnn/mutant.cpp", *(file for file, _ in found))}
    for part in ("csrc", "src/torchport/knowledge"):
        _copy(ROOT / part, SOURCE / part, own)
    _write(SOURCE / "CMakeLists.txt", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    # Numbers of a file: those of the others stay when it changes, or another one comes.
    room = SPARE * per_file
    place = _places([name for name, _ in found])
    tried = {
        room * place[name] + i: mutant
        for name, of_file in found
        for i, mutant in enumerate(chosen(of_file, seed, room), 1)
    }
    _write(OPAPI / "aclnn/mutant.h", HEADER)
    _write(OPAPI / "aclnn/mutant.cpp", DEFINITION.format(count=room * len(place)))
    subprocess.run(
        [
            *(_tool("cmake"), "-S", SOURCE, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}"),
            *(f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Mutation"),
            *(f"-DCMAKE_CXX_FLAGS_MUTATION={FLAGS}", f"-DTORCHPORT_LIB_DIR={LIBRARIES}"),
            "-DTORCHPORT_UNITY=OFF",  # each mutant is looked for in the errors of its source
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    _without_errors(tried, {name for name, _ in found}, jobs)
    linked = _ninja(jobs, "all")
    if linked.returncode != 0:
        raise RuntimeError(f"The libraries do not build:\n{linked.stdout}")
    subprocess.run([_tool("cmake"), "--install", BUILD], check=True, stdout=subprocess.DEVNULL)
    kept: dict[int, Mutant] = {}
    for name, _ in found:
        kept |= dict([item for item in tried.items() if item[1].file == name][:per_file])
    rows = {number: dataclasses.asdict(mutant) for number, mutant in kept.items()}
    TABLE.write_text(json.dumps(rows, indent=0), encoding="utf-8")
    return kept


def _places(names: list[str]) -> dict[str, int]:
    """Each file's place in the numbers: where it was in the last build, new ones behind those."""
    known: list[str] = json.loads(PLACES.read_text(encoding="utf-8")) if PLACES.exists() else []
    known += [name for name in names if name not in known]
    PLACES.write_text(json.dumps(known), encoding="utf-8")
    return {name: position for position, name in enumerate(known)}


def built() -> dict[int, Mutant]:
    """The mutants of the last build."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    return {int(number): Mutant(**{**row, "change": Change(**row["change"])}) for number, row in rows.items()}


def _without_errors(tried: dict[int, Mutant], files: set[str], jobs: int) -> None:
    """Compiles `files` with their mutants, and drops from `tried` what does not compile."""
    refused = set(json.loads(REFUSED.read_text(encoding="utf-8"))) if REFUSED.exists() else set()
    for number in [number for number, mutant in tried.items() if mutant.key in refused]:
        del tried[number]
    places: dict[tuple[str, int], int] = {}
    _rewrite(files, tried, places)
    todo = ["CMakeFiles/opapi.dir/cmake_pch.hxx.gch"]
    todo += [f"CMakeFiles/opapi.dir/csrc/opapi/{path.relative_to(OPAPI)}.o" for path in sorted(OPAPI.glob("*/*.cpp"))]
    while todo:  # a few at a time: what is interrupted goes on where it was
        done = _ninja(jobs, *todo[:BATCH])
        if done.returncode == 0:
            del todo[:BATCH]
            print(f"\r{len(todo)} files to compile, {len(tried)} mutants ", end="", file=sys.stderr, flush=True)
            continue
        wrong = blamed(done.stdout, places) & set(tried)
        if not wrong:
            raise RuntimeError(f"The operators do not compile, not for a mutant:\n{done.stdout}")
        dropped = [tried.pop(number) for number in wrong]
        refused |= {mutant.key for mutant in dropped}
        REFUSED.write_text(json.dumps(sorted(refused), indent=0), encoding="utf-8")
        _rewrite({mutant.file for mutant in dropped}, tried, places)


def blamed(said: str, places: dict[tuple[str, int], int]) -> set[int]:
    """The mutants that a compiler's errors are about, of those that stand alone in the lines `places`."""
    named = {(file, int(line)) for file, line in re.findall(r"opapi/([\w./]+):(\d+)", said)}
    if found := {places[place] for place in named & set(places)}:
        return found
    # The error is around the mutant, which stands in the excerpt,
    if found := {int(number) for number in re.findall(r"torchport::mutant\((\d+)\)", said)}:
        return found
    # or in a macro that has the mutant as an argument: named is where the call begins, and where it goes on.
    return {places[file, line + step] for file, line in named for step in (1, -1) if (file, line + step) in places}


def _rewrite(files: set[str], tried: dict[int, Mutant], places: dict[tuple[str, int], int]) -> None:
    for name in files:
        text = (ROOT / "csrc/opapi" / name).read_text(encoding="utf-8")
        text, lines = rewritten(text, {n: mutant for n, mutant in tried.items() if mutant.file == name})
        for place in [place for place in places if place[0] == name]:
            del places[place]
        places.update({(name, line): number for line, number in lines.items()})
        _write(OPAPI / name, text)


def _ninja(jobs: int, *targets: str) -> subprocess.CompletedProcess[str]:
    command = [_tool("ninja"), "-k", "0", "-j", str(jobs), "-C", BUILD, *targets]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _copy(source: Path, target: Path, own: set[Path]) -> None:
    """All but our own files. What has not changed keeps its time, so that nothing is compiled for it."""
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_file() and path.suffix != ".pyc" and copy not in own:
            _write(copy, path.read_text(encoding="utf-8"))
    for path in target.rglob("*"):
        if path.is_file() and path not in own and not (source / path.relative_to(target)).exists():
            path.unlink()


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)
