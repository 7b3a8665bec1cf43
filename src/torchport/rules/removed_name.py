"""TP704: modules, names and arguments that torch, torchvision, numpy and others had, and do not have any more.

Most code that is ported is of 2019 to 2023, and only one torch runs on the NPU. This has nothing to do with CUDA, and
the script needs it on any device. A name in a `try`, behind `hasattr`, or in a branch on a version is no finding.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.removed import Removed, find_removed_module, load_removed_arguments, load_removed_names
from torchport.rules import Rule, Style
from torchport.rules.other_way import find_asked_words, has_other_way, runs_at_import
from torchport.source.module import Module

_OTHER_RULES = ("torch.cuda", "torch.npu", "torch.backends")  # TP101 knows their names
_SPACED = bytes(one if chr(one).isalnum() or one == ord("_") else ord(" ") for one in range(128)) + b" " * 128
_PACKAGES = re.compile(
    rb"\b(?:torch\w*|numpy|np|scipy|PIL|collections|inspect|time|base64|fractions|cgi|asyncio|pkg_resources)\b"
)
# Words that are in most files: they count only behind a package, or imported from it.
_NUMPY = "float|int|object|str|complex|cast|rank|mat|who|source|Inf|NaN|disp|loads|product|unicode|trapz|deprecate"
_COLLECTIONS = (
    "Awaitable|Callable|Collection|Container|Generator|Hashable|Iterable|Iterator|Mapping|Reversible|Sequence|Set|Sized"
)
_PLAIN = {
    "np": _NUMPY,
    "numpy": f"{_NUMPY}|compat|dual",
    "collections": _COLLECTIONS,
    "signal": "hann|kaiser|hamming|gaussian",
    "misc": "comb",
    "cgi": "escape",
    "asyncio": "coroutine",
    "fractions": "gcd",
    "time": "clock",
    "torch": "legacy|Assert",
    "distributed": "pipeline|deprecated",
    "utils": "trainer",
    "models": "utils",
    "transforms": "Scale|scale",
    "T": "Scale",
}
_SILENT = (
    "Tensor|error|fft|functional|helper|import_module|init|Kernel|preprocess|queue|relu|ReLU|rename|tensor|T_co|utils"
)
_TOO_PLAIN = re.compile("|".join((*_PLAIN.values(), _SILENT)))
# `collections.Set`, `from collections import deque, Set`. Each pattern starts with letters: those are found fast.
_BEHIND = r"(?:\s*\.\s*|\s+import\s+(?:\([^)]*\b|[^\n]*\b)?)"
_IN_PLACE = tuple(
    (package.encode(), frozenset(words.encode().split(b"|")), re.compile(rf"{package}{_BEHIND}(?:{words})\b".encode()))
    for package, words in _PLAIN.items()
)
_MODULE = re.compile(rb"import\s+torch\.tensor\b|torch\.tensor\s+import\b")


def check_module(module: Module, style: Style = Style.NPU) -> Iterator[Finding]:
    """A finding for each import, use and argument of what is gone, with the edit where something is the very same."""
    found = [*_check_imports(module), *_check_uses(module), *_check_arguments(module)]
    yield from (finding for node, finding in found if not has_other_way(module, node))


@functools.cache
def _telling_pairs() -> Mapping[bytes, frozenset[bytes]]:
    """Each word that ends a name which is gone, and the words of which one has to be in the file too: the
    name that it is read from, or the argument that is gone. Names of one word have none."""
    found: dict[str, set[str]] = {}
    for name in load_removed_names():
        space, _, word = name.rpartition(".")
        if not _TOO_PLAIN.fullmatch(word):
            found.setdefault(word, set()).add(space.rpartition(".")[2] or word)
    for function, words in load_removed_arguments().items():
        found.setdefault(function.rpartition(".")[2], set()).update(words)
    return {word.encode(): frozenset(one.encode() for one in beside) for word, beside in found.items()}


def may_use_removed(data: bytes) -> bool:
    """Whether a file may name something that is gone: most need not be parsed for it."""
    if _PACKAGES.search(data) is None:
        return False
    words, pairs = set(data.translate(_SPACED).split()), _telling_pairs()
    if any(not pairs[word].isdisjoint(words) for word in words & pairs.keys()):
        return True
    for package, plain, pattern in _IN_PLACE:
        if package in words and not plain.isdisjoint(words) and pattern.search(data):
            return True
    return b"tensor" in words and _MODULE.search(data) is not None


# -- imports ---------------------------------------------------------------------------------------------------------


def _check_imports(module: Module) -> Iterator[tuple[ast.stmt, Finding]]:
    for node in module.iter_nodes(ast.ImportFrom):
        if node.level or not node.module or node.module.startswith(_OTHER_RULES):
            continue
        whole = find_removed_module(node.module)
        rows = [(alias, _name_row(f"{node.module}.{alias.name}") or whole) for alias in node.names]
        gone = [(alias.name, row) for alias, row in rows if row is not None]
        if gone:
            edit = _import_edit(module, node, rows, is_gone=whole is not None)
            named = ", ".join(name for name, _ in gone)
            text = f"from {node.module} import {named}: {gone[0][1].describe()}"
            yield node, _finding(module, node, text, gone[0][1], edit)
    for plain in module.iter_nodes(ast.Import):
        for alias in plain.names:
            row = find_removed_module(alias.name)
            if row is not None:
                text = f"import {alias.name}: {row.describe()}"
                yield plain, _finding(module, plain, text, row, _parent_edit(module, alias, row))


def _name_row(name: str) -> Removed | None:
    row = load_removed_names().get(name)
    return None if row is None or row.module else row


def _import_edit(
    module: Module, node: ast.ImportFrom, rows: list[tuple[ast.alias, Removed | None]], *, is_gone: bool
) -> Edit | None:
    """The statement as imports of the same things from where they are, and assignments; None where one has no such."""
    start, end = module.text.span(node)
    if "#" in module.text.decode_range(start, end) or any(alias.name == "*" for alias in node.names):
        return None
    moved: dict[str, list[str]] = {}
    assigned = []
    for alias, row in rows:
        bound = alias.asname or alias.name
        if row is None:
            moved.setdefault(node.module or "", []).append(_as(alias.name, bound))
        elif row.name != f"{node.module}.{alias.name}" or row.becomes.startswith("builtins.") or row.arguments:
            return None  # the module alone is known to be gone, or a bare word would be assigned to itself
        elif row.becomes:
            space, _, word = row.becomes.rpartition(".")
            moved.setdefault(space, []).append(_as(word, bound))
        elif row.text:
            assigned.append(f"{bound} = {row.text}")
        else:
            return None
    lines = [
        f"from {space} import {', '.join(words)}" if space else _plain_import(words) for space, words in moved.items()
    ]
    return Edit(start, end, _separator(module, start, end).join([*lines, *assigned]).encode())


def _as(word: str, bound: str) -> str:
    return word if word == bound else f"{word} as {bound}"


def _plain_import(words: list[str]) -> str:
    return f"import {', '.join(words)}"


def _separator(module: Module, start: int, end: int) -> str:
    """The text between two statements in place of one: a new line where it has its line for itself."""
    data = module.text.data
    before = data[data.rfind(b"\n", 0, start) + 1 : start]
    line_end = data.find(b"\n", end)
    after = data[end : line_end if line_end >= 0 else len(data)]
    if before.strip() or (after.strip() and not after.strip().startswith(b"#")):
        return "; "
    return ("\r\n" if after.endswith(b"\r") else "\n") + before.decode("ascii", "replace")


def _parent_edit(module: Module, alias: ast.alias, row: Removed) -> Edit | None:
    """`import torch._six` as `import torch`, where all that is used of it can be written otherwise."""
    if alias.asname or alias.name != row.name or "." not in row.name:
        return None
    uses = [use for use in module.iter_nodes(ast.Attribute) if (module.resolve_name(use) or "") == row.name]
    parents = [module.get_parent(use) for use in uses]
    for parent in parents:
        known = _name_row(module.resolve_name(parent) or "") if isinstance(parent, ast.Attribute) else None
        if known is None or not isinstance(parent, ast.Attribute) or not _use_edits(module, parent, known):
            return None
    start, end = module.text.span(alias)
    return Edit(start, end, row.name.rpartition(".")[0].encode())


# -- uses ------------------------------------------------------------------------------------------------------------


def _check_uses(module: Module) -> Iterator[tuple[ast.expr, Finding]]:
    asked = find_asked_words(module)
    attributes = [(node, module.resolve_name(node)) for node in module.iter_nodes(ast.Attribute)]
    given = {name for node, name in attributes if not isinstance(node.ctx, ast.Load)}  # the file defines it itself
    for node, name in attributes:
        if name is None or name in given or node.attr in asked or name.startswith(_OTHER_RULES):
            continue
        row = _name_row(name)
        if row is None:
            continue
        parent = module.get_parent(node)
        if isinstance(parent, ast.Attribute) and _name_row(module.resolve_name(parent) or "") is not None:
            continue  # what is read of it has a row of its own
        edits = _use_edits(module, node, row)
        yield node, _finding(module, node, f"{name}: {row.describe()}", row, edits[0] if edits else None)


def _use_edits(module: Module, node: ast.Attribute, row: Removed) -> list[Edit]:
    """The edit that writes what is the very same in place of a use; empty where nothing is, or cannot be written."""
    parent = module.get_parent(node)
    if row.arguments is not None:
        if not isinstance(parent, ast.Call) or parent.func is not node or parent.keywords:
            return []
        if len(parent.args) > row.arguments or any(isinstance(one, ast.Starred) for one in parent.args):
            return []
    space = row.name.rpartition(".")[0]
    if row.becomes.startswith(f"{space}."):
        edit = module.attribute_edit(node, row.becomes.removeprefix(f"{space}."))
        return [edit] if edit is not None and module.resolve_name(node.value) == space else []
    word = row.becomes.removeprefix("builtins.") if row.becomes.startswith("builtins.") else row.text
    if not word or (word.isidentifier() and module.names.scope_of(node).find_owner_scope(word) is not None):
        return []
    start, end = module.text.span(node)
    in_text = '"' in word and any(isinstance(one, ast.JoinedStr) for one in module.names.iter_ancestors(node))
    if in_text or module.text.decode_range(start, end) != ast.unparse(node):
        return []
    return [Edit(start, end, word.encode())]


# -- arguments -------------------------------------------------------------------------------------------------------


def _check_arguments(module: Module) -> Iterator[tuple[ast.expr, Finding]]:
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func) if call.keywords else None
        rows = load_removed_arguments().get(name or "")
        for keyword in call.keywords if rows else ():
            row = rows.get(keyword.arg or "") if rows else None
            if row is None:
                continue
            text = f"{name} takes no {keyword.arg}: {row.describe()}"
            start, _ = module.text.span(keyword)
            if row.becomes:
                edit = Edit(start, start + len(keyword.arg or ""), row.becomes.encode())
                yield keyword.value, _finding(module, keyword.value, text, row, edit)
            elif row.drop:
                quiet = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                safety = Safety.SAFE if quiet else Safety.REVIEW
                edit_ = _without(module, call, keyword)
                yield keyword.value, _finding(module, keyword.value, text, row, edit_, safety=safety)
            else:
                yield keyword.value, _finding(module, keyword.value, text, row, None)


def _without(module: Module, call: ast.Call, keyword: ast.keyword) -> Edit | None:
    """The call without a keyword and the comma before it; None where it is the first, or a comment would go."""
    ends = [module.text.span(one)[1] for one in (*call.args, *(word.value for word in call.keywords))]
    start, end = module.text.span(keyword)
    before = max((one for one in ends if one <= start), default=None)
    if before is None or module.text.decode_range(before, start).strip() != ",":
        return None
    return Edit(before, end, b"")


def _finding(
    module: Module,
    node: ast.expr | ast.stmt,
    message: str,
    row: Removed,
    edit: Edit | None,
    *,
    safety: Safety = Safety.SAFE,
) -> Finding:
    where = {"stops": "import"} if runs_at_import(module, node) else {}
    if edit is None:
        hint = (row.use or _otherwise(row)) + (f' Or pip install "{row.pin}".' if row.pin else "")
        severity = Severity.WARNING if row.pin else Severity.ERROR
        return RULE.make_finding(
            module, node, message, hint=hint, safety=Safety.REPORT, severity=severity, evidence=where
        )
    return RULE.make_finding(module, node, message, [edit], hint=row.use, safety=safety, evidence=where)


def _otherwise(row: Removed) -> str:
    same = row.becomes.removeprefix("builtins.") or row.text
    return f"Use {same}." if same else "Look up what replaced it: the release notes of the package say so."


RULE = Rule(
    code="TP704",
    title="the packages of today do not have it",
    safety=Safety.SAFE,
    severity=Severity.ERROR,
    why="The script was written for older packages than the ones that torch_npu needs, and stops there on any device. "
    "The text that is written in its place means the very same; without one, the finding says what comes closest.",
    reference="https://github.com/pytorch/pytorch/releases",
    check=check_module,
    rewrites=(
        ("from torch._six import inf\n", "from math import inf\n"),
        (
            "from torch._six import inf, string_classes, container_abcs\n",
            "from math import inf\nfrom collections import abc as container_abcs\nstring_classes = (str, bytes)\n",
        ),
        ("import torch._six\nx = torch._six.string_classes\n", "import torch\nx = (str, bytes)\n"),
        ("import numpy as np\nx = np.zeros(3, dtype=np.float)\n", "import numpy as np\nx = np.zeros(3, dtype=float)\n"),
        ("import numpy as np\nx = np.product(y) + np.Inf\n", "import numpy as np\nx = np.prod(y) + np.inf\n"),
        (
            "from collections import Iterable, OrderedDict\n",
            "from collections.abc import Iterable\nfrom collections import OrderedDict\n",
        ),
        (
            "import collections\nx = isinstance(y, collections.Sequence)\n",
            "import collections\nx = isinstance(y, collections.abc.Sequence)\n",
        ),
        (
            "from torchvision.models.utils import load_state_dict_from_url\n",
            "from torch.hub import load_state_dict_from_url\n",
        ),
        ("import torch\nr = torch.matrix_rank(x)\n", "import torch\nr = torch.linalg.matrix_rank(x)\n"),
        (
            "from torch.optim.lr_scheduler import StepLR\ns = StepLR(o, 30, verbose=False)\n",
            "from torch.optim.lr_scheduler import StepLR\ns = StepLR(o, 30)\n",
        ),
        (
            "from torchvision.utils import save_image\nsave_image(x, f, normalize=True, range=(-1, 1))\n",
            "from torchvision.utils import save_image\nsave_image(x, f, normalize=True, value_range=(-1, 1))\n",
        ),
    ),
    reports=(
        "import torch\ne, v = torch.symeig(x, eigenvectors=True)\n",
        "from torchvision.models.resnet import model_urls\n",
        "import torchtext\n",
        "import numpy as np\nfloat = 3\nx = np.float(3)\n",
        "from torch._six import with_metaclass, inf\n",
        "import torchvision as t\nif float(t.__version__[:3]) < 0.7:\n    from torchvision.models import utils\n",
    ),
    ignores=(
        "try:\n    from torch._six import inf\nexcept ImportError:\n    from math import inf\n",
        "import torch\nif torch.__version__ < '1.9':\n    from torch._six import container_abcs\n",
        "import torch\nif hasattr(torch, 'symeig'):\n    e, v = torch.symeig(x)\n",
        "import numpy as np\nx = np.float64(1) + np.bool_(1) + np.bool(1) + np.long(1)\n",
        "import numpy as np\nnp.float = float\nx = np.float(1)\n",
        "import torch\nx = torch.ger(a, b)\n",
        "from torch.utils.tensorboard import SummaryWriter\nfrom torch.utils.model_zoo import load_url\n",
        "import distutils.version\nfrom torch import tensor\nimport torch\nx = torch.tensor(1), torch.qr(y)\n",
        "import torch.nn as nn\nloss = nn.MSELoss(size_average=False, reduce=True)\n",
        "import torchvision\nmodel = torchvision.models.resnet18(pretrained=True)\n",
        "from collections import OrderedDict, defaultdict\nfrom collections.abc import Iterable\n",
        "class np:\n    float = 1\nx = np.float\n",
    ),
    words=(),
    mentions=may_use_removed,
)
