"""Run the scripts that fail, through `torchport run` on the virtual NPU, and keep what a user would see.

    python tests/vnpu/diagnose/provoke.py FOLDER [NAME ...]

writes FOLDER/NAME.txt, stdout and stderr together as a shell's `> log 2>&1` has them. The head of a script says what is
wrong with it (`# cause:`, a row of knowledge/errors), how it is started (`# run:`, words for `torchport run`; `# python`
for plain python without the virtual NPU) and with which variables (`# env:`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from torchport import vnpu

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
SECONDS = 500  # for a script that hangs


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """One script that fails: the row that says why, the command line behind `python -m torchport`, variables."""

    path: Path
    cause: str
    words: tuple[str, ...]
    variables: dict[str, str]

    def run(self) -> subprocess.CompletedProcess[bytes]:
        """The script's end, both streams as one; it starts in a folder of its own."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if self.words[0] != "-m":  # as in a shell that knows of neither CANN nor the virtual NPU
            environment = {
                name: value
                for name, value in environment.items()
                if name not in ("LD_LIBRARY_PATH", "ASCEND_HOME_PATH")
            }
        else:
            environment |= {"TORCHPORT_BACKEND": vnpu.Kind.VNPU}
        command = [sys.executable, *self.words]
        with subprocess.Popen(
            command,
            env=environment | {"OMP_NUM_THREADS": "1"} | self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=SECONDS)
            except BaseException:
                _end(process)
                raise
        return subprocess.CompletedProcess(command, process.returncode, output)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what hangs, with its workers: torchrun's have sessions of their own, and end when it is asked to end."""
    os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def scripts() -> dict[str, Script]:
    """All scripts by name."""
    return {path.stem: _script(path) for path in sorted(SCRIPTS.glob("*.py"))}


def _script(path: Path) -> Script:
    head = dict(re.findall(r"^# (cause|run|env|python)(?::|$) ?(.*)$", path.read_text("utf-8"), re.MULTILINE))
    words = [str(path) if word == "SCRIPT" else word for word in head.get("run", "SCRIPT").split()]
    command = [str(path)] if "python" in head else ["-m", "torchport", "run", *words]
    variables = dict(pair.split("=", 1) for pair in head.get("env", "").split())
    return Script(path, head["cause"], tuple(command), variables)


def main(folder: str, *names: str) -> None:
    """Write FOLDER/NAME.txt for each script."""
    found = scripts()
    for name in names or found:
        ended = found[name].run()
        text = f"{ended.stdout.decode(errors='replace')}"
        Path(folder, f"{name}.txt").write_text(text, encoding="utf-8")
        print(f"{name}: exit status {ended.returncode}, {len(text.splitlines())} lines", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
