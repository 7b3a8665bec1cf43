"""Small trainings that are sick, and others that only look so for a while: `python trainings.py NAME ...`.

Each prints as another trainer does, ends with exit status 0 and raises nothing.
"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda"


def data(classes=4):
    return torch.randn(32, 8, device=device), torch.randint(0, classes, (32,), device=device)


def network():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)


def fit(net, optimizer, steps, say, *, loss=nn.functional.cross_entropy):
    x, y = data()
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        say(step, value.item())


def sick_diverges():
    net = network()
    fit(
        net,
        torch.optim.SGD(net.parameters(), 1e6),
        12,
        lambda step, loss: print(f"step {step} loss {loss:.4f}"),
        loss=lambda out, y: (out.square().mean() - 1).square(),
    )


def sick_labels_ignored():
    net = network()
    fit(
        net,
        torch.optim.SGD(net.parameters(), 0.1),
        12,
        lambda step, loss: print({"loss": round(loss, 4), "grad_norm": 0.0, "learning_rate": 0.1, "epoch": step / 10}),
        loss=lambda out, y: nn.functional.cross_entropy(out, y.fill_(-100), reduction="sum"),
    )


def sick_rate_zero():
    net = network()
    fit(
        net,
        torch.optim.SGD(net.parameters(), 0.0),
        20,
        lambda step, loss: print(f"Epoch [1][{step}/20]  lr: 0.000e+00  eta: 0:00:01  time: 0.01  loss: {loss:.4f}"),
    )


def sick_other_parameters():
    net, other = network(), network()
    for parameter in other.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(other.parameters(), 1e-3, weight_decay=0.0)
    fit(net, optimizer, 20, lambda step, loss: print(f"iter {step}: loss {loss:.4f}, time 12.31ms, mfu 4.20%"))


def scaled(steps, scale, say, *, spoil):
    net = network()
    optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cuda", init_scale=scale)
    x, y = data()
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        (scaler.scale(loss)).backward()
        if spoil(step):
            net[0].weight.grad.fill_(float("inf"))
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        say(step, loss.item(), before, scaler.get_scale())


def sick_scale_falls():
    scaled(
        24,
        65536.0,
        lambda step, loss, _, scale: print(
            f" iteration {step:8}/      24 | elapsed time per iteration (ms): 12.1 | learning rate: 1.000E-01 | "
            f"lm loss: {loss:.6E} | loss scale: {scale:.1f} | grad norm: 1.213 | number of nan iterations:   0 |"
        ),
        spoil=lambda step: True,
    )


def sick_all_skipped():
    scaled(
        20,
        65536.0,
        lambda step, loss, before, scale: print(
            f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {before:.0f}, reducing to {scale:.0f}"
        ),
        spoil=lambda step: True,
    )


def sick_norm_is_nan():
    scaled(
        20,
        2.0**40,
        lambda step, loss, before, scale: print(
            {"loss": round(loss, 4), "grad_norm": float("nan"), "learning_rate": 1e-5, "epoch": step / 10}
        ),
        spoil=lambda step: True,
    )


def sick_infinite():
    net = network()
    fit(
        net,
        torch.optim.SGD(net.parameters(), 0.01),
        12,
        lambda step, loss: print(f"Train Epoch: 1 [{step * 64}/768 ({step * 8}%)]\tLoss: {loss:.6f}"),
        loss=lambda out, y: -(torch.zeros(1, device=device).log() + 0 * out.mean()).mean(),
    )


def sick_mindspore_like():
    net = network()
    fit(
        net,
        torch.optim.SGD(net.parameters(), 1e6),
        12,
        lambda step, loss: print(f"epoch: 1 step: {step}, loss is {loss}"),
        loss=lambda out, y: (out.square().mean() - 1).square(),
    )


def sick_slows_down():
    """The work of a step grows, as with losses that are added up with their graphs; what it costs is counted, not timed."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    kept = []
    x, y = data()
    for step in range(1, 31):
        optimizer.zero_grad()
        kept.append(nn.functional.cross_entropy(net(x), y))
        sum(one.detach() for one in kept[:-1]) + kept[-1]
        kept[-1].backward()
        optimizer.step()
        print(f"step: {step} loss: {kept[-1].item():.4f} throughput: {3200 / len(kept):.1f} samples/s")


def well_scale_settles():
    scaled(
        40,
        2.0**24,
        lambda step, loss, before, scale: print(
            {"loss": round(loss, 4), "grad_norm": float("inf") if step < 9 else 1.2, "loss_scale": scale, "step": step}
        ),
        spoil=lambda step: step < 9,
    )


def well_gan():
    generator, critic = nn.Linear(4, 8).to(device), nn.Linear(8, 1).to(device)
    first = torch.optim.Adam(generator.parameters(), 1e-3)
    second = torch.optim.Adam(critic.parameters(), 1e-3)
    ones, zeros = torch.ones(16, 1, device=device), torch.zeros(16, 1, device=device)
    judge = nn.functional.binary_cross_entropy_with_logits
    for step in range(20):
        fake = generator(torch.randn(16, 4, device=device))
        second.zero_grad()
        d_loss = judge(critic(torch.randn(16, 8, device=device)), ones) + judge(critic(fake.detach()), zeros)
        d_loss.backward()
        second.step()
        first.zero_grad()
        g_loss = judge(critic(fake), ones)
        g_loss.backward()
        first.step()
        print(f"[Epoch 1/1] [Batch {step}/20] [D loss: {d_loss.item() / 2:.3f}] [G loss: 0.693]")


def well_warms_up():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    x, y = data()
    for step in range(1, 31):
        rate = 0.0 if step <= 12 else 0.5
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        print({"loss": round(loss.item(), 4), "learning_rate": rate, "epoch": step / 10})


def well_policy():
    policy = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    for step in range(20):
        chosen = torch.distributions.Categorical(logits=policy(torch.randn(16, 4, device=device)))
        action = chosen.sample()
        reward = torch.zeros(16, device=device) if step < 12 else action.float()
        loss = -(chosen.log_prob(action) * reward).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"episode {step} reward {reward.mean().item():.3f} policy_loss {loss.item():.4f} loss {loss.item():.4f}")


def well_preferences():
    net = network()
    start = 0.6931
    fit(
        net,
        torch.optim.SGD(net.parameters(), 0.5),
        16,
        lambda step, loss: print(
            {"loss": start if step < 8 else round(loss / 2, 4), "rewards/margins": 0.0, "epoch": step}
        ),
    )


def well_group_relative():
    net = network()
    fit(
        net,
        torch.optim.SGD(net.parameters(), 0.1),
        16,
        lambda step, loss: print({"loss": 0.0, "grad_norm": 0.3, "reward": step / 16, "kl": 0.0, "epoch": step / 10}),
    )


def well_classes_absent():
    net = network()
    fit(
        net,
        torch.optim.SGD(net.parameters(), 0.1),
        12,
        lambda step, loss: print(f"Epoch {step}/12 loss: {loss:.4f} val_loss: nan mIoU: 0.41 IoU.bus: nan"),
    )


def well_one_bad_batch():
    net = network()
    fit(
        net,
        torch.optim.SGD(net.parameters(), 0.1),
        16,
        lambda step, loss: print(f"step {step} loss {float('nan') if step == 7 else loss:.4f}"),
    )


def well_learns_by_heart():
    net = network()
    fit(net, torch.optim.Adam(net.parameters(), 0.05), 120, lambda step, loss: print(f"step {step} loss {loss:.2f}"))


def well_router():
    net = network()
    fit(
        net,
        torch.optim.SGD(net.parameters(), 0.1),
        16,
        lambda step, loss: print(f"step: {step} loss: {loss:.4f} aux_loss: 0.0000 z_loss: 0.0 grad_norm: 0.8"),
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"=== {name}", flush=True)
        globals()[name]()
        print(f"Training completed: {name}", flush=True)
