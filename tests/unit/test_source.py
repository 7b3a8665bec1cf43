"""Bytes, places, names and value classes of source files."""

from __future__ import annotations

import ast

import pytest

from torchport.findings import Edit
from torchport.source.edits import invert_edits, splice
from torchport.source.module import Module
from torchport.source.text import SourceError, SourceText


def last_expression(module: Module) -> ast.expr:
    statement = module.tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return statement.value


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"x = 'a'\n", "utf-8"),
        (b"\xef\xbb\xbfx = '\xc3\xa9'; y = 1\n", "utf-8"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'; y = 1\n", "iso8859-1"),
        (b"#!/usr/bin/python\r# coding: gbk\rx = '\xd6\xd0'; y = 1\r", "gbk"),
        ("x = '€\U0001f600'; y = 1\r\n".encode(), "utf-8"),
        (b"\x0cx = 1; y = 1\n", "utf-8"),
        (b"", "utf-8"),
    ],
)
def test_spans_are_bytes_of_the_file(data: bytes, encoding: str) -> None:
    text = SourceText("a.py", data)
    assert text.encoding == encoding
    for node in ast.walk(text.parse()):
        if isinstance(node, ast.Name):
            start, end = text.span(node)
            assert data[start:end] == node.id.encode()
            assert text.to_location(start, end).end_column - text.to_location(start, end).column == len(node.id)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"# coding: no-such-thing\n", "TP902"),
        (b"x = '\xff'\n", "TP902"),
        (b"\n\n\nx = '\xff'\n", "TP902"),
        (b"# coding: iso-2022-jp\nx = '\x1b(B'\n", "TP902"),
        (b"def f(:\n", "TP901"),
        (b"x = 1\x00\n", "TP901"),
        (b"print 'python 2'\n", "TP901"),
        (b"(" * 1000 + b")" * 1000, "TP901"),
    ],
)
def test_what_cannot_be_read(data: bytes, code: str) -> None:
    with pytest.raises(SourceError) as caught:
        Module("a.py", data)
    assert caught.value.code == code
    assert caught.value.line >= 1


def test_splice_and_back() -> None:
    data = b"0123456789"
    edits = [Edit(8, 9, b""), Edit(0, 0, b"<<"), Edit(3, 5, b"longer")]
    output = splice(data, edits)
    assert output == b"<<012longer5679"
    assert splice(output, invert_edits(data, edits)) == data


@pytest.mark.parametrize(
    "edits",
    [
        [Edit(0, 2, b"a"), Edit(1, 3, b"b")],
        [Edit(1, 1, b"a"), Edit(1, 1, b"b")],
        [Edit(0, 11, b"a")],
        [Edit(-1, 0, b"a")],
        [Edit(3, 2, b"a")],
    ],
)
def test_edits_that_do_not_fit(edits: list[Edit]) -> None:
    with pytest.raises(ValueError, match="edit"):
        splice(b"0123456789", edits)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("import torch\ntorch.cuda.Event", "torch.cuda.Event"),
        ("import torch as t\nt.cuda", "torch.cuda"),
        ("from torch import cuda as tc\ntc.Stream", "torch.cuda.Stream"),
        ("from torch.cuda import Stream as S\nS", "torch.cuda.Stream"),
        ("import torch\nc = torch.cuda\nd = c\nd.init", "torch.cuda.init"),
        ("import torch\nx = y = torch.cuda\ny", "torch.cuda"),
        ("import torch\na, b = torch.cuda, 1\na", "torch.cuda"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.cuda", "torch.cuda"),
        ("import torch\ngetattr(torch, 'cuda').init", "torch.cuda.init"),
        ("import importlib\nimportlib.import_module('torch.cuda.amp')", "torch.cuda.amp"),
        ("__import__('torch.cuda').cuda", "torch.cuda"),
        ("import torch\nvars(torch)['cuda']", "torch.cuda"),
        ("import sys\nsys.modules['torch'].cuda", "torch.cuda"),
        ("from torch import *\ncuda.init", "torch.cuda.init"),
        ("if (c := __import__('torch').cuda):\n    pass\nc", "torch.cuda"),
        ("len", "builtins.len"),
        ("import torch\ntorch = 3\ntorch.cuda", None),
        ("import torch\nimport cupy as torch\ntorch.cuda", None),
        ("def f(torch):\n    pass\nfor torch in x:\n    pass\ntorch.cuda", None),
        ("from .torch import cuda\ncuda.init", ".torch.cuda.init"),
        ("a = b\nb = a\na", None),
        ("unknown.cuda", None),
    ],
)
def test_dotted_names(text: str, meaning: str | None) -> None:
    module = Module("a.py", text.encode())
    assert module.resolve_name(last_expression(module)) == meaning


def test_a_parameter_hides_an_import() -> None:
    module = Module("a.py", b"import torch\ndef f(torch):\n    return torch.cuda\ndef g():\n    return torch.cuda\n")
    meanings = [module.resolve_name(node) for node in module.iter_nodes(ast.Attribute)]
    assert meanings == [None, "torch.cuda"]


@pytest.mark.parametrize(
    "text",
    [
        "a = b",
        "b = 1 if c else a",
        "a = d or b",
        "def f(p=1):\n    return p\nb = f(a)",
        "class C:\n    def __init__(self, v):\n        self.v = v\n    def g(self):\n        b = self.v\nC(a)",
        "x.opt = a\ndef f(x):\n    g(x.opt == b)",
        "p.add_argument('--opt', default=a)\nb = args.opt",
        "d = {'k': a}\nb = d['k']",
        "d = dict(k=a)\ne = d\nb = e['k']",
        "for b in [1, a]:\n    pass",
        "b = x.get('k', a)",
        "if a in (1, b):\n    pass",
        "t = {a: 1}\nt[b]",
        "f = lambda q: q\nb = f(a)",
        "match a:\n    case ns.b:\n        b = ns.b",
    ],
)
def test_value_classes_join(text: str) -> None:
    module = Module("a.py", text.encode())
    names = {node.id: node for node in module.iter_nodes(ast.Name) if node.id in ("a", "b")}
    assert module.flow.is_same_value(names["a"], names["b"])


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\nb = 1",
        "def f(p):\n    return 1\nb = f(a)",
        "x.left = a\nx.right = b",
        "class C:\n    def f(self):\n        self.v = a\nclass D:\n    def f(self):\n        self.v = b",
        "d = {'k': a, 'l': b}",
        "b = len(a)",
    ],
)
def test_value_classes_stay_apart(text: str) -> None:
    module = Module("a.py", text.encode())
    names = {node.id: node for node in module.iter_nodes(ast.Name) if node.id in ("a", "b")}
    assert not module.flow.is_same_value(names["a"], names["b"])
