"""`--style agnostic`: the output names no device, and still means CUDA where CUDA is."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import convert_source
from torchport.findings import Severity
from torchport.rules import Style
from torchport.rules.accelerator_name import ACCELERATOR

LINE = f'{ACCELERATOR} = (torch.accelerator.current_accelerator() or torch.device("cuda")).type  # "cuda", "npu", ...\n'
HEAD = "import torch\n"
MODULE = f"torch.get_device_module({ACCELERATOR})"


def agnostic(text: str) -> str:
    conversion = convert_source(text.encode(), "a.py", Style.AGNOSTIC)
    assert "TP903" not in {finding.code for finding in conversion.findings}
    again = convert_source(conversion.output, "a.py", Style.AGNOSTIC)
    assert again.output == conversion.output
    return conversion.output.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d = torch.device('cuda')", f"d = torch.device({ACCELERATOR})"),
        ("d = torch.device('cuda:1')", f'd = torch.device(f"{{{ACCELERATOR}}}:1")'),
        ("d = torch.device(f'cuda:{r}')", f"d = torch.device(f'{{{ACCELERATOR}}}:{{r}}')"),
        ("d = torch.device('cuda:%d' % r)", f'd = torch.device(({ACCELERATOR} + ":%d") % r)'),
        ("d = torch.device('cuda:' + str(r))", f'd = torch.device(({ACCELERATOR} + ":") + str(r))'),
        ("x.cuda()", f"x.to({ACCELERATOR})"),
        ("x.cuda(non_blocking=True)", f"x.to({ACCELERATOR}, non_blocking=True)"),
        ("x.cuda(1)", f'x.to(f"{{{ACCELERATOR}}}:1")'),
        ("x.cuda(args.gpu, non_blocking=True)", "x.to(args.gpu, non_blocking=True)"),
        ("if x.is_cuda:\n    pass", f"if (x.device.type == {ACCELERATOR}):\n    pass"),
        ("if x.device.type == 'cuda':\n    pass", f"if x.device.type == {ACCELERATOR}:\n    pass"),
        ("torch.cuda.is_available()", "torch.accelerator.is_available()"),
        ("torch.cuda.empty_cache()", f"{MODULE}.empty_cache()"),
        ("with torch.cuda.amp.autocast():\n    pass", f"with {MODULE}.amp.autocast():\n    pass"),
        (
            "torch.distributed.init_process_group('nccl')",
            f"torch.distributed.init_process_group(torch.distributed.get_default_backend_for_device({ACCELERATOR}))",
        ),
    ],
)
def test_rewrites(before: str, after: str) -> None:
    line = f"\n{LINE}" if ACCELERATOR in after else ""
    assert agnostic(f"{HEAD}{before}\n") == f"{HEAD}{line}{after}\n"


def test_names_that_are_imported_and_names_that_are_written_out() -> None:
    text = agnostic(f"{HEAD}from torch.cuda import is_available, Event\nis_available()\ne = Event()\n")
    assert text.startswith(f"{HEAD}from torch.accelerator import is_available\n")
    assert text.endswith(f"is_available()\ne = torch.get_device_module({ACCELERATOR}).Event()\n")
    assert agnostic(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "x = torch.ones(2)",
        "import torch.cuda.amp as amp\nwith amp.autocast():\n    pass",
        "from torch.cuda import Stream, comm\ns = Stream()",
        "from torch.cuda import *\nif hasattr(torch, 'cuda'):\n    s = Stream()",
        "print('cuda')",
        "torch.cuda.get_arch_list()",
        "torch.cuda.CUDAGraph()",
    ],
)
def test_left_alone(text: str) -> None:
    assert agnostic(f"{HEAD}{text}\n") == f"{HEAD}{text}\n"


def test_the_import_of_torch_is_added_where_it_is_missing() -> None:
    text = "import os\ndef f():\n    import torch\n    return torch.device('cuda')\n"
    line = LINE.replace("torch.", "_torch.")
    assert agnostic(text).startswith(f"import os\nimport torch as _torch\n\n{line}def f()")


def test_code_right_below_the_import() -> None:
    """Found by fuzzing: the variable was left out where an edit begins at the start of the next line."""
    text = LINE.replace("torch.", "_torch.")
    out = agnostic("from torch import cuda\nx.is_cuda\n")
    assert out == f"from torch import cuda\nimport torch as _torch\n\n{text}(x.device.type == {ACCELERATOR})\n"


def test_names_that_were_imported_are_written_out() -> None:
    text = (
        "from torch.cuda.amp import GradScaler, autocast as cast\nimport os\n"
        "scaler = GradScaler()\n@cast()\ndef f():\n    with cast(enabled=True):\n        pass\n"
    )
    assert agnostic(HEAD + text) == (
        f"{HEAD}import os\n\n{LINE}scaler = {MODULE}.amp.GradScaler()\n@{MODULE}.amp.autocast()\ndef f():\n"
        f"    with {MODULE}.amp.autocast(enabled=True):\n        pass\n"
    )
    alone = "def f():\n    from torch.cuda import Stream\ndef g():\n    from torch.cuda import Event; return Event()\n"
    assert agnostic(HEAD + alone) == (
        f"{HEAD}\n{LINE}def f():\n    pass\ndef g():\n    pass; return {MODULE}.Event()\n"
    )


def test_example_script() -> None:
    data = (Path(__file__).parents[2] / "examples" / "digits" / "train.py").read_bytes()
    conversion = convert_source(data, "train.py", Style.AGNOSTIC)
    assert not [finding for finding in conversion.findings if finding.severity is not Severity.INFO]
    assert conversion.output.count(b"npu") == data.count(b"npu") + LINE.count("npu")
    assert b"torch.cuda" not in conversion.output
