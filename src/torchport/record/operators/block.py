"""`with torchport.record(DIR):` for those who would rather write it into their script than start it so."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from torchport.errors import TorchportError
from torchport.record import recording
from torchport.record.operators import layout, part
from torchport.record.operators.wanted import DROP, Wanted
from torchport.record.recorder import process_fields
from torchport.record.recording import End, Journal
from torchport.record.sites import Sites


class Block:
    """Records the operators of the block into `directory`; a step ends with each `optimizer.step()`, or with `step()`.

    Nothing is seeded or saved, and no loss is recorded: that is `torchport run --record`. Every rank of a job uses the
    same folder. `level` and `filters` are those of --level and --filter; `max_bytes` and `on_full` too.

    Raises TorchportError for what Wanted refuses, for a folder that holds something (without `force`), without h5py.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        level: str = "statistics",
        filters: Iterable[str] = (),
        max_bytes: int | None = None,
        on_full: str = "stop",
        force: bool = False,
    ) -> None:
        self._wanted = Wanted.from_words(level, filters, max_bytes, on_full)
        self._folder = Path(directory).absolute()
        self._force = force
        self._hooks: list[Any] = []
        self._journal: Journal
        self._part: part.OperatorsPart
        self._steps = 0
        self._start = 0.0

    def __enter__(self) -> Block:
        import torch

        rank, world = _rank(torch)
        if rank in (0, None):
            self._begin()
        self._start = time.perf_counter()
        self._journal = Journal(self._folder, drops=self._wanted.on_full == DROP)
        self._journal.write_event("process", **process_fields(rank, world))
        self._part = part.make_operators_part(
            torch,
            self._wanted,
            self._folder,
            self._journal,
            Sites([os.getcwd()]),
            lambda: _rank(torch)[0],
            {"side": "block"},
        )
        optimizers = importlib.import_module("torch.optim.optimizer")
        self._hooks = [
            optimizers.register_optimizer_step_pre_hook(lambda one, *_: self._part.on_step_begin(one, -1, 0, False)),
            optimizers.register_optimizer_step_post_hook(lambda one, *_: self._stepped(one)),
        ]
        self._part.install()
        return self

    def _begin(self) -> None:
        folder = self._folder
        if folder.exists() and not folder.is_dir():
            raise TorchportError(f"{folder} is a file", hint="Give a folder that is new or empty.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TorchportError(
                f"{folder} cannot be made: {error.strerror}", hint="Give a place that can be written."
            ) from error
        # Other ranks may be here already.
        held = [path for path in folder.iterdir() if path.name == recording.HEAD]
        if held and not self._force:
            raise TorchportError(
                f"the folder {folder} holds a recording already", hint="Give another one, or force=True."
            )
        if held:
            import shutil

            for name in (recording.PROCESSES, layout.FOLDER):
                shutil.rmtree(folder / name, ignore_errors=True)
        recording.begin_recording(folder, side="block", command=sys.argv or ["python"], device="", seed=0)

    def _stepped(self, optimizer: Any) -> None:
        self._part.on_step_end(optimizer, -1, self._steps)
        self.step()

    def step(self) -> None:
        """A step ends here. Raises Full (a SystemExit) where nothing can be written and `on_full` is "stop"."""
        self._journal.write_event("step", device="", gradient="", launches=None, seconds=None, step=self._steps)
        self._steps += 1
        self._part.step_done()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._hooks:
            self._hooks.pop().remove()
        self._part.finish()
        self._journal.close()
        End(0 if kind is None else 1, time.perf_counter() - self._start).write_to(self._folder)


def _rank(torch: Any) -> tuple[int | None, int | None]:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return None, None
