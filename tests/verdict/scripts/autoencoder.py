"""A sparse denoising autoencoder; encoder and decoder are two parameter groups."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class AutoEncoder(nn.Module):
    def __init__(self, size=40, code=12):
        super().__init__()
        self.corrupt = nn.Dropout(0.2)
        self.encoder = nn.Sequential(nn.Linear(size, 32), nn.ELU(), nn.Linear(32, code))
        self.decoder = nn.Sequential(nn.Linear(code, 32), nn.ELU(), nn.Linear(32, size))

    def forward(self, x):
        code = self.encoder(self.corrupt(x))
        return self.decoder(code), code


def signals(count, size=40):
    """Sums of three waves."""
    time = torch.linspace(0, 1, size)
    frequency = 1 + 5 * torch.rand(count, 3, 1)
    return (torch.rand(count, 3, 1) * (6.28 * frequency * time).sin()).sum(dim=1)


def main(args):
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed(args.seed)
    train = DataLoader(TensorDataset(signals(640)), batch_size=args.batch, shuffle=True, pin_memory=True)
    model = AutoEncoder().cuda()
    mse = nn.MSELoss().cuda()
    optimizer = torch.optim.Adam(
        [
            {"params": model.encoder.parameters(), "lr": args.lr},
            {"params": model.decoder.parameters(), "lr": args.lr / 2, "weight_decay": 1e-4},
        ],
        betas=(0.9, 0.99),
    )
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[10, 20], gamma=0.5)
    for epoch in range(args.epochs):
        seen = 0.0
        for (batch,) in train:
            batch = batch.cuda(non_blocking=True)
            output, code = model(batch)
            loss = mse(output, batch) + args.sparsity * code.abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            seen += loss.item()
        print(f"Epoch {epoch + 1}/{args.epochs} loss={seen / len(train):.5f}")

    model.eval()
    with torch.no_grad():
        fresh = signals(100).cuda()
        error = mse(model(fresh)[0], fresh).item()
    print(f"test mse: {error:.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--sparsity", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=6)
    main(parser.parse_args())
