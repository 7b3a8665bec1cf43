"""The code that a project runs if it is started as it is meant to be: which function refers to which, past which guard.

A node is a file with one of its top-level functions or classes, or with "" for what its import runs. A reference is
guarded where the code has another way: in a `try` that goes on without it, behind a condition on CUDA, a plugin or a
flag with a branch for the rest. Code that is reached from the project's entry points by unguarded references is needed.
Nothing is run; what cannot be told (methods of objects, computed imports) counts as a reference to the whole class.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from torchport.source.imports import find_imported_names
from torchport.source.references import Node, Reference, References, Use, collect_references

_APART = re.compile(
    r"(?:^|/)(?:tests?|testing|unit_?tests?|csrc|benchmarks?|bench|profiling|examples?|samples?|demos?|docs?|docker|ci|\.\w+)/"
    r"|(?:^|/)(?:test_[^/]*|[^/]*_tests?|unit_?tests?|conftest|bench(?:mark)?_?[^/]*|[^/]*_bench(?:mark)?)\.py$"
)
_INSTALL = re.compile(r"(?:^|/)setup\.py$")
_MAIN = re.compile(r"__name__\s*==\s*['\"]__main__['\"]")
_LOADS = re.compile(rb"importlib|import_module|__import__|pkgutil|listdir|glob|scandir|iterdir")
# An option that is off unless it is given: add_argument("--ff", action="store_true").
_SWITCH = re.compile(rb"""add_argument\(\s*(?:['"]-\w+['"],\s*)?['"]--([\w-]+)['"][^()]*['"]store_true['"]""")
_DEEPEST = 6  # re-exports that a name is followed through


@dataclasses.dataclass(slots=True)
class _File:
    tree: ast.Module
    names: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)  # what an import binds: module, name
    defined: set[str] = dataclasses.field(default_factory=set)
    stars: list[str] = dataclasses.field(default_factory=list)


def is_apart(path: str) -> bool:
    """Whether a file is a test, a benchmark, an example, or for CI, by its path in the project."""
    return _APART.search(path) is not None


class Reach:
    """The references of a project's Python files, given as names in findings and their bytes, as far as they lead to
    the files `asked`; `named` are words of configurations that may name its classes."""

    def __init__(self, files: Mapping[str, bytes], named: Iterable[str], asked: Iterable[str]) -> None:
        self._paths = files.keys()
        self._files: dict[str, _File] = {}
        self._found = References()
        self._folders = _top_folders(files)
        self._modules: dict[tuple[str, str, int], str | None] = {}
        self._definitions: dict[tuple[str, str], Node | None] = {}
        self._unread: set[str] = set()
        self._deep: set[str] = set()  # nested too deeply to be followed to the end
        for path in self._find_importers(files, asked):
            try:
                self._files[path] = _File(ast.parse(files[path]))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self._files[path] = _File(ast.Module([], []))
                self._unread.add(path)
        self.settings: dict[str, set[str]] = {}  # the texts that names of modules are given at their top level
        for file in self._files.values():
            _bind(file)
            for name, value in _settings(file.tree):
                self.settings.setdefault(name, set()).add(value)
        self.switches = {word.decode().replace("-", "_") for data in files.values() for word in _SWITCH.findall(data)}
        for path, file in self._files.items():
            try:
                collect_references(self, path, file.tree, self._found)
            except RecursionError:
                self._deep.add(path)
        self.roots = self._find_roots(files, set(named))
        self._needed = self._follow(guarded=False)
        self._seen = self._follow(guarded=True)

    # -- questions -----------------------------------------------------------------------------------------------

    def find_uses(self, module: str) -> list[Use]:
        """Where a module that is no file of the project is imported, by the last part of its name; where such an
        import may fail and leaves nothing in its place, where the name is used as well."""
        found = []
        for use in self._found.uses.get(module, []):
            found.append(use)
            if use.guard and module in self._found.optional.get(use.path, ()):
                found += self._found.loads.get((use.path, module), [])
        return list(dict.fromkeys(found))

    def judge_use(self, use: Use) -> tuple[str, str]:
        """ "needed", "optional", "apart" or "unreached", and the place ("path:line") that says why: the guard, or the
        use itself."""
        here = f"{use.path}:{use.line}"
        node = (use.path, use.node)
        if use.path not in self._files or use.path in self._deep:
            return ("apart" if is_apart(use.path) else "needed"), here
        if is_apart(use.path) and node not in self._needed:
            return "apart", here
        if use.guard:
            return "optional", f"{use.path}:{use.guard}"
        if node in self._needed:
            return "needed", here
        guard = self._guard_on_the_way(node)
        return ("optional", guard) if guard else ("unreached", here)

    def locate(self, path: str, line: int) -> Use:
        """The place as a use: which node it belongs to and which guard it stands behind."""
        file = self._files.get(path)
        if file is None:
            return Use(path, "", line, 0)
        node = next(
            (
                one.name
                for one in file.tree.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and min([one.lineno, *(mark.lineno for mark in one.decorator_list)]) <= line <= (one.end_lineno or 0)
            ),
            "",
        )
        return Use(path, node, line, self._found.guards.get((path, line), 0))

    def _guard_on_the_way(self, node: Node) -> str:
        """The guard nearest to the entry points on a way to `node`; empty where no way leads there."""
        waiting, before = [node], {node}
        while waiting:
            one = waiting.pop(0)
            for reference in self._seen.get(one, []):
                if reference.guard and reference.source in self._needed:
                    return f"{reference.source[0]}:{reference.guard}"
                if reference.source not in before:
                    before.add(reference.source)
                    waiting.append(reference.source)
        return ""

    # -- building ------------------------------------------------------------------------------------------------

    def _find_importers(self, files: Mapping[str, bytes], asked: Iterable[str]) -> list[str]:
        """The files asked and all that import them, directly or through others, in the order of the project: no way to
        one of `asked` leads through another file. Found in the text, which tells too many rather than too few."""
        importers: dict[str, set[str]] = {}
        for path, data in files.items():
            for module in find_imported_names(data):
                found = self.module_of(path, module)
                level = len(module) - len(module.lstrip("."))
                while found is None and "." in module[level:]:  # a name of a module, or what importing it runs
                    module = module.rpartition(".")[0]
                    found = self.module_of(path, module)
                if found is not None and found != path:
                    importers.setdefault(found, set()).add(path)
        wanted = {path for path in asked if path in files}
        waiting = list(wanted)
        while waiting:
            one = waiting.pop()
            folder = one.rpartition("/")[0]
            inits = [f"{folder}/__init__.py".lstrip("/")] if folder else []
            more = {*importers.get(one, ()), *(init for init in inits if init in files)} - wanted
            wanted |= more
            waiting += more
        return [path for path in files if path in wanted]

    def _follow(self, *, guarded: bool) -> dict[Node, list[Reference]]:
        """All that the roots lead to, each with the references that lead there."""
        found: dict[Node, list[Reference]] = {root: [] for root in self.roots}
        waiting = list(self.roots)
        while waiting:
            for reference in self._found.by_source.get(waiting.pop(), []):
                if reference.guard and not guarded:
                    continue
                if reference.target not in found:
                    found[reference.target] = []
                    waiting.append(reference.target)
                found[reference.target].append(reference)
        return found

    def _find_roots(self, files: Mapping[str, bytes], named: set[str]) -> list[Node]:
        imported = {
            one.target[0] for all_ in self._found.by_source.values() for one in all_ if one.source[0] != one.target[0]
        }
        ours = [path for path in self._paths if not is_apart(path) and not _INSTALL.search(path)] or [
            path for path in self._paths if not _INSTALL.search(path)
        ]
        roots: list[Node] = []
        scripts = [path for path in ours if _MAIN.search(files[path].decode("utf-8", "replace"))]
        starts = bool(scripts)
        # Nobody installs it, and it is started by scripts beside its packages: these are no libraries of their own.
        is_library = "setup.py" in self._paths or all("/" in path for path in scripts)
        if "setup.py" in self._paths:  # installing is a start, too
            ours.append("setup.py")
        for path in ours or list(self._paths):
            file = self._files.get(path)
            if file is None:
                continue
            if path in self._unread and "/" in path and len(self._unread) < len(self._paths):
                continue  # a file that nobody can run is in the way of those alone that import it
            if _MAIN.search(files[path].decode("utf-8", "replace")):
                roots.append((path, ""))
            elif path not in imported and not (starts and self._is_dead(path, files)):
                # a script, or a part of a library that users import
                roots += [(path, ""), *((path, name) for name in sorted(file.defined))]
            elif is_library and path.endswith("__init__.py") and path.count("/") == 1:
                roots.append((path, ""))
        for word in sorted(named):
            module, _, name = word.rpartition(".")
            target = self.find_module(module, "", 0) if module else None
            if target in self._files and name in self._files[target].defined:
                roots += [(target, ""), (target, name)]
        return list(dict.fromkeys(roots))

    def _is_dead(self, path: str, files: Mapping[str, bytes]) -> bool:
        """Whether a file that nobody imports is a part of a package that nothing loads by its name, in a project that
        has scripts."""
        folders = path.split("/")[:-1]
        packages = ["/".join([*folders[:end], "__init__.py"]) for end in range(len(folders), 0, -1)]
        packages = packages[1:] if path.endswith("/__init__.py") else packages
        if not packages or packages[0] not in files:
            return False
        return not any(_LOADS.search(files[one]) for one in packages if one in files)

    def list_defined(self, path: str) -> set[str]:
        """The functions and classes at the top level of a file."""
        return self._files[path].defined

    def list_imported(self, path: str) -> dict[str, tuple[str, str]]:
        """The names that imports bind in a file, each with the module and the name in it that it means."""
        return self._files[path].names

    def find_module(self, module: str, path: str, level: int) -> str | None:
        """The file of the project that a module is, as it is written in the file `path`."""
        key = (module, path.rpartition("/")[0], level)
        if key not in self._modules:
            self._modules[key] = self._look_for_module(module, path, level)
        return self._modules[key]

    def _look_for_module(self, module: str, path: str, level: int) -> str | None:
        parts = module.split(".") if module else []
        folders = path.split("/")[:-1]
        parents = ["/".join(folders[:end]) for end in range(len(folders), -1, -1)]
        starts = parents[level - 1 : level] if level else [*parents, *self._folders]
        for start in starts:
            base = "/".join([start, *parts] if start else parts)
            for name in (f"{base}.py", f"{base}/__init__.py" if base else "__init__.py"):
                if name in self._paths and (parts or name.endswith("__init__.py")):
                    return name
        return None

    def find_definition(self, path: str, name: str, depth: int = 0) -> Node | None:
        """The node that the top-level name of a file is, through re-exports."""
        if depth or (path, name) not in self._definitions:
            found = self._look_for_definition(path, name, depth)
            if depth:
                return found
            self._definitions[path, name] = found
        return self._definitions[path, name]

    def _look_for_definition(self, path: str, name: str, depth: int) -> Node | None:
        file = self._files.get(path)
        if file is None or depth > _DEEPEST:
            return None
        if name in file.defined:
            return path, name
        if name in file.names:
            module, what = file.names[name]
            return self._follow_import(path, module, what, depth)
        for star in file.stars:
            target = self.module_of(path, star)
            found = self.find_definition(target, name, depth + 1) if target else None
            if found is not None:
                return found
        return None

    def _follow_import(self, path: str, module: str, what: str, depth: int) -> Node | None:
        target = self.module_of(path, module)
        inside = self.module_of(path, f"{module}{'' if module.endswith('.') else '.'}{what}") if what else target
        if what and target is not None and (found := self.find_definition(target, what, depth + 1)) is not None:
            return found
        return (inside, "") if inside else None

    def module_of(self, path: str, module: str) -> str | None:
        """The file of the project that a dotted name, with its leading dots, is in the file `path`."""
        level = len(module) - len(module.lstrip("."))
        return self.find_module(module[level:], path, level)


def _top_folders(paths: Iterable[str]) -> list[str]:
    """Folders that modules may be found in: the project's own and those that hold packages (src/)."""
    packages = {str(PurePosixPath(path).parent) for path in paths if path.endswith("__init__.py")}
    tops = {str(PurePosixPath(package).parent) for package in packages} - packages
    return ["", *sorted(tops - {"."})]


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, without a look at their expressions, which are most of a tree."""
    waiting = list(body)
    while waiting:
        one = waiting.pop()
        yield one
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            waiting += getattr(one, name, ())


def _bind(file: _File) -> None:
    for node in _statements(file.tree.body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                file.names.setdefault(bound, (alias.name if alias.asname else bound, ""))
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name == "*":
                    file.stars.append(module)
                else:
                    file.names.setdefault(alias.asname or alias.name, (module, alias.name))
    file.defined = {
        one.name for one in file.tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for one in file.tree.body:  # also below `if` and `try` of the module
        if isinstance(one, ast.If | ast.Try):
            bodies = [*one.body, *one.orelse, *(line for each in getattr(one, "handlers", ()) for line in each.body)]
            file.defined |= {each.name for each in bodies if isinstance(each, ast.FunctionDef | ast.ClassDef)}


def _settings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for one in tree.body:
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str() as value)):
                yield name, value
