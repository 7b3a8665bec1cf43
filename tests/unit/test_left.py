"""Files that two runs left: equal ones are found equal, changed and missing ones are not, and nothing in them runs."""

import contextlib
import io
import json
import pickle
import struct
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchport.checkpoints import tensors
from torchport.checkpoints.tensors import Tensor, Unreadable, relative_difference
from torchport.checkpoints.values import read_checkpoint
from torchport.port.left import FileRow, compare_files
from torchport.port.texts import NUMBER, compare_texts, mask_text


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("reference", "npu"):
        (tmp_path / name / "files").mkdir(parents=True)
    return tmp_path / "reference" / "files", tmp_path / "npu" / "files"


def compare(runs: tuple[Path, Path], name: str, one: bytes | str, other: bytes | str) -> FileRow:
    for folder, data in zip(runs, (one, other), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    (row,) = compare_files(*runs)
    assert row.name == name
    return row


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def numbers(*values: int) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def stored(key: str, shape: tuple[int, ...], stride: tuple[int, ...], count: int, offset: int = 0) -> bytes:
    """The pickle of a tensor, as torch writes it."""
    place = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + number(count) + b"tQ"
    rest = number(offset) + numbers(*shape) + numbers(*stride) + b"\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + rest + b"tR"


def dictionary(**items: bytes) -> bytes:
    return b"(" + b"".join(text(name) + value for name, value in items.items()) + b"d"


def archive(what: bytes, **storages: list[float]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as writer:
        writer.writestr("model/data.pkl", b"\x80\x02" + what + b".")
        writer.writestr("model/byteorder", "little")
        for key, values in storages.items():
            writer.writestr(f"model/data/{key}", struct.pack(f"<{len(values)}f", *values))
    return data.getvalue()


def model(values: list[float], loss: float = 0.5) -> bytes:
    what = dictionary(net=dictionary(weight=stored("k", (2, 2), (2, 1), 4)), loss=b"G" + struct.pack(">d", loss))
    return archive(what, k=values)


def test_checkpoints_of_equal_tensors(runs: tuple[Path, Path]) -> None:
    row = compare(runs, "model.pt", model([1, 2, 3, 4]), model([1, 2, 3, 4.0001]))
    assert (row.kind, row.equal) == ("checkpoint", True)
    assert row.difference is not None
    assert row.difference == pytest.approx(1e-4 / 30**0.5, rel=1e-2)
    assert row.reference.startswith("1 tensor, ")


@pytest.mark.parametrize(
    ("other", "note"),
    [
        (model([1, 2, 3, 5]), "net.weight: 1.8e-01"),
        (model([1, 2, 3, float("nan")]), "net.weight: inf"),
        (model([1, 2, 3, 4], loss=0.6), "loss: 1.7e-01"),
        (archive(dictionary(net=stored("k", (4,), (1,), 4)), k=[1, 2, 3, 4]), "only the original's has net.weight"),
        (
            archive(
                dictionary(net=dictionary(weight=stored("k", (4,), (1,), 4)), loss=b"G" + struct.pack(">d", 0.5)),
                k=[1, 2, 3, 4],
            ),
            "float32[2, 2] against float32[4]",
        ),
        (model([1, 2, 3, 4])[:-40], "the port's cannot be read"),
        (b"", "the port's cannot be read"),
    ],
)
def test_a_changed_checkpoint_is_not_equal(runs: tuple[Path, Path], other: bytes, note: str) -> None:
    row = compare(runs, "model.pth", model([1, 2, 3, 4]), other)
    assert row.equal is False
    assert note in row.note


def test_a_damaged_storage_is_never_equal(runs: tuple[Path, Path]) -> None:
    row = compare(runs, "m.pt", model([1, 2, 3, 4]), model([1, 2, 3]))
    assert row.equal is False
    assert "the port's cannot be read" in row.note and "reaches beyond" in row.note


def test_strides_are_followed(runs: tuple[Path, Path]) -> None:
    across = archive(dictionary(a=stored("k", (2, 2), (1, 2), 5, offset=1)), k=[9, 1, 3, 2, 4])
    in_order = archive(dictionary(a=stored("k", (2, 2), (2, 1), 4)), k=[1, 2, 3, 4])
    row = compare(runs, "m.pt", across, in_order)
    assert (row.equal, row.difference) == (True, 0.0)


def test_random_states_and_times_are_left_out_and_networks_of_such_names_are_not(runs: tuple[Path, Path]) -> None:
    def saved(rng: float, network: float, seconds: int) -> bytes:
        what = dictionary(
            torch_rng_state=stored("a", (1,), (1,), 1),
            generator=dictionary(time_embed=stored("b", (1,), (1,), 1)),
            elapsed=number(seconds),
        )
        return archive(what, a=[rng], b=[network])

    assert compare(runs, "m.pt", saved(1, 1, 1), saved(2, 1, 9)).equal is True
    row = compare(runs, "m.pt", saved(1, 1, 1), saved(1, 2, 1))
    assert row.equal is False
    assert "generator.time_embed" in row.note


def test_what_torch_npu_stores_otherwise_is_no_difference(runs: tuple[Path, Path]) -> None:
    def saved(weight: float, **scaler: bytes) -> bytes:
        return archive(dictionary(weight=stored("a", (1,), (1,), 1), scaler=dictionary(**scaler)), a=[weight])

    assert compare(runs, "m.pt", saved(1, scale=number(2)), saved(1, scale=number(2), dynamic=number(1))).equal is True
    row = compare(runs, "m.pt", saved(1, scale=number(2)), saved(2, scale=number(2), dynamic=number(1)))
    assert row.equal is False
    assert compare(runs, "m.pt", saved(1), saved(1, momentum=number(1))).equal is False


def test_a_file_of_random_states_is_not_compared(runs: tuple[Path, Path]) -> None:
    states = (archive(dictionary(cpu=stored("a", (1,), (1,), 1)), a=[value]) for value in (1.0, 2.0))
    row = compare(runs, "rng_state.pth", *states)
    assert row.equal is None and "each device's own" in row.note


class Harmful:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.path, "w")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_in_a_pickle_is_run(runs: tuple[Path, Path], tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    data = pickle.dumps({"x": Harmful(str(made))}, protocol)
    compare(runs, "model.pt", data, pickle.dumps({"x": Harmful(str(made) + "2")}, protocol))
    shell = b"\x80\x02cos\nsystem\n(" + text(f"touch {made}") + b"tR"
    attribute = b"cbuiltins\ngetattr\n(cos\nsystem\n" + text("__call__") + b"tR(" + text(f"touch {made}") + b"tR"
    row = compare(runs, "model.pt", archive(shell), archive(attribute))
    assert row.equal is not True
    assert not made.exists()
    pickle.loads(data)["x"].close()
    assert made.exists()  # the pickle would have


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("x") / "x.pt"
    path.write_bytes(data)
    with contextlib.suppress(Unreadable):
        assert isinstance(read_checkpoint(path), dict)


@pytest.mark.processes
def test_what_torch_writes_is_read(runs: tuple[Path, Path]) -> None:
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    code = """
        import sys, torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        optimizer = torch.optim.Adam(net.parameters())
        torch.manual_seed(0)
        for parameter in net.parameters():
            torch.nn.init.normal_(parameter)
        for name, change in (("reference", 0.0), ("npu", float(sys.argv[1]))):
            torch.manual_seed(1)
            optimizer.zero_grad()
            net(torch.randn(4, 3)).square().sum().backward() if name == "reference" else None
            optimizer.step() if name == "reference" else None
            with torch.no_grad():
                net[0].weight[0, 0] += change
            saved = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "whole": net,
                     "half": net[0].weight.detach().bfloat16(), "view": net[0].weight.detach().t()[1:],
                     "dtype": torch.float16, "size": net[0].weight.shape, "device": torch.device("cpu")}
            torch.save(saved, f"{name}/files/new.pt")
            torch.save(saved, f"{name}/files/old.pt", _use_new_zipfile_serialization=False)
    """

    def rows(change: str) -> list[FileRow]:
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), change],
            cwd=runs[0].parents[1],
            env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            check=True,
        )
        return compare_files(*runs)

    for row in rows("1e-6"):
        assert (row.kind, row.equal) == ("checkpoint", True), row
        assert "28 tensors" in row.reference, row
    for row in rows("0.5"):
        assert row.equal is False
        assert "weight" in row.note or "half" in row.note or "view" in row.note, row


def npy(values: list[float], dtype: str = "<f4") -> bytes:
    header = repr({"descr": dtype, "fortran_order": False, "shape": (len(values),)}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}f", *values)


def safetensors(values: list[float]) -> bytes:
    row = {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, 4 * len(values)]}
    header = json.dumps({"w": row, "__metadata__": {"format": "pt"}}).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(values)}f", *values)


def npz(values: list[float]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as writer:
        writer.writestr("a.npy", npy(values))
    return data.getvalue()


@pytest.mark.parametrize(("suffix", "write"), [("npy", npy), ("npz", npz), ("safetensors", safetensors)])
@pytest.mark.parametrize("numpy", [True, False])
def test_arrays(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, suffix: str, write: object, numpy: bool
) -> None:
    if not numpy:
        monkeypatch.setattr(tensors, "_numpy", lambda: None)
    assert callable(write)
    same = compare(runs, f"a.{suffix}", write([1, 2, 3]), write([1, 2, 3.0001]))
    assert (same.kind, same.equal) == (suffix, True)
    assert same.difference is not None
    assert 0 < same.difference < 1e-4
    changed = compare(runs, f"a.{suffix}", write([1, 2, 3]), write([1, 2, 4]))
    assert changed.equal is False
    assert changed.difference == pytest.approx(1 / 14**0.5)
    assert compare(runs, f"a.{suffix}", write([1, 2, 3]), write([1, 2, 3, 4])).equal is False


@pytest.mark.parametrize("numpy", [True, False])
def test_values_of_each_dtype(monkeypatch: pytest.MonkeyPatch, numpy: bool) -> None:
    if not numpy:
        monkeypatch.setattr(tensors, "_numpy", lambda: None)
    for dtype, one, other in [
        ("bfloat16", struct.pack("<2H", 0x3F80, 0), struct.pack("<2H", 0x4000, 0)),  # 1 and 2
        ("float16", struct.pack("<2e", 1, 0), struct.pack("<2e", 2, 0)),
        ("int64", struct.pack("<2q", 1, 0), struct.pack("<2q", 2, 0)),
        ("bool", b"\1\0", b"\1\1"),
        ("complex64", struct.pack("<4f", 0, 1, 0, 0), struct.pack("<4f", 0, 2, 0, 0)),
    ]:
        pair = [Tensor(dtype, (2,), lambda data=data: data) for data in (one, other)]  # type: ignore[misc]
        assert relative_difference(pair[0], pair[1]) == 1.0, dtype
    unknown = [Tensor("Float8_e4m3fnStorage", (1,), lambda data=data: data) for data in (b"1", b"2")]  # type: ignore[misc]
    assert relative_difference(unknown[0], unknown[1]) is None


def test_missing_files_are_named(runs: tuple[Path, Path]) -> None:
    (runs[0] / "best.pt").write_bytes(b"x")
    (runs[1] / "sub").mkdir()
    (runs[1] / "sub" / "log.txt").write_text("x")
    for ignored in (".hidden", "__pycache__/a.pyc", ".ipynb_checkpoints/a", "x.tmp", ".cache/y"):
        (runs[0] / ignored).parent.mkdir(exist_ok=True)
        (runs[0] / ignored).write_text("")
    rows = compare_files(*runs)
    assert [(row.name, row.reference, row.port, row.equal) for row in rows] == [
        ("best.pt", "1 bytes", "", False),
        ("sub/log.txt", "", "1 bytes", False),
    ]
    assert "only the original's run" in rows[0].note and "only the port's run" in rows[1].note
    assert compare_files(runs[0] / "none", runs[1] / "none") == []


@pytest.mark.parametrize(
    ("name", "one", "other", "equal"),
    [
        ("log.txt", "epoch 1 loss 0.5000 3.2 s", "epoch 1 loss 0.5001 9.9 s", True),
        ("log.txt", "epoch 1 loss 0.50", "epoch 1 loss 0.60", False),
        ("log.txt", "loss 0.5", "loss nan", False),
        ("log.txt", "saved to cuda:0", "saved to npu:0", True),
        ("a.json", '{"type": "MULTI_GPU"}', '{"type": "MULTI_NPU"}', True),
        ("a.json", '{"type": "MULTI_GPU"}', '{"type": "MULTI_CPU"}', False),
        ("log.txt", "saved", "not saved", False),
        ("log.txt", "a\nb\n", "a\n", False),
        ("log.txt", "2026-01-01 10:00:00 ok", "2026-01-01 10:09:11 ok", True),
        (
            "log.txt",
            "{'train_runtime': '4.3', 'steps_per_second': '1.8'}",
            "{'train_runtime': '6.3', 'steps_per_second': '1.2'}",
            True,
        ),
        ("a.json", '{"loss": 0.5}', '{"loss": 0.5, "memory(GiB)": 0.9}', True),
        ("a.json", '{"loss": 0.5}', '{"loss": 0.5, "score": 0.9}', False),
        ("a.json", '{"backend": "nccl"}', '{"backend": "hccl"}', True),
        ("a.json", '{"backend": "nccl"}', '{"backend": "gloo"}', False),
        ("log.txt", "in /o/reference.unfinished/view/a", "in /o/npu.unfinished/view/a", True),
        ("log.txt", "model5 0", "model6 0", False),
        ("m.json", '{"loss": [0.5, 1], "time": 3}', '{"loss": [0.5001, 1], "time": 8}', True),
        ("m.json", '{"loss": [0.5, 1]}', '{"loss": [0.7, 1]}', False),
        ("m.json", '{"a": 1}', '{"b": 1}', False),
        ("m.json", '{"a": true}', '{"a": false}', False),
        ("m.json", '{"a": 1}', "{", False),
        ("m.jsonl", '{"a": 1}\n{"a": 2}\n', '{"a": 1}\n{"a": 2.001}\n', True),
        ("m.jsonl", '{"a": 1}\n{"a": 2}\n', '{"a": 1}\n', False),
        ("m.csv", "step,loss,seconds\n1,0.5,3\n", "step,loss,seconds\n1,0.5001,9\n", True),
        ("m.csv", "step,loss\n1,0.5\n", "step,loss\n1,0.9\n", False),
        ("m.csv", "step,loss\n1,0.5\n", "step,loss\n1,0.5\n2,0.4\n", False),
        ("events.out.tfevents.1700000000.host.1.0", "a\0", "b\0", None),
        ("wandb/run.txt", "1", "2", None),
        ("x.raw", b"\0a", b"\0b", None),
        ("x.raw", b"\0a", b"\0a", True),
        ("x.jpg", b"\xff1", b"\xff2", None),
    ],
)
def test_kinds(runs: tuple[Path, Path], name: str, one: bytes | str, other: bytes | str, equal: bool | None) -> None:
    row = compare(runs, name, one, other)
    assert row.equal is equal, row
    assert equal is True or row.note


def test_pictures_of_other_sizes_differ(runs: tuple[Path, Path]) -> None:
    def png(width: int, rest: bytes) -> bytes:
        return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, 2) + rest

    assert compare(runs, "a.png", png(3, b"1"), png(3, b"2")).equal is None
    row = compare(runs, "a.png", png(3, b""), png(4, b""))
    assert (row.equal, row.note) == (False, "3 x 2 against 4 x 2 pixels")


def test_names_with_dates_belong_together(runs: tuple[Path, Path]) -> None:
    names = [
        ("runs/Nov22_04-31-16_host/log.txt", "runs/Nov22_04-32-50_host/log.txt"),
        ("outputs/2026-11-22/04-31-16/m.json", "outputs/2026-11-22/04-33-01/m.json"),
        ("b/model_20261122_043116.txt", "b/model_20261122_043201.txt"),
        ("c/2026_11_28-09_45_30-lr_0.1/epoch_1.pt.txt", "c/2026_11_28-09_46_37-lr_0.1/epoch_1.pt.txt"),  # open_clip
        ("c/Saturday_28_November_2026_09h_48m_35s/log.txt", "c/Saturday_28_November_2026_09h_49m_20s/log.txt"),
        ("d/2026_11_28_09_48_35/log.txt", "d/2026_11_28_09_49_20/log.txt"),
        ("e/28-11-2026_09_48_35.txt", "e/28-11-2026_09_49_20.txt"),
    ]
    for pair in names:
        for folder, name in zip(runs, pair, strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("1")
    rows = compare_files(*runs)
    assert [row.equal for row in rows] == [True] * len(names)
    assert all("the port's is" in row.note for row in rows)
    (runs[1] / "model_2.txt").write_text("1")
    (runs[0] / "model_1.txt").write_text("1")  # a step, not a date
    assert [row.equal for row in compare_files(*runs)].count(False) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("events.out.tfevents.1795841189.vm.19321.0", "events.out.tfevents.1795841209.vm.203.0"),
        ("events.out.tfevents.2026112800.vm.7.0", "events.out.tfevents.1795841209.gpu-01.203.0"),
        (
            "runs/1795841189.4731/events.out.tfevents.1795841189.vm.2.1",
            "runs/1795841199.47/events.out.tfevents.1.vm.7.1",
        ),
        ("20261128ab/log.txt", "0f3c11d2e9/log.txt"),
        ("12345678-1234-4123-8123-1234567890ab.txt", "a2345678-b234-c123-d123-e234567890ab.txt"),
        (
            "wandb/offline-run-20261128_052947-123456ab/run-123456ab.wandb",
            "wandb/offline-run-20261128_053001-x/run-x.wandb",
        ),
    ],
)
def test_the_longer_of_two_names_by_chance_counts(runs: tuple[Path, Path], one: str, other: str) -> None:
    other = other.replace("-x", "-k3vq0mzt")
    for folder, name in zip(runs, (one, other), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1")
    (row,) = compare_files(*runs)
    assert (row.name, row.equal) == (one, True)


def test_counts_pair_by_size(runs: tuple[Path, Path]) -> None:
    for folder, second in zip(runs, (1795841189, 1795841207), strict=True):
        for place in range(12):
            name = f"events.out.tfevents.{second + (place > 9 and folder == runs[1])}.vm.7.{place}"
            (folder / name).write_text(str(place))
    assert [row.equal for row in compare_files(*runs)] == [True] * 12


@pytest.mark.parametrize("name", ["events.out.tfevents.1795841189.vm.1.0", "wandb/run-abcd1234.wandb"])
def test_scalars_that_the_port_does_not_log_differ(runs: tuple[Path, Path], name: str) -> None:
    (runs[0] / name).parent.mkdir(exist_ok=True)
    (runs[0] / name).write_text("1")
    (row,) = compare_files(*runs)
    assert (row.equal, row.note) == (False, "only the original's run wrote it")


@pytest.mark.parametrize("word", ["x", "1", "a/b", "1.", "1x"])
def test_a_word_of_a_megabyte(word: str) -> None:
    """base64 in a log: where a pattern looks for its word from each letter anew, this takes hours."""
    text = word * (1_000_000 // len(word))
    assert mask_text(f"{text} 3 s") in (f"{text} ~", "~ ~")
    assert len(NUMBER.findall(f"{text}!")) <= 1


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=5), st.floats(1e-9, 1e-4))
def test_rounding_never_makes_texts_differ(values: list[float], error: float) -> None:
    one = " ".join(f"loss {value:.9g}" for value in values)
    other = " ".join(f"loss {value * (1 + error):.9g}" for value in values)
    difference, place = compare_texts(one, other)
    assert place == ""
    assert difference <= error * 1.01 + 1e-8


@pytest.mark.parametrize(
    ("change", "equal"),
    [
        (lambda array: array, True),
        (np.asfortranarray, True),
        (np.transpose, False),
        (lambda array: np.transpose(array).copy(), False),
        (lambda array: np.asfortranarray(array[::-1]), False),
    ],
)
def test_an_array_in_order_of_columns(runs: tuple[Path, Path], change: Callable[[Any], Any], equal: bool) -> None:
    """Numpy writes a transposed array so: the bytes are the same, and the array is another."""
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    for folder, value in zip(runs, (array, change(array)), strict=True):
        np.save(folder / "a.npy", value)
    (row,) = compare_files(*runs)
    assert row.equal is equal, row
