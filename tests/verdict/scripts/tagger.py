"""Tag the words of sentences of different lengths with a small encoder; padding counts nowhere."""

import argparse
import csv
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

PAD, TAGS = 0, 5


def sentences(count, seed):
    """Words 1 to 30; a tag depends on the word, on the word before it and on what came first in the sentence."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        words = rng.integers(1, 31, rng.integers(5, 15))
        before = np.concatenate([[0], words[:-1]])
        tags = (words // 7 + before % 2 + words[0] % 2) % TAGS
        result.append((torch.from_numpy(words), torch.from_numpy(tags)))
    return result


def collate(batch):
    words = nn.utils.rnn.pad_sequence([words for words, _ in batch], batch_first=True, padding_value=PAD)
    tags = nn.utils.rnn.pad_sequence([tags for _, tags in batch], batch_first=True, padding_value=-100)
    return words, tags


class Tagger(nn.Module):
    def __init__(self, words=31, width=32, longest=16):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=PAD)
        time = torch.arange(longest).unsqueeze(1) * torch.exp(-math.log(100) * torch.arange(0, width, 2) / width)
        self.register_buffer("position", torch.cat([time.sin(), time.cos()], dim=1), persistent=False)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.05, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width, TAGS)

    def forward(self, words):
        x = self.embed(words) + 0.3 * self.position[: words.size(1)]
        padding = words == PAD
        x = x + F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        seen, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)
        return self.out(self.drop(self.norm(x + seen)))


def evaluate(model, loader, device):
    """Loss of a word, share of right tags, share of sentences without any wrong tag."""
    model.eval()
    loss, right, count, whole, total = 0.0, 0, 0, 0, 0
    with torch.no_grad():
        for words, tags in loader:
            words, tags = words.to(device), tags.to(device)
            logits = model(words)
            loss += F.cross_entropy(logits.flatten(0, 1), tags.flatten(), reduction="sum").item()
            known = tags != -100
            hits = (logits.argmax(dim=2) == tags) & known
            right += hits.sum().item()
            count += known.sum().item()
            whole += (hits == known).all(dim=1).sum().item()
            total += len(words)
    return loss / count, right / count, whole / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--metrics", default="metrics.csv")
    args = parser.parse_args()
    torch.manual_seed(44)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_loader = DataLoader(sentences(384, seed=1), args.batch_size, shuffle=True, collate_fn=collate)
    dev_loader = DataLoader(sentences(150, seed=2), args.batch_size, collate_fn=collate)
    model = Tagger().to(device)
    optimizer = torch.optim.NAdam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 3], gamma=0.6)
    with open(args.metrics, "w", newline="") as file:
        writer = csv.DictWriter(file, ["epoch", "lr", "train_loss", "dev_loss", "tag_accuracy", "sentence_accuracy"])
        writer.writeheader()
        for epoch in range(args.epochs):
            model.train()
            running = 0.0
            for words, tags in train_loader:
                logits = model(words.to(device))
                loss = F.cross_entropy(logits.flatten(0, 1), tags.to(device).flatten(), ignore_index=-100)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 2.0)
                optimizer.step()
                running += loss.item()
            lr = scheduler.get_last_lr()[0]
            scheduler.step()
            dev_loss, accuracy, whole = evaluate(model, dev_loader, device)
            writer.writerow(
                {
                    "epoch": epoch,
                    "lr": lr,
                    "train_loss": running / len(train_loader),
                    "dev_loss": dev_loss,
                    "tag_accuracy": accuracy,
                    "sentence_accuracy": whole,
                }
            )
    print(f"metrics of {args.epochs} epochs are in {args.metrics}")


if __name__ == "__main__":
    main()
