"""Names that are said to be gone are gone from the installed packages; those written in their place are there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from torchport.analyze import analyze_tree
from torchport.convert import convert_source
from torchport.knowledge import removed
from torchport.knowledge.removed import Removed
from torchport.rules.version_test import decide_test
from torchport.source.module import Module

NAMES = removed.load_removed_names()
ARGUMENTS = [
    (function, word, row) for function, rows in removed.load_removed_arguments().items() for word, row in rows.items()
]
_STDLIB = ("builtins", "collections", "math", "io", "queue", "ast", "pickle", "base64")


HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def installed() -> dict[str, Any]:
    """Facts on the installed packages by name, told by a process of its own (installed_names.py): the one of the tests
    may hold a torch that others have changed."""
    asked = {
        "names": [*NAMES, *(row.becomes for row in NAMES.values() if row.becomes)],
        "functions": [function for function, _, _ in ARGUMENTS] + ["torchvision.utils.make_grid"],
        "modules": [name for name, row in NAMES.items() if row.module],
    }
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    ended = subprocess.run(
        [sys.executable, str(HERE / "installed_names.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    return dict(json.loads(ended.stdout))


def require(package: str, installed: Mapping[str, Any]) -> None:
    if package not in _STDLIB and package not in installed["versions"]:
        pytest.skip(f"{package} is not installed")


@pytest.mark.processes
@pytest.mark.parametrize("package", ["torch", "torchvision", "numpy", "scipy", "PIL"])
def test_each_row_is_gone(package: str, installed: dict[str, Any]) -> None:
    require(package, installed)
    rows = [row for name, row in NAMES.items() if name.partition(".")[0] == package]
    assert rows
    assert [row.name for row in rows if installed["names"][row.name] == "there" and not row.module] == []


@pytest.mark.processes
def test_each_row_of_python_is_gone(installed: dict[str, Any]) -> None:
    rows = [name for name, row in NAMES.items() if row.describe().startswith("gone since Python")]
    assert len(rows) > 20
    assert not [name for name in rows if installed["names"][name] != "missing"]


@pytest.mark.processes
def test_only_modules_are_gone_where_something_else_has_the_name(installed: dict[str, Any]) -> None:
    for name in (name for name, row in NAMES.items() if row.module):
        assert installed["names"][name] == "there"
        assert installed["modules"][name] == "missing"


@pytest.mark.processes
@pytest.mark.parametrize("row", [row for row in NAMES.values() if row.becomes], ids=lambda row: row.name)
def test_what_it_becomes_is_there(row: Removed, installed: dict[str, Any]) -> None:
    require(row.becomes.partition(".")[0], installed)
    assert installed["names"][row.becomes] == "there"


def test_each_row_says_what_to_do() -> None:
    written = [row for row in NAMES.values() if not row.had]
    assert written
    assert all(row.becomes or row.text or row.use for row in written)
    assert all(eval(row.text) is not None for row in NAMES.values() if row.text)  # they need no import


@pytest.mark.processes
@pytest.mark.parametrize(("function", "word", "row"), ARGUMENTS, ids=lambda value: str(value)[:60])
def test_arguments_are_gone(function: str, word: str, row: Removed, installed: dict[str, Any]) -> None:
    require(function.partition(".")[0], installed)
    if function == "torchvision.utils.save_image":  # it hands its keywords on
        function = "torchvision.utils.make_grid"
    parameters = installed["functions"][function]
    assert word not in parameters
    assert not row.becomes or row.becomes in parameters


@pytest.mark.processes
def test_versions_are_the_installed_ones(installed: dict[str, Any]) -> None:
    for package in ("torch", "torchvision", "numpy"):
        require(package, installed)
        found = installed["versions"][package]
        assert removed.read_versions()[package] == found, f"run tools/removed_names.py: {package} is {found}"


def test_collections_has_abc_without_its_import() -> None:
    """The edit of `collections.Iterable` needs no further import."""
    assert sys.modules["collections"].abc.Iterable


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ("torch.__version__ >= '1.10'", True),  # torch compares by numbers
        ("torch.__version__ < '1.9'", False),
        ("torch.__version__ == '1.7.0'", False),
        ("torch.__version__.startswith('1.')", False),
        ("float(torch.__version__[:3]) >= 1.6", True),
        ("float(torchvision.__version__[:3]) < 0.7", True),  # 0.28 is cut to 0.2
        ("int(torchvision.__version__.split('.')[1]) < 7", False),
        ("tuple(map(int, torch.__version__.split('.')[:2])) >= (1, 8)", True),
        ("version.parse(torch.__version__) >= version.parse('1.10')", True),
        ("LooseVersion(torch.__version__) < LooseVersion('1.5')", False),
        ("np.__version__ < '1.20'", False),
        ("MAJOR == 1", False),
        ("MAJOR >= 2 and anything()", None),
        ("MAJOR < 2 and anything()", False),
        ("not torch.__version__ < '2'", True),
        ("sys.version_info >= (3, 8)", True),
        ("sys.version_info[0] == 2", False),
        ("sys.version_info >= (3, 13)", None),
        ("timm.__version__ == '0.3.2'", None),
        ("torch.__version__ in known", None),
        ("torch.version.cuda is None", None),
        ("verbose", None),
    ],
)
def test_conditions_on_versions(test: str, holds: bool | None) -> None:
    head = (
        "import sys, timm, torch, torchvision\nimport numpy as np\nfrom packaging import version\n"
        "from distutils.version import LooseVersion\nMAJOR = int(torch.__version__.split('.')[0])\n"
    )
    module = Module("a.py", f"{head}x = 1 if {test} else 2\n".encode())
    assign = module.tree.body[-1]
    assert decide_test(module, assign.value.test) is holds  # type: ignore[attr-defined]


def _codes(text: str) -> list[str]:
    return [one.code for one in convert_source(text.encode(), "a.py").findings]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if x:\n    from torch._six import inf, nan as n  # both\n", "if x:\n    from math import inf, nan as n  # both\n"),
        ("x = 1; from torch._six import inf, int_classes\n", "x = 1; from math import inf; int_classes = int\n"),
        ("from collections import (Mapping,\n    deque)\r\n", "from collections.abc import Mapping\r\nfrom collections import deque\r\n"),
        ("from PIL import Image\nx = y.resize((1, 1), Image.ANTIALIAS)\n", "from PIL import Image\nx = y.resize((1, 1), Image.LANCZOS)\n"),
        ("import torchvision.transforms as T\nt = T.Scale(3)\n", "import torchvision.transforms as T\nt = T.Resize(3)\n"),
        ("from torchvision.transforms import Scale\nt = Scale(3)\n", "from torchvision.transforms import Resize as Scale\nt = Scale(3)\n"),
        ("import numpy as np\nx = f'{np.float(3)}'\n", "import numpy as np\nx = f'{float(3)}'\n"),
        ("import torch\nr = torch.matrix_rank(x, 1e-3)\n", None),
        ("from torch._six import inf  \\\n    as i\n", "from math import inf as i\n"),
        ("from torch._six import (inf,  # infinity\n    nan)\n", None),
        ("import torch._six as six\nx = six.inf\n", "import torch._six as six\nx = float(\"inf\")\n"),
        ("from torch.optim.lr_scheduler import StepLR\ns = StepLR(verbose=True, optimizer=o)\n", None),
    ],
)  # fmt: skip
def test_edits(before: str, after: str | None) -> None:
    conversion = convert_source(before.encode(), "a.py")
    assert conversion.output.decode() == (before if after is None else after)
    assert "TP704" in {one.code for one in conversion.findings}


@pytest.mark.parametrize(
    "text",
    [
        "from torch._six import inf\n",
        "import torch._six\n",
        "from torch import _six\n",
        "import torch.tensor\n",
        "from torch.tensor import Tensor\n",
        "from torchvision.models import utils\n",
        "from torchvision.transforms.functional_tensor import rgb_to_grayscale\n",
        "from torchvision.models.vgg import model_urls, vgg16\n",
        "from torchvision.utils import make_grid\nmake_grid(x, range=(0, 1))\n",
        "import scipy.misc\nx = scipy.misc.imread(f)\n",
        "import pkg_resources\n",
        "import torch\nif torch.__version__ >= '1.5':\n    x = torch.gels(a, b)\n",
    ],
)
def test_found(text: str) -> None:
    assert "TP704" in _codes(text)


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nif sys.version_info[0] == 2:\n    from collections import Mapping\nelse:\n    from collections.abc import Mapping\n",
        "import torch\nTORCH_MAJOR = int(torch.__version__.split('.')[0])\n"
        "if TORCH_MAJOR < 2:\n    from torch._six import inf\nelse:\n    from torch import inf\n",
        "from utils import is_torch_greater_or_equal\nif not is_torch_greater_or_equal('2.0'):\n    from torch._six import inf\n",
        "try:\n    import pkg_resources\nexcept ImportError:\n    pkg_resources = None\n",
        "from . import torch_six\nfrom ._six import inf\nfrom torchvision.models._utils import IntermediateLayerGetter\n",
        "from torch.optim.lr_scheduler import StepLR\ns = StepLR(o, 3)\nm = Model(verbose=True)\n",
        "import torch.nn as nn\nu = nn.Upsample(scale_factor=2)\nx = torch.tensor([1.0]).data[0]\n",
        "import numpy as np\nx = np.float32(1), np.int64(1), np.row_stack((a, b)), np.random.rand(3), np.object_\n",
        "import numpy as np\nt = np.trapezoid if hasattr(np, 'trapezoid') else np.trapz\n",
        "from packaging import version\nfrom torch.onnx import export\nimport torch\n"
        "old = version.parse(version.parse(torch.__version__).base_version) < version.parse('1.11')\n"
        "if old:\n    export(m, x, enable_onnx_checker=True)\nelse:\n    export(m, x)\n",
        "from typing import Iterable, Mapping\nfrom collections import Counter, namedtuple\n",
        "import torch\nx = torch.fft.rfft(y)\ny = torch.linalg.eigh(y)\nz = torch.svd(y)\nq = torch.lu(y)\n",
    ],
)
def test_left_alone(text: str) -> None:
    assert not {"TP703", "TP704", "TP705"} & set(_codes(text))


def test_async_as_an_argument_says_what_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = x.cuda(async=True)\n")
    (finding,) = analyze_tree(tmp_path).findings
    assert finding.code == "TP901" and "non_blocking" in finding.message
