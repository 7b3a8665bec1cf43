"""Recordings that are damaged, or made to harm, given to the command: exit code 2, a sentence with the file and the
place, little memory and time, and nothing of them executed."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import h5py
import numpy
import pytest
from test_operator_files import change, write

from torchport.record import recording

FILE = "operators/rank0/000000.h5"
MOST = 1 << 30


def command(*words: object) -> tuple[int, str, str]:
    """Exit code, output and error of `torchport record`; asserts what memory it took, its children's too.
    Time that grows without a bound is ended by `checking.SECONDS`, and by pytest's `timeout` where that is not asked."""
    ended, most = measured("-m", "torchport", "record", *map(str, words))
    assert most < MOST
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout, ended.stderr


# A process has the memory of whoever started it in its count: who starts it here is small.
LAUNCH = """
import resource, subprocess, sys
status = subprocess.run([sys.executable, *sys.argv[2:]]).returncode
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""


def measured(*words: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """A run of Python, and the most memory in bytes of one of its processes."""
    with tempfile.NamedTemporaryFile("r") as file:
        launch = [sys.executable, "-S", "-c", LAUNCH, file.name, *words]
        ended = subprocess.run(launch, capture_output=True, text=True, check=False)
        return ended, int(file.read()) * 1024


def resealed(path: Path, **tables) -> None:
    """Put other tables into the file, with sums that fit: whoever means harm can do so too."""
    with h5py.File(path, "a") as file:
        about = json.loads(file["about"][()])
        for name, data in tables.items():
            del file[name]
            data = numpy.bytes_(data) if isinstance(data, bytes) else data
            file.create_dataset(name, data=data)
            about["crc32"][name] = zlib.crc32(data.tobytes())
        del file["about"]
        file.create_dataset("about", data=numpy.bytes_(json.dumps(about).encode()))


def table(path: Path, name: str):
    with h5py.File(path) as file:
        return file[name][()]


def truncated(folder, path):
    path.write_bytes(path.read_bytes()[:-300])


def flipped(folder, path):
    data = path.read_bytes()
    place = data.index(b"aten::add")
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def of_another_version(folder, path):
    head = folder / recording.HEAD
    value = json.loads(head.read_text())
    value["data"]["recording"] = 9
    head.write_text(json.dumps(value))


def of_another_layout(folder, path):
    change(path, "about", lambda file, name: file.create_dataset(name, data=numpy.bytes_(b'{"layout": 9}')))


def huge_count(folder, path):
    change(path, "links", lambda file, name: file.create_dataset(name, (1 << 45,), "i4", chunks=(1,)))


def external_link(folder, path):
    change(path, "calls", lambda file, name: file.__setitem__(name, h5py.ExternalLink("/etc/passwd", "/x")))


def external_data(folder, path):
    make = {"shape": (16,), "dtype": "u1", "external": [("/etc/passwd", 0, 16)]}
    change(path, "bytes_0", lambda file, name: file.create_dataset(name, **make))


def unknown_filter(folder, path):
    def make(file, name):
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((8,))
        properties.set_filter(32_999, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((8,))
        h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_I32LE, space, properties)

    change(path, "links", make)


def pickled(folder, path):
    """Pickles wherever one could be expected; each would leave a file."""
    bomb = pickle.dumps(Bomb(str(folder / "executed")))
    change(path, "about", lambda file, name: file.create_dataset(name, data=numpy.void(bomb)))
    with h5py.File(path, "a") as file:
        file.attrs["TITLE"] = numpy.void(bomb)
    for name in ("weights/rank0/module-0.pt", "batches/rank0/0-0.pt"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(bomb)


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def many_lines(folder, path):
    resealed(path, strings=b"\n" * (200 << 20))


def shared_links(folder, path):
    calls = numpy.repeat(table(path, "calls"), 2000)
    calls["inputs"], calls["input_count"] = 0, 2000
    resealed(path, calls=calls, links=numpy.zeros(2000, "<i4"))


def long_arguments(folder, path):
    calls = numpy.repeat(table(path, "calls"), 2000)
    calls["input_count"] = calls["output_count"] = 0
    line = b"[" + b"0," * 400_000 + b"0]"
    calls["arguments"] = calls["operator"].max() + 1
    calls["results"] = -1
    resealed(path, calls=calls, strings=b"aten::add\n" * int(calls["arguments"][0]) + line)


DAMAGES = {
    truncated: "no whole HDF5 file",
    flipped: "`strings` is not what was written",
    of_another_version: "is not a recording of version",
    of_another_layout: "layout 9, where this torchport reads",
    huge_count: "`links` says that it has (35184372088832,)",
    external_link: "`calls` is a link to another place",
    external_data: "`bytes_0` lies in another file",
    unknown_filter: "`links` needs filter 32999",
    pickled: "`about` is no text",
    many_lines: "it takes more than",
    shared_links: "calls have 8002000 tensors in 2000 `links`",
    long_arguments: "characters of arguments",
}
QUICK = (truncated, unknown_filter)


@pytest.mark.parametrize(
    "damage", [pytest.param(one, marks=() if one in QUICK else pytest.mark.recorded) for one in DAMAGES]
)
def test_what_is_damaged_is_said(tmp_path, damage):
    (tmp_path / "rec").mkdir()
    folder = write(tmp_path / "rec")
    damage(folder, folder / FILE)
    place = recording.HEAD if damage is of_another_version else FILE
    words = [("show",)] if damage in QUICK else [("show",), ("show", "--step", 0), ("text", "--step", 0)]
    for one in [*words, ("extract", "--step", 0, "--op", "add", "-o", tmp_path / "case")]:
        status, out, error = command(one[0], folder, *one[1:])
        assert status == 2, (one, out, error)
        said = out + error
        assert DAMAGES[damage] in said and place in said, said
    assert not (tmp_path / "case").exists() and not (folder / "executed").exists()


def test_what_is_whole_is_read(tmp_path):
    """The control: the same recording, and the same harm meant by one that is whole."""
    (tmp_path / "rec").mkdir()
    folder = write(tmp_path / "rec")
    resealed(folder / FILE, links=table(folder / FILE, "links"))
    status, out, _ = command("show", folder)
    assert status == 0 and "steps 0: 2 calls" in out and "damaged" not in out
    status, _, error = command("extract", folder, "--step", 0, "--op", "add", "-o", tmp_path / "case")
    assert status == 0, error
    assert numpy.load(tmp_path / "case/input1.npy").tolist() == [[0, 2, 4], [1, 3, 5]]
    pickle.loads(pickle.dumps(Bomb(str(folder / "executed"))))  # it would have been seen
    assert (folder / "executed").exists()


@pytest.mark.recorded
def test_contents_that_nobody_wrote(tmp_path):
    """Sizes that a file has by holes alone, and elements that one byte stands for."""
    (tmp_path / "rec").mkdir()
    folder = write(tmp_path / "rec")
    path = folder / FILE
    dims, contents = table(path, "dims"), table(path, "contents")
    dims[:4] = 2 << 40, 3, 0, 1
    resealed(path, dims=dims)
    words = ("extract", folder, "--step", 0, "--op", "add", "-o", tmp_path / "case")
    status, _, error = command(*words)
    assert (status, "input0 of aten::add has 26,388,279,066,624 bytes" in error) == (2, True), error
    with h5py.File(path, "a") as file:
        del file["bytes_0"]
        made = file.create_dataset("bytes_0", (4 << 40,), "u1")
        made[-1] = 1
    contents["size"][0] = 4 << 40
    dims[:4] = 2, 3, 3, 1
    resealed(path, dims=dims, contents=contents)
    status, _, error = command(*words)
    assert (status, "content 0 says that it has 4,398,046,511,104 bytes" in error) == (2, True), error
    assert list((tmp_path / "case").iterdir()) == []


def test_the_limits_see_what_they_forbid():
    """The control of `command`: memory of a child's child counts."""
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(200 << 20)'])"
    assert 200 << 20 < measured("-c", program)[1] < 250 << 20
    assert measured("-c", "pass")[1] < 50 << 20
