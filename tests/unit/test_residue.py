"""What is left of CUDA after a conversion is listed, each mention with its meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import convert_source, convert_tree
from torchport.convert.residue import Meaning, residue


def meanings(text: str, path: str = "a.py") -> list[tuple[str, Meaning]]:
    conversion = convert_source(text.encode(), path)
    return [(one.word, one.meaning) for one in residue(conversion.output, path, conversion.left)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\ntorch.cuda.init()\n", []),
        ("# needs cuda\nx = 1\n", [("cuda", Meaning.PROSE)]),
        ("'''Runs on\nNVIDIA cards.'''\n", [("NVIDIA", Meaning.PROSE)]),
        ("raise SystemExit('no CUDA here')\n", [("CUDA", Meaning.PROSE)]),
        ("use_cuda = args.no_cuda\n", [("use_cuda", Meaning.NAME), ("args.no_cuda", Meaning.NAME)]),
        ("import torch\ntorch.cuda.get_arch_list()\n", [("torch.cuda.get_arch_list", Meaning.BLOCKER)]),
        ("x = 'cuda'\n", [("cuda", Meaning.DECISION)]),
        ("x = [f'cuda:{i}' for i in y]\n", [("cuda", Meaning.DECISION)]),
        ("import torch  # cuda\nclass ConvMlp:\n    pass\n", [("cuda", Meaning.PROSE)]),
        (
            "import torch\ntorch.backends.cudnn.benchmark = True\n",
            [("torch.backends.cudnn.benchmark", Meaning.KEPT)],
        ),
        ("x = f'''\n a cuda b'''; cuda = 1\n", [("cuda", Meaning.PROSE), ("cuda", Meaning.NAME)]),
    ],
)
def test_meanings(text: str, expected: list[tuple[str, Meaning]]) -> None:
    assert meanings(text) == expected


def test_other_files() -> None:
    assert meanings("# cuda\nname: my_cuda\n", "c.yaml") == [
        ("cuda", Meaning.PROSE),
        ("my_cuda", Meaning.NAME),
    ]


def test_native_code_is_written_anew() -> None:
    assert meanings("// cuda\ncudaFree(p);\n", "a.cpp") == [
        ("cuda", Meaning.PROSE),
        ("cudaFree", Meaning.DECISION),
    ]
    assert meanings("#include <cuda.h>\n", "a.cu") == [("cuda.h", Meaning.BLOCKER)]


def test_the_result_lists_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.py").write_text("import torch  # cuda\ntorch.cuda.init()\n")
    result = convert_tree(tmp_path / "in", tmp_path / "out")
    assert result.data["residue"]["counts"] == {"blocker": 0, "decision": 0, "kept": 0, "name": 0, "prose": 1}
    assert result.data["residue"]["mentions"] == [
        {"path": "a.py", "line": 1, "column": 17, "word": "cuda", "is": "prose"}
    ]
