"""Tied input/output embedding, fused weight-gradient accumulation, ZeroRedundancyOptimizer."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer

V, D, T, ROWS, STEPS = 36, 24, 10, 6, 9


class FusedOutput(torch.autograd.Function):
    """logits = h W^T ; the gradient of W is added to W.main_grad inside backward."""

    @staticmethod
    def forward(ctx, h, weight):
        ctx.save_for_backward(h)
        ctx.weight = weight
        return h @ weight.t()

    @staticmethod
    def backward(ctx, g):
        (h,), w = ctx.saved_tensors, ctx.weight
        w.main_grad.add_(g.reshape(-1, V).t() @ h.reshape(-1, D))
        w.grad_added_to_main_grad = True
        return g @ w, torch.zeros_like(w)  # the zeros only keep autograd's hooks going


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.time = nn.Linear(T, T)
        self.fc = nn.Linear(D, D)

    def forward(self, x):
        past = torch.ones(T, T, device=x.device).tril()
        y = torch.einsum("st,btd->bsd", self.time.weight * past, self.norm(x)) + self.time.bias[:, None]
        return x + torch.tanh(self.fc(y))


class TiedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(V, D)
        self.decoder = nn.Sequential(Mixer(), Mixer())
        nn.init.normal_(self.word_embeddings.weight, std=0.3)

    def forward(self, ids):
        return FusedOutput.apply(self.decoder(self.word_embeddings(ids)), self.word_embeddings.weight)


def attach_main_grads(model, zero_out_wgrad):
    def hook(p):
        if not p.grad_added_to_main_grad or p.zero_out_wgrad:
            p.main_grad.add_(p.grad)
        p.grad = None

    for p in model.parameters():
        p.main_grad = torch.zeros_like(p)
        p.grad_added_to_main_grad = False
        p.zero_out_wgrad = False
        p.register_post_accumulate_grad_hook(hook)
    model.word_embeddings.weight.zero_out_wgrad = zero_out_wgrad


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    fault = ap.parse_args().fault
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    me, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(404)
    model = TiedLM().cuda()
    attach_main_grads(model, zero_out_wgrad=not (fault and n > 1))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=6e-3)
    g = torch.Generator().manual_seed(10)
    for step in range(STEPS):
        text = torch.randint(V, (ROWS, T + 1), generator=g)[me * ROWS // n : (me + 1) * ROWS // n].cuda()
        for p in model.parameters():
            p.main_grad.zero_()
            p.grad_added_to_main_grad = False
        loss = nn.functional.cross_entropy(model(text[:, :-1]).reshape(-1, V), text[:, 1:].reshape(-1))
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.main_grad)
            p.main_grad.div_(n)
            p.grad = p.main_grad.clone()
        optimizer.step()
        for p in model.parameters():
            p.grad = None
        out = loss.detach() / n
        dist.all_reduce(out)
        if me == 0:
            print(f"{step} {out.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
