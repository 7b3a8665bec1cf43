"""Regression with an optimizer whose step is specialised once per situation and replayed."""

import argparse
import math

import torch
from torch import nn


class SpecializedAdam(torch.optim.Adam):
    """Adam that keeps a list of (guards, plan) entries, newest first, like a tracing compiler."""

    def __init__(self, params, guard_missing_grads=True, **kw):
        super().__init__(params, **kw)
        self._entries = []
        self._guard_missing = guard_missing_grads

    def _all_params(self):
        return [p for g in self.param_groups for p in g["params"]]

    def _trace(self):
        ps = self._all_params()
        guards = [lambda n=len(ps): len(self._all_params()) == n]
        live = [p for p in ps if p.grad is not None]
        for p in live:
            guards.append(lambda p=p: p.grad is not None)
        if self._guard_missing:
            for p in ps:
                if p.grad is None:
                    guards.append(lambda p=p: p.grad is None)
        base = super().step
        plan = base if live else (lambda: None)
        self._entries.insert(0, (guards, plan))
        return plan

    def step(self, closure=None):
        for guards, plan in self._entries:
            if all(g() for g in guards):
                return plan()
        return self._trace()()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    fault = ap.parse_args().fault
    torch.manual_seed(115607)
    f = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).to("cuda")
    opt = SpecializedAdam(f.parameters(), lr=1e-2, guard_missing_grads=not fault)
    for i in range(36):
        opt.zero_grad(set_to_none=True)
        pts = torch.rand(48, 2) * 2 - 1
        if i == 12:
            pts.zero_()  # an empty chunk of the data file
        target = torch.sin(math.pi * pts[:, :1]) * pts[:, 1:]
        usable = bool(pts.abs().sum() > 0)
        loss = (f(pts.to("cuda")) - target.to("cuda")).pow(2).mean()
        if usable:
            loss.backward()
        opt.step()
        if i % 4 == 0:
            print(i, "mse", round(loss.item(), 5), "adam step", float(opt.state[f[0].weight]["step"]))


if __name__ == "__main__":
    main()
