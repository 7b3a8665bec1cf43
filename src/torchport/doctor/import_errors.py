"""The cause of a failed `import torchvision` or `import torchaudio`, read from the text of its error.

The last line is not enough: `operator torchvision::nms does not exist` follows if the library is built for CUDA, for
another torch, or missing. So the text has the words of the linker as well (`extensions.PROGRAM`).
"""

from __future__ import annotations

import dataclasses
import re

# A CUDA build beside a CPU build of torch.
FOREIGN_FIX = (
    "It is a CUDA build beside a CPU build of torch. `torchport run` and `torchport port` mend that by themselves; "
    "`torchport doctor --fix` does it for plain python. Or install the CPU build of the same version."
)
NUMPY_AGAIN = "pip uninstall -y numpy && pip install --no-cache-dir 'numpy>=2'"
AGAIN = "pip uninstall -y {name} && {install}"
OPEN = r"[\w.+-]*: cannot open shared object file"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A pattern, the cause that it means, and the command. The texts may name groups of the pattern, name, install."""

    pattern: str
    cause: str
    fix: str


# Of the causes of numpy: also in the output of an import that ends well, where torch goes on without numpy.
NUMPY = (
    Row(r"No module named 'numpy'(?!\.)", "numpy is not installed", "pip install 'numpy>=2'"),
    Row(
        r"numpy\.dtype size changed.*Expected 96 ",
        "a module of it is compiled for numpy 2, and numpy 1 is installed",
        "pip install 'numpy>=2'",
    ),
    Row(
        r"compiled using NumPy 1\.x cannot be run|_ARRAY_API not found|numpy\.dtype size changed",
        "a module{module} is compiled for numpy 1, and numpy 2 is installed",
        "pip install 'numpy<2', or a release{module} that is compiled for numpy 2",
    ),
    Row(
        r"compiled against (?:NumPy )?(?:C-)?(?:API|ABI) version \w+.* (?:this version of numpy is|running NumPy has)",
        "numpy is older than what a module{module} is compiled for",
        "pip install --upgrade numpy",
    ),
    Row(
        r"Original error was: .*|Importing the numpy C-extensions failed|Error importing numpy|No module named 'numpy\."
        r"|cannot import name .* from (?:partially initialized module )?'numpy|multiarray failed to import"
        r"|module 'numpy' has no attribute '(?!bool|int|float|complex|object|str|typeDict)\w+",
        "numpy is broken: its files are not whole, or for another Python",
        NUMPY_AGAIN,
    ),
)
ROWS = (
    *NUMPY,
    Row(r"No module named 'PIL'", "pillow is not installed", "pip install pillow"),
    Row(
        r"cannot import name '_imaging' from 'PIL'",
        "pillow is broken",
        "pip uninstall -y pillow && pip install --no-cache-dir pillow",
    ),
    Row(r"No module named 'torch'", "torch is not installed", "pip install torch"),
    Row(
        rf"lib(?:c10|torch|torch_cpu|torch_python)\.so{OPEN}",
        "torch is half installed",
        "pip uninstall -y torch && pip install torch",
    ),
    Row(
        rf"lib(?:cud|cu[bfrs]|nvrtc|nvjpeg|nvToolsExt|nccl|c10_cuda|torch_cuda|cupti){OPEN}",
        "it is built for CUDA, and this torch is not",
        FOREIGN_FIX,
    ),
    Row(rf"lib(?:torch_hip|c10_hip|amdhip){OPEN}", "it is built for ROCm, and this torch is not", AGAIN),
    Row(
        r"compiled with different CUDA (?:major )?versions.*",
        "it is built for another CUDA than torch",
        f"{AGAIN}, from the index that torch was installed from",
    ),
    Row(
        rf"lib(?:jpeg|turbojpeg|png|webp|sharpyuv){OPEN}",
        "a library that decodes images is missing",
        "apt-get install libjpeg-turbo8 libpng16-16 (yum install libjpeg-turbo libpng), or the wheel, which has its "
        f"own: {AGAIN}",
    ),
    Row(
        r"lib\S+: cannot allocate memory in static TLS block",
        "the library is loaded too late",
        "export LD_PRELOAD=<the path of that library>",
    ),
    Row(
        r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",
        "it is built for a newer system than this",
        "Use a newer system or container image, or a release that is built for this one.",
    ),
    Row(r"file too short|invalid ELF header", "half an installation: a library is cut off", AGAIN),
    Row(
        r"undefined symbol: \w+|Couldn't load custom C\+\+ ops|operator \w+::\w+ does not exist"
        r"|No such operator \w+::\w+|partially initialized module '{name}' has no attribute"
        r"|cannot import name '\w+' from '(?:torch(?:\.[\w.]+)?|PIL(?:\.\w+)?)'|module 'torch[.\w]*' has no attribute"
        r"|No module named 'torch\.[\w.]+'",
        "it is built for another torch",
        "{install}",
    ),
    Row(
        r"No module named '{name}\.[\w.]+'|cannot import name '\w+' from '{name}",
        "half an installation: its files are not of one release",
        AGAIN,
    ),
)
_ERROR = re.compile(r"^[\w.]*(?:Error|Exception|Exit|Interrupt)\b.*", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """A cause in words, with the line that says it, and the command that mends it."""

    words: str
    fix: str


def read_cause(text: str, name: str, install: str, rows: tuple[Row, ...] = ROWS) -> Cause | None:
    """The cause of the first row that is in `text`; None if no row is. `install` is the command for `name`."""
    for row in rows:
        matches = list(re.finditer(row.pattern.replace("{name}", name), text))
        if matches:  # the last is the error itself, others may be warnings before it
            given = {"name": name, "install": install, "module": _module(text, matches[-1], name)}
            fix = row.fix.format(**given)
            return Cause(f"{row.cause.format(**given)} ({_line(text, matches[-1])})", fix)
    return None


def read_last_error(text: str) -> str:
    """The last line with an error; the last line of all if there is none."""
    errors = _ERROR.findall(text)
    return errors[-1] if errors else (text.splitlines() or [""])[-1]


def _line(text: str, match: re.Match[str]) -> str:
    """The line of the match, without the mark of the linker's lines."""
    line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0].strip()
    return line.removeprefix("linker ")[:200]


def _module(text: str, match: re.Match[str], name: str) -> str:
    """The package whose file is the last of the traceback above the error of numpy, as ` of cv2`."""
    error = re.search(r"_ARRAY_API not found|multiarray failed to import", text) or match
    files = re.findall(r"(?:site|dist)-packages[/\\](\w+)[/\\]", text[: error.start()])
    return f" of {files[-1]}" if files else f" that {name} imports"
