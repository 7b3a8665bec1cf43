"""Switch-MoE language model, tensor + sequence parallel, experts spread over the ranks."""

import argparse
import os
import zlib

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

HID, FFN, EXPERTS, VOCAB, SEQ, BATCH, STEPS = 24, 48, 4, 40, 12, 3, 10


def seeded(name, *shape, scale=0.2):
    g = torch.Generator().manual_seed(977 + zlib.crc32(name.encode()) % 100003)
    return torch.randn(*shape, generator=g) * scale


class SeqGather(torch.autograd.Function):
    """[s/p, b, h] -> [s, b, h]; what follows is split over ranks, so sum in backward."""

    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, 0)

    @staticmethod
    def backward(ctx, g):
        g = g.clone().contiguous()
        dist.all_reduce(g)
        return g.chunk(dist.get_world_size(), 0)[dist.get_rank()].contiguous()


class SeqScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone().contiguous()
        dist.all_reduce(x)
        return x.chunk(dist.get_world_size(), 0)[dist.get_rank()].contiguous()

    @staticmethod
    def backward(ctx, g):
        parts = [torch.empty_like(g) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, g.contiguous())
        return torch.cat(parts, 0)


class Expert(nn.Module):
    def __init__(self, tag):
        super().__init__()
        self.fc1 = nn.Linear(HID, FFN)
        self.fc2 = nn.Linear(FFN, HID)
        with torch.no_grad():
            for n, p in self.named_parameters():
                p.copy_(seeded(tag + n, *p.shape))

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class SwitchMLP(nn.Module):
    def __init__(self, tag, sequence_parallel, fault):
        super().__init__()
        p, r = dist.get_world_size(), dist.get_rank()
        self.router = nn.Linear(HID, EXPERTS)
        with torch.no_grad():
            self.router.weight.copy_(seeded(tag + "router.w", EXPERTS, HID, scale=0.4))
            self.router.bias.zero_()
        mine = range(r * EXPERTS // p, (r + 1) * EXPERTS // p)
        self.experts = nn.ModuleDict({str(e): Expert(f"{tag}expert{e}.") for e in mine})
        if sequence_parallel and not fault:
            for q in self.router.parameters():
                q.sequence_parallel = True

    def forward(self, x):
        prob, idx = self.router(x).softmax(-1).max(-1)
        everything = SeqGather.apply(x)
        ids = [torch.empty_like(idx) for _ in range(dist.get_world_size())]
        dist.all_gather(ids, idx.contiguous())
        ids = torch.cat(ids, 0)
        out = torch.zeros_like(everything)
        for e, net in self.experts.items():
            out = out + net(everything) * (ids == int(e)).unsqueeze(-1).to(x.dtype)
        return SeqScatterSum.apply(out) * prob.unsqueeze(-1)


class Layer(nn.Module):
    def __init__(self, i, fault):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(HID)
        self.mlp = SwitchMLP(f"layers.{i}.", True, fault)
        for q in self.input_layernorm.parameters():
            q.sequence_parallel = True

    def forward(self, x):
        return x + self.mlp(self.input_layernorm(x))


class MoELM(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HID)
        self.layers = nn.ModuleList([Layer(i, fault) for i in range(2)])
        self.output_layer = nn.Linear(HID, VOCAB, bias=False)
        with torch.no_grad():
            self.embedding.weight.copy_(seeded("emb", VOCAB, HID, scale=0.7))
            self.output_layer.weight.copy_(seeded("out", VOCAB, HID))
        for q in (self.embedding.weight, self.output_layer.weight):
            q.sequence_parallel = True  # both see only this rank's part of the sequence

    def forward(self, ids, labels):
        p, r = dist.get_world_size(), dist.get_rank()
        ids, labels = ids.chunk(p, 0)[r], labels.chunk(p, 0)[r]
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.output_layer(x)
        return F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), reduction="sum") / (SEQ * BATCH)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    args = ap.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = MoELM(args.fault).cuda()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = torch.Generator().manual_seed(5)
    for step in range(STEPS):
        tok = torch.randint(0, VOCAB, (SEQ + 1, BATCH), generator=data).cuda()
        opt.zero_grad()
        loss = model(tok[:-1], tok[1:])
        loss.backward()
        for q in model.parameters():
            if getattr(q, "sequence_parallel", False):
                dist.all_reduce(q.grad)
        opt.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"step {step} loss {total.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
