"""torch.npu.init_dump, set_dump and finalize_dump: what operators read and wrote, in CANN's files."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ascendcl
import forked
import pytest
import torch
import torch_npu

from torchport import legacy
from torchport.record.operators.dump_file import DTYPES


@pytest.fixture(autouse=True)
def _plain_torch_npu_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    legacy.uninstall()
    monkeypatch.chdir(tmp_path)
    yield
    ascendcl.code("aclmdlFinalizeDump")  # where the test has not ended it


def begin(**changes: Any) -> None:
    configuration = {"dump_list": [], "dump_path": "dump", "dump_mode": "all", "dump_op_switch": "on"}
    Path("dump.json").write_text(json.dumps({"dump": configuration | changes}))
    torch.npu.synchronize()  # torch_npu launches operators from a queue of its own
    torch.npu.init_dump()
    torch.npu.set_dump("dump.json")


def end() -> None:
    torch.npu.synchronize()
    torch.npu.finalize_dump()


def dumped(folder: str = "dump") -> dict[str, list[dict[str, list[torch.Tensor]]]]:
    """By type of operator, in the order in which they ran."""
    files = sorted(Path(folder).rglob("*.*"), key=lambda file: int(file.name.split(".")[2]))
    found: dict[str, list[dict[str, list[torch.Tensor]]]] = {}
    for file in files:
        found.setdefault(file.name.split(".")[0], []).append(legacy.read_dump(file))
    return found


def test_inputs_are_those_from_before_the_operator() -> None:
    x, y = torch.arange(6.0).view(2, 3), torch.full((2, 3), 0.5)
    a, b = x.npu(), y.npu()
    begin()
    a.mul_(b)
    end()
    [operator] = dumped()["InplaceMul"]
    assert [t.tolist() for t in operator["input"]] == [x.tolist(), y.tolist()]
    assert [t.tolist() for t in operator["output"]] == [(x * y).tolist()]


@pytest.mark.parametrize(("mode", "inputs", "outputs"), [("input", 1, 0), ("output", 0, 1), ("all", 1, 1)])
def test_modes(mode: str, inputs: int, outputs: int) -> None:
    x = torch.ones(3).npu()
    begin(dump_mode=mode)
    x.exp()
    end()
    [operator] = dumped()["Exp"]
    assert (len(operator["input"]), len(operator["output"])) == (inputs, outputs)


QUEUED = """
import json, torch
from pathlib import Path
x = torch.rand(400, 400).npu()
Path("dump.json").write_text(json.dumps({"dump": {"dump_path": "dump", "dump_op_switch": "on"}}))
torch.npu.init_dump()
torch.npu.set_dump("dump.json")
for _ in range(50):
    x = (x @ x).tanh()
torch.npu.finalize_dump()
x.sin()
torch.save(x.cpu(), "last.pt")
"""


def test_what_is_launched_when_the_dump_ends_is_in_it() -> None:
    ran = forked.python(QUEUED, TASK_QUEUE_ENABLE="0")
    assert ran.returncode == 0, ran.stderr
    found = dumped()
    assert (len(found["Tanh"]), "Sin" in found) == (50, False)
    assert torch.equal(found["Tanh"][-1]["output"][0], torch.load("last.pt"))


def test_nothing_before_and_after_and_nothing_when_switched_off() -> None:
    x = torch.ones(3).npu()
    x.sin()
    begin()
    x.cos()
    end()
    x.sin()
    begin(dump_op_switch="off", dump_path="other")
    x.sin()
    end()
    assert set(dumped()) == {"Cos"}
    assert not Path("other").exists()


def test_a_second_configuration_takes_the_place_of_the_first() -> None:
    x = torch.ones(3).npu()
    begin(dump_path="one")
    x.sin()
    torch.npu.synchronize()
    Path("dump.json").write_text(json.dumps({"dump": {"dump_path": "two", "dump_op_switch": "on"}}))
    torch.npu.set_dump("dump.json")
    x.cos()
    end()
    assert (set(dumped("one")), set(dumped("two"))) == ({"Sin"}, {"Cos"})


def test_lists_views_and_shapes_that_depend_on_data() -> None:
    several = [torch.ones(2).npu(), torch.full((3,), 2.0).npu()]
    column = torch.arange(6.0).view(2, 3).npu().t()
    flags = torch.tensor([0, 1, 0, 2]).npu()
    empty = torch.empty(0, 4).npu()
    begin()
    torch._foreach_mul_(several, 3.0)
    column.neg()
    flags.nonzero()
    empty.exp()
    end()
    found = dumped()
    [many] = next(rows for name, rows in found.items() if name.startswith("Foreach"))
    assert [t.tolist() for t in many["output"]] == [[3.0, 3.0], [6.0, 6.0, 6.0]]
    assert found["Neg"][0]["input"][0].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert found["Nonzero"][0]["output"][0].tolist() == [[1], [3]]
    assert found["Exp"][0]["output"][0].shape == (0, 4)


# No operator of the virtual NPU's chips reads the others.
DUMPED = [dtype for dtype in DTYPES.values() if "float8" not in str(dtype) and dtype != torch.complex32]


@pytest.mark.parametrize("dtype", DUMPED, ids=str)
def test_every_dtype_is_read_back(dtype: torch.dtype) -> None:
    bits = torch.arange(1, 33, dtype=torch.uint8)
    values = (bits % 2).bool() if dtype is torch.bool else bits.view(dtype)
    source = values.npu()
    begin()
    source.clone()
    end()
    [operator] = dumped()["InplaceCopy"]
    for tensor in (operator["input"][-1], *operator["output"]):
        assert tensor.dtype == dtype
        assert torch.equal(tensor.view(torch.uint8), values.view(torch.uint8))


def test_private_formats_are_dumped_as_rows() -> None:
    x = torch.arange(600.0).view(20, 30).half()
    packed = torch_npu.npu_format_cast(x.npu(), 29)
    y = torch.eye(20).half().npu()
    begin()
    y @ packed
    end()
    operands = [t for rows in dumped().values() for row in rows for t in row["input"]]
    assert any(torch.equal(t, x) for t in operands)


def test_operators_of_the_old_api() -> None:
    x = torch.arange(12.0).view(3, 4).npu()
    begin()
    torch_npu.npu_transpose(x, (1, 0))
    end()
    found = dumped()
    assert found["Transpose"][0]["output"][0].tolist() == x.t().tolist()


def test_a_captured_graph_runs_without_the_dump_when_that_is_over() -> None:
    x, out = torch.ones(4).npu(), torch.zeros(4).npu()
    graph = torch.npu.NPUGraph()
    begin()
    with torch.npu.graph(graph):
        out.copy_(x.exp())
    graph.replay()
    graph.replay()
    end()
    assert len(dumped()["Exp"]) == 2
    out.zero_()
    graph.replay()
    assert torch.equal(out.cpu(), torch.ones(4).exp())
    assert len(dumped()["Exp"]) == 2


INVALID_FILE, PARSE_FILE, INVALID_CONFIGURATION, WRITE_FILE = 100003, 100006, 100009, 100004
ALREADY_RUN, NOT_RUN = 100044, 100045
REFUSED = [
    ({"dump_mode": "both"}, 'dump_mode "both"; the virtual NPU offers output, input, all'),
    ({"dump_op_switch": "yes"}, 'dump_op_switch "yes"'),
    ({"dump_data": "stats"}, 'dump_data "stats"'),
    ({"dump_path": ""}, "no dump_path"),
    ({"dump_path": 5}, "dump_path that is no string"),
    ({"dump_list": [{"model_name": "resnet"}]}, "not models"),
    ({"dump_debug": "on"}, "sets dump_debug"),
    ({"dump_path": "dump.json"}, "cannot be used"),
]


def set_dump(text: str) -> int:
    """The code of aclmdlSetDump for a file with that text."""
    Path("dump.json").write_text(text)
    return ascendcl.code("aclmdlSetDump", ctypes.c_char_p(b"dump.json"))


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_a_configuration_cannot_say(changes: dict[str, Any], message: str) -> None:
    torch.npu.init_dump()
    wanted = {"dump_path": "dump", "dump_op_switch": "on"} | changes
    assert set_dump(json.dumps({"dump": wanted})) == INVALID_CONFIGURATION
    assert message in ascendcl.message()
    torch.ones(3).npu().exp()
    end()
    assert dumped() == {}


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", PARSE_FILE, "line 1 is no JSON: a value was expected"),
        ("{\n  'dump': 1}", PARSE_FILE, "line 2 is no JSON: a name in double quotes"),
        ('{"dump": {"dump_path": "a"}', PARSE_FILE, "a comma or }"),
        ('{"dump": {}} x', PARSE_FILE, "the end was expected"),
        ("[" * 40, PARSE_FILE, "less nesting"),
        ('{"dump": "\\ud800"}', PARSE_FILE, "surrogate"),
        ('{"dump": "\\u12', PARSE_FILE, "four hexadecimal digits"),
        ('{"dump": "a\\', PARSE_FILE, "an escape that JSON has"),
        ("[]", INVALID_CONFIGURATION, 'no object "dump"'),
        ('{"dump": [true, false, null, -1.5e3, "\\n"]}', INVALID_CONFIGURATION, 'no object "dump"'),
    ],
)
def test_what_is_no_configuration(text: str, code: int, message: str) -> None:
    torch.npu.init_dump()
    assert set_dump(text) == code
    assert message in ascendcl.message()


def test_a_file_that_cannot_be_read() -> None:
    torch.npu.init_dump()
    for path in (b"none.json", b"."):
        assert ascendcl.code("aclmdlSetDump", ctypes.c_char_p(path)) == INVALID_FILE
        assert "cannot be read" in ascendcl.message()


def test_torch_npu_ignores_the_codes_so_the_reasons_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    torch.npu.init_dump()
    Path("dump.json").write_text("{}")
    torch.npu.set_dump("dump.json")
    assert "torchport: The dump's configuration" in capfd.readouterr().err


def test_names_in_every_script() -> None:
    x = torch.ones(3).npu()
    begin(dump_path="输出 \U0001f600/a")  # escaped as UTF-16 in the file
    x.exp()
    end()
    assert set(dumped("输出 \U0001f600/a")) == {"Exp"}


def test_calls_out_of_order() -> None:
    assert ascendcl.code("aclmdlFinalizeDump") == NOT_RUN
    assert set_dump("{}") == NOT_RUN
    assert "aclmdlInitDump comes first" in ascendcl.message()
    assert ascendcl.code("aclmdlInitDump") == 0
    assert ascendcl.code("aclmdlInitDump") == ALREADY_RUN


def test_files_that_could_not_be_written_are_told_at_the_end() -> None:
    x = torch.ones(3).npu()
    begin()
    [folder] = Path("dump").iterdir()
    folder.rmdir()
    folder.write_text("in the way")
    y = x.exp()
    torch.npu.synchronize()
    assert ascendcl.code("aclmdlFinalizeDump") == WRITE_FILE
    assert "Files of the dump are missing; the first: Exp" in ascendcl.message()
    assert torch.equal(y.cpu(), torch.ones(3).exp())  # the program is not disturbed
