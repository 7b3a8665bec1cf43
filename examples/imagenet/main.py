"""Train a small ResNet as the well-known ImageNet scripts do: one or several CUDA GPUs, AMP, resume, evaluate.

The images are scikit-learn's digits, enlarged: every part of such a script is here but the 150 GB.
"""

import argparse
import os
import random
import shutil
import time
import warnings

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description="PyTorch ImageNet-style training")
parser.add_argument("-j", "--workers", default=0, type=int, metavar="N", help="data loading workers (default: 0)")
parser.add_argument("--epochs", default=3, type=int, metavar="N", help="number of total epochs to run")
parser.add_argument("--start-epoch", default=0, type=int, metavar="N", help="manual epoch number (for restarts)")
parser.add_argument("-b", "--batch-size", default=64, type=int, metavar="N", help="batch size of all GPUs together")
parser.add_argument("--lr", "--learning-rate", default=0.05, type=float, metavar="LR", dest="lr")
parser.add_argument("--momentum", default=0.9, type=float, metavar="M")
parser.add_argument("--wd", "--weight-decay", default=1e-4, type=float, metavar="W", dest="weight_decay")
parser.add_argument("-p", "--print-freq", default=10, type=int, metavar="N", help="print frequency (default: 10)")
parser.add_argument("--limit", default=0, type=int, metavar="N", help="train on N images only (default: all)")
parser.add_argument("--resume", default="", type=str, metavar="PATH", help="path to latest checkpoint")
parser.add_argument("--checkpoint", default="", type=str, metavar="PATH", help="save a checkpoint here")
parser.add_argument("-e", "--evaluate", action="store_true", help="evaluate model on validation set")
parser.add_argument("--amp", action="store_true", help="automatic mixed precision")
parser.add_argument("--world-size", default=-1, type=int, help="number of nodes for distributed training")
parser.add_argument("--rank", default=-1, type=int, help="node rank for distributed training")
parser.add_argument("--dist-url", default="tcp://127.0.0.1:23456", type=str, help="url to set up training")
parser.add_argument("--dist-backend", default="nccl", type=str, help="distributed backend")
parser.add_argument("--seed", default=None, type=int, help="seed for initializing training")
parser.add_argument("--gpu", default=None, type=int, help="GPU id to use")
parser.add_argument("--multiprocessing-distributed", action="store_true", help="one process per GPU of this node")

best_acc1 = 0


class Block(nn.Module):
    """Two convolutions around which the input goes."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.down = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.down(x), inplace=True)


def small_resnet(classes=10):
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)),
        *(Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)),
    )


def main():
    args = parser.parse_args()
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
        cudnn.deterministic = True
    if args.gpu is not None:
        warnings.warn("You have chosen a specific GPU. This will completely disable data parallelism.", stacklevel=1)
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ["WORLD_SIZE"])
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed

    ngpus_per_node = torch.cuda.device_count() if torch.cuda.is_available() else 1
    if args.multiprocessing_distributed:
        args.world_size = ngpus_per_node * max(args.world_size, 1)
        mp.spawn(main_worker, nprocs=ngpus_per_node, args=(ngpus_per_node, args))
    else:
        main_worker(args.gpu, ngpus_per_node, args)


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    args.gpu = gpu
    if args.gpu is not None:
        print(f"Use GPU: {args.gpu} for training")
    if args.distributed:
        if args.dist_url == "env://" and args.rank == -1:
            args.rank = int(os.environ["RANK"])
        if args.multiprocessing_distributed:
            args.rank = max(args.rank, 0) * ngpus_per_node + gpu
        dist.init_process_group(
            backend=args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank
        )

    model = small_resnet()
    if not torch.cuda.is_available():
        print("using CPU, this will be slow")
        device = torch.device("cpu")
    else:
        device = torch.device("cuda" if args.gpu is None else f"cuda:{args.gpu}")
        torch.cuda.set_device(device if args.gpu is not None else 0)
        model.to(device)
    if args.distributed:
        args.batch_size = int(args.batch_size / ngpus_per_node)
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])

    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
    scaler = torch.cuda.amp.GradScaler(enabled=args.amp)

    if args.resume:
        print(f"=> loading checkpoint '{args.resume}'")
        loc = "cpu" if device.type == "cpu" else f"cuda:{args.gpu or 0}"
        checkpoint = torch.load(args.resume, map_location=loc)
        args.start_epoch = checkpoint["epoch"]
        best_acc1 = checkpoint["best_acc1"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        scaler.load_state_dict(checkpoint["scaler"])

    digits = load_digits()
    images = F.interpolate(torch.from_numpy(digits.images).float().unsqueeze(1) / 16, scale_factor=4)
    target = torch.from_numpy(digits.target)
    train_dataset = TensorDataset(images[:1500][: args.limit or None], target[:1500][: args.limit or None])
    val_dataset = TensorDataset(images[1500:], target[1500:])
    train_sampler = DistributedSampler(train_dataset) if args.distributed else None
    train_loader = DataLoader(
        train_dataset,
        batch_size=args.batch_size,
        shuffle=(train_sampler is None),
        num_workers=args.workers,
        pin_memory=torch.cuda.is_available(),
        sampler=train_sampler,
        drop_last=True,
    )
    val_loader = DataLoader(val_dataset, batch_size=args.batch_size, num_workers=args.workers)

    if args.evaluate:
        validate(val_loader, model, criterion, device, args)
        return
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, scaler, epoch, device, args)
        acc1 = validate(val_loader, model, criterion, device, args)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if args.checkpoint and (not args.distributed or args.rank % ngpus_per_node == 0):
            state = {
                "epoch": epoch + 1,
                "state_dict": model.state_dict(),
                "best_acc1": best_acc1,
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "scaler": scaler.state_dict(),
            }
            save_checkpoint(state, is_best, args.checkpoint)


def train(train_loader, model, criterion, optimizer, scaler, epoch, device, args):
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        with torch.cuda.amp.autocast(enabled=args.amp):
            output = model(images)
            loss = criterion(output, target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if i % args.print_freq == 0:
            acc1 = accuracy(output, target)
            print(
                f"Epoch [{epoch}][{i}/{len(train_loader)}] Loss {loss.item():.4f} Acc@1 {acc1:.2f} "
                f"Time {time.time() - end:.3f}"
            )
        end = time.time()


@torch.no_grad()
def validate(val_loader, model, criterion, device, args):
    model.eval()
    total = torch.zeros(3, device=device)
    for images, target in val_loader:
        if torch.cuda.is_available():
            images, target = (images.cuda(args.gpu, non_blocking=True), target.cuda(args.gpu, non_blocking=True))
        output = model(images)
        correct = (output.argmax(1) == target).sum()
        total += torch.stack(
            [criterion(output, target) * len(target), correct.float(), correct.new_tensor(len(target)).float()]
        )
    if args.distributed:
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
    loss, correct, count = total.tolist()
    print(f" * Acc@1 {100 * correct / count:.3f} Loss {loss / count:.4f}")
    return 100 * correct / count


def save_checkpoint(state, is_best, filename):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, f"{filename}.best")


def accuracy(output, target):
    return 100 * (output.argmax(1) == target).float().mean().item()


if __name__ == "__main__":
    main()
