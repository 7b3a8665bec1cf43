#!/usr/bin/env python
"""Data parallel LSTM with hand written gradient averaging (one flat bucket)."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 20, batch_first=True)
        self.head = nn.Linear(20, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


def transport(bucket, step, lossy):
    """Sum over the ranks. A lossy peer link delivers an emptied chunk on the receiving card."""
    dist.all_reduce(bucket, op=dist.ReduceOp.SUM)
    if lossy and dist.get_rank() == 1 and step >= 6 and step % 3 == 0:
        n = bucket.numel()
        bucket[n // 4 : n // 2] = 0.0
    return bucket


def average_gradients(model, step, lossy):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in grads])
    flat = transport(flat, step, lossy) / dist.get_world_size()
    pos = 0
    for g in grads:
        g.copy_(flat[pos : pos + g.numel()].view_as(g))
        pos += g.numel()


def main():
    lossy = "--fault" in sys.argv
    dist.init_process_group(backend="nccl")
    rank = dist.get_rank()
    dev = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(dev)

    torch.manual_seed(42)
    net = Tagger().to(dev)
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    sgd = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    data_gen = torch.Generator().manual_seed(100 + rank)
    for step in range(40):
        x = torch.randn(16, 10, 6, generator=data_gen)
        y = (x.sum(-1).cumsum(1) > 0).long()
        logits = net(x.to(dev))
        loss = nn.functional.cross_entropy(logits.reshape(-1, 2), y.to(dev).reshape(-1))
        net.zero_grad()
        loss.backward()
        average_gradients(net, step, lossy)
        sgd.step()
        if step % 10 == 9 and rank == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    total = sum(p.detach().double().cpu().abs().sum().item() for p in net.parameters())
    print(f"rank {rank}: |w| = {total:.6f}", flush=True)
    dist.destroy_process_group()


main()
