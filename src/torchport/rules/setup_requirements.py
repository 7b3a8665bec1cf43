"""TP406: packages for CUDA that setup.py asks for: `setup(install_requires=["flash-attn"])`."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.rules.files import TextFile, packages
from torchport.rules.given_text import find_argument_literals
from torchport.source.kinds import Kind
from torchport.source.module import Module
from torchport.source.text import SourceError

_SETUP = frozenset({"setuptools.setup", "distutils.core.setup", "skbuild.setup"})
_ALWAYS = ("install_requires", "setup_requires")
_CHOSEN = ("extras_require", "tests_require")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for each such requirement; a note where it belongs to an extra or to tests."""
    for call in module.iter_nodes(ast.Call):
        if module.resolve_name(call.func) not in _SETUP:
            continue
        for keyword in call.keywords:
            if keyword.arg in (*_ALWAYS, *_CHOSEN):
                yield from _requirements(module, keyword.value, style, chosen=keyword.arg in _CHOSEN)


def _requirements(module: Module, value: ast.expr, style: Style, *, chosen: bool) -> Iterator[Finding]:
    for literal, text in _texts(module, value):
        try:
            listed = TextFile("requirements.txt", f"{text}\n".encode(), Kind.PACKAGES)
            found = list(packages.check_file(listed, style))
        except SourceError:
            continue
        for one in found:
            said = RULE.make_finding(
                module,
                literal,
                one.message,
                hint=one.hint,
                severity=Severity.INFO if chosen else one.severity,
                evidence=one.evidence,
            )
            yield dataclasses.replace(said, links=one.links)


def _texts(module: Module, value: ast.expr) -> list[tuple[ast.Constant, str]]:
    """The texts of lists and dicts, also of those that names hold."""
    parts = [value]
    if isinstance(value, ast.Name):
        parts = [one.value for one in module.names.find_bindings(value) if one.value is not None]
    inside = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.expr)]
    literals = (one for one in find_argument_literals(module, inside) if isinstance(one, ast.Constant))
    return [(one, one.value) for one in literals if isinstance(one.value, str)]


RULE = Rule(
    code="TP406",
    title="packages for CUDA that setup.py asks for",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="`pip install` of the project installs what setup.py asks for, and stops where that needs CUDA.",
    reference="https://setuptools.pypa.io/en/latest/userguide/dependency_management.html",
    words=(b"_require",),
    check=check_module,
    rewrites=(),
    reports=(
        "from setuptools import setup\nsetup(install_requires=['torch', 'flash-attn>=2.0'])\n",
        "import setuptools\nNEEDS = ['cupy-cuda12x']\nsetuptools.setup(install_requires=NEEDS)\n",
        "from setuptools import setup\nsetup(name='x', extras_require={'fast': ['xformers']})\n",
    ),
    ignores=(
        "from setuptools import setup\nsetup(install_requires=['torch', 'numpy'])\n",
        "from setuptools import setup\nsetup(name='flash-attn', install_requires=[])\n",
        "def setup(**words):\n    pass\nsetup(install_requires=['flash-attn'])\n",
    ),
)
