"""A small main.py of the ImageNet kind, changed as the porting guide changes the original: for one NPU (`--device-list`
with one number), or with a process for each NPU and apex's mixed precision. Run by test_guide_imagenet.py.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.npu
import torch.utils.data
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("-b", "--batch-size", default=16, type=int)
parser.add_argument("--lr", default=0.05, type=float)
parser.add_argument("--resume", default="", type=str)
parser.add_argument("--world-size", default=-1, type=int)
parser.add_argument("--rank", default=-1, type=int)
parser.add_argument("--dist-backend", default="hccl", type=str)
parser.add_argument("--multiprocessing-distributed", action="store_true")
parser.add_argument("--device-list", default="0", type=str)
parser.add_argument("--addr", default="127.0.0.1", type=str)
parser.add_argument("--port", default="29688", type=str)
parser.add_argument("--amp", default=False, action="store_true")
parser.add_argument("--loss-scale", default=1024.0, type=float)
parser.add_argument("--opt-level", default="O2", type=str)


def device_id_to_process_device_map(device_list):
    return dict(enumerate(sorted(int(number) for number in device_list.split(","))))


def main():
    args = parser.parse_args()
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = args.addr, args.port
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    args.process_device_map = device_id_to_process_device_map(args.device_list)
    npus_per_node = len(args.process_device_map)
    if args.multiprocessing_distributed:
        args.world_size = npus_per_node * args.world_size
        mp.spawn(main_worker, nprocs=npus_per_node, args=(npus_per_node, args))
    else:
        main_worker(0, npus_per_node, args)


def main_worker(process, npus_per_node, args):
    args.gpu = args.process_device_map[process]
    loc = f"npu:{args.gpu}"
    torch.npu.set_device(loc)
    if args.distributed:
        args.rank = args.rank * npus_per_node + process
        dist.init_process_group(backend=args.dist_backend, world_size=args.world_size, rank=args.rank)
        args.batch_size = int(args.batch_size / npus_per_node)
    torch.manual_seed(49)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    ).to(loc)
    criterion = nn.CrossEntropyLoss().to(loc)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    if args.amp:
        model, optimizer = amp.initialize(
            model, optimizer, opt_level=args.opt_level, loss_scale=args.loss_scale, verbosity=0
        )
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
    start_epoch = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=loc)
        start_epoch = checkpoint["epoch"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        if args.amp:
            amp.load_state_dict(checkpoint["amp"])
    target = torch.arange(128) % 4
    images = torch.randn(128, 1, 8, 8) + target.view(-1, 1, 1, 1)
    dataset = torch.utils.data.TensorDataset(images, target)
    sampler = torch.utils.data.distributed.DistributedSampler(dataset) if args.distributed else None
    loader = torch.utils.data.DataLoader(
        dataset, args.batch_size, shuffle=sampler is None, sampler=sampler, pin_memory=False, drop_last=True
    )
    for epoch in range(start_epoch, args.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        train(loader, model, criterion, optimizer, loc, args)
        accuracy = validate(dataset, model, loc)
        print(f"epoch {epoch} on {loc} of {args.world_size}: accuracy {accuracy:.3f}", flush=True)
        if not args.distributed or args.rank % npus_per_node == 0:
            state = {
                "epoch": epoch + 1,
                "state_dict": model.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            torch.save(state | ({"amp": amp.state_dict()} if args.amp else {}), "checkpoint.pth.tar")
    if args.distributed:
        dist.destroy_process_group()


def train(loader, model, criterion, optimizer, loc, args):
    model.train()
    for images, target in loader:
        target = target.to(torch.int32)
        images, target = images.to(loc, non_blocking=False), target.to(loc, non_blocking=False)
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        if args.amp:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


def validate(dataset, model, loc):
    model.eval()
    with torch.no_grad():
        images, target = (tensor.to(loc) for tensor in dataset.tensors)
        return (model(images).argmax(1) == target).float().mean().item()


if __name__ == "__main__":
    main()
