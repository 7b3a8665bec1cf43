"""A build of the virtual NPU whose operators do nothing: a test that passes on it says nothing about any operator.

First phases check and refuse as ever, and memory, streams, events and collectives work; only what would be given to a
stream to compute is dropped. Two sources are compiled with the one call left out in which that happens, and linked with
the other objects of build/release, so that no switch for it is in the library that users get.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

from unity import members  # noqa: E402

RELEASE = ROOT / "build/release"
FOLDER = ROOT / "build/upstream/idle"
INSTALLED = ROOT / "src/torchport/vnpu/lib"
# A line that stands in the file exactly once, and what is put before it.
EDITS = {
    "csrc/opapi/aclnn/executor.cpp": (
        "        if (std::shared_ptr<acl::Dump> dump = acl::Dump::current()) [[unlikely]]\n",
        "        if (task != nullptr) return;\n",
    ),
    "csrc/opapi/aclop/legacy.cpp": (
        "    call.stream.submit(std::make_unique<LegacyTask>(found->first.data(), found->second, std::move(arguments),\n",
        "    if (found != kernels().end()) return true;\n",
    ),
}


def build() -> Path:
    """The folder of the libraries, made anew where those of build/release are younger. Raises RuntimeError where the
    sources have changed so that nothing can be left out."""
    libraries = FOLDER / "lib"
    made = libraries / "libopapi.so"
    if made.exists() and made.stat().st_mtime > (RELEASE / "libopapi.so").stat().st_mtime:
        return libraries
    commands = json.loads((RELEASE / "compile_commands.json").read_text(encoding="utf-8"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    edited = {str(ROOT / name): str(_edited(name)) for name in EDITS}
    objects = _compiled(edited, [entry for entry in commands if "/opapi.dir/" in entry["command"]])
    shutil.rmtree(libraries, ignore_errors=True)  # another run may have them mapped: no file is written over
    shutil.copytree(INSTALLED, libraries, symlinks=True)
    ninja = str(Path(sys.executable).parent / "ninja")
    said = subprocess.run(
        [ninja, "-C", RELEASE, "-t", "commands", "libopapi.so"], capture_output=True, text=True, check=True
    )
    link = said.stdout.splitlines()[-1].split("&&")[1]
    words = [objects.get(word, word) for word in shlex.split(link)]
    words[words.index("-o") + 1] = str(made)
    subprocess.run(words, cwd=RELEASE, check=True)
    return libraries


def _edited(name: str) -> Path:
    """A copy of the source with its edit. Raises RuntimeError where the place of the edit is not there once."""
    text = (ROOT / name).read_text(encoding="utf-8")
    place, put = EDITS[name]
    if text.count(place) != 1:
        raise RuntimeError(f"{name}: expected once, found {text.count(place)} times: {place.strip()}")
    source = FOLDER / Path(name).name
    source.write_text(text.replace(place, put + place), encoding="utf-8")
    return source


def _compiled(edited: dict[str, str], commands: list[dict[str, str]]) -> dict[str, str]:
    """Compile what holds a source that is edited: the source, or the translation unit that includes it (csrc/unity.py).
    Returns the new objects by the names of those whose place they take."""
    objects, todo = {}, set(edited)
    # Units first: editors' entries for the sources in them (unity.complete) come behind.
    for entry in commands:
        held = {entry["file"], *members(Path(entry["file"]))} & todo
        if not held:
            continue
        todo -= held
        words = shlex.split(entry["command"])
        replaced = words[words.index("-o") + 1]
        text = f'#include "{entry["file"]}"\n' if entry["file"] in held else Path(entry["file"]).read_text("utf-8")
        for source in held:
            text = text.replace(f'#include "{source}"', f'#include "{edited[source]}"')
        unit = FOLDER / f"idle_{len(objects)}.cpp"
        unit.write_text(text, encoding="utf-8")
        words[words.index("-o") + 1] = objects[replaced] = str(unit.with_suffix(".o"))
        words[words.index("-c") + 1] = str(unit)
        subprocess.run([*words, "-w"], cwd=entry["directory"], check=True)
    return objects
