"""Functions of CUDA's packages that a condition chooses only where their import succeeded: a note, not a decision."""

from __future__ import annotations

import pytest

from torchport.convert import convert_source
from torchport.findings import Severity

TRIED = (
    "import torch\ntry:\n    from flash_attn import flash_attn_func\n    HAS_FLASH = True\n"
    "except ImportError:\n    HAS_FLASH = False\n"
)
NONE = (
    "import torch\ntry:\n    from flash_attn import flash_attn_func\nexcept ImportError:\n    flash_attn_func = None\n"
)


def severities(text: str) -> list[Severity]:
    """Of the findings on uses of the package's functions."""
    found = convert_source(text.encode(), "a.py").findings
    return [one.severity for one in found if one.code == "TP401" and "flash_attn_func is not" in one.message]


@pytest.mark.parametrize(
    "text",
    [
        TRIED + "def f(q):\n    if HAS_FLASH and q.is_cuda:\n        return flash_attn_func(q)\n    return q\n",
        TRIED + "def f(q):\n    return flash_attn_func(q) if HAS_FLASH else q\n",
        TRIED + "def f(q):\n    if not HAS_FLASH:\n        return q\n    return flash_attn_func(q)\n",
        TRIED + "def f(q):\n    if not HAS_FLASH:\n        return q\n    else:\n        return flash_attn_func(q)\n",
        NONE + "def f(q):\n    if flash_attn_func is not None:\n        return flash_attn_func(q)\n    return q\n",
    ],
)
def test_a_use_that_an_import_decides_on_is_a_note(text: str) -> None:
    assert severities(text) == [Severity.INFO]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nfrom flash_attn import flash_attn_func\ndef f(q):\n    if q.is_cuda:\n"
        "        return flash_attn_func(q)\n",
        TRIED + "def f(q):\n    return flash_attn_func(q)\n",
        TRIED + "def f(q, fast):\n    if fast:\n        return flash_attn_func(q)\n    return q\n",
        TRIED + "def f(q):\n    if not HAS_FLASH:\n        return flash_attn_func(q)\n    return q\n",
        TRIED + "def f(q):\n    if not HAS_FLASH:\n        raise RuntimeError\n    return flash_attn_func(q)\n",
        TRIED.replace("    HAS_FLASH = False", "    raise")
        + "def f(q):\n    if HAS_FLASH:\n        return flash_attn_func(q)\n",
    ],
)
def test_every_other_use_is_a_decision(text: str) -> None:
    assert severities(text) == [Severity.WARNING]


def test_a_function_of_a_submodule_is_not_one_of_its_package() -> None:
    text = "import numba\nfrom numba import cuda\n@numba.jit\ndef f(x):\n    return x\n@cuda.jit\ndef g(x):\n    return x\n"
    found = convert_source(text.encode(), "a.py").findings
    assert [one.location.line for one in found if "numba.cuda.jit" in one.message and one.location] == [6]
