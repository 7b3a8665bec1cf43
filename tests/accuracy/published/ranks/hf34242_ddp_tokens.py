"""Supervised fine-tuning loop: DDP, two accumulation steps, prompts masked out of the loss."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

IGNORE = -100


class TinyLM(nn.Module):
    def __init__(self, vocab=29, width=20):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, width)
        self.rnn = nn.ModuleDict({"inp": nn.Linear(width, width), "rec": nn.Linear(width, width, bias=False)})
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.rnn["inp"](self.embed_tokens(ids))
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(ids.shape[1]):
            h = torch.tanh(x[:, t] + self.rnn["rec"](h))
            out.append(h)
        return self.lm_head(self.norm(torch.stack(out, 1)))


class Trainer:
    accumulate = 2

    def __init__(self, fault):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.average_tokens_across_devices = not fault
        torch.manual_seed(7)
        self.model = TinyLM().cuda()
        if self.world > 1:
            self.model = DistributedDataParallel(self.model, device_ids=[torch.cuda.current_device()])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def microbatches(self, step):
        """Global batch of 8 rows; the prompt (masked) parts get shorter with the row number."""
        g = torch.Generator().manual_seed(500 + step)
        ids = torch.randint(0, 29, (8, 9), generator=g)
        labels = ids.clone()
        for row in range(8):
            labels[row, : 8 - row] = IGNORE
        mine = slice(self.rank * 8 // self.world, (self.rank + 1) * 8 // self.world)
        ids, labels = ids[mine].cuda(), labels[mine].cuda()
        return list(zip(ids.chunk(self.accumulate), labels.chunk(self.accumulate)))

    def train_step(self, step):
        micro = self.microbatches(step)
        count = sum((lab[:, 1:] != IGNORE).sum() for _, lab in micro).float()
        everywhere = count.clone()
        dist.all_reduce(everywhere)
        items = everywhere if self.average_tokens_across_devices else count
        reported = torch.zeros((), device="cuda")
        for i, (ids, lab) in enumerate(micro):
            last = i == len(micro) - 1
            quiet = self.model.no_sync() if self.world > 1 and not last else contextlib.nullcontext()
            with quiet:
                logits = self.model(ids[:, :-1])
                loss = nn.functional.cross_entropy(
                    logits.flatten(0, 1), lab[:, 1:].flatten(), ignore_index=IGNORE, reduction="sum"
                )
                reported += loss.detach()
                loss = loss / items
                if self.average_tokens_across_devices:
                    loss = loss * self.world
                loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        dist.all_reduce(reported)
        return (reported / everywhere).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--fault", action="store_true")
    a = p.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    t = Trainer(a.fault)
    for step in range(9):
        value = t.train_step(step)
        if t.rank == 0:
            print({"step": step, "loss": round(value, 6)}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
