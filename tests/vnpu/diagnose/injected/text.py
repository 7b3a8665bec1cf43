"""A transformer's layer on tokens from a DataLoader with workers, in bfloat16 by autocast; progress on stderr."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset):
    """Sentences of 32 tokens."""

    def __len__(self):
        return 48

    def __getitem__(self, at):
        return torch.arange(at, at + 33) % 128


def main():
    """Train for one epoch."""
    torch.npu.set_device(0)
    torch.manual_seed(0)
    embed = torch.nn.Embedding(128, 32).npu()
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True).npu()
    head = torch.nn.Linear(32, 128).npu()
    parameters = [*embed.parameters(), *layer.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    loader = DataLoader(Tokens(), batch_size=8, num_workers=2, shuffle=False)
    for step, batch in enumerate(loader):
        batch = batch.npu(non_blocking=True)
        with torch.autocast("npu", dtype=torch.bfloat16):
            scores = head(layer(embed(batch[:, :-1])))
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"\r{step + 1}/{len(loader)} [loss={loss.item():.3f}]", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    torch.npu.synchronize()
    print("perplexity", round(loss.exp().item(), 2))


if __name__ == "__main__":
    main()
