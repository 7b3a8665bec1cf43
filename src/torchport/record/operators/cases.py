"""One call of a recording as files of its own: what a test of that operator alone needs."""

from __future__ import annotations

import difflib
import json
import math
from pathlib import Path
from typing import Any

import numpy

from torchport.errors import TorchportError
from torchport.findings import write_atomically
from torchport.record.operators import layout
from torchport.record.operators.checking import require_readable
from torchport.record.operators.listing import open_recording, plain_call
from torchport.record.operators.reading import Call, Step

CALL = "call.json"


def extract_call(path: Path, step: int, rank: int, word: str, out: Path) -> dict[str, Any]:
    """Write the call that `word` (`name:index`) names to the folder `out`: call.json, input<i>.npy, output<i>.npy
    and written<i>.npy (in the numpy type that `Tensor.bits` gives). What call.json has is returned.

    Raises TorchportError where the step has no such call, nothing of its content was kept, or `out` holds something.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TorchportError(f"{out} is not empty", hint="Give -o a folder that is new or empty.")
    process = open_recording(path).rank(rank)
    if step in process.files:
        require_readable(process.files[step])
    with process.step(step) as opened_step:
        call = _find(opened_step, step, word)
        tensors = [
            (f"{kind}{place}.npy", tensor)
            for kind, all_of in (("input", call.inputs), ("output", call.outputs), ("written", call.written))
            for place, tensor in enumerate(all_of)
            if tensor is not None
        ]
        if tensors and not any(tensor.has_content for _, tensor in tensors):
            raise TorchportError(
                f"of {call.name} in step {step} statistics were recorded, and no content",
                hint=f"torchport run --record DIR --level tensor --filter step={step} ... records it",
            )
        for file, tensor in tensors:
            size = math.prod(tensor.shape) * layout.DTYPES[tensor.dtype].size if tensor.has_content else 0
            if size > opened_step.file.get_max_tensor_bytes():
                raise TorchportError(
                    f"{file[:-4]} of {call.name} has {size:,} bytes: more than {opened_step.file.path} has on the disk",
                    hint="An expanded tensor repeats what was kept; a damaged file says anything.",
                )
        described = {**plain_call(call), "step": step, "rank": rank, "about": dict(opened_step.about)}
        out.mkdir(parents=True, exist_ok=True)
        try:
            for file, tensor in tensors:
                if tensor.has_content:
                    numpy.save(out / file, numpy.ascontiguousarray(tensor.bits()).reshape(tensor.shape))
        except TorchportError:  # a content is damaged: half a case is none
            for path in out.iterdir():
                path.unlink()
            raise
    write_atomically(out / CALL, json.dumps(described, indent=1).encode())
    return described


def _find(step: Step, number: int, word: str) -> Call:
    name, colon, index = word.rpartition(":")
    if not colon or not index.isdecimal() or name.endswith(":"):  # aten::add has colons of its own
        name, index = word, "0"
    names = [step.file.get_line(int(row["operator"])) for row in step.file.tables["calls"]]
    places = [place for place, one in enumerate(names) if name in (one, one.partition("::")[2])]
    if int(index) < len(places):
        return step.call(places[int(index)])
    if places:
        raise TorchportError(
            f"step {number} calls {name} {len(places)} times, and there is no {word}",
            hint=f"The last is {name}:{len(places) - 1}; calls are counted from 0.",
        )
    near = difflib.get_close_matches(name, {one.partition("::")[2] for one in names}, 3)
    raise TorchportError(
        f"step {number} calls no operator {name}", hint=f"Near are {', '.join(near)}." if near else "See `record show`."
    )
