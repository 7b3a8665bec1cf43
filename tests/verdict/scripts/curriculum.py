"""Learn to add numbers digit by digit, from short to long ones; after step 40 an auxiliary loss on the carries."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Adder(nn.Module):
    """Reads two numbers, lowest digit first, and writes their sum."""

    def __init__(self, hidden=40):
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.rnn = nn.GRU(32, hidden, batch_first=True)
        self.drop = nn.Dropout(0.05)
        self.digit = nn.Linear(hidden, 10)
        self.carry = nn.Linear(hidden, 1)

    def forward(self, first, second):
        x = torch.cat([self.embed(first), self.embed(second)], dim=2)
        hidden, _ = self.rnn(x)
        hidden = self.drop(hidden)
        return self.digit(hidden), self.carry(hidden).squeeze(2)


class Curriculum:
    """Longer numbers, and a second loss, as the training goes on."""

    stages = ((0, 3, 0.0), (20, 5, 0.0), (40, 7, 0.3))  # from this step on: digits, weight of the carries

    def at(self, step):
        return [(digits, weight) for start, digits, weight in self.stages if step >= start][-1]


def additions(rng, count, digits):
    first, second = rng.integers(0, 10, (2, count, digits))
    result, carries = np.empty_like(first), np.empty_like(first)
    carry = np.zeros(count, dtype=first.dtype)
    for place in range(digits):
        total = first[:, place] + second[:, place] + carry
        result[:, place], carry = total % 10, total // 10
        carries[:, place] = carry
    return [torch.from_numpy(numbers) for numbers in (first, second, result, carries)]


def evaluate(model, rng, lengths, device):
    model.eval()
    right = {}
    with torch.no_grad():
        for digits in lengths:
            first, second, result, _ = additions(rng, 200, digits)
            logits, _ = model(first.to(device), second.to(device))
            right[digits] = (logits.argmax(dim=2).cpu() == result).float().mean().item()
    model.train()
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.012)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    device = torch.device("cuda")

    model = Adder().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.99))
    curriculum = Curriculum()
    for step in range(args.steps):
        digits, weight = curriculum.at(step)
        first, second, result, carries = additions(rng, args.batch_size, digits)
        logits, carry = model(first.to(device), second.to(device))
        loss = F.cross_entropy(logits.flatten(0, 1), result.to(device).flatten())
        if weight:
            loss = loss + weight * F.binary_cross_entropy_with_logits(carry, carries.to(device).float())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} digits {digits} loss {loss.item():.4f}")

    right = evaluate(model, np.random.default_rng(50), (3, 5, 7, 9), device)
    print("digits right: " + ", ".join(f"{share:.4f} of {digits}" for digits, share in right.items()))


if __name__ == "__main__":
    main()
