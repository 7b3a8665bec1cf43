"""Adapter fine-tuning under DDP; helper code works on 'the real model' behind the wrapper."""

import argparse
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class LoRALinear(nn.Module):
    def __init__(self, i, o, rank=3):
        super().__init__()
        self.base = nn.Linear(i, o)
        self.base.requires_grad_(False)
        self.down = nn.Linear(i, rank, bias=False)
        self.up = nn.Linear(rank, o, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Denoiser(nn.Module):
    def __init__(self, d=12, width=30):
        super().__init__()
        self.time = nn.Embedding(10, width)
        self.inp, self.mid, self.out = LoRALinear(d, width), LoRALinear(width, width), LoRALinear(width, d)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, t):
        h = nn.functional.silu(self.inp(x) + self.time(t))
        h = h + nn.functional.silu(self.mid(self.norm(h)))
        return self.out(h)


def transform_if_model_is_ddp(model):
    return model.module if isinstance(model, DDP) else model


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    a = ap.parse_args()
    dist.init_process_group("nccl")
    dev = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(dev)
    w, r = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(924)
    unet = Denoiser().to(dev)
    if w > 1:
        unet = DDP(unet, device_ids=[dev])
    params = [p for p in unet.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=1e-2)
    if a.fault:
        unet = transform_if_model_is_ddp(unet)  # attribute access is easier without the wrapper
    g = torch.Generator().manual_seed(3)
    for step in range(10):
        clean = torch.randn(16, 12, generator=g).cumsum(1) / 3
        noise = torch.randn(16, 12, generator=g)
        t = torch.randint(10, (16,), generator=g)
        level = (t.float() / 10).unsqueeze(1)
        noisy = clean * (1 - level) + noise * level
        noisy, noise, t = (v.chunk(w)[r].to(dev) for v in (noisy, noise, t))
        loss = (unet(noisy, t) - noise).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg = loss.detach().clone()
        dist.all_reduce(avg)
        if r == 0:
            print(f"step {step} avr_loss {avg.item() / w:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
