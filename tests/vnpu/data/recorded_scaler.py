"""Train with a GradScaler that leaves one step out, plain and recorded, and say what is the same: argv has device, folder."""

import contextlib
import json
import sys

import torch
from torch import nn

import torchport

device, folder = sys.argv[1:3]


def train(block):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    losses, scales = [], []
    optimizer.register_step_post_hook(lambda *_: made.append(optimizer))
    with block or contextlib.nullcontext():
        for number in range(6):
            x = torch.randn(4, 6).to(device)
            if number == 2:
                x[0, 0] = float("inf")
            with torch.autocast(device, torch.float16 if device == "npu" else torch.bfloat16):
                loss = net(x).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(repr(loss.item()))
            scales.append(scaler.get_scale())
    return losses, scales, [p.detach().cpu() for p in net.parameters()]


made: list[object] = []
plain, recorded = train(None), train(torchport.record(folder, level="tensor"))
print(
    json.dumps(
        {
            "losses": plain[0] == recorded[0],
            "scales": plain[1] == recorded[1],
            "parameters": all(torch.equal(a, b) for a, b in zip(plain[2], recorded[2], strict=True)),
            "left out": plain[1][1] > plain[1][2],
            "steps": len(made),
        }
    )
)
