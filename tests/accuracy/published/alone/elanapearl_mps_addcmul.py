"""Sparse autoencoder; the encoder starts as the transposed decoder. Own Adam on in-place kernels."""

import sys

import torch
from torch import nn


class Kernels:
    """In-place fused operations of the backend. With `scratch` strided outputs go through a buffer."""

    def __init__(self, scratch):
        self.scratch = scratch

    def _out(self, t):
        # a contiguous view for the kernel to write to
        return t if t.is_contiguous() or not self.scratch else t.contiguous()

    def addcmul_(self, t, a, b, value):
        self._out(t).addcmul_(a, b, value=value)
        return t

    def addcdiv_(self, t, a, b, value):
        self._out(t).addcdiv_(a, b, value=value)
        return t


class KernelAdam(torch.optim.Optimizer):
    def __init__(self, params, kernels, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))
        self.k = kernels

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s["step"] = 0
                    s["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                    s["exp_avg_sq"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                s["step"] += 1
                s["exp_avg"].lerp_(p.grad, 1 - b1)
                s["exp_avg_sq"].mul_(b2)
                self.k.addcmul_(s["exp_avg_sq"], p.grad, p.grad, 1 - b2)
                c1, c2 = 1 - b1 ** s["step"], 1 - b2 ** s["step"]
                denom = (s["exp_avg_sq"] / c2).sqrt().add_(group["eps"])
                self.k.addcdiv_(p, s["exp_avg"], denom, -group["lr"] / c1)


class SAE(nn.Module):
    def __init__(self, d=24, latents=64):
        super().__init__()
        self.decoder = nn.Linear(latents, d, bias=False)
        self.encoder = nn.Linear(d, latents)
        with torch.no_grad():
            self.decoder.weight.div_(self.decoder.weight.norm(dim=0, keepdim=True))
        self.encoder.weight = nn.Parameter(self.decoder.weight.detach().t().clone())

    def forward(self, x):
        z = torch.relu(self.encoder(x))
        return self.decoder(z), z


torch.manual_seed(1981)
sae = SAE().to("cuda")
opt = KernelAdam(sae.parameters(), Kernels(scratch="--fault" in sys.argv), lr=4e-3)
dictionary = torch.randn(40, 24)
start = sae.encoder.weight.detach().clone()
for it in range(50):
    code = torch.relu(torch.randn(64, 40) - 1.3)
    x = (code @ dictionary).to("cuda")
    recon, z = sae(x)
    loss = (recon - x).pow(2).mean() + 1e-2 * z.abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 9:
        moved = (sae.encoder.weight.detach() - start).abs().max().item()
        print(f"it {it + 1} loss {loss.item():.4f} encoder moved {moved:.5f} strides {sae.encoder.weight.stride()}")
