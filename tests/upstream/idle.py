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
RELEASE = ROOT / "build/release"
FOLDER = ROOT / "build/upstream/idle"
INSTALLED = ROOT / "src/torchport/vnpu/lib"
# A line that stands in the file exactly once, and what is put before it.
EDITS = {
    "csrc/opapi/aclnn/executor.cpp": (
        "        if (std::shared_ptr<acl::Dump> dump = acl::Dump::current()) [[unlikely]]\n",
        "        if (task != nullptr) return;\n",
    ),
    "csrc/opapi/legacy/legacy.cpp": (
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
    objects = {_object(name): _compiled(name, commands) for name in EDITS}
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


def _object(name: str) -> str:
    return f"CMakeFiles/opapi.dir/{name}.o"


def _compiled(name: str, commands: list[dict[str, str]]) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    place, put = EDITS[name]
    if text.count(place) != 1:
        raise RuntimeError(f"{name}: expected once, found {text.count(place)} times: {place.strip()}")
    text = text.replace(place, put + place)
    source = FOLDER / Path(name).name
    source.write_text(text, encoding="utf-8")
    command = next(entry for entry in commands if entry["file"] == str(ROOT / name))
    words = shlex.split(command["command"])
    words[words.index("-o") + 1] = str(source.with_suffix(".o"))
    words[words.index("-c") + 1] = str(source)
    subprocess.run([*words, "-w"], cwd=command["directory"], check=True)
    return str(source.with_suffix(".o"))
