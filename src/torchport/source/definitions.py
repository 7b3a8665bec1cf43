"""What one file of a project has to know of the others, found in bytes without parsing.

In one file a call `x.cuda()` can only be torch's if no class of the file defines `cuda`. In a project, `x` may come
from another file; so a look at all files comes first. The same look tells which files are imported by others.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from torchport.source.siblings import find_paired

if TYPE_CHECKING:
    from torchport.source.outside import Outside

WATCHED = ("cuda", "is_cuda")
_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?", re.MULTILINE)
# self.cuda is a flag as a rule, which no call of x.cuda() can mean; a function that is kept there can be meant.
_DEFINES = re.compile(
    rb"^[ \t]+(?:def[ \t]+(cuda|is_cuda)\b|self\.(is_cuda)[ \t]*=[^=]"
    rb"|self\.(cuda)[ \t]*=[ \t]*(?:lambda\b|(?:functools\.)?partial\())",
    re.MULTILINE,
)
# result.is_cuda = ...: of an object of any class, which is no tensor, since a tensor's cannot be assigned.
_ASSIGNS = re.compile(rb"^[ \t]+(?!self\b)\w+\.is_cuda[ \t]*=[^=]", re.MULTILINE)
ANY_CLASS = "*"
IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b[ \t]*(\([^)]*\)|[^\r\n]*)|import[ \t]+([^\r\n#;]*))", re.MULTILINE
)

# The name of a distribution in setup.py: setup(name="torch_sparse"), or setup(**settings) with it in a dictionary.
_INSTALLS = re.compile(rb"\b(?:setuptools|distutils)\b")
_DISTRIBUTION = re.compile(rb"""\bname['"]?[ \t]*[=:][ \t]*['"]([A-Za-z][\w.-]*)['"]""")
_EXTENSION = re.compile(rb"""\bCUDAExtension\(\s*(?:name\s*=\s*)?['"]([\w.]+)['"]""")


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What other files know of a value: how well that it is a device, and a backend (as `rules.roles.Proof`), and
    whether it is `fixed`: spelled out where it cannot be edited, so that it stays everywhere."""

    proofs: tuple[int, int]
    fixed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Definitions:
    """For each watched name the classes of the project whose instances have it; names of imported modules.

    `extensions` are the modules that the project builds from CUDA sources, `provided` the packages and top-level
    modules that it has; `whole` says that all its files were looked at, so that what is not known is not there.
    `leading` are the files, by name, that come to use CUDA through others that they import, `targets` those that are
    imported by others, `modules` the words that may begin the name of a module of the project, `importers` the
    files that import each file, `naming_npu` those that name the NPU. `defined` says of names
    that speak of CUDA where the project defines them (`source.defined`), `outside` what a name of another file or of a
    library means. `assume_modules`: the user says that what libraries make and has a method cuda is a tensor or module
    of torch. `values` says of each file what others know of values that it shares with them (`source.links`), once
    all have been looked at.
    """

    classes: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    imported: frozenset[str] = frozenset()
    provided: frozenset[str] = frozenset()
    extensions: frozenset[str] = frozenset()
    whole: bool = False
    leading: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    importers: Mapping[str, set[str]] = dataclasses.field(default_factory=dict)
    defined: Mapping[str, str] = dataclasses.field(default_factory=dict)
    values: dict[str, Mapping[tuple[str | int, ...], Known]] = dataclasses.field(default_factory=dict)
    outside: Outside | None = None
    naming_npu: frozenset[str] = frozenset()
    paired: frozenset[str] = frozenset()
    paired_files: frozenset[str] = frozenset()
    ignores_npu: bool = False
    assume_modules: bool = False

    def find_classes_with(self, attribute: str) -> frozenset[str]:
        return self.classes.get(attribute, frozenset())

    def has_package(self, package: str) -> bool:
        """Whether `import package` means the project's own code."""
        return package in self.provided

    def is_imported(self, path: str) -> bool:
        """Whether another file imports this one, as far as the name of the file or of its package tells."""
        *folders, name = PurePosixPath(path).with_suffix("").parts
        return (folders[-1] if name == "__init__" and folders else name) in self.imported


def find_provided_modules(paths: Iterable[str], folder: str = "") -> frozenset[str]:
    """The packages and modules that can be imported by one word, of Python files in the folder named `folder`."""
    python = [PurePosixPath(path) for path in paths]
    packages = {path.parent for path in python if path.name == "__init__.py"}
    tops = {package.name or folder for package in packages if package.parent not in packages - {package}}
    # A folder without __init__.py is a package as well, if the packages in it are imported through it.
    tops |= {package.parts[0] for package in packages if len(package.parts) > 1}
    return frozenset(tops | {path.stem for path in python if len(path.parts) == 1} - {"", "__init__"})


def collect_definitions(sources: Iterable[bytes], own: frozenset[str] = frozenset()) -> Definitions:
    """The classes that define a watched name, and those derived from them by name; `own` are the names it provides."""
    bases: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {name: set() for name in WATCHED}
    imported: set[bytes] = set()
    extensions: set[str] = set()
    for data in sources:
        if b"setup(" in data and _INSTALLS.search(data):  # the package that the project installs
            own |= {name.decode().replace("-", "_") for name in _DISTRIBUTION.findall(data, data.index(b"setup("))[:1]}
        if b"CUDAExtension" in data:
            extensions.update(match[1].decode().rpartition(".")[2] for match in _EXTENSION.finditer(data))
        for match in IMPORT.finditer(data):
            modules, names = (match[1], match[2]) if match[1] else (match[3], b"")
            imported.update(re.findall(rb"\w+", modules))
            if not re.search(rb"\w", modules):  # from . import a, b
                imported.update(re.findall(rb"\w+", names))
        classes = [(match.start(), match[1].decode(), match[2] or b"") for match in _CLASS.finditer(data)]
        for _, name, parents in classes:
            bases.setdefault(name, set()).update(re.findall(r"\w+", parents.decode("utf-8", "replace")))
        for match in _DEFINES.finditer(data) if b"cuda" in data else ():
            around = [name for start, name, _ in classes if start < match.start()]
            if around:
                found[(match[1] or match[2] or match[3]).decode()].add(around[-1])
        if b"is_cuda" in data and _ASSIGNS.search(data):
            found["is_cuda"].add(ANY_CLASS)
    for names in found.values():
        grown = -1
        while grown != len(names):
            grown = len(names)
            names |= {name for name, parents in bases.items() if parents & names}
    classes_of = {name: frozenset(names) for name, names in found.items() if names}
    names_imported = frozenset(name.decode("ascii", "replace") for name in imported)
    return Definitions(classes_of, names_imported, own, frozenset(extensions), paired=find_paired(bases), whole=True)
