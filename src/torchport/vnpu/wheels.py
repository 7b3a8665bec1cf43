"""Which torch and torch_npu are installed in this environment, found without importing them.

Importing torch takes seconds and, through its entry point, imports torch_npu, which fails where no NPU
backend is active; so everything here is read from files. `python -m torchport.vnpu.wheels` checks that torch
is a CPU build, for `make setup`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import sys
from pathlib import Path

from torchport.errors import TorchportError

# The virtual NPU implements what this torch_npu asks for, and is compiled against this torch.
SUPPORTED = "2.13.0"


@dataclasses.dataclass(frozen=True, slots=True)
class Wheel:
    """An installed package: its version ("2.13.0+cpu") and, for torch, the CUDA version it was built for."""

    name: str
    version: str
    cuda: str | None = None


def find_wheel(name: str) -> Wheel | None:
    """The installed package `name` ("torch" or "torch_npu"), or None.

    Raises TorchportError where a part of it is there that does not say which version it is.
    """
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else read_wheel(name, Path(spec.origin))


def read_wheel(name: str, origin: Path) -> Wheel:
    """The package whose `__init__.py` is `origin`. Raises TorchportError if its version.py does not say the version."""
    values: dict[str, object] = {}
    source = origin.with_name("version.py")
    try:
        body = ast.parse(source.read_bytes()).body
    except (OSError, SyntaxError, ValueError) as error:
        raise TorchportError(
            f"{name} is damaged: its version cannot be read from {source} ({error})",
            hint=f"Install it again: pip install --force-reinstall --no-deps {name.replace('_', '-')}=={SUPPORTED}",
        ) from error
    for node in body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=variable)], value=ast.Constant(value=value))
                | ast.AnnAssign(target=ast.Name(id=variable), value=ast.Constant(value=value))
            ):
                values[variable] = value
    cuda = values.get("cuda")
    return Wheel(name, str(values.get("__version__", "unknown")), None if cuda is None else str(cuda))


def cuda_problem(torch: Wheel) -> str:
    """Why this torch cannot be used beside torch_npu, and what to do; empty when it can."""
    if torch.cuda is None:
        return ""
    return (
        f"torch {torch.version} is a build for CUDA {torch.cuda}: torch_npu refuses to load beside it "
        '("Two accelerators cannot be used at the same time"). A CPU build of the same version is needed. '
        "Give pip one by an index that has it, `make setup TORCH_INDEX=<url of a CPU wheel index>`, or by a "
        "file, `make setup TORCH_WHEEL=<path of torch-*+cpu-*.whl>`."
    )


def main() -> int:
    """Exit code 0 if torch is there and is a CPU build; else 2 and a sentence on stderr."""
    try:
        torch = find_wheel("torch")
    except TorchportError as error:
        print(f"{error}. {error.hint}", file=sys.stderr)
        return 2
    problem = "torch is not installed." if torch is None else cuda_problem(torch)
    if problem:
        print(problem, file=sys.stderr)
    return 2 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
