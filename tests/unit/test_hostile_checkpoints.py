"""Files that are made to harm who loads them: each gets a sentence, and executes, writes and takes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import mmap
import multiprocessing
import os
import pickle
import resource
import shlex
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from counting import work

from torchport.checkpoints import guarded, reading
from torchport.cli import main
from torchport.errors import TorchportError

MEMORY, SECONDS = 512 << 20, guarded.SECONDS
LINES = 20_000  # of Python to refuse a file: the largest here takes 2,400
LONG = "laughs_wide.pth"  # the only one that is given up for the time that it takes
MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is refused for what it is on a machine of any speed, but for the one that takes long."""
    if LONG not in request.node.name:
        monkeypatch.setattr(guarded, "SECONDS", 1000)
    monkeypatch.setattr(guarded, "WALL", 1000)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return pickle.dumps(value, 2)[2:-1]


def numbers(*values: int) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(shape: tuple[int, ...], stride: tuple[int, ...], count: int, offset: int = 0) -> bytes:
    """A tensor as torch writes it, in the storage "0"."""
    place = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(count) + b"tQ"
    rest = number(offset) + numbers(*shape) + numbers(*stride) + b"\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + rest + b"tR"


def weight(value: bytes) -> bytes:
    """The pickle of {"weight": value}."""
    return b"\x80\x02}" + text("weight") + value + b"s."


GOOD = weight(tensor((2, 2), (2, 1), 4))


def archive(path: Path, data: bytes = GOOD, *, storage: bytes = bytes(16), method: int = 0, **more: bytes) -> None:
    with zipfile.ZipFile(path, "w", method) as made:
        made.writestr("a/data.pkl", data)
        made.writestr("a/data/0", storage)
        made.writestr("a/version", b"3\n")
        for name, content in more.items():
            made.writestr(name.replace("__", "/"), content)


def bomb(command: str = "touch executed") -> bytes:
    return b"cposix\nsystem\n(" + text(command) + b"tR"


def safetensors(path: Path, header: object, data: bytes = b"", length: int | None = None) -> None:
    said = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(struct.pack("<Q", len(said) if length is None else length) + said + data)


def flipped(path: Path) -> None:
    """One bit of the weights."""
    archive(path, storage=b"weights of model")
    data = bytearray(path.read_bytes())
    data[data.index(b"weights of model")] ^= 4
    path.write_bytes(data)


def doubled_member(path: Path) -> None:
    archive(path)
    with zipfile.ZipFile(path, "a") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("a/data.pkl", weight(bomb()))


def index(path: Path, file: str) -> None:
    path.write_text(json.dumps({"weight_map": {"weight": file}}))


def holes(path: Path) -> None:
    """A tebibyte that takes a page of the disk."""
    safetensors(path, {"w": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}})
    os.truncate(path, (1 << 40) + path.stat().st_size)


def distributed(folder: Path, file: str) -> None:
    """A folder whose .metadata says that a block is elsewhere."""
    module = "torch.distributed.checkpoint.metadata"

    def made(name: str, state: bytes, place: str = module) -> bytes:
        return f"c{place}\n{name}\n".encode() + b")\x81" + state + b"b"

    def fields(**values: bytes) -> bytes:
        return b"}(" + b"".join(text(name) + value for name, value in values.items()) + b"u"

    chunk = made("ChunkStorageMetadata", fields(offsets=numbers(0), sizes=numbers(4)))
    said = made("TensorStorageMetadata", fields(size=numbers(4), chunks=b"](" + chunk + b"e"))
    key = made("MetadataIndex", fields(fqn=text("weight"), offset=numbers(0), index=number(0)))
    info = made("_StorageInfo", fields(relative_path=text(file), offset=number(0), length=number(9)))
    state = fields(state_dict_metadata=b"}" + text("weight") + said + b"s", storage_data=b"}" + key + info + b"s")
    folder.mkdir()
    (folder / ".metadata").write_bytes(b"\x80\x02" + made("Metadata", state) + b".")


def laughs() -> bytes:
    """Lists of lists, each of which is twice the one before: 2^60 numbers in 200 bytes."""
    made = b"\x80\x02](K\x01K\x02eq\x00"
    for _ in range(60):
        made += b"](h\x00h\x00eq\x00"
    return made + b"."


def old(path: Path, data: bytes = GOOD, count: int = 4, keys: tuple[str, ...] = ("0",)) -> None:
    path.write_bytes(
        MAGIC + pickle.dumps(1001, 2) + pickle.dumps({}, 2) + data + pickle.dumps(keys, 2) + struct.pack("<q", count)
    )


HUGE = 1 << 44
# The name of each sample, what writes it, and a part of what is said.
SAMPLES: dict[str, tuple[Callable[[Path], object], str]] = {
    "bomb.pth": (lambda path: archive(path, weight(bomb())), "posix.system"),
    "bomb_popped.pth": (lambda path: archive(path, b"\x80\x02" + bomb() + b"0" + GOOD[2:]), "posix.system"),
    "bomb_beside.pth": (lambda path: archive(path, GOOD[:-1] + text("x") + bomb() + b"s."), "posix.system"),
    "bomb_eval.pth": (
        lambda path: archive(path, weight(b"cbuiltins\neval\n(" + text("open('executed', 'w')") + b"tR")),
        "builtins.eval",
    ),
    "bomb_old.pth": (lambda path: old(path, weight(bomb()), keys=()), "posix.system"),
    "bomb_plain.pkl": (lambda path: path.write_bytes(weight(bomb())), "posix.system"),
    "bomb_dotted.pth": (
        lambda path: archive(path, b"\x80\x04" + text("torch.serialization") + text("os.system") + b"\x93" + b"."),
        "os.system",
    ),
    "bomb_object.pth": (
        lambda path: archive(path, b"\x80\x02csubprocess\nPopen\n)\x81}" + text("a") + number(1) + b"sb."),
        "subprocess.Popen",
    ),
    "module.pth": (lambda path: archive(path, b"\x80\x02cmodels\nNet\n)\x81}b."), "pickled object of the class"),
    "slip.pth": (lambda path: archive(path, **{"..__..__executed": b"x", "__tmp__executed": b"x"}), ""),
    "two_pickles.pth": (doubled_member, "two members"),
    "deflated.pth": (lambda path: archive(path, storage=bytes(1 << 24), method=8), "compressed"),
    "deflated_pickle.pth": (
        lambda path: archive(path, b"\x80\x02" + b"N0" * (1 << 22) + GOOD[2:], method=8),
        "compressed",
    ),
    "laughs.pth": (lambda path: archive(path, laughs()), "nested too deeply"),
    "laughs_wide.pth": (
        lambda path: archive(
            path, b"\x80\x02](K\x01e" + b"q\x00](" + b"h\x00" * 2000 + b"e" + b"q\x00](" + b"h\x00" * 2000 + b"e."
        ),
        "more than",
    ),
    "memo.pth": (lambda path: archive(path, b"\x80\x02Nr\xff\xff\xff\xff" + GOOD[2:]), "memory"),
    "long_string.pth": (lambda path: archive(path, b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x."), ""),
    "huge_shape.pth": (lambda path: archive(path, weight(tensor((HUGE,), (0,), 4))), "claims"),
    "huge_reach.pth": (lambda path: archive(path, weight(tensor((4,), (HUGE,), 4))), "reaches beyond"),
    "before_storage.pth": (lambda path: archive(path, weight(tensor((4,), (1,), 4, -8))), "negative"),
    "sparse.pth": (
        lambda path: archive(path, weight(b"ctorch._utils\n_rebuild_sparse_tensor\n(" + numbers(HUGE, HUGE) + b"tR")),
        "_rebuild_sparse_tensor",
    ),
    "cut.pth": (lambda path: (archive(path), path.write_bytes(path.read_bytes()[:-40])), "damaged"),
    "cut_old.pth": (lambda path: old(path, count=1 << 40), "ends inside a tensor"),
    "flipped.pth": (flipped, "checksum"),
    "script.pt": (lambda path: archive(path, a__constants=b"", **{"a__constants.pkl": b"\x80\x02)."}), "TorchScript"),
    "huge_header.safetensors": (lambda path: safetensors(path, {}, length=1 << 62), "header"),
    "outside.safetensors": (
        lambda path: safetensors(path, {"w": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}}, bytes(16)),
        "outside the file",
    ),
    "huge_shape.safetensors": (
        lambda path: safetensors(path, {"w": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 16]}}, bytes(16)),
        "reaches beyond",
    ),
    "holes.safetensors": (holes, "the rest are holes"),
    "deep.safetensors": (lambda path: safetensors(path, b'{"a":' + b"[" * (1 << 20)), "damaged"),
    "shards.index.json": (lambda path: index(path, "../secret.safetensors"), "outside its folder"),
    "shards_absolute.index.json": (lambda path: index(path, "/etc/passwd"), "outside its folder"),
    "elsewhere": (lambda path: distributed(path, "../../etc/passwd"), "outside the folder"),
    "model.om": (lambda path: path.write_bytes(b"IMOD" + bytes(252)), "runs on hardware alone"),
    "text.pth": (lambda path: path.write_bytes(b"<html>404</html>"), "neither a checkpoint"),
}


@dataclasses.dataclass
class Stripped:
    """The answer of `torchport checkpoint strip` to a file, the work of its own process, and its memory and its child's."""

    code: int
    out: str
    error: str
    lines: int  # of Python
    child: int  # bytes, at most
    growth: int  # bytes that the process itself has grown by


def stripped(name: str) -> Stripped:
    """Run in a fork: what a process has had of memory, and its children, is never forgotten."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    codes: list[int] = []

    def strip(given: str) -> None:
        codes.append(main(["checkpoint", "strip", given, "-o", "out.safetensors"]))

    for _ in range(2):  # imports, and then the work of the command line itself
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            usual = work(lambda: strip("no such file"))
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
        done = work(lambda: strip(name))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Stripped(
        codes[-1],
        out.getvalue(),
        error.getvalue(),
        done.lines - usual.lines,
        resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10,
        (grown - own) << 10,
    )


def read_lines(path: Path) -> int:
    """The work of what the child does, run in a fork that may grow by the child's limit of memory."""
    # The fork begins with what this process has. If that is over the limit already, not even its stack can grow.
    had = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (had + MEMORY, had + MEMORY))

    def read() -> None:
        with contextlib.suppress(Exception):  # `test_hostile_file_is_refused` looks at what is said
            reading.parse_checkpoint(path)

    return work(read).lines


def in_a_fork(function: Callable[[Any], Any], given: object) -> Any:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as fork:
        return fork.submit(function, given).result()


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != LONG and not name.endswith(".index.json")])
def test_a_hostile_file_is_little_work(name: str, tmp_path: Path) -> None:
    SAMPLES[name][0](tmp_path / name)
    assert in_a_fork(read_lines, tmp_path / name) < LINES


def test_the_work_can_be_counted_in_a_large_process(tmp_path: Path) -> None:
    """A worker of pytest that has imported torch is larger than the limit of a reader."""
    SAMPLES["deep.safetensors"][0](tmp_path / "deep.safetensors")
    with mmap.mmap(-1, 4 * MEMORY, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        assert in_a_fork(read_lines, tmp_path / "deep.safetensors") < LINES


def test_a_reader_has_less_than_2_seconds_of_processor_time() -> None:
    assert SECONDS < 2


def test_a_file_that_takes_long_is_given_up(tmp_path: Path, monkeypatch) -> None:
    """Here in a hundredth of what it takes."""
    monkeypatch.setattr(guarded, "SECONDS", 0.05)
    SAMPLES[LONG][0](tmp_path / LONG)
    with pytest.raises(TorchportError, match=r"it takes more than 0\.05 s of processor time"):
        guarded.read_in_subprocess(tmp_path / LONG)


@pytest.mark.parametrize("name", SAMPLES)
def test_hostile_file_is_refused(name: str, tmp_path: Path, monkeypatch) -> None:
    make, said = SAMPLES[name]
    folder = tmp_path / "given"
    folder.mkdir()
    make(folder / name)
    monkeypatch.chdir(folder)
    before = sorted(tmp_path.rglob("*"))
    found = in_a_fork(stripped, name)
    assert found.lines < LINES and found.child < MEMORY and found.growth < 64 << 20
    if name == "slip.pth":  # nothing is unpacked, so the other names do not matter
        assert found.code == 0 and sorted(tmp_path.rglob("*")) == sorted([*before, folder / "out.safetensors"])
        return
    assert (found.code, found.out) == (2, ""), found.error
    assert said in found.error and name.split(".")[0] in found.error and "Traceback" not in found.error
    assert len(found.error) < 1500
    assert sorted(tmp_path.rglob("*")) == before


def test_the_samples_would_harm(tmp_path: Path) -> None:
    """The control: what executes these pickles runs what they name."""
    program = "import pickle, zipfile; pickle.loads(zipfile.ZipFile('bomb.pth').read('a/data.pkl'))"
    archive(tmp_path / "bomb.pth", weight(bomb()))
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert (tmp_path / "executed").exists()


def test_a_good_file_passes(tmp_path: Path) -> None:
    """The control of the other side: the smallest archive is read, and each cut of it is refused or read as it is."""
    archive(tmp_path / "good.pth")
    stored = guarded.read_in_subprocess(tmp_path / "good.pth").parts[""]["weight"]
    assert (stored.dtype, stored.shape) == ("float32", (2, 2))
    data = (tmp_path / "good.pth").read_bytes()
    for length in range(0, len(data), len(data) // 7):
        (tmp_path / "cut.pth").write_bytes(data[:length])
        with pytest.raises(TorchportError) as refused:
            guarded.read_in_subprocess(tmp_path / "cut.pth")
        assert refused.value.exit_code == 2


def test_command_that_converts_a_pickled_module_is_whole(tmp_path: Path, monkeypatch, capsys) -> None:
    archive(tmp_path / "my model.pth", b"\x80\x02}" + text("model") + b"cmodels\nNet\n)\x81}bs.")
    monkeypatch.chdir(tmp_path)
    assert main(["checkpoint", "strip", "my model.pth", "-o", "out.safetensors"]) == 2
    said = capsys.readouterr().err
    assert "models.Net" in said
    (program,) = shlex.split(said.partition("python -c ")[2])
    assert program == (
        'import torch; torch.save(torch.load("my model.pth", map_location="cpu", weights_only=False)'
        '["model"].state_dict(), "my model.state_dict.pth")'
    )
