"""The device and the backend that a script is told from outside: the port is told the NPU's for CUDA's, as the
converted code compares with these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

# cuda, cuda:0, nccl; --device=cuda, and hydra's device=cuda, +model.device=cuda:1, ++device=cuda.
_DEVICE = re.compile(r"\A((?:[+~]{0,2}[\w./@-]+=)?)cuda(?=(?::\d+)?\Z)")
_BACKEND = re.compile(r"\A((?:[+~]{0,2}[\w./@-]+=)?)nccl\Z")
# Lightning's names of accelerators: it knows no NPU, and its GPU accelerator uses one after conversion (TP607).
_ACCELERATOR = re.compile(r"(?:\A|[-.])accelerator(?:=|\Z)")


def name_npu(word: str) -> str:
    """An argument of the port for one of the original: `npu:0` for `cuda:0`, `--device=npu` for `--device=cuda`, `hccl`
    for `nccl`."""
    if _ACCELERATOR.search(word):
        return word
    return _BACKEND.sub(r"\1hccl", _DEVICE.sub(r"\1npu", word))


def rename_arguments(words: Sequence[str]) -> list[str]:
    """The arguments of the port, as many as the original's."""
    before = ["", *words]
    return [word if _ACCELERATOR.search(last) else name_npu(word) for last, word in zip(before, words, strict=False)]


def rename_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that are a device or a backend of CUDA's, as the port is given them."""
    return {name: given for name, value in environment.items() if (given := name_npu(value)) != value}


def list_renamed(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Say which arguments and variables the port is given otherwise than the original."""
    for word, given in dict.fromkeys(zip(arguments, rename_arguments(arguments), strict=True)):
        if given != word:
            yield f"the port was given {given} for the argument {word}"
    for name, value in rename_variables(environment).items():
        yield f"the port was given {name}={value} for the variable {name}={environment[name]}"
