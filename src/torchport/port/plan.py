"""What a port is asked to do, and where its files are.

    OUT/convert/      result.json, tree/ (the converted script and the modules beside it that it imports)
    OUT/reference/    result.json and a recording of the original on the CPU
    OUT/npu/          result.json and a recording of the port
    OUT/compare/      result.json
    OUT/result.json   everything that matters, in one file
    OUT/report.html   the same for people

A step works in OUT/<step>.unfinished, which becomes OUT/<step> when it is done. So what is there is always
whole; and as each step only reads what earlier ones left, it can be repeated alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.findings import Result, hash_bytes
from torchport.port.modules import local_modules

CONVERT, REFERENCE, NPU, COMPARE = STEPS = ("convert", "reference", "npu", "compare")
RESULT = "result.json"
REPORT = "report.html"
UNFINISHED = ".unfinished"
# What later steps read of a step's data.
_RUN: dict[str, Any] = {"status": int | None, "seconds": int | float, "steps": int, "device": str}
DATA: dict[str, dict[str, Any]] = {
    CONVERT: {"diff": str, "summary": dict},
    REFERENCE: {**_RUN, "timed_out": bool, "wrote": list},
    NPU: _RUN,
    COMPARE: {"comparison": dict | None},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """One port: `timeout` in seconds holds for each of the two runs; `start` is the first step to do
    again."""

    script: Path
    arguments: tuple[str, ...]
    out: Path
    timeout: float | None = None
    start: str = CONVERT

    def folder(self, step: str) -> Path:
        """Where a finished step's files are."""
        return self.out / step

    def inputs(self) -> dict[str, str]:
        """The script and the modules beside it that it imports, with their hashes."""
        return {str(path): hash_bytes(path.read_bytes()) for path in local_modules(self.script)}

    def due(self) -> tuple[str, ...]:
        """The steps to do."""
        return STEPS[STEPS.index(self.start) :]

    def kept(self, step: str) -> Result:
        """What an earlier run left for `step`. Raises TorchportError unless it fits this plan."""
        path = self.folder(step) / RESULT
        again = "Leave --from out to do all steps."
        if not path.exists():
            raise TorchportError(
                f"--from {self.start} needs the step {step}, and there is no {path}", hint=again
            )
        result = Result.read(path)
        for name, kind in DATA[step].items():
            if name not in result.data or not isinstance(result.data[name], kind):
                raise TorchportError(f"{path} is damaged: it has no {name} that fits", hint=again)
        now = self.inputs()
        changed = sorted(name for name in {*now, *result.inputs} if now.get(name) != result.inputs.get(name))
        if changed:
            raise TorchportError(f"changed since {path} was made: {', '.join(changed)}", hint=again)
        arguments = result.data.get("arguments", list(self.arguments))
        if step in (REFERENCE, NPU) and arguments != list(self.arguments):
            raise TorchportError(
                f"{path} was made with other arguments for the script: {arguments}", hint=again
            )
        return result

    @contextlib.contextmanager
    def work(self, step: str) -> Iterator[Path]:
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
            shutil.rmtree(self.folder(stale), ignore_errors=True)
        aside.rename(self.folder(step))


def check(plan: Plan) -> None:
    """Raise TorchportError for what makes the plan impossible, before anything runs or is written."""
    if not plan.script.is_file():
        what = "a folder" if plan.script.is_dir() else "not there"
        raise TorchportError(
            f"the script {plan.script} is {what}",
            hint="Give the path of the Python file that trains; its own arguments follow after `--`.",
        )
    try:
        data = plan.script.read_bytes()
    except OSError as error:
        raise TorchportError(f"cannot read {plan.script}: {error.strerror}") from error
    try:
        compile(data, str(plan.script), "exec", dont_inherit=True)
    except SyntaxError as error:
        text = f"\n    {error.text.strip()}" if error.text else ""
        line = f":{error.lineno}" if error.lineno else ""  # null bytes have none
        raise TorchportError(
            f"{plan.script}{line}: the script has a syntax error: {error.msg}{text}",
            hint="Nothing was run. Correct the line; `python SCRIPT` shows the same error.",
        ) from error
    except ValueError as error:  # null bytes, before Python 3.11.4
        raise TorchportError(f"{plan.script} is not Python source: {error}") from error
    if plan.out.exists() and not plan.out.is_dir():
        raise TorchportError(f"the output folder {plan.out} is a file", hint="Give another with --out.")


def step_result(step: str, plan: Plan, data: Mapping[str, object]) -> Result:
    """The result that a step leaves for the next."""
    return Result(
        step, (), {"script": str(plan.script), "arguments": list(plan.arguments), **data}, plan.inputs()
    )
