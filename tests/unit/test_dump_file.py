"""CANN's dump files: written as its message describes them, and read back."""

from __future__ import annotations

import os
import subprocess
import sys

# In a process of its own, with plain torch on the CPU. The expected bytes are put together by hand from dump_task.proto.
CHECKS = """
import struct, sys
from pathlib import Path
import torch
from torchport.legacy import dump_file, read_dump

folder = Path(sys.argv[1])
x, y = torch.tensor([[1.5, -2.0]]), torch.tensor([7], dtype=torch.int64)
dump_file.write(folder / "small", "add_0", 300, {"input": [x], "output": [y]})
output = bytes([8, 8, 16, 2, 26, 3, 10, 1, 1, 48, 8])  # DT_INT64, FORMAT_ND, shape [1], 8 bytes
taken = bytes([8, 1, 16, 2, 26, 4, 10, 2, 1, 2, 40, 8])  # DT_FLOAT, FORMAT_ND, shape [1, 2], 8 bytes
header = (
    bytes([10, 3]) + b"2.0" + bytes([16, 0xAC, 2])
    + bytes([26, len(output)]) + output + bytes([34, len(taken)]) + taken + bytes([50, 5]) + b"add_0"
)
expected = struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.5, -2.0) + struct.pack("<q", 7)
assert (folder / "small").read_bytes() == expected

tensors = [torch.arange(300).to(dtype).view(3, 100).t() for dtype in dump_file.TYPES]
tensors += [torch.tensor(2.5, dtype=torch.bfloat16), torch.empty(0, 4)]
dump_file.write(folder / "all", "everything", 1 << 50, {"input": tensors, "output": [x]})
back = read_dump(folder / "all")
assert len(back["input"]) == len(tensors) and torch.equal(back["output"][0], x)
for a, b in zip(tensors, back["input"]):
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert torch.equal(a.contiguous().view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))

# A field that is not known, and shapes whose numbers stand one by one, as other writers may have them.
odd = bytes([8, 7, 26, 4, 8, 2, 8, 1, 48, 8, 104, 1])
(folder / "odd").write_bytes(struct.pack("<Q", len(odd) + 2) + bytes([26, len(odd)]) + odd + struct.pack("<2i", 5, 6))
assert read_dump(folder / "odd")["output"][0].tolist() == [[5], [6]]

for damaged in (b"", expected[:5], expected[:20], expected[:-1], struct.pack("<Q", 2) + bytes([255, 255])):
    (folder / "damaged").write_bytes(damaged)
    try:
        read_dump(folder / "damaged")
    except ValueError as error:
        assert "damaged" in str(error)
    else:
        raise AssertionError(damaged)
"""


def test_files_are_what_cann_describes(tmp_path) -> None:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHECKS, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
