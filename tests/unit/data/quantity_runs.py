"""Small trainings, recorded in this process as a run records them; run by test_quantities.py in a process of its own.

Prints {name: events} as JSON, with float64 oracles beside them under "oracle".
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

from torchport.findings import Result
from torchport.record import reference
from torchport.record.limit import Limit
from torchport.record.names import Names
from torchport.record.norms import Norms, Samples, sample_elements
from torchport.record.part import Part
from torchport.record.placed import name_own_device
from torchport.record.quantities import SAMPLE, Quantities
from torchport.record.recorder import Recorder
from torchport.record.recording import HEAD, VERSION, Journal, Recording
from torchport.record.sites import Sites
from torchport.record.uploads import Uploads, checksum_tensor


class Change(Part):
    """Does something wrong at the third step, before it is measured."""

    def __init__(self, what):
        self.what = what
        self.before = []

    def on_step_begin(self, optimizer, number, step, closure):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if step == 2 and self.what == "gradient":
            parameters[0].grad.mul_(1.01)
        self.before = [p.detach().clone() for p in parameters]

    def on_step_end(self, optimizer, number, step):
        if step == 2 and self.what == "update":
            with torch.no_grad():
                for before, p in zip(
                    self.before, (p for group in optimizer.param_groups for p in group["params"]), strict=True
                ):
                    p.add_(p - before, alpha=0.05)


def recorded(run, *parts, refer=True):
    """The events of `run`."""
    folder = Path(tempfile.mkdtemp())
    Result("record", data={"recording": VERSION}).write(folder / HEAD)
    journal, sites = Journal(folder), Sites()

    def prepare(torch, patches):
        if refer:
            patches.on_undo(reference.apply_reference_patches(torch).undo)
        recorder.parts.extend(parts)
        uploads = Uploads(torch, journal.write_event, recorder.readings, sites.find_user_line)
        uploads.install(patches)
        recorder.parts += [
            uploads,
            Quantities(
                torch,
                journal.write_event,
                recorder.readings,
                recorder.names,
                lambda: recorder.optimizers,
                name_own_device,
            ),
        ]

    recorder = Recorder(journal, sites, Limit(folder, None, None, lambda *_: None), 0, prepare)
    recorder.install()
    try:
        run()
    finally:
        recorder.undo()
        journal.close()
    (process,) = Recording.from_directory(folder).processes
    kinds = ("parameters", "norms", "inputs", "upload", "scaler", "autocast", "loss", "step", "settings")
    return [event for event in process.events if event["kind"] in kinds]


def batches():
    return torch.randn(5, 8, 40, generator=torch.Generator().manual_seed(3))


def train(order=(0, 1, 2, 3, 4), skip=None, oracle=None, dtype=torch.float32):
    """SGD on a network whose second layer has more elements than a sample."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(40, 300), nn.Tanh(), nn.Linear(300, 300), nn.Linear(300, 2)).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    data = batches()
    for number, index in enumerate(order):
        loss = net(data[index].to("cuda").to(dtype)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        before = [p.detach().clone() for p in net.parameters()]
        if oracle is not None:
            oracle.append({"gradient": [p.grad.double().norm().item() for p in net.parameters()]})
        if number != skip:
            optimizer.step()
        if oracle is not None:
            after = [sample_elements(torch, p.detach(), SAMPLE).double() for p in net.parameters()]
            early = [sample_elements(torch, p, SAMPLE).double() for p in before]
            oracle[-1]["norm"] = [one.norm().item() for one in after]
            oracle[-1]["change"] = [
                (one - other).norm().item() for one, other in zip(after, early, strict=True)
            ]


def hostile():
    """Parameters of every kind that must not break a run."""
    sparse = nn.Embedding(10, 3, sparse=True)
    plain, unused, empty = (nn.Parameter(torch.ones(n)) for n in (4, 3, 0))
    wave = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    meta = nn.Parameter(torch.empty(3, device="meta"))
    expanded = nn.Parameter(torch.ones(1, 1).expand(70, 60))
    last = nn.Parameter(torch.randn(16, 8, 5, 5).to(memory_format=torch.channels_last))
    flat = nn.Parameter(torch.randn(300, 400).t())
    single = nn.Parameter(torch.tensor(2.0))
    dense = [plain, unused, empty, wave, meta, last, flat, single]
    first = torch.optim.SGD([sparse.weight], 0.1)
    second = torch.optim.SGD(dense, 0.1)
    third = torch.optim.SGD([expanded], 0.0)
    for _ in range(2):
        loss = sparse(torch.tensor([1, 2])).sum() + plain.sum() + wave.abs().sum() + last.square().sum()
        loss = loss + flat.square().sum() * single + expanded.sum()
        for optimizer in (first, second, third):
            optimizer.zero_grad()
        loss.backward()
        first.step()
        second.step()
        # its elements share memory: a real optimizer refuses to write there
        expanded.grad = None
        third.step()


def closure():
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = torch.optim.LBFGS([weight], 0.1, max_iter=2)

    def again():
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(again)


def by_hand():
    net = nn.Linear(3, 2)
    torch.manual_seed(0)
    extra = torch.ones(2, requires_grad=True)
    for _ in range(3):
        loss = (net(torch.ones(4, 3)) * extra).square().sum()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
                p.grad = None


def gradients():
    weight = torch.ones(3, requires_grad=True)
    other = torch.ones(2, requires_grad=True)
    for _ in range(2):
        torch.autograd.grad((weight * 2).sum(), [weight, other], allow_unused=True)


def long_run():
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    bias = nn.Parameter(torch.tensor([2.0]))
    optimizer = torch.optim.SGD([weight, bias], 0.0)

    class Given(nn.Module):
        def forward(self, x, other):
            return x

    for _ in range(203):
        optimizer.zero_grad()
        Given()({"x": weight}, other=torch.tensor([2]))
        ((weight * torch.tensor([3.0, 4.0])).sum() + bias.sum() * 12).backward()
        optimizer.step()


def scaled():
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (weight * (float("inf") if step == 1 else 1.0)).sum()
            with torch.autocast("cuda", enabled=False):
                loss = loss.float()
        with torch.autocast("cuda", enabled=False):  # within none, so it changes nothing and is not recorded
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def uploads():
    host = torch.arange(12.0).view(3, 4)
    device = torch.device("cuda")
    target = torch.empty(3, 4, device=device)
    layer = nn.Linear(2, 2).to(device)
    for index in range(2):
        host.to(device)
        host.to(device=device, dtype=torch.float64)
        host.cuda(non_blocking=True)
        target.copy_(host + index)
        torch.tensor([1, 2, index], device=device)
        torch.as_tensor(host.numpy(), device=device)
        host.to(torch.float64)
        layer.weight.to(device)
        torch.tensor([1])
        torch.empty(0, 3).to(device)


def many_visits():
    for _ in range(203):
        torch.ones(1).to("cuda")


def compiled(backend):
    """A step of an optimizer that dynamo traces; `backend` "": as it is."""
    torch.manual_seed(1)
    net = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    model, step = (
        (torch.compile(net, backend=backend), torch.compile(optimizer.step, backend=backend))
        if backend
        else (net, optimizer.step)
    )
    for batch in batches()[:, :, :6]:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        step()


def torch_script():
    """A scripted function finds the operators behind what is watched."""

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor(2.0, device=x.device) + torch.as_tensor([1.0], device=x.device).to(x.device)

    assert torch.jit.script(double)(torch.ones(1)).item() == 3
    with torch.device("meta"):
        assert torch.tensor([1.0]).device.type == "meta"


def surroundings():
    found = torch.jit._builtins._find_builtin(torch.tensor)
    hooks = torch.nn.modules.module._global_forward_hooks
    return dict(vars(torch.Tensor)), torch.tensor, torch.as_tensor, found, dict(hooks)


def transform():
    torch.func.grad(lambda x: (x.to("cuda") * x).sum())(torch.ones(3))
    torch.func.vmap(lambda x: x * 2)(torch.ones(3))


def each_sample(compiled=False):
    """Gradients of each sample, and of a function with its value; the second through a compiler."""
    each = torch.func.vmap(torch.func.grad(lambda w, x: (w * x).sum()), (None, 0))
    each(torch.ones(3), torch.tensor([[1.0, 2.0, 2.0], [0.0, 3.0, 4.0]]))
    if compiled:
        torch.compile(each, backend="eager", fullgraph=True)(torch.ones(3), torch.ones(2, 3))
    torch.func.grad_and_value(lambda x: x.square().sum())(torch.tensor([3.0, 4.0]))


def main():
    torch.set_num_threads(1)
    found, oracle = {}, []
    recorded(torch_script)  # whatever is made at its first use is there now
    before = surroundings()
    runs = {
        "hostile": hostile, "closure": closure, "by hand": by_hand, "gradients": gradients, "long": long_run,
        "scaled": scaled, "uploads": uploads, "visits": many_visits, "transform": transform,
        "each sample": each_sample, "each sample compiled": lambda: each_sample(compiled=True),
    }
    found["plain"] = recorded(train)
    found["again"] = recorded(train)
    found["oracle run"] = recorded(lambda: train(oracle=oracle))
    for what in ("gradient", "update"):
        found[what] = recorded(train, Change(what))
    found["order"] = recorded(lambda: train(order=(0, 1, 3, 2, 4)))
    found["skipped"] = recorded(lambda: train(skip=2))
    found["half"] = recorded(lambda: train(dtype=torch.bfloat16))
    for name, run in runs.items():
        found[name] = recorded(run)
    for backend in ("", "eager"):
        found[f"compiled {backend}"] = recorded(lambda backend=backend: compiled(backend), refer=False)
    found["undone"] = surroundings() == before
    found["script"] = recorded(torch_script, refer=False)
    found["oracle"] = oracle
    found["accuracy"] = accuracy()
    found["names"] = names()
    json.dump(found, sys.stdout)


def accuracy():
    """Relative errors of norms against float64, and what a sample takes."""
    generator = torch.Generator().manual_seed(0)
    errors = {}
    for name, shape in {"long": (1500, 1037), "short": (7,), "rows": (512, 512, 3, 3)}.items():
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            value = torch.randn(shape, generator=generator).to(dtype)
            norms = Norms(torch, [None, value])
            none, norm = norms.assemble_norms([vector.tolist() for vector in norms.vectors])
            assert none is None
            errors[f"{name} {dtype}"] = abs(norm / value.double().norm().item() - 1)
    big = torch.arange(64 * 49 * 100).view(64, 49, 100)
    taken = sample_elements(torch, big, 1000)
    strided = sample_elements(torch, big.permute(2, 0, 1).contiguous().permute(1, 2, 0), 1000)
    expanded = sample_elements(torch, torch.arange(100).expand(500, 100), 1000)
    before = Samples(torch, [torch.ones(5), torch.ones(3)], 4)
    other = Samples(torch, [torch.ones(5)], 4, before).measure(before)
    return {
        "errors": errors,
        "taken": taken.tolist(),
        "same elements": torch.equal(taken, strided),
        "view": taken.data_ptr() == big.data_ptr(),
        "expanded": [expanded.numel(), expanded.max().item()],
        "other layout": other.assemble_norms([vector.tolist() for vector in other.vectors])[1],
        "half is exact": checksum_tensor(torch, torch.tensor([1.0, 2.0], dtype=torch.bfloat16))[1:],
    }


def names():
    inner = nn.Linear(2, 2)
    outer = nn.Sequential(nn.ReLU(), inner)
    known = Names(torch)
    known.learn_module(inner)
    early = known.find_name(inner.weight)
    known.learn_module(outer)
    late = known.find_name(inner.weight)
    outer.append(nn.Linear(2, 2))
    without = known.find_name(outer[2].bias)
    known.update_names([outer[2].bias])
    return [early, late, without, known.find_name(outer[2].bias), *variables()]


def variables():
    """What variables call parameters that no module has; modules come first."""
    known = Names(torch)
    weights = {"w": [nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2))]}
    scale, head = nn.Parameter(torch.ones(1)), nn.Linear(1, 1)
    everything = [*weights["w"], scale, *head.parameters()]
    known.learn_variables(sys._getframe(), everything)
    found = [known.find_name(one) for one in everything]
    known.learn_module(head)
    return [*found, known.find_name(head.weight)]


if __name__ == "__main__":
    main()
