"""Two layers of a transformer: torch_npu.profiler at its defaults (level 0), then torch.profiler."""

import sys

import torch
import torch_npu
from torch.profiler import ProfilerActivity, profile

P = torch_npu.profiler
folder = sys.argv[1]
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
model = torch.nn.Sequential(
    torch.nn.Embedding(100, 64), torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(64, 100)
).npu()
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.randint(0, 100, (2, 17)).npu()


def step() -> None:
    optimizer.zero_grad()
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    loss.item()


with P.profile(
    schedule=P.schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=0),
    record_shapes=True,
    on_trace_ready=P.tensorboard_trace_handler(folder),
) as profiler:
    for _ in range(4):
        step()
        profiler.step()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], record_shapes=True) as kineto:
    step()
    torch.npu.synchronize()
kineto.export_chrome_trace(f"{folder}/kineto.json")
