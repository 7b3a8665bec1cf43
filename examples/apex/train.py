"""Train a multi-layer perceptron on scikit-learn's digits with NVIDIA apex: amp O2, FusedAdam, FusedLayerNorm."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from apex import amp
from apex.normalization import FusedLayerNorm
from apex.optimizers import FusedAdam
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("-b", "--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--opt-level", default="O2", help="amp optimization level")
parser.add_argument("--loss-scale", default="dynamic")
parser.add_argument("--checkpoint", default="")


class Net(nn.Module):
    """Pixels (N, 64) to logits (N, 10)."""

    def __init__(self, width=256):
        super().__init__()
        self.fc1 = nn.Linear(64, width)
        self.norm = FusedLayerNorm(width)
        self.fc2 = nn.Linear(width, 10)

    def forward(self, x):
        return self.fc2(F.gelu(self.norm(self.fc1(x))))


def train(loader, model, optimizer):
    model.train()
    for images, target in loader:
        images, target = images.cuda(non_blocking=True), target.cuda(non_blocking=True)
        loss = F.cross_entropy(model(images), target)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
    return loss.item()


@torch.no_grad()
def evaluate(loader, model):
    model.eval()
    correct = sum((model(images.cuda()).argmax(1) == target.cuda()).sum().item() for images, target in loader)
    return correct / len(loader.dataset)


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    digits = load_digits()
    data = TensorDataset(torch.from_numpy(digits.data).float() / 16, torch.from_numpy(digits.target))
    train_data, val_data = random_split(data, [1500, len(data) - 1500])
    train_loader = DataLoader(train_data, args.batch_size, shuffle=True, pin_memory=True, drop_last=True)
    val_loader = DataLoader(val_data, 256, pin_memory=True)

    model = Net().cuda()
    optimizer = FusedAdam(model.parameters(), lr=args.lr)
    model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level, loss_scale=args.loss_scale)
    for epoch in range(args.epochs):
        loss = train(train_loader, model, optimizer)
        print(f"epoch {epoch}  loss {loss:.4f}  accuracy {evaluate(val_loader, model):.4f}")
        if args.checkpoint:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "amp": amp.state_dict()}
            torch.save(state, args.checkpoint)


if __name__ == "__main__":
    main()
