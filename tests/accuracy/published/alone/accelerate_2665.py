"""Sharded sequence classifier (FSDP, flat parameters)."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class SeqClassifier(nn.Module):
    def __init__(self, vocab=24, d=32, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 2, 64, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.classify = nn.Linear(d, classes)

    def forward(self, tok):
        h = self.embed(tok)
        for layer in self.layers:
            h = layer(h)
        return self.classify(h.mean(1))


def prepare(model, optimizer_cls, device, optimizer_first, **opt_kw):
    def wrap(m):
        return FSDP(
            m, auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer}), use_orig_params=False, device_id=device
        )

    if optimizer_first:
        optimizer = optimizer_cls(model.parameters(), **opt_kw)
        model = wrap(model)
    else:
        model = wrap(model)
        optimizer = optimizer_cls(model.parameters(), **opt_kw)
    return model, optimizer


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl")
    torch.manual_seed(2665)
    model = SeqClassifier().to(device)
    model, optimizer = prepare(model, torch.optim.AdamW, device, "--fault" in sys.argv, lr=3e-3)

    gen = torch.Generator().manual_seed(rank)
    criterion = nn.CrossEntropyLoss()
    model.train()
    for epoch in range(3):
        running = 0.0
        for _ in range(10):
            tok = torch.randint(0, 24, (24, 10), generator=gen)
            lab = (tok < 8).sum(1).sub(3).clamp(0, 1) + (tok < 8).sum(1).gt(4).long()
            optimizer.zero_grad()
            loss = criterion(model(tok.to(device)), lab.to(device))
            loss.backward()
            optimizer.step()
            running += loss.item() / 10
        if rank == 0:
            print(f"epoch {epoch}: train loss {running:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
