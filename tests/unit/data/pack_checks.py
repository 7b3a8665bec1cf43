"""Batches of one run taken by another, on torch alone: run by test_record_command.py."""

import sys
from pathlib import Path

import torch

from torchport.patches import Patches
from torchport.record import pack, reference
from torchport.record.pack import Keep, Take
from torchport.record.readings import Readings
from torchport.record.sites import Sites
from torchport.record.uploads import Uploads

folder = Path(sys.argv[1])
reference.apply_reference_patches(torch)
before = torch.Tensor.to, torch.Tensor.cuda
notes: list[str] = []
events: list[dict] = []


def uploads(tensors, device="cuda"):
    """What the script would have: each tensor, moved on one line."""
    return [tensor.to(device) for tensor in tensors]


def watched(part):
    patches = Patches()
    events.clear()
    readings = Readings(torch)
    site = Sites([str(Path(__file__).parent)]).find_user_line
    Uploads(torch, lambda kind, **fields: events.append(fields), readings, site, part).install(patches)
    patches.on_undo(readings.flush)
    return patches


def key():
    return "rank0"


theirs = [torch.rand(3, 2) for _ in range(4)]
keep = Keep(torch, folder, key, notes.append)
patches = watched(keep)
uploads(theirs, "cuda:0")
theirs[0].cuda()
made = torch.tensor([1.0, 2.0], device="cuda")
as_made = torch.as_tensor(theirs[1], device="cuda")
torch.zeros(3, 2).copy_(theirs[2])
# None of these is a batch.
torch.nn.BatchNorm1d(3).to("cuda")
torch.nn.Parameter(torch.zeros(2)).to("cuda")
torch.zeros(2, requires_grad=True).to("cuda")
torch.zeros(2).to(torch.float64), torch.zeros(2).to(dtype=torch.float64), torch.tensor([1.0])
torch.vmap(lambda one: one.to("cuda"))(torch.zeros(2, 2))
patches.undo()
first = [event["checksum"] for event in events][:4]
assert len(set(first)) == 4
assert (torch.Tensor.to, torch.Tensor.cuda) == before
assert len(list(folder.rglob("*.pt"))) == 8, sorted(folder.rglob("*"))
assert not list(folder.rglob("*.unfinished")) and notes == []

take = Take(torch, folder, key, notes.append)
patches = watched(take)
mine = [torch.zeros(3, 2) for _ in range(4)]
got = uploads(mine, torch.device("cuda"))
assert all(torch.equal(one, other) for one, other in zip(got, theirs, strict=True))
assert all(not one.any() for one in mine)  # the script's own are left alone
assert not uploads([torch.zeros(3, 2)])[0].any()  # a fifth one was never there
assert notes == []
patches.undo()
assert [event["checksum"] for event in events][:4] == first  # of what is sent, not of what the script had

# Another shape or dtype is not replaced, and that is said once.
take = Take(torch, folder, key, notes.append)
patches = watched(take)
others = [torch.zeros(2, 2), torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, 2), torch.zeros(3, 2)]
got = uploads(others)
assert not got[0].any() and not got[1].any() and torch.equal(got[2], theirs[2])
assert len(notes) == 1 and "(2, 2) torch.float32, that of the reference of (3, 2)" in notes[0], notes
patches.undo()

# A file that is damaged is said, and the run goes on with its own numbers.
notes.clear()
for path in folder.rglob("*-0.pt"):
    path.write_bytes(path.read_bytes()[:100])
patches = watched(Take(torch, folder, key, notes.append))
assert not uploads([torch.zeros(3, 2)])[0].any()
assert "is damaged" in notes[0]
patches.undo()

# No more than so many bytes, and none after so many steps.
notes.clear()
pack.MOST_BYTES = 100
small = folder / "small"
patches = watched(Keep(torch, small, key, notes.append))
uploads([torch.zeros(10), torch.zeros(10), torch.zeros(10), torch.zeros(1)])
patches.undo()
assert len(list(small.rglob("*.pt"))) == 2 and len(notes) == 1
pack.MOST_BYTES = 1 << 30
late = Keep(torch, folder / "late", key, notes.append)
patches = watched(late)
for _ in range(pack.STEPS + 5):
    uploads([torch.zeros(1)])
    late.step_done()
patches.undo()
assert len(list((folder / "late").rglob("*.pt"))) == pack.STEPS
print("done")
