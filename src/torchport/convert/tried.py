"""Import modules of a tree on the virtual NPU, each in a process of its own: `python -m torchport.convert.tried`.

Standard input is a job as JSON: `tree`, `files` by name, `tests` among them and `seconds` for each. Standard output has
a line of JSON for each file: `error` ("" if it was imported, None if it took too long), `frames` of the tree that the
error went through, innermost last, and for tests the number of `items` that pytest collects. torch and torch_npu are
imported once; each file has a fork.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from torchport import vnpu


def main() -> None:
    job = json.load(sys.stdin)
    out = os.dup(1)  # the user's code may print
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    vnpu.activate(force=True)
    import torch  # noqa: F401

    gc.freeze()
    for name in job["files"]:
        found = _in_fork(Path(job["tree"]), name, name in job["tests"], job["seconds"])
        os.write(out, json.dumps({"file": name, **found}).encode() + b"\n")


def _in_fork(tree: Path, name: str, is_test: bool, seconds: float) -> dict[str, Any]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setpgid(0, 0)
        found = _try_file(tree, name, is_test)
        os.write(write, json.dumps(found).encode())
        os._exit(0)  # nothing that the module registered for the end of a program
    os.close(write)
    text = b""
    try:
        while select.select([read], [], [], seconds)[0]:
            piece = os.read(read, 65536)
            if not piece:
                break
            text += piece
        else:
            return {"error": None, "frames": []}
    finally:
        os.close(read)
        _end(child)
    return json.loads(text) if text else {"error": "the process ended while the module was imported", "frames": []}


def _end(child: int) -> None:
    """End the fork, and the processes that it has started."""
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    os.waitpid(child, 0)


def _try_file(tree: Path, name: str, is_test: bool) -> dict[str, Any]:
    os.chdir(tree)
    sys.argv = [name]
    items = None
    try:
        _import_file(tree, name)
        if is_test:
            items = _collect_tests(tree / name)
    except BaseException as error:
        error_text = "".join(traceback.format_exception_only(error)).strip()
        frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        inside = [str(Path(frame).relative_to(tree)) for frame in frames if Path(frame).is_relative_to(tree)]
        return {"error": error_text.splitlines()[-1][:300], "frames": inside}
    return {"error": "", "frames": [], "items": items}


def _import_file(tree: Path, name: str) -> None:
    path = tree / name
    top, words = path.parent, [] if path.stem == "__init__" else [path.stem]
    while (top / "__init__.py").is_file() and top != tree.parent:
        words.insert(0, top.name)
        top = top.parent
    sys.path[:0] = list(dict.fromkeys(map(str, (top, path.parent, tree, tree / "src"))))
    if (path.parent / "__init__.py").is_file() and all(word.isidentifier() for word in words):
        importlib.import_module(".".join(words))
        return
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)


def _collect_tests(path: Path) -> int | None:
    """The number of tests that pytest collects; None if it is not installed. Raises RuntimeError if it cannot."""
    if importlib.util.find_spec("pytest") is None:
        return None
    import pytest

    class Seen:
        count = 0

        def pytest_collection_finish(self, session: Any) -> None:
            self.count = len(session.items)

    seen = Seen()
    status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", str(path)], plugins=[seen])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError("pytest cannot collect its tests")
    return seen.count


if __name__ == "__main__":
    main()
