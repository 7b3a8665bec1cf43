"""What a port is asked to do, and where its files are.

    OUT/convert/      result.json, source/ and tree/ (the script and the modules of the user's that it imports, as they
                      were and converted)
    OUT/reference/    result.json, a recording of the original on the CPU, files/ that it wrote
    OUT/control/      the same of the original once more, with rounding noise and small faults (controls)
    OUT/npu/          the same of the port
    OUT/compare/      result.json
    OUT/result.json   everything that matters, in one file
    OUT/report.html   the same for people

A step works in OUT/<step>.unfinished, which becomes OUT/<step> when it is done. So what is there is always
whole; and as each step only reads what earlier ones left, it can be repeated alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from torchport.convert.project import list_convertible_files
from torchport.errors import TorchportError
from torchport.findings import Result, hash_bytes
from torchport.launch import Launch
from torchport.port.configurations import find_configurations
from torchport.port.modules import find_project_files, find_root
from torchport.results.port import Command, ControlRun, Conversion, Judged, Run
from torchport.source.settings import settings_of

CONVERT, REFERENCE, CONTROL, NPU, COMPARE = STEPS = ("convert", "reference", "control", "npu", "compare")
RESULT = "result.json"
REPORT = "report.html"
UNFINISHED = ".unfinished"
_T = TypeVar("_T", bound=Conversion | Run | ControlRun | Judged)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """One port.

    `launch` is the command, given in the folder `folder`; `out` is absolute; `timeout` in seconds holds for each of
    the two runs, `steps` ends both after that many; `start` is the first step to do again. With `follow` the modules
    of the user's that the script imports are converted too; `project` is a folder that is converted as a whole; with
    `force` a converted tree that was edited is overwritten. Without `control` the control run makes no faults.
    `tolerance` is a relative difference that somebody allows in place of what the original's rounding does.
    `reference` is a recording that takes the place of the original's run (`given`). Without `operators` runs that part
    are not run again for the operator that is wrong first (`suspects`). `sum_order` is the seed of the order in
    which the virtual NPU adds, None for the CPU's.
    """

    launch: Launch
    out: Path
    folder: Path
    timeout: float | None = None
    steps: int | None = None
    start: str = CONVERT
    follow: bool = True
    project: Path | None = None
    force: bool = False
    control: bool = True
    tolerance: float | None = None
    reference: Path | None = None
    operators: bool = True
    sum_order: int | None = None

    @property
    def script(self) -> Path | None:
        """The script, or the module's file; None where the command does not say."""
        return None if self.launch.script is None else (self.folder / self.launch.script).resolve()

    @property
    def name(self) -> str:
        """What the port is called in messages."""
        return self.script.name if self.script is not None else " ".join(self.launch.command[:2])

    @property
    def command(self) -> Command:
        """The command of the launch."""
        return tuple(self.launch.command)

    @property
    def path(self) -> list[str]:
        """Where the user's modules are looked for, beside the script's own folder."""
        return [
            os.path.abspath(self.folder / entry)
            for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if entry
        ]

    @property
    def root(self) -> Path:
        """The project: the nearest folder at or above the script that has a .git or a pyproject.toml, else the
        script's own with the folders of `sys.path` that it imports from (`find_root`)."""
        if self.project is not None or self.script is None:
            return self.project or self.folder
        given = [Path(entry) for entry in self.path]
        return find_root(self.script, self.folder, [*given, *([self.folder] if self.launch.module else [])])

    def list_viewed_folders(self) -> list[Path]:
        """The folders of the user's that each run gets a view of: the current one and the project, or the one that
        holds both."""
        folder, root = self.folder.resolve(), self.root.resolve()
        if root.is_relative_to(folder):
            return [folder]
        return [root] if folder.is_relative_to(root) else [folder, root]

    def list_converted_files(self) -> list[Path]:
        """The files that are converted."""
        if self.project is not None or self.script is None:
            return [path.resolve() for path, _ in list_convertible_files(self.root, settings_of(self.root), self.out)]
        sources = find_project_files(
            self.script, module=bool(self.launch.module), folder=self.folder, follow=self.follow, path=self.path
        )
        if not self.follow:
            return sources
        return [*sources, *find_configurations(sources, self.launch.arguments, self.folder, self.root)]

    def kept_in(self, step: str) -> Path:
        """Where a finished step's files are."""
        return self.out / step

    def hash_inputs(self) -> dict[str, str]:
        """The files that are converted, with their hashes."""
        return {str(path): hash_bytes(path.read_bytes()) for path in self.list_converted_files()}

    def describe_source(self) -> dict[str, Any]:
        """What is run, in words that hold in a copy of the user's folder on another machine: `files` are the
        converted ones by their path in the folder, with their hashes; a command whose script cannot be told is
        known by its words."""
        places = self.list_viewed_folders()

        def placed(path: Path) -> str:
            return next((str(path.relative_to(place)) for place in places if path.is_relative_to(place)), path.name)

        launch, script = self.launch, self.script
        if script is None or launch.kind == "stdin":
            words = list(launch.command[1:]) if script is None else []
            named: dict[str, Any] = {"script": "", "words": words, "files": {}}
        else:
            words = ["-m", launch.module] if launch.module else []
            files = {placed(Path(path)): digest for path, digest in self.hash_inputs().items()}
            named = {"script": placed(script), "words": words, "files": files}
        return named | {"arguments": list(launch.arguments), "processes": launch.processes}

    def list_due_steps(self) -> tuple[str, ...]:
        """The steps to do."""
        return STEPS[STEPS.index(self.start) :]

    def load_step_result(self, step: str, kind: type[_T]) -> Result[_T]:
        """The result that an earlier run left for `step`. Raises TorchportError unless it fits this plan."""
        path = self.kept_in(step) / RESULT
        again = "Leave --from out to do all steps."
        if not path.exists():
            raise TorchportError(f"--from {self.start} needs the step {step}, and there is no {path}", hint=again)
        try:
            result = Result.read(path).typed(kind)
        except TypeError as error:
            raise TorchportError(f"{path} is damaged: {error}", hint=again) from error
        now = self.hash_inputs()
        changed = sorted(name for name in {*now, *result.inputs} if now.get(name) != result.inputs.get(name))
        if changed:
            raise TorchportError(f"changed since {path} was made: {', '.join(changed)}", hint=again)
        command = result.data.command
        if step in (REFERENCE, CONTROL, NPU) and command != self.command:
            raise TorchportError(f"{path} was made by another command: {shlex.join(command)}", hint=again)
        return result

    @contextlib.contextmanager
    def make_step_folder(self, step: str) -> Iterator[Path]:
        """An empty folder that becomes the step's when the block ends well, and goes away when it does not.

        The results of later steps go when the step is done: they were made from its earlier files.
        """
        aside = self.out / (step + UNFINISHED)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            yield aside
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        for stale_file in (RESULT, REPORT):
            (self.out / stale_file).unlink(missing_ok=True)
        for stale in STEPS[STEPS.index(step) :]:
            shutil.rmtree(self.kept_in(stale), ignore_errors=True)
        aside.rename(self.kept_in(step))


def check_plan(plan: Plan) -> None:
    """Raise TorchportError for what makes the plan impossible, before anything runs or is written."""
    if plan.project is not None and not plan.project.is_dir():
        raise TorchportError(f"the project {plan.project} is not a folder")
    if plan.script is not None:
        _check_script(plan.script)
    if plan.out.exists() and not plan.out.is_dir():
        raise TorchportError(f"the output folder {plan.out} is a file", hint="Give another with --out.")


def _check_script(script: Path) -> None:
    if not script.is_file():
        what = "a folder" if script.is_dir() else "not there"
        raise TorchportError(
            f"the script {script} is {what}",
            hint="Give the path of the Python file that trains. For a whole project: "
            "torchport port PROJECT --main SCRIPT.",
        )
    try:
        data = script.read_bytes()
    except OSError as error:
        raise TorchportError(f"cannot read {script}: {error.strerror}") from error
    if script.suffix == ".ipynb":
        return  # converting it says what is wrong with it
    try:
        compile(data, str(script), "exec", dont_inherit=True)
    except SyntaxError as error:
        text = f"\n    {error.text.strip()}" if error.text else ""
        line = f":{error.lineno}" if error.lineno else ""  # null bytes have none
        raise TorchportError(
            f"{script}{line}: the script has a syntax error: {error.msg}{text}",
            hint="Nothing was run. Correct the line; `python SCRIPT` shows the same error.",
        ) from error
    except ValueError as error:  # null bytes, before Python 3.11.4
        raise TorchportError(f"{script} is not Python source: {error}") from error


def step_result(step: str, plan: Plan, data: _T) -> Result[_T]:
    """The result that a step leaves for the next."""
    return Result(step, (), data, plan.hash_inputs())
