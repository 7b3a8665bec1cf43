"""Invariants of training: each mistake is named at its line."""

from __future__ import annotations

import json
import textwrap

from trainings import START, run

# Each function is one training with one mistake; its name is part of what is to be said of it.
MISTAKES = """
def nothing_cleared():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for _ in range(5):
        loss(net).backward()
        optimizer.step()


def closure_not_cleared():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)

    def closure():
        result = loss(net)
        result.backward()
        return result

    for _ in range(5):
        optimizer.step(closure)


def built_before():
    net = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    net = nn.Sequential(nn.Linear(8, 4)).cuda()
    fit(net, optimizer, 5)


def lost_in_bfloat16():
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4)).cuda().bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), 1e-6)
    for _ in range(6):
        optimizer.zero_grad()
        net(torch.randn(16, 8).cuda().bfloat16()).float().square().mean().backward()
        optimizer.step()


def one_stuck():
    class Half(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure=None):
            for one in self.param_groups[0]["params"][1:]:
                one -= 0.05 * one.grad

    net = make()
    optimizer = Half(net.parameters(), {})
    fit(net, optimizer, 10)


def dropped_in_evaluation():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 4)

        def forward(self, x):
            return nn.functional.dropout(self.linear(x), 0.3)

    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    fit(net, optimizer)
    net.eval()
    with torch.no_grad():
        for _ in range(4):
            net(torch.randn(16, 8).cuda())


def not_frozen():
    class Backbone(nn.Sequential):
        frozen_stages = 1

        def train(self, mode=True):
            super().train(mode)
            self[0].requires_grad_(False)

    net = Backbone(nn.Linear(8, 8), nn.Linear(8, 4)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    fit(net, optimizer, 2)


def not_iterated():
    generator, critic = nn.Linear(4, 8).cuda(), nn.utils.spectral_norm(nn.Linear(8, 1)).cuda().eval()
    optimizer = torch.optim.SGD(generator.parameters(), 0.05)
    for _ in range(4):
        optimizer.zero_grad()
        critic(generator(torch.randn(16, 4).cuda())).mean().backward()
        optimizer.step()


def never_in_training():
    net = make().eval()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    fit(net, optimizer, 6)


def attribute_of_a_module():
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)).cuda()
    net[0].requires_grad = False
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    fit(net, optimizer, 2)


def weights_of_classes():
    data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
    sampler = torch.utils.data.WeightedRandomSampler([0.1, 0.2, 0.3, 0.4], 64)
    for x, y in torch.utils.data.DataLoader(data, 16, sampler=sampler):
        pass


def kept_by_reference():
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for step in range(4):
        if step == 1:
            best = net.state_dict()
        fit(net, optimizer)
    net.load_state_dict(best)


def schedule_not_restored():
    net = nn.Linear(8, 4).cuda()
    for stage in range(2):
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        if stage:
            optimizer.load_state_dict(kept)
            for group in optimizer.param_groups:
                group["lr"] = 0.1
        fit(net, optimizer, 6, schedule)
        kept = optimizer.state_dict()


def most_cut_off():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net[4](net[:4](torch.randn(16, 8).cuda()).detach()), torch.arange(16).cuda() % 4).backward()
        optimizer.step()


def train_forgotten():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for epoch in range(3):
        fit(net, optimizer, 4)
        net.eval()
        evaluate(net)


def evaluated_in_training():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for epoch in range(2):
        fit(net, optimizer)
        evaluate(net)


def clipped_scaled():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(loss(net)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def clipped_late():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for _ in range(4):
        fit(net, optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)


def clipped_nothing():
    net = make()
    parameters = (one for one in net.parameters())
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for _ in range(4):
        optimizer.zero_grad()
        loss(net).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()


def schedule_of_another():
    net = make()
    other = torch.optim.SGD(net.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(other, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    fit(net, optimizer, 15, schedule)


def schedule_overwritten():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(8):
        for group in optimizer.param_groups:
            group["lr"] = 0.3
        fit(net, optimizer, 1, schedule)


def without_a_rate():
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step // 100)
    fit(net, optimizer, 12)


for mistake in [value for value in list(globals().values()) if getattr(value, "__module__", "") == "__main__"]:
    if mistake not in (make, loss, fit, evaluate):
        mistake()
"""
SAID = {
    "nothing_cleared": ("gradients are cleared", "optimizer 0 (SGD) steps with gradients that were"),
    "closure_not_cleared": ("gradients are cleared", "optimizer 1 (SGD) steps with gradients that were"),
    "built_before": ("the optimizer updates what the model computes with", "after the optimizer was built"),
    "lost_in_bfloat16": ("weights move", "in bfloat16 an update below half a unit"),
    "one_stuck": ("weights move", "have not changed in 8 steps, though they have gradients (0.weight)"),
    "dropped_in_evaluation": ("dropout rests in evaluation", "F.dropout with p=0.3 and training=True"),
    "not_frozen": ("layers that are to be frozen are frozen", "frozen_stages=1 and trains all"),
    "not_iterated": ("spectral norms have iterated before they are used", "a Linear with spectral_norm that is in"),
    "never_in_training": (
        "evaluation and training have their modes",
        "Sequential trains in evaluation mode, with 1 dropout layers",
    ),
    "attribute_of_a_module": ("layers that are to be frozen are frozen", "a Linear was given requires_grad=False"),
    "weights_of_classes": ("loaders give different batches of all data", "has 4 weights for 64 samples"),
    "kept_by_reference": ("states that are loaded were kept", "Sequential loads its own weights"),
    "schedule_not_restored": ("states that are loaded were kept", "and of its StepLR not"),
    "most_cut_off": ("the optimizer updates what the model computes with", "4 of 6 parameters of optimizer"),
    "train_forgotten": ("evaluation and training have their modes", "nothing called train() again"),
    "evaluated_in_training": ("evaluation and training have their modes", "3 times in a row in training mode"),
    "clipped_scaled": ("gradients are clipped before the step", "unscale_() has to come first"),
    "clipped_late": ("gradients are clipped before the step", "it runs after the step"),
    "clipped_nothing": ("gradients are clipped before the step", "an iterator that was used up"),
    "schedule_of_another": ("the learning rate follows its schedule", "has not stepped once"),
    "schedule_overwritten": ("the learning rate follows its schedule", "steps with learning rate 0.3"),
    "without_a_rate": ("the learning rate follows its schedule", "with a learning rate of 0 from the beginning"),
}


def list_lines(script):
    """The function to which each line of a script belongs."""
    function, found = "", {}
    for number, line in enumerate(script.splitlines(), 1):
        if line.startswith("def "):
            function = line.removeprefix("def ").partition("(")[0]
        found[number] = function
    return found


def test_each_mistake_is_named_at_its_line(tmp_path):
    script = START + MISTAKES
    (tmp_path / "train.py").write_text(script)
    ended = run(tmp_path, "run", "--invariants", "--record", "rec", "--level", "none", "train.py")
    assert ended.returncode == 1, ended.stderr
    assert "TP368" in ended.stderr
    listed = run(tmp_path, "record", "invariants", "rec", "--json")
    assert listed.returncode == 1
    lines = list_lines(script)
    found = [
        (lines[finding["location"]["line"]], finding["message"]) for finding in json.loads(listed.stdout)["findings"]
    ]
    for function, (name, part) in SAID.items():
        said = [(where, message) for where, message in found if part in message]
        assert len(said) == 1, (function, found)
        ((where, message),) = said
        assert where in (function, "loss", "fit", "evaluate")  # called by all
        assert message.startswith(f"{name}: ")
        found.remove((where, message))
    assert not found


def test_a_scripts_own_status_comes_first(tmp_path):
    (tmp_path / "train.py").write_text(START + "raise SystemExit(5)\n")
    ended = run(tmp_path, "run", "--invariants", "train.py")
    assert ended.returncode == 5
    assert "nothing was judged" in ended.stderr


def test_tied_weights_are_looked_at(tmp_path):
    script = """
    import torch
    from torch import nn


    class Language(nn.Module):
        _tied_weights_keys = ["head.weight"]

        def __init__(self, parted):
            super().__init__()
            self.config = type("Config", (), {"tie_word_embeddings": True})()
            self.table, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
            self.head.weight = nn.Parameter(self.table.weight.detach().clone()) if parted else self.table.weight

        def get_input_embeddings(self):
            return self.table

        def get_output_embeddings(self):
            return self.head

        def forward(self, words):
            return self.head(self.table(words))


    for kind in (Language, type("Parted", (Language,), {})):
        net = kind(kind is not Language).cuda()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        words = torch.arange(16).cuda()
        nn.functional.cross_entropy(net(words), words).backward()
        optimizer.step()
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    ended = run(tmp_path, "run", "-q", "--invariants", "train.py")
    assert ended.returncode == 1, ended.stderr
    assert "Parted says that its input and output embeddings are tied" in ended.stderr
    assert ended.stderr.count("TP368") == 1
