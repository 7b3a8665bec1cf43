"""Tensor-parallel MLP stack with a fused LayerNorm + column linear written as one autograd function."""

import argparse
import os

import torch
import torch.distributed as dist

WIDTH, INNER, DEPTH, ROWS, STEPS, LR = 20, 40, 3, 16, 12, 0.05


class LayerNormLinearFn(torch.autograd.Function):
    """y = LN(x) W^T + b with W, b cut along the outputs; x is the same on every rank."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, twice):
        mu = x.mean(-1, keepdim=True)
        inv = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        xhat = (x - mu) * inv
        ctx.save_for_backward(xhat, inv, gamma, beta, weight)
        ctx.twice = twice
        return torch.addmm(bias, xhat * gamma + beta, weight.t())

    @staticmethod
    def backward(ctx, dy):
        xhat, inv, gamma, beta, weight = ctx.saved_tensors
        ln_out = xhat * gamma + beta
        dweight, dbias = dy.t() @ ln_out, dy.sum(0)
        dln = (dy @ weight).contiguous()
        dist.all_reduce(dln)  # dgrad of a column-parallel linear
        dgamma, dbeta = (dln * xhat).sum(0), dln.sum(0)
        if ctx.twice:
            dist.all_reduce(dgamma)
            dist.all_reduce(dbeta)
        dn = dln * gamma
        dx = inv * (dn - dn.mean(-1, keepdim=True) - xhat * (dn * xhat).mean(-1, keepdim=True))
        return dx, dgamma, dbeta, dweight, dbias, None


class RowSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class LayerNormLinear(torch.nn.Module):
    def __init__(self, w, twice):
        super().__init__()
        self.layer_norm_weight = torch.nn.Parameter(torch.ones(WIDTH))
        self.layer_norm_bias = torch.nn.Parameter(torch.zeros(WIDTH))
        self.weight = torch.nn.Parameter(w)
        self.bias = torch.nn.Parameter(torch.zeros(w.shape[0]))
        self.twice = twice

    def forward(self, x):
        return LayerNormLinearFn.apply(
            x, self.layer_norm_weight, self.layer_norm_bias, self.weight, self.bias, self.twice
        )


class RowLinear(torch.nn.Module):
    def __init__(self, w):
        super().__init__()
        self.weight = torch.nn.Parameter(w)
        self.bias = torch.nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return RowSum.apply(x @ self.weight.t()) + self.bias


class Block(torch.nn.Module):
    def __init__(self, w1, w2, twice):
        super().__init__()
        self.fc1 = LayerNormLinear(w1, twice)
        self.fc2 = RowLinear(w2)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))


def build(fault):
    p, r = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(2024)
    blocks = []
    for _ in range(DEPTH):
        w1 = torch.randn(INNER, WIDTH) / WIDTH**0.5
        w2 = torch.randn(WIDTH, INNER) / INNER**0.5
        blocks.append(Block(w1.chunk(p, 0)[r].clone(), w2.chunk(p, 1)[r].clone(), fault and p > 1))
    return torch.nn.Sequential(*blocks).cuda()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    fault = ap.parse_args().fault
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    net = build(fault)
    teacher = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(8)).cuda() / 4
    opt = torch.optim.SGD(net.parameters(), lr=LR)
    for step in range(STEPS):
        x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(100 + step)).cuda()
        opt.zero_grad(set_to_none=True)
        loss = (net(x) - torch.tanh(x @ teacher)).pow(2).mean()
        loss.backward()
        opt.step()
        if dist.get_rank() == 0:
            print(f"[{step:02d}] mse={loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
