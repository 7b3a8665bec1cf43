"""torch.distributed.pipelining over two stages; five layers have to be divided among them."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

D, NLAYERS, CLASSES, ROWS, MICRO = 14, 5, 6, 16, 4


class ResMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.wi = nn.Linear(D, 3 * D)
        self.wo = nn.Linear(3 * D, D)

    def forward(self, x):
        return x + self.wo(nn.functional.silu(self.wi(self.norm(x))))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, D)
        self.layers = nn.ModuleDict({str(i): ResMLP() for i in range(NLAYERS)})
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(self.norm(x))


def layers_of_stage(stage, stages, fault):
    each = NLAYERS // stages
    start = stage * each
    stop = start + each
    if not fault:
        rest = NLAYERS % stages  # early stages take one more
        start = stage * each + min(stage, rest)
        stop = start + each + (1 if stage < rest else 0)
    return range(start, stop)


def cut(model, stage, stages, fault):
    keep = {str(i) for i in layers_of_stage(stage, stages, fault)}
    for k in list(model.layers):
        if k not in keep:
            del model.layers[k]
    if stage > 0:
        model.embed = None
    if stage < stages - 1:
        model.norm = model.head = None
    return model


def criterion(out, target):
    return nn.functional.cross_entropy(out, target)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    args = ap.parse_args()
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    rank, stages = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(15)
    model = cut(Backbone(), rank, stages, args.fault and stages > 1).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    if stages > 1:
        mb = ROWS // MICRO
        first = torch.zeros(mb, 8, device=device)
        mid = torch.zeros(mb, D, device=device, requires_grad=True)
        last = torch.zeros(mb, CLASSES, device=device, requires_grad=True)
        stage = PipelineStage(
            model,
            rank,
            stages,
            device,
            input_args=(first if rank == 0 else mid,),
            output_args=(last if rank == stages - 1 else mid,),
        )
        schedule = ScheduleGPipe(stage, n_microbatches=MICRO, loss_fn=criterion)
    gen = torch.Generator().manual_seed(40)
    rule = torch.randn(8, CLASSES, generator=gen)
    for step in range(10):
        x = torch.randn(ROWS, 8, generator=gen)
        y = (x @ rule).argmax(-1).to(device)
        x = x.to(device)
        opt.zero_grad()
        loss = torch.zeros((), device=device)
        if stages == 1:
            for xm, ym in zip(x.chunk(MICRO), y.chunk(MICRO)):
                l = criterion(model(xm), ym) / MICRO
                l.backward()
                loss += l.detach()
        elif rank == 0:
            schedule.step(x)
        else:
            losses = []
            schedule.step(target=y, losses=losses)
            loss = torch.stack([l.detach() for l in losses]).mean()
        opt.step()
        dist.broadcast(loss, stages - 1)
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
