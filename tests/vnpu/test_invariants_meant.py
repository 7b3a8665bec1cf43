"""Invariants of training: programs that resemble a mistake and are right have nothing named."""

from __future__ import annotations

from trainings import START, run

# Each resembles a mistake, and is meant.
HEALTHY = """
def cleared_by_hand():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    for _ in range(14):
        for _ in range(2):
            (loss(net) / 2).backward()
        optimizer.step()
        for one in net.parameters():
            one.grad.zero_()


def closures():
    net = nn.Linear(8, 4).cuda()
    for optimizer in torch.optim.LBFGS(net.parameters(), 0.1, 5), torch.optim.SGD(net.parameters(), 0.1):

        def closure():
            optimizer.zero_grad()
            result = loss(net)
            result.backward()
            return result

        for _ in range(5):
            optimizer.step(closure)


def two_optimizers():
    one, two = make(), make()
    optimizers = [torch.optim.Adam(net.parameters()) for net in (one, two)]
    for step in range(6):
        which = step % 2
        optimizers[which].zero_grad()
        loss((one, two)[which]).backward()
        for net in (one, two):
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizers[which].step()


def few_rows_of_a_table():
    table = nn.Embedding(500, 8).cuda()
    optimizer = torch.optim.SGD(table.parameters(), 0.1)
    for _ in range(6):
        optimizer.zero_grad()
        table(torch.randint(100, 500, (4,)).cuda()).square().sum().backward()
        optimizer.step()


def warmed_up():
    net = nn.Linear(8, 4).cuda().bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 10.0 ** (step - 12) if step < 12 else 1.0)
    for _ in range(14):
        optimizer.zero_grad()
        net(torch.randn(16, 8).cuda().bfloat16()).float().square().mean().backward()
        optimizer.step()
        schedule.step()


def measured_norms():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for _ in range(4):
        fit(net, optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), float("inf"))


def limit_scaled():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(loss(net)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0 * scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()


def fused_and_skipped():
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**126)
    for _ in range(8):
        optimizer.zero_grad()
        scaler.scale(loss(net) * 1e4).backward()
        scaler.step(optimizer)
        scaler.update()


def evaluated_as_it_should():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for epoch in range(5):
        net.train()
        fit(net, optimizer)
        net.eval()
        evaluate(net)


def iterated():
    for load in (False, True):
        generator, critic = nn.Linear(4, 8).cuda(), nn.utils.spectral_norm(nn.Linear(8, 1)).cuda()
        with torch.no_grad():
            critic.load_state_dict({name: one.clone() for name, one in critic.state_dict().items()}) if load else critic(torch.randn(2, 8).cuda())
        critic.eval()
        optimizer = torch.optim.SGD(generator.parameters(), 0.05)
        for _ in range(4):
            optimizer.zero_grad()
            critic(generator(torch.randn(16, 4).cuda())).mean().backward()
            optimizer.step()


def restored():
    data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randint(0, 4, (32,)))
    sampler = torch.utils.data.WeightedRandomSampler(torch.rand(32), 32)
    net, kept, best = nn.Linear(8, 4).cuda(), None, None
    for stage in range(2):
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        if kept:
            optimizer.load_state_dict(kept[0])
            schedule.load_state_dict(kept[1])
            net.load_state_dict(best)
        for _ in range(3):
            for x, y in torch.utils.data.DataLoader(data, 16, sampler=sampler):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
                optimizer.step()
                schedule.step()
        state = net.state_dict()
        for value in state.values():
            value.mul_(1.0)
        net.load_state_dict(state)
        kept, best = (optimizer.state_dict(), schedule.state_dict()), {name: one.clone() for name, one in state.items()}


def clearing_by_itself():
    class Clearing(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            self.zero_grad()

    net = make()
    optimizer = Clearing(net.parameters(), 0.05)
    for _ in range(6):
        loss(net).backward()
        optimizer.step()


def frozen_part():
    part, head = make().eval().requires_grad_(False), make()
    net = nn.Sequential(part, nn.Linear(4, 8).cuda(), head)
    optimizer = torch.optim.SGD([*net[1].parameters(), *head.parameters()], 0.05)
    fit(net, optimizer, 6)


def wrapping():
    class Twice(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.05})
            self.inner = torch.optim.SGD(self.param_groups, 0.05)

        def step(self, closure):
            for _ in range(2):
                result = closure()
                self.inner.step()
                self.zero_grad()
            return result

    net = make()
    optimizer = Twice(net.parameters())

    def closure():
        result = loss(net)
        result.backward()
        return result

    for _ in range(6):
        optimizer.step(closure)


def taught():
    teacher, student = make(), make()
    for net, steps in ((teacher, 2), (student, 5)):
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        for _ in range(steps):
            x = torch.randn(16, 8).cuda()
            optimizer.zero_grad()
            given = teacher(x).detach() if net is student else torch.zeros(16, 4).cuda()
            (net(x) - given).square().mean().backward()
            optimizer.step()
        net.eval()
        evaluate(net)


def averaged():
    net = make(0.0)
    average = torch.optim.swa_utils.AveragedModel(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for _ in range(4):
        fit(net, optimizer)
        average.update_parameters(net)
    loss(average).backward()
    torch.optim.swa_utils.update_bn([torch.randn(16, 8).cuda() for _ in range(5)], average)


def warmed_up_by_hand_then_scheduled():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for epoch in range(3):
        for step in range(6):
            if epoch == 0:
                optimizer.param_groups[0]["lr"] = 0.1 * (step + 1) / 6
            fit(net, optimizer)
        schedule.step()


def chained():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    rates = torch.optim.lr_scheduler
    schedule = rates.SequentialLR(
        optimizer, [rates.ConstantLR(optimizer, 0.1, 3), rates.CosineAnnealingLR(optimizer, 9)], [3]
    )
    fit(net, optimizer, 12, schedule)


for training in [value for value in list(globals().values()) if getattr(value, "__module__", "") == "__main__"]:
    if training not in (make, loss, fit, evaluate):
        training()
print("done")
"""


def test_what_is_meant_is_no_mistake(tmp_path):
    (tmp_path / "train.py").write_text(START + HEALTHY)
    ended = run(tmp_path, "run", "--invariants", "train.py")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "done\n"
    assert "no invariant of training is broken as far as it was judged" in ended.stderr
    assert "tied weights are one tensor" in " ".join(ended.stderr.partition("not met in this run: ")[2].split())
