"""CANN's dump files: read as their message describes them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# In a process of its own, with plain torch on the CPU. The bytes are put together by hand from dump_task.proto.
CHECKS = """
import random, struct, sys
from pathlib import Path
import torch
from torchport.legacy import read_dump

folder = Path(sys.argv[1])
output = bytes([8, 8, 16, 2, 26, 3, 10, 1, 1, 48, 8])  # DT_INT64, FORMAT_ND, shape [1], 8 bytes
taken = bytes([8, 1, 16, 2, 26, 4, 10, 2, 1, 2, 40, 8])  # DT_FLOAT, FORMAT_ND, shape [1, 2], 8 bytes
header = (
    bytes([10, 3]) + b"2.0" + bytes([16, 0xAC, 2])
    + bytes([26, len(output)]) + output + bytes([34, len(taken)]) + taken + bytes([50, 5]) + b"add_0"
)
whole = struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.5, -2.0) + struct.pack("<q", 7)
(folder / "small").write_bytes(whole)
small = read_dump(folder / "small")
assert small["input"][0].dtype == torch.float32 and small["input"][0].tolist() == [[1.5, -2.0]]
assert small["output"][0].dtype == torch.int64 and small["output"][0].tolist() == [7]

# A field that is not known, and shapes whose numbers stand one by one, as other writers may have them.
odd = bytes([8, 7, 26, 4, 8, 2, 8, 1, 48, 8, 104, 1])
(folder / "odd").write_bytes(struct.pack("<Q", len(odd) + 2) + bytes([26, len(odd)]) + odd + struct.pack("<2i", 5, 6))
assert read_dump(folder / "odd")["output"][0].tolist() == [[5], [6]]

# Fields of another kind, a number without an end, a field that ends behind the message, sizes that do not fit.
def dump(header, data=b""):
    return struct.pack("<Q", len(header)) + header + data

kinds = [bytes([24, 1]), bytes([26, 2, 26, 1]), bytes([26, 4, 8, 7, 24, 1]), bytes([26, 5, 8, 7, 50, 1, 8])]
sizes = [bytes([26, 8, 8, 7, 26, 2, 8, size, 48, 8]) for size in (0, 1, 3)]
wide = [128, 128, 128, 128, 8]  # 2**31
large = [
    bytes([26, len(shape) + 6, 8, 7, 26, len(shape) + 2, 10, len(shape), *shape])
    for shape in ([0, *[255] * 9, 1], [*wide * 5, 0])
]
empty = bytes([26, 6, 8, 7, 26, 2, 8, 0])
for header in (*kinds, bytes([255] * 4000), bytes([26, 9, 8, 7]), *sizes, *large):
    (folder / "damaged").write_bytes(dump(header, bytes(8)))
    try:
        raise AssertionError((header, read_dump(folder / "damaged")))
    except ValueError as error:
        assert "damaged" in str(error)
(folder / "empty").write_bytes(dump(empty))
assert read_dump(folder / "empty")["output"][0].shape == (0,)

# Whatever the bytes are: tensors, or a ValueError that names the file.
random.seed(1)
ends = {"read": 0, "refused": 0}
for _ in range(3000):
    mutant = bytearray(whole)
    for _ in range(random.randint(1, 3)):
        mutant[random.randrange(len(mutant))] = random.randrange(256)
    del mutant[random.choice([len(mutant), random.randrange(len(mutant))]) :]
    (folder / "damaged").write_bytes(mutant)
    try:
        assert set(read_dump(folder / "damaged")) == {"input", "output"}
        ends["read"] += 1
    except ValueError as error:
        assert "damaged" in str(error)
        ends["refused"] += 1
assert min(ends.values()) > 300, ends

for damaged in (b"", whole[:5], whole[:20], whole[:-1], struct.pack("<Q", 2) + bytes([255, 255])):
    (folder / "damaged").write_bytes(damaged)
    try:
        read_dump(folder / "damaged")
    except ValueError as error:
        assert "damaged" in str(error)
    else:
        raise AssertionError(damaged)
"""


@pytest.mark.processes
def test_files_are_read_as_cann_describes_them(tmp_path) -> None:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHECKS, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
