"""Command lines that start training: what they execute, which file trains, and in how many processes."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchport.errors import TorchportError
from torchport.launch import launchers, notebook
from torchport.launch.modules import module_file
from torchport.launch.python_words import read_python

Kind = Literal["script", "module", "notebook", "stdin", "launcher", "command"]
STANDALONE = ("--standalone",)  # with a port that the system chooses
NOTEBOOK = "torchport.launch.notebook_run"  # not imported here: it is run by its name
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?$")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
_RENDEZVOUS = ("--standalone", "--rdzv-endpoint", "--rdzv-backend", "--rdzv-id", "--master-addr", "--master-port")


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """One way to start training.

    `command` is to be executed as it is, in the user's folder or a view of it, with `variables` set. `script` is the
    user's file that trains, or None where it cannot be told (a shell script); for a notebook the `.ipynb`.
    `processes` counts the ranks on this machine, 1 where the training is not distributed and 0 where only the
    launcher can tell. `arguments` are the script's own.
    """

    command: tuple[str, ...]
    script: Path | None
    module: str
    processes: int
    kind: Kind
    arguments: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


def add_target(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the arguments that say what to start: SCRIPT, or -m MODULE; `launch_of` reads them.
    A command line may stand behind `--` as well, which the usage says."""
    start = f"{parser.prog} [options]"
    parser.usage = f"{start} {{SCRIPT | -m MODULE}} [ARGS]  or  {start} -- COMMAND"
    parser.add_argument(
        "script", nargs="?", metavar="SCRIPT", help="the Python file or notebook that trains; - reads it from stdin"
    )
    parser.add_argument("-m", dest="module", metavar="MODULE", help="the module that trains, as `python -m` takes it")


def launch_of(
    arguments: argparse.Namespace, *, nproc: int | None, where: Sequence[str] = STANDALONE, keep: Path | None = None
) -> Launch:
    """`parse_launch` for the arguments of a parser with `add_target`, with the script's words in `arguments.passed`."""
    passed = list(arguments.passed)
    if arguments.module is not None:
        return parse_launch([arguments.module, *passed], module=True, nproc=nproc, where=where, keep=keep)
    if arguments.script is not None:
        return parse_launch([arguments.script, *passed], nproc=nproc, where=where, keep=keep)
    return parse_launch(passed, command=True, nproc=nproc, where=where, keep=keep)


def parse_launch(
    words: Sequence[str],
    *,
    nproc: int | None = None,
    module: bool = False,
    command: bool = False,
    where: Sequence[str] = STANDALONE,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    keep: Path | None = None,
) -> Launch:
    """Read `words`: a script and its arguments, with `module` a module and its, with `command` a command line.

    `nproc` starts that many ranks by torchrun with the rendezvous options `where`. Paths are those of `folder`
    (default: the current one). A script on stdin (`-`) is written to the file `keep`; without that it is left to
    Python, or with `nproc` kept in a temporary file. Raises TorchportError where nothing can be started: no such
    file or module, a notebook that cannot be read, a launcher without a script.
    """
    reader = _Reader(Path() if folder is None else folder, dict(os.environ if environ is None else environ), keep)
    reader.nproc, reader.where = nproc, tuple(where)
    if nproc is not None and nproc < 1:
        raise TorchportError(f"{nproc} is no number of processes: 1 or more")
    if command:
        return reader.read_command_line(list(words))
    if not words:
        raise _nothing()
    if module:
        return reader.read_module((sys.executable,), words[0], words[1:])
    return reader.read_script((sys.executable,), words[0], words[1:])


def _nothing() -> TorchportError:
    return TorchportError(
        "there is nothing to start",
        hint="Give SCRIPT, -m MODULE, or a command line after `--`, as `-- torchrun train.py`.",
    )


@dataclasses.dataclass
class _Reader:
    folder: Path
    environ: dict[str, str]
    keep: Path | None
    nproc: int | None = None
    where: tuple[str, ...] = STANDALONE
    variables: dict[str, str] = dataclasses.field(default_factory=dict)

    def read_command_line(self, words: list[str]) -> Launch:
        """A command line of the user's, with variables in front of it."""
        if len(words) == 1 and " " in words[0] and not os.path.exists(self.folder / words[0]):
            words = _pieces(words[0])
        if words[:1] == ["env"] and not (words[1:] and words[1].startswith("-")):
            words = words[1:]
        while words and _VARIABLE.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            self.variables[name] = value
        self.environ.update(self.variables)
        if not words:
            raise _nothing()
        name, rest = words[0], words[1:]
        launcher = launchers.find_program_launcher(name, rest)
        if launcher is not None:
            return self.read_launcher(launcher, name, (sys.executable,), rest)
        if _PYTHON.match(os.path.basename(name)):
            # A bare name means this interpreter: another one's torch cannot be asked of what is on the PATH.
            return self.read_python_command(sys.executable if name == os.path.basename(name) else name, rest)
        if name.endswith((".py", ".ipynb")):
            return self.read_script((sys.executable,), name, rest)
        return self.read_program(words)

    def read_program(self, words: Sequence[str]) -> Launch:
        """Something else, as a shell script, that starts Python in the end: this interpreter, by the PATH."""
        self._count_is_ours(words[0])
        self._put_on_path()
        if (
            shutil.which(str(self.folder / words[0]) if os.sep in words[0] else words[0], path=self.environ["PATH"])
            is None
        ):
            raise TorchportError(
                f"there is no program {words[0]}",
                hint="After `--` stands a command line, or with a SCRIPT its arguments.",
            )
        return self._launch(words, None, 0, "command", ())

    def read_python_command(self, interpreter: str, words: Sequence[str]) -> Launch:
        """`python` with these words."""
        read = read_python(words)
        python = (interpreter, *read.options)
        if read.module is not None:
            launcher = launchers.find_module_launcher(read.module, read.arguments)
            if launcher is not None:
                return self.read_launcher(launcher, read.module, python, read.arguments)
            return self.read_module(python, read.module, read.arguments)
        if read.script is not None:
            return self.read_script(python, read.script, read.arguments)
        self._count_is_ours("python")
        return self._launch((*python, *read.arguments), None, 1, "command", ())

    def read_script(self, python: Sequence[str], name: str, arguments: Sequence[str]) -> Launch:
        """A file of Python code, a notebook, or `-`."""
        if name == "-":
            return self._stdin(python, arguments)
        path = self.folder / name
        if not path.is_file():
            what = f"the script {name} is a folder" if path.is_dir() else f"there is no script {name}"
            if (
                launchers.find_program_launcher(name, ["launch"])
                or launchers.find_program_launcher(name, ["run"])
                or _is_command(name)
            ):
                raise TorchportError(
                    what, hint=f"A command line stands after `--`: -- {shlex.join([name, *arguments])}"
                )
            raise TorchportError(what, hint="Give the file that trains, -m MODULE, or a command line after `--`.")
        if path.suffix == ".ipynb":
            notebook.check_notebook(name, path)
            words = ("-m", NOTEBOOK, name, *arguments)
            return self._python(python, words, path, "notebook", arguments)
        return self._python(python, (name, *arguments), path, "script", arguments)

    def read_module(self, python: Sequence[str], name: str, arguments: Sequence[str]) -> Launch:
        """`python -m name`."""
        launcher = launchers.find_module_launcher(name, arguments)
        if launcher is not None:
            return self.read_launcher(launcher, name, tuple(python), arguments)
        path = module_file(name, self.folder, self.environ)
        return self._python(python, ("-m", name, *arguments), path, "module", arguments, name)

    def read_launcher(
        self, launcher: launchers.Launcher, name: str, python: tuple[str, ...], words: Sequence[str]
    ) -> Launch:
        """torchrun and its like, by the `name` that the user gave."""
        self._count_is_ours(name)
        found = launchers.read_options(launcher, words)
        if found.target is None:
            raise TorchportError(
                f"{name} is given no script", hint=f"For example: {name} {' '.join([*words, 'train.py'])}".rstrip()
            )
        script, target_module = self._started_by(name, found)
        own = list(words[len(launcher.subcommand.split()) :])
        several = found.options.get("--nnodes", self.environ.get("PET_NNODES", "1")) != "1"
        if launcher.processes == launchers.TORCHRUN.processes and not several and not found.has_option(*_RENDEZVOUS):
            own.insert(0, "--standalone")
        if launcher.module is not None:
            command = launchers.in_python(python, launcher.module, own)
        else:
            self._put_on_path()
            command = (name, *words)
        count = launchers.count_processes(launcher, found, self.environ)
        return self._launch(command, script, count, "launcher", found.arguments, target_module)

    def _started_by(self, name: str, found: launchers.Reading) -> tuple[Path | None, str]:
        """The file that a launcher starts, and the module's name where it is one."""
        target = found.target or ""
        if found.has_option("-m", "--module"):
            return module_file(target, self.folder, self.environ), target
        path = self.folder / target
        if found.has_option("--no-python") and path.suffix != ".py":
            return None, ""
        if not path.is_file():
            raise TorchportError(f"{name} is given the script {target}, which is not there")
        return path, ""

    def _python(
        self,
        python: Sequence[str],
        words: Sequence[str],
        script: Path | None,
        kind: Kind,
        arguments: Sequence[str],
        module: str = "",
    ) -> Launch:
        """`python words`, by torchrun where several processes are asked for."""
        if self.nproc is None:
            return self._launch((*python, *words), script, 1, kind, arguments, module)
        options = [*self.where, f"--nproc-per-node={self.nproc}", *words]
        command = launchers.in_python(python, "torch.distributed.run", options)
        return self._launch(command, script, self.nproc, kind, arguments, module)

    def _stdin(self, python: Sequence[str], arguments: Sequence[str]) -> Launch:
        if self.keep is None and self.nproc is None:
            return self._launch((*python, "-", *arguments), None, 1, "stdin", arguments)
        text = sys.stdin.buffer.read()
        if not text.strip():
            raise TorchportError("there is no script on stdin", hint="For example: cat train.py | torchport port -")
        path = self.keep
        if path is None:
            descriptor, name = tempfile.mkstemp(prefix="torchport-stdin-", suffix=".py")
            os.close(descriptor)
            path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        # A script on stdin imports from the current folder, a file from its own.
        inherited = self.environ.get("PYTHONPATH")
        self.variables["PYTHONPATH"] = os.pathsep.join([os.curdir, *([inherited] if inherited else [])])
        return self._python(python, (str(path), *arguments), path, "stdin", arguments)

    def _launch(
        self,
        command: Sequence[str],
        script: Path | None,
        processes: int,
        kind: Kind,
        arguments: Sequence[str],
        module: str = "",
    ) -> Launch:
        return Launch(tuple(command), script, module, processes, kind, tuple(arguments), tuple(self.variables.items()))

    def _count_is_ours(self, name: str) -> None:
        if self.nproc is not None:
            raise TorchportError(
                f"--nproc {self.nproc} cannot be given to {name}, which starts its processes itself",
                hint=f"Leave --nproc out and say it to {name}, or give SCRIPT instead of a command line.",
            )

    def _put_on_path(self) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), self.environ.get("PATH", os.defpath)])
        self.variables["PATH"] = self.environ["PATH"] = path


def _pieces(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise TorchportError(f"the command line {line!r} is not complete: {error}") from error


def _is_command(name: str) -> bool:
    return bool(_VARIABLE.match(name) or _PYTHON.match(name) or name in ("bash", "sh", "env"))
