"""Files of operators: what is written is read again, and what is damaged or hostile gives a sentence."""

from __future__ import annotations

import errno
import os
import random

import h5py
import numpy
import pytest

from torchport.errors import TorchportError
from torchport.findings import Result
from torchport.record import hdf5, recording
from torchport.record.operators import layout, measure
from torchport.record.operators.checksum import compute_checksum
from torchport.record.operators.reading import Operators, Step
from torchport.record.operators.tables import Row, Tables
from torchport.record.operators.writing import Writer


class Given:
    """A source of steps that are known beforehand."""

    def __init__(self) -> None:
        self.items: list = []

    def take_item(self):
        return self.items.pop(0) if self.items else None


def tables(source: Given) -> Tables:
    """One step: an addition of two tensors of which one is transposed, and a call with an undefined input."""
    made = Tables(lambda block: source.items.append(("block", block)))
    left = numpy.arange(6, dtype=numpy.float32)
    lines = {"dtype": "float32", "device": "cpu", "elements": 6}
    a = made.add_tensor(Row([2, 3, 3, 1], storage=1, name="weight", **lines), measured(left), left.view("u1"))
    b = made.add_tensor(Row([2, 3, 1, 2], storage=2, **lines), measured(left), left.view("u1"), row_major=False)
    half = numpy.array([0x3F80, 0x7FC0], numpy.uint16)
    of_half = measure.of_bytes("bfloat16", half.view("u1"), 1)
    c = made.add_tensor(Row([2, 1], "bfloat16", "npu:0", storage=3, elements=2), of_half, half.view("u1"))
    made.add_call(
        "aten::add",
        "Tensor",
        0,
        [a, b],
        [a],
        arguments='[{"t":0},{"t":1},1]',
        results='[{"t":0}]',
        module="layer.0",
        source="train.py:3",
        sequence=7,
    )
    made.add_call("aten::layer_norm", "", 1, [c, -1], [], arguments='[{"t":0},{"t":1}]')
    return made


def measured(values):
    return measure.of_bytes("float32", values.view("u1"), 1)


def _given(source, made):
    """The tables of `made()`, whose blocks the source gives as well."""
    other, one = made()
    finished = one.finish_tables()
    source.items += other.items
    return finished


def write(folder, steps=1, made=None):
    """A recording with that many equal steps; `made()` gives a source and the tables of one."""
    Result(recording.COMMAND, data={"recording": recording.VERSION}).write(folder / recording.HEAD)
    journal = recording.Journal(folder)
    journal.write_event("process", pid=1, name="MainProcess", rank=0, world=1)
    source = Given()
    for number in range(steps):
        finished = tables(source).finish_tables() if made is None else _given(source, made)
        source.items.append(("step", (f"{number:06d}", finished)))
    written = []
    writer = Writer(
        source,
        folder / "operators",
        "process-1.h5",
        lambda: folder / "operators/rank0",
        lambda: {"level": "tensor"},
        lambda *step: written.append(step),
    )
    writer.join()
    assert writer.failure == ""
    for name, path, finished, size in written:
        journal.write_event(
            "operators",
            step=int(name),
            file=str(path.relative_to(folder)),
            bytes=size,
            lost=finished.lost,
            calls=len(finished.arrays["calls"]),
        )
    return folder


def test_what_was_written_is_read(tmp_path):
    process = Operators.read(write(tmp_path, 2)).rank(0)
    assert (process.steps, process.missing, process.cut) == ([0, 1], (), ())
    with process.step(1) as step:
        add, norm = step.calls()
        assert (add.name, add.overload, add.phase, add.module) == ("aten::add", "Tensor", "forward", "layer.0")
        assert (add.arguments, add.sequence, add.source) == ([{"t": 0}, {"t": 1}, 1], 7, "train.py:3")
        a, b = add.inputs
        assert (a.shape, a.stride, a.name, a.dtype) == ((2, 3), (3, 1), "weight", "float32")
        assert (a.values() == [[0, 1, 2], [3, 4, 5]]).all()
        assert (b.values() == [[0, 2, 4], [1, 3, 5]]).all()  # as its strides say
        assert a.content == b.content, "the same bytes are kept once"
        assert (a.statistics.minimum, a.statistics.maximum, a.statistics.zeros) == (0, 5, 1)
        half, none = norm.inputs
        assert none is None
        assert norm.phase == "backward"
        assert half.statistics.nans == 1
        assert half.values()[0] == 1
        assert list(half.bits()) == [0x3F80, 0x7FC0]


def test_a_step_without_calls(tmp_path):
    source, written = Given(), []
    source.items += [("block", numpy.ones(9, numpy.uint8)), ("drop", None)]
    source.items.append(("step", ("000000", Tables(None).finish_tables())))
    Writer(source, tmp_path, "a.h5", lambda: tmp_path / "x", dict, lambda *step: written.append(step)).join()
    with Step(written[0][1]) as step:
        assert list(step.calls()) == []
    with h5py.File(written[0][1]) as file:
        assert "bytes_0" not in file, "the block of a step that was dropped"


def test_a_step_that_is_not_there(tmp_path):
    process = Operators.read(write(tmp_path)).rank(0)
    with pytest.raises(TorchportError, match="step 5 was not recorded; there are 0 to 0"):
        process.step(5)
    with pytest.raises(TorchportError, match="no operators of rank 3"):
        Operators.read(tmp_path).rank(3)
    (tmp_path / "operators/rank0/000000.h5").unlink()
    assert Operators.read(tmp_path).rank(0).missing == (tmp_path / "operators/rank0/000000.h5",)


def file_of(folder):
    return write(folder) / "operators/rank0/000000.h5"


def read_all(path):
    with Step(path) as step:
        for call in step.calls():
            for tensor in (*call.inputs, *call.outputs):
                if tensor is not None:
                    tensor.values()


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_truncated(tmp_path, share):
    path = file_of(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(TorchportError, match=r"000000\.h5: "):
        read_all(path)


def test_flipped_bits_change_nothing_or_are_said(tmp_path):
    """Whatever bit of the file: what is read is what was written, or a sentence."""
    path = file_of(tmp_path)
    data = path.read_bytes()
    draw = random.Random(0)
    said = 0
    for _ in range(150):
        place = draw.randrange(len(data) * 8)
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            with Step(path) as step:
                first = step.call(0)
                assert (first.inputs[1].values() == [[0, 2, 4], [1, 3, 5]]).all()
                assert first.inputs[0].statistics.maximum == 5
        except TorchportError as error:
            said += str(path) in str(error)
    assert said > 20


def change(path, name, make):
    with h5py.File(path, "a") as file:
        if name in file:
            del file[name]
        make(file, name)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda file, name: file.__setitem__(name, h5py.ExternalLink("/etc/passwd", "/x")), "a link to another place"),
        (lambda file, name: file.__setitem__(name, h5py.SoftLink("/tensors")), "a link to another place"),
        (lambda file, name: file.create_group(name), "no dataset"),
        (lambda file, name: file.create_dataset(name, (10,), "i4", compression="gzip"), "needs filter"),
        (lambda file, name: file.create_dataset(name, (1 << 40,), layout.CALL, chunks=(1,)), "says that it has"),
        (lambda file, name: file.create_dataset(name, (4,), "i4", external=[("/etc/passwd", 0, 16)]), "another file"),
        (lambda file, name: file.create_dataset(name, data=["a"], dtype=h5py.string_dtype()), "says that it has"),
        (lambda file, name: file.create_dataset(name, data=numpy.zeros(3, "i4")), "no table of the layout"),
        (lambda file, name: file.create_dataset(name, data=numpy.zeros(2, layout.CALL)), "CRC-32 differs"),
        (lambda file, name: None, "there is no `calls`"),
    ],
)
def test_hostile(tmp_path, make, sentence):
    path = file_of(tmp_path)
    read_all(path)
    change(path, "calls", make)
    with pytest.raises(TorchportError, match=sentence):
        read_all(path)


def test_another_layout(tmp_path):
    path = file_of(tmp_path)
    change(path, "about", lambda file, name: file.create_dataset(name, data=numpy.bytes_(b'{"layout": 9}')))
    with pytest.raises(TorchportError, match=f"layout 9, where this torchport reads {layout.LAYOUT}"):
        read_all(path)


def test_a_journal_that_leads_elsewhere(tmp_path):
    write(tmp_path)
    recording.Journal(tmp_path).write_event("operators", step=1, file="../../etc/passwd", calls=1, bytes=1, lost=0)
    with pytest.raises(TorchportError, match=r"names '../../etc/passwd'"):
        Operators.read(tmp_path)


@pytest.mark.parametrize("most", [1, 14_000])
def test_max_bytes(tmp_path, most):
    source, written = Given(), []
    for number in range(3):
        finished = tables(source).finish_tables()
        source.items.append(("step", (f"{number:06d}", finished)))
    place = tmp_path / "rank0"
    writer = Writer(source, tmp_path, "a.h5", lambda: place, dict, lambda *step: written.append(step), max_bytes=most)
    writer.join()
    assert "has reached --max-bytes" in writer.failure
    assert not writer.full
    assert sum(step[3] for step in written) <= most
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [step[1].name for step in written]


def test_checksums_know_places_and_lengths():
    values = numpy.random.default_rng(0).standard_normal(1000).astype(numpy.float32)
    swapped = values.copy()
    swapped[[3, 700]] = swapped[[700, 3]]
    all_of_them = [values, -values, values[::-1].copy(), swapped, values[:-1], numpy.append(values, 0).astype("f4")]
    assert len({compute_checksum(one) for one in all_of_them}) == len(all_of_them)
    zeros = {compute_checksum(numpy.zeros(size, numpy.uint8)) for size in range(200)}
    assert len(zeros) == 200


def at_a_page(size):
    """Bytes that begin at a page, as those of the library do."""
    room = numpy.random.default_rng(size).integers(0, 256, size + hdf5.PAGE, numpy.uint8)
    return room[-room.ctypes.data % hdf5.PAGE :][:size]


@pytest.mark.parametrize("disk", ["direct", "refuses", "slow"])
def test_blocks_past_the_cache(tmp_path, monkeypatch, disk):
    """What is written is the same, however it was; sizes are whole pages, and not."""
    real, asked, direct = os.open, [], []
    real_write = os.pwrite

    def opened(path, flags, *more):
        if flags & os.O_DIRECT:
            asked.append(path)
            if disk == "refuses":
                raise OSError(errno.EINVAL, "Invalid argument")
            flags &= ~os.O_DIRECT  # not every file system of a test has it
        return real(path, flags, *more)

    def write(descriptor, data, place):
        assert place % hdf5.PAGE == 0 and len(data) % hdf5.PAGE == 0
        direct.append(len(data))
        return real_write(descriptor, data, place)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(hdf5, "SLOW", 0.0 if disk == "slow" else 9.0)
    blocks = [at_a_page(size) for size in (1 << 20, (1 << 18) + 5, 100, 3 * hdf5.PAGE)]
    blocks.append(at_a_page(1 << 17)[1:])  # begins anywhere
    file = hdf5.Hdf5File(tmp_path / "a.h5")
    for number, data in enumerate(blocks):
        file.write_block(f"bytes_{number}", data)
    file.finish()
    with h5py.File(tmp_path / "a.h5") as found:
        for number, data in enumerate(blocks):
            assert numpy.array_equal(found[f"bytes_{number}"][()], data)
    whole = {"direct": [1 << 20, 1 << 18], "refuses": [], "slow": [1 << 20]}[disk]
    assert direct[: len(whole) or None] == whole
    assert len(asked) == 1
    assert sorted(os.listdir(tmp_path)) == ["a.h5"]
