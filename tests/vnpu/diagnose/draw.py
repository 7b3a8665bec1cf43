"""Draw the set of logs that `torchport diagnose` is judged by, once: python draw.py PROVOKED WRITTEN TARGET.

PROVOKED has what provoke.py wrote, WRITTEN logs after facts of public reports. 30 of each kind are taken and dealt out
to the two halves in an order that nobody chose, that of a hash of their names.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tomllib
from pathlib import Path

from provoke import scripts

EACH = 30


def order(name: str) -> str:
    """Where a log stands: a number that its name alone decides."""
    return hashlib.sha256(f"logs of torchport diagnose, first draw: {name}".encode()).hexdigest()


def main(provoked: str, written: str, target: str) -> None:
    """Copy the logs to TARGET, and write TARGET/set.toml."""
    rows = [
        "# The logs that `torchport diagnose` is judged by (tests/vnpu/diagnose/draw.py drew them). cause: the row of",
        "# knowledge/errors that has to come first. made: vnpu, a script of tests/vnpu/diagnose/scripts run on the virtual",
        "# NPU, paths shortened and nothing else changed; written, the facts of a public report in words of our own. half:",
        "# rows are tuned on `open`; `kept` was looked at for the first time when they were done.",
    ]
    found = scripts()
    causes = {path.stem: found[path.stem].cause for path in Path(provoked).glob("*.txt")}
    sources = tomllib.loads(Path(written, "set.toml").read_text("utf-8"))
    kinds = {
        "vnpu": (Path(provoked), {name: (cause, "") for name, cause in causes.items()}),
        "written": (Path(written), {name: (row["cause"], row["source"]) for name, row in sources.items()}),
    }
    for made, (folder, logs) in kinds.items():
        for place, name in enumerate(sorted(logs, key=order)[:EACH]):
            cause, source = logs[name]
            path = folder / name if (folder / name).is_dir() else folder / f"{name}.txt"
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, Path(target, path.name))
            half = ("open", "kept")[place % 2]
            rows += ["", f"[{name}]", f'cause = "{cause}"', f'made = "{made}"', f'half = "{half}"']
            rows += [f'source = "{source}"'] if source else []
    Path(target, "set.toml").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
