"""A sparse mixture of experts: each token goes to the best two of six, a second loss keeps them equally busy."""

import argparse
import csv

import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1 = nn.Linear(width, hidden)
        self.w2 = nn.Linear(hidden, width)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


class SparseMoE(nn.Module):
    def __init__(self, width, hidden=32, experts=6, top_k=2, jitter=0.1):
        super().__init__()
        self.top_k, self.jitter = top_k, jitter
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(experts))
        self.shared = Expert(width, hidden)

    def forward(self, tokens):
        routed = tokens
        if self.training:
            routed = tokens * (1 + self.jitter * (2 * torch.rand_like(tokens) - 1))
        probability = self.gate(routed).softmax(dim=1)
        weight, chosen = probability.topk(self.top_k, dim=1)
        weight = weight / weight.sum(dim=1, keepdim=True)
        out = self.shared(tokens)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            out = out.index_add(0, row, expert(tokens[row]) * weight[row, place].unsqueeze(1))
        busy = F.one_hot(chosen, len(self.experts)).float().mean(dim=(0, 1))
        balance = len(self.experts) * (busy * probability.mean(dim=0)).sum()
        return out, balance, busy


class Model(nn.Module):
    def __init__(self, words=40, width=32, classes=40):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.norm = nn.LayerNorm(2 * width)
        self.inner = nn.Linear(2 * width, width)
        self.moe = SparseMoE(width)
        self.head = nn.Linear(width, classes)

    def forward(self, pairs):
        x = self.norm(self.embed(pairs).flatten(1))
        x = self.inner(x)
        out, balance, busy = self.moe(x)
        return self.head(x + out), balance, busy


def pairs(count, seed):
    """Pairs of words; the rule that makes the third depends on the group of the first."""
    generator = torch.Generator().manual_seed(seed)
    first, second = torch.randint(40, (2, count), generator=generator)
    group = first // 10
    third = torch.where(group % 2 == 0, second + group, 39 - second)
    return torch.stack([first, second], dim=1), third % 40


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--balance", type=float, default=0.05)
    args = parser.parse_args()
    torch.manual_seed(33)
    device = torch.device("cuda")

    words, following = pairs(args.steps * args.batch_size, seed=1)
    test_words, test_following = pairs(800, seed=2)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    rows = []
    for step in range(args.steps):
        batch = slice(step * args.batch_size, (step + 1) * args.batch_size)
        x, y = words[batch].to(device), following[batch].to(device)
        logits, balance, busy = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        (loss + args.balance * balance).backward()
        optimizer.step()
        rows.append([step, loss.item(), balance.item(), *busy.tolist()])
        if (step + 1) % 8 == 0:
            print(
                f"step {step + 1}: ce {loss.item():.4f}, balance {balance.item():.4f}, busiest {busy.max().item():.3f}"
            )

    model.eval()
    with torch.no_grad():
        logits, _, busy = model(test_words.to(device))
        hits = (logits.argmax(dim=1).cpu() == test_following).float()
    print(f"test: {100 * hits.mean().item():.2f} % right, load " + " ".join(f"{share:.3f}" for share in busy.tolist()))
    with open("load.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "ce", "balance", *[f"expert_{number}" for number in range(6)]])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
