"""Random calls with random arguments: every exported function answers or refuses, none crashes, hangs or leaks."""

from __future__ import annotations

import re
import subprocess

import compiled
import pytest

from torchport import vnpu

pytestmark = pytest.mark.device


def test_every_exported_function_is_called() -> None:
    names = subprocess.run(
        [compiled.program("random_calls"), "names"], capture_output=True, text=True, check=True
    ).stdout.split()
    exported = set()
    for library in ("libascendcl.so", "libhccl.so"):
        symbols = subprocess.run(
            ["nm", "-D", "--defined-only", vnpu.library_directory() / library],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        exported |= set(re.findall(r" T ((?:acl|rt|Hccl|Msprof)\w+)$", symbols, re.MULTILINE))
    assert len(exported) > 250
    assert set(names) == exported
