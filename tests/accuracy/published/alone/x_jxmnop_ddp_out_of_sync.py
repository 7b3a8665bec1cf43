"""A little trainer for two cards with evaluation in between."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def unwrap(m):
    return m.module if isinstance(m, DistributedDataParallel) else m


class Trainer:
    def __init__(self, model, device, eval_every, keep_unwrapped):
        self.device = device
        self.model = DistributedDataParallel(model, device_ids=[device.index])
        self.optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
        self.eval_every = eval_every
        self.keep_unwrapped = keep_unwrapped
        self.global_step = 0

    def evaluate(self, x, y):
        bare = unwrap(self.model)
        if self.keep_unwrapped:
            self.model = bare
        bare.eval()
        with torch.no_grad():
            score = (bare(x.to(self.device)) - y.to(self.device)).pow(2).mean()
        bare.train()
        return score.item()

    def training_step(self, x, y):
        pred = self.model(x.to(self.device))
        loss = nn.functional.huber_loss(pred, y.to(self.device))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.global_step += 1
        return loss.detach()

    def fit(self, batches, held_out):
        for x, y in batches:
            loss = self.training_step(x, y)
            if self.global_step % self.eval_every == 0:
                mse = self.evaluate(*held_out)
                if dist.get_rank() == 0:
                    print(f"step {self.global_step} loss {loss.item():.4f} eval mse {mse:.4f}", flush=True)


def f(x):
    return torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 3]


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--fault", action="store_true")
    cli = cli.parse_args()
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(1778)
    model = Regressor().to(device)
    gen = torch.Generator().manual_seed(31 + dist.get_rank())
    xs = [torch.randn(32, 8, generator=gen) for _ in range(48)]
    held = torch.randn(128, 8, generator=torch.Generator().manual_seed(9))
    trainer = Trainer(model, device, eval_every=12, keep_unwrapped=cli.fault)
    trainer.fit([(x, f(x)) for x in xs], (held, f(held)))
    print(f"rank {dist.get_rank()} norm {sum(p.norm().item() for p in model.parameters()):.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
