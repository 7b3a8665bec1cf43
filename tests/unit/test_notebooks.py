"""Notebooks: code cells are converted, everything else keeps its bytes."""

from __future__ import annotations

import json

import pytest
from counting import grows_with

from torchport.convert import convert_source
from torchport.convert.residue import Meaning, find_residue


def notebook(*cells: str | list[str], **keywords: bool) -> bytes:
    value = {
        "cells": [{"cell_type": "markdown", "source": ["uses torch.cuda"], "metadata": {}}]
        + [{"cell_type": "code", "source": cell, "outputs": [{"text": "cuda:0"}], "metadata": {}} for cell in cells],
        "metadata": {"cells": ["cuda"]},
        "nbformat": 4,
    }
    return json.dumps(value, indent=1, ensure_ascii=keywords.get("ascii", False)).encode()


def code(data: bytes) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(data)["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("ascii_only", [True, False])
def test_cells_share_names(ascii_only: bool) -> None:
    data = notebook(
        ["import torch\n", "s = 'é中😀\\t'; torch.cuda.init()"],
        ["%matplotlib inline\n", "!nvidia-smi\n", "x = torch.ones(2).cuda()  # 中\n"],
        "%%bash\nexport CUDA_VISIBLE_DEVICES=0\n",
        ["d = torch.device('cuda')"],
        ascii=ascii_only,
    )
    conversion = convert_source(data, "n.ipynb")
    assert code(conversion.output) == [
        "import torch\nimport torch_npu\ns = 'é中😀\\t'; torch.npu.init()",
        "%matplotlib inline\n!npu-smi info\nx = torch.ones(2).npu()  # 中\n",
        "%%bash\nexport ASCEND_RT_VISIBLE_DEVICES=0\n",
        "d = torch.device('npu')",
    ]
    assert b"uses torch.cuda" in conversion.output
    assert conversion.output.count(b'"cuda:0"') == 4
    assert convert_source(conversion.output, "n.ipynb").output == conversion.output


def test_what_a_cell_gives_to_a_shell() -> None:
    data = notebook(
        ["!CUDA_VISIBLE_DEVICES=0 python 中.py --device cuda\n", "  !pip install flash-attn torch==2.1.0+cu121\n"],
        ["x = 'CUDA_VISIBLE_DEVICES=1'; print(x != 'cuda')"],
        "%%javascript\nalert('cuda')\n",
    )
    conversion = convert_source(data, "n.ipynb")
    assert code(conversion.output) == [
        "!ASCEND_RT_VISIBLE_DEVICES=0 python 中.py --device npu\n  !pip install flash-attn torch==2.1.0\n",
        "x = 'CUDA_VISIBLE_DEVICES=1'; print(x != 'cuda')",
        "%%javascript\nalert('cuda')\n",
    ]
    said = [finding for finding in conversion.findings if not finding.fix]
    assert [finding.code for finding in said] == ["TP901", "TP604", "TP171", "TP110"]
    lines = data.decode().splitlines()
    assert "flash-attn" in lines[said[1].location.line - 1] if said[1].location else False


def test_what_is_left_is_told_apart() -> None:
    data = notebook(["# for cuda\n", "use_cuda = True\n", "import torch"])
    conversion = convert_source(data, "n.ipynb")
    meanings = [(one.word, one.meaning) for one in find_residue(conversion.output, "n.ipynb", conversion.left)]
    assert meanings == [
        ("torch.cuda", Meaning.PROSE),  # the text cell
        ("cuda", Meaning.PROSE),  # the comment
        ("use_cuda", Meaning.NAME),
        ("cuda", Meaning.PROSE),  # the output
        ("cuda", Meaning.PROSE),  # the metadata
    ]


def test_a_package_alone_is_seen() -> None:
    (finding,) = convert_source(notebook(["import os\n", "import xformers\n"]), "n.ipynb").findings
    assert finding.code == "TP401"


def test_import_alone_in_its_cell() -> None:
    conversion = convert_source(notebook(["import torch"], ["torch.cuda.init()"]), "n.ipynb")
    assert code(conversion.output) == ["import torch\nimport torch_npu", "torch.npu.init()"]


def test_places_are_those_of_the_file() -> None:
    data = notebook(["import torch\n"], ["torch.cuda.get_arch_list()\n"])
    (finding,) = convert_source(data, "n.ipynb").findings
    assert finding.location is not None
    assert "get_arch_list" in data.decode().splitlines()[finding.location.line - 1]


@pytest.mark.parametrize(
    "data",
    [
        b"cuda",
        b"{" * 100_000 + b'"cuda"',
        b'{"cells": [' + b"[" * 100_000 + b'"cuda"',
        b']"cuda"',
        b'{"cells": [{"cell_type": "code", "source": "\\ud800 cuda"}]}',
        b'{"cells": [{"cell_type": "code", "source": ["cuda(((("]}]}',
        b'{"cells": 3, "cuda": [1, {"x": "y"}]}',
        b"\xff\xfecuda",
        b'{"cells": [{"cell_type": "code", "source": "x = \'cuda\'?"}]}',
    ],
)
def test_hostile_notebooks(data: bytes) -> None:
    conversion = convert_source(data, "n.ipynb")
    assert conversion.output == data
    assert "TP903" not in {finding.code for finding in conversion.findings}


@pytest.mark.parametrize(
    ("begin", "end"), [(b"", b'"cuda"'), (b'{"cells": [', b'"cuda"'), (b'{"cells": ', b'"cuda"}'), (b"", b"x")]
)
@pytest.mark.parametrize("piece", [b"{", b"[", b"[]", b'"a"', b"\\", b'"cuda",'])
def test_the_work_for_hostile_notebooks_grows_with_their_length(begin: bytes, piece: bytes, end: bytes) -> None:
    shorter, longer = (begin + piece * count + end for count in (1_000, 4_000))
    assert grows_with(lambda: convert_source(shorter, "n.ipynb"), lambda: convert_source(longer, "n.ipynb"), 4)
