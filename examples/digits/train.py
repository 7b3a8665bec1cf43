"""Train a small CNN on scikit-learn's handwritten digits, on one CUDA GPU.

An ordinary CUDA training script: nothing in it knows about NPUs. `torchport port examples/digits/train.py` ports it.
"""

import argparse
import os
import random
import time

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(
    description="Digits CNN training on CUDA", formatter_class=argparse.ArgumentDefaultsHelpFormatter
)
parser.add_argument("--epochs", default=3, type=int, metavar="N", help="number of epochs to run")
parser.add_argument("-b", "--batch-size", default=32, type=int, metavar="N", help="mini-batch size")
parser.add_argument("--lr", default=0.02, type=float, metavar="LR", help="initial learning rate")
parser.add_argument("--momentum", default=0.9, type=float, metavar="M", help="momentum")
parser.add_argument("--weight-decay", default=5e-4, type=float, metavar="W", help="weight decay")
parser.add_argument("--dropout", default=0.0, type=float, metavar="P", help="dropout before the classifier")
parser.add_argument("--seed", default=1, type=int, help="seed for the split, the weights and the order")
parser.add_argument("-j", "--workers", default=0, type=int, metavar="N", help="data loading workers")
parser.add_argument("--amp", action="store_true", help="train in mixed precision")
parser.add_argument("--checkpoint", default="", metavar="PATH", help="save a checkpoint after each epoch")
parser.add_argument("--resume", default="", metavar="PATH", help="continue from this checkpoint")
parser.add_argument("--print-freq", default=15, type=int, metavar="N", help="print every N batches")


class Net(nn.Module):
    """Two convolution blocks and a linear classifier; input (N, 1, 8, 8), output (N, 10) logits."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(64)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(64 * 2 * 2, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(self.dropout(torch.flatten(x, 1)))


class AverageMeter:
    """Computes and stores the average and current value"""

    def __init__(self):
        self.reset()

    def reset(self):
        self.val = 0.0
        self.avg = 0.0
        self.sum = 0.0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def load_data(args):
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    x_train, x_test, y_train, y_test = train_test_split(
        images, digits.target, test_size=0.2, stratify=digits.target, random_state=args.seed
    )
    train_set = TensorDataset(torch.from_numpy(x_train), torch.from_numpy(y_train))
    test_set = TensorDataset(torch.from_numpy(x_test), torch.from_numpy(y_test))
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, pin_memory=True, drop_last=True
    )
    test_loader = DataLoader(test_set, batch_size=256, num_workers=args.workers, pin_memory=True)
    return train_loader, test_loader


def train(loader, model, criterion, optimizer, scaler, epoch, args):
    losses = AverageMeter()
    top1 = AverageMeter()
    model.train()
    for i, (images, target) in enumerate(loader):
        images = images.cuda(non_blocking=True)
        target = target.cuda(non_blocking=True)

        with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
            output = model(images)
            loss = criterion(output, target)

        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

        correct = (output.argmax(1) == target).float().sum()
        losses.update(loss.item(), images.size(0))
        top1.update(100.0 * correct.item() / images.size(0), images.size(0))
        if i % args.print_freq == 0:
            print(f"Epoch: [{epoch}][{i}/{len(loader)}]\tLoss {losses.val:.4f} ({losses.avg:.4f})\tAcc {top1.avg:.2f}")
    return losses.avg


def validate(loader, model, criterion):
    losses = AverageMeter()
    top1 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            images = images.cuda(non_blocking=True)
            target = target.cuda(non_blocking=True)
            output = model(images)
            losses.update(criterion(output, target).item(), images.size(0))
            correct = output.argmax(1).eq(target).sum().item()
            top1.update(100.0 * correct / images.size(0), images.size(0))
    return losses.avg, top1.avg


def main():
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this script trains on a CUDA GPU, and none is available")
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed_all(args.seed)
    cudnn.benchmark = True

    train_loader, test_loader = load_data(args)
    model = Net(args.dropout).cuda()
    criterion = nn.CrossEntropyLoss().cuda()
    optimizer = optim.SGD(
        model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay, nesterov=True
    )
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
    print(f"=> training on {torch.cuda.get_device_name(torch.cuda.current_device())}")

    start_epoch = 0
    if args.resume:
        if not os.path.isfile(args.resume):
            raise SystemExit(f"=> no checkpoint found at '{args.resume}'")
        checkpoint = torch.load(args.resume, map_location="cuda:0")
        start_epoch = checkpoint["epoch"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        print(f"=> loaded checkpoint '{args.resume}' (epoch {start_epoch})")

    for epoch in range(start_epoch, args.epochs):
        torch.cuda.synchronize()
        begin = time.time()
        train_loss = train(train_loader, model, criterion, optimizer, scaler, epoch, args)
        torch.cuda.synchronize()
        elapsed = time.time() - begin
        test_loss, accuracy = validate(test_loader, model, criterion)
        scheduler.step()
        print(
            f" * Epoch {epoch}: train loss {train_loss:.4f}, test loss {test_loss:.4f}, test accuracy {accuracy:.2f} %"
            f" ({elapsed:.1f} s, {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB)"
        )
        if args.checkpoint:
            torch.save(
                {
                    "epoch": epoch + 1,
                    "state_dict": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                },
                args.checkpoint,
            )


if __name__ == "__main__":
    main()
