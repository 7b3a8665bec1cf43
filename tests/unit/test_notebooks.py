"""Notebooks: code cells are converted, everything else keeps its bytes."""

from __future__ import annotations

import json
import time

import pytest

from torchport.convert import convert_source


def notebook(*cells: str | list[str], **keywords: bool) -> bytes:
    value = {
        "cells": [{"cell_type": "markdown", "source": ["uses torch.cuda"], "metadata": {}}]
        + [
            {"cell_type": "code", "source": cell, "outputs": [{"text": "cuda:0"}], "metadata": {}}
            for cell in cells
        ],
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
        "%matplotlib inline\n!nvidia-smi\nx = torch.ones(2).npu()  # 中\n",
        "%%bash\nexport CUDA_VISIBLE_DEVICES=0\n",
        "d = torch.device('npu')",
    ]
    assert b"uses torch.cuda" in conversion.output
    assert conversion.output.count(b'"cuda:0"') == 4
    assert convert_source(conversion.output, "n.ipynb").output == conversion.output


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
    begin = time.monotonic()
    conversion = convert_source(data, "n.ipynb")
    assert conversion.output == data
    assert "TP903" not in {finding.code for finding in conversion.findings}
    assert time.monotonic() - begin < 5
