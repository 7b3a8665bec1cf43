"""Adapter tuning with an engine that keeps fp32 masters, a checkpoint in the middle and a restart."""

import argparse
import os
import tempfile

import torch
from torch import nn


class AdapterNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.adapter = nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 32))
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        h = self.base(x)
        return self.out(h + self.adapter(h))


class Engine:
    """Wraps model and optimizer; the optimizer owns the parameters that train at this moment."""

    def __init__(self, model, lr, keep_frozen):
        self.module = model
        self.keep_frozen = keep_frozen
        self.names = {p: n for n, p in model.named_parameters()}
        self.managed = [p for p in model.parameters() if p.requires_grad]
        self.opt = torch.optim.AdamW(self.managed, lr=lr)

    def __call__(self, *a):
        return self.module(*a)

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)

    def save_checkpoint(self, path):
        weights = {self.names[p]: p.detach().cpu() for p in self.managed}
        if self.keep_frozen:
            weights.update({n: p.detach().cpu() for p, n in self.names.items() if not p.requires_grad})
        torch.save({"weights": weights, "optimizer": self.opt.state_dict()}, path)

    def load_checkpoint(self, path):
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.module.load_state_dict(state["weights"], strict=False)
        self.opt.load_state_dict(state["optimizer"])


def pretrained_base(net):
    g = torch.Generator().manual_seed(77)
    with torch.no_grad():
        for p in net.base.parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.25)


def fresh(first, keep_frozen):
    net = AdapterNet()
    if first:
        pretrained_base(net)
    net.to("cuda")
    net.base.requires_grad_(False)
    return Engine(net, 1e-2, keep_frozen)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(5489)
    centers = torch.randn(4, 10)
    path = os.path.join(tempfile.mkdtemp(), "step20.pt")

    engine = fresh(True, keep_frozen=not args.fault)
    for step in range(40):
        if step == 20:  # the job's time is over, the next one goes on
            engine.save_checkpoint(path)
            del engine
            engine = fresh(False, keep_frozen=not args.fault)
            engine.load_checkpoint(path)
        y = torch.randint(0, 4, (32,))
        x = centers[y] + 0.8 * torch.randn(32, 10)
        loss = nn.functional.cross_entropy(engine(x.to("cuda")), y.to("cuda"))
        engine.backward(loss)
        engine.step()
        if step % 5 == 4 or step == 20:
            b = engine.module.base[0].weight.norm().item()
            print(f"step {step} loss {loss.item():.4f} |base| {b:.5f}")


if __name__ == "__main__":
    main()
