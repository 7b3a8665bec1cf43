"""MoE classifier under DDP with a load-balancing loss over the global batch."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, gelu
from torch.nn.parallel import DistributedDataParallel as DDP

NUM_EXPERTS, TOPK, D, COEFF, CLASSES = 4, 2, 16, 0.5, 7


class Router(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.gate = nn.Linear(D, NUM_EXPERTS, bias=False)
        self.fault = fault
        self.aux = None

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        top, where = probs.topk(TOPK, dim=-1)
        chosen = torch.zeros_like(probs).scatter(-1, where, 1.0)
        self.global_aux_loss(probs, chosen)
        return probs * chosen / top.sum(-1, keepdim=True)

    def global_aux_loss(self, probs, chosen):
        stat = torch.cat([chosen.sum(0), torch.full((1,), float(len(probs)), device=probs.device)])
        dist.all_reduce(stat)  # counts of the whole batch
        counts, tokens = stat[:-1], stat[-1]
        aux = (probs.sum(0) * counts).sum() * NUM_EXPERTS * COEFF / (TOPK * tokens * tokens)
        if not self.fault:
            aux = aux * dist.get_world_size()  # probs are local: DDP will average
        self.aux = aux


class MoELayer(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.router = Router(fault)
        self.w1 = nn.Parameter(torch.randn(NUM_EXPERTS, D, 2 * D) * 0.25)
        self.w2 = nn.Parameter(torch.randn(NUM_EXPERTS, 2 * D, D) * 0.2)

    def forward(self, x):
        share = self.router(x)
        hidden = gelu(torch.einsum("td,edf->etf", x, self.w1))
        return x + torch.einsum("etf,efd,te->td", hidden, self.w2, share)


class Net(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.embed = nn.Linear(10, D)
        self.moe = nn.ModuleList([MoELayer(fault), MoELayer(fault)])
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.moe:
            x = layer(x)
        return self.head(self.norm(x)), sum(layer.router.aux for layer in self.moe)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    ns = ap.parse_args()
    dist.init_process_group("nccl")
    r, w = dist.get_rank(), dist.get_world_size()
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    torch.manual_seed(321)
    net = Net(ns.fault).to(gpu)
    if w > 1:
        net = DDP(net, device_ids=[gpu])
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    g = torch.Generator().manual_seed(1)
    rule = torch.randn(10, CLASSES, generator=g)
    for step in range(10):
        x = torch.randn(24, 10, generator=g)
        y = (x @ rule).argmax(-1)
        x, y = x.chunk(w)[r].to(gpu), y.chunk(w)[r].to(gpu)
        logits, aux = net(x)
        ce = cross_entropy(logits, y)
        opt.zero_grad()
        (ce + aux).backward()
        opt.step()
        ce = ce.detach() / w
        dist.all_reduce(ce)
        if r == 0:
            print(f"{step:3d} ce {ce.item():.6f}", flush=True)
    dist.destroy_process_group()
