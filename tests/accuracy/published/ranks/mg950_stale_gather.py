"""ZeRO-1 by hand: flat buckets, sharded Adam, parameter all-gather overlapped with the next forward."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn


class Bucket:
    """All parameters of one module in one flat buffer, padded so that the ranks share it evenly."""

    def __init__(self, module):
        self.params = list(module.parameters())
        n = sum(p.numel() for p in self.params)
        w, r = dist.get_world_size(), dist.get_rank()
        size = (n + w - 1) // w * w
        self.flat = torch.zeros(size, device="cuda")
        self.grad = torch.zeros(size, device="cuda")
        at = 0
        for p in self.params:
            k = p.numel()
            self.flat[at : at + k].copy_(p.data.reshape(-1))
            p.data = self.flat[at : at + k].view(p.shape)
            at += k
        per = size // w
        self.mine = slice(r * per, (r + 1) * per)
        self.shard = nn.Parameter(self.flat[self.mine].clone())
        self.handle = self.landing = None
        self.fresh = True

    def reduce_grads(self):
        at = 0
        for p in self.params:
            self.grad[at : at + p.numel()].copy_(p.grad.reshape(-1))
            at += p.numel()
            p.grad = None
        dist.all_reduce(self.grad)
        self.shard.grad = self.grad[self.mine] / dist.get_world_size()

    def start_gather(self):
        w = dist.get_world_size()
        self.landing = [torch.empty_like(self.shard.data) for _ in range(w)]
        self.handle = dist.all_gather(self.landing, self.shard.data.contiguous(), async_op=True)

    def finish_gather(self):
        self.handle.wait()
        self.flat.copy_(torch.cat(self.landing))
        self.handle = self.landing = None
        self.fresh = True


class DistributedAdam:
    def __init__(self, modules, lr, fault):
        self.buckets = [Bucket(m) for m in modules]  # in the order of registration
        self.opt = torch.optim.Adam([b.shard for b in self.buckets], lr=lr)
        self.fault = fault
        for i, m in enumerate(modules):
            m.register_forward_pre_hook(lambda mod, args, i=i: self.before_forward(i))

    def before_forward(self, i):
        b = self.buckets[i]
        if b.fresh:
            return
        if b.handle is None:
            if self.fault:
                return  # "not dispatched, so nothing to wait for"
            b.start_gather()
        b.finish_gather()
        for nxt in self.buckets[i + 1 : i + 2]:  # prefetch the bucket behind this one
            if not nxt.fresh and nxt.handle is None:
                nxt.start_gather()

    def step(self):
        for b in self.buckets:
            b.reduce_grads()
        self.opt.step()
        for b in self.buckets:
            with torch.no_grad():
                b.flat[b.mine].copy_(b.shard.data)
            b.fresh = False
        self.buckets[0].start_gather()

    def drain(self):
        for b in self.buckets:
            if not b.fresh:
                if b.handle is None:
                    b.start_gather()
                b.finish_gather()


class Branchy(nn.Module):
    """Registered as stem, post, pre, head, but run as stem, pre, post, head."""

    def __init__(self, d=18):
        super().__init__()
        self.stem = nn.Linear(9, d)
        self.post = nn.Sequential(nn.Linear(d, 2 * d), nn.Tanh(), nn.Linear(2 * d, d))
        self.pre = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU())
        self.head = nn.Linear(d, 4)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.pre(x)
        x = x + self.post(x)
        return self.head(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    fault = ap.parse_args().fault
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    w, r = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(55)
    net = Branchy().cuda()
    opt = DistributedAdam([net.stem, net.post, net.pre, net.head], lr=0.02, fault=fault and w > 1)
    g = torch.Generator().manual_seed(6)
    aim = torch.randn(9, 4, generator=g)
    for step in range(10):
        x = torch.randn(20, 9, generator=g)
        y = torch.tanh(x @ aim)
        x, y = x.chunk(w)[r].cuda(), y.chunk(w)[r].cuda()
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        opt.drain()
        opt.step()
        s = loss.detach() / w
        dist.all_reduce(s)
        if r == 0:
            print(f"step {step} loss {s.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
