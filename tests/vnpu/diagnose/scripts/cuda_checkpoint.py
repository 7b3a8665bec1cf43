# cause: checkpoint.weights-only
# run: --as-is SCRIPT
import io

import torch

held = io.BytesIO()
torch.save({"w": torch.ones(2)}, held)
data = held.getvalue().replace(b"\x03\x00\x00\x00cpu", b"\x04\x00\x00\x00cuda")
import zipfile

source, target = zipfile.ZipFile(io.BytesIO(held.getvalue())), io.BytesIO()
with zipfile.ZipFile(target, "w") as out:
    for name in source.namelist():
        out.writestr(name, source.read(name).replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:0"))
target.seek(0)
print(torch.load(target))
