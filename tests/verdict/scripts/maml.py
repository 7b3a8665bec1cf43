"""Model-agnostic meta-learning of sine waves: the gradient of what is left after two steps of gradient descent."""

import argparse
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F


class SineTasks:
    """Sines of different amplitude and phase; ten points to adapt to, ten to be judged by."""

    def __init__(self, seed, shots=10):
        self.rng = np.random.RandomState(seed)
        self.shots = shots

    def sample(self):
        amplitude, phase = self.rng.uniform(0.5, 3.0), self.rng.uniform(0, np.pi)
        x = self.rng.uniform(-4, 4, size=(2 * self.shots, 1)).astype(np.float32)
        y = (amplitude * np.sin(x + phase)).astype(np.float32)
        x, y = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
        return x[: self.shots], y[: self.shots], x[self.shots :], y[self.shots :]


def init_params(hidden=32):
    sizes = [1, hidden, hidden, 1]
    params = {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        params[f"w{i}"] = (torch.randn(outputs, inputs) / inputs**0.5).cuda().requires_grad_()
        params[f"b{i}"] = torch.zeros(outputs).cuda().requires_grad_()
    return params


def forward(params, x):
    x = torch.tanh(F.linear(x, params["w0"], params["b0"]))
    x = torch.tanh(F.linear(x, params["w1"], params["b1"]))
    return F.linear(x, params["w2"], params["b2"])


def adapt(params, x, y, steps, inner_lr, create_graph):
    """The weights after some steps of gradient descent on one task."""
    fast = dict(params)
    for _ in range(steps):
        loss = F.mse_loss(forward(fast, x), y)
        grads = torch.autograd.grad(loss, list(fast.values()), create_graph=create_graph)
        fast = {name: value - inner_lr * grad for (name, value), grad in zip(fast.items(), grads, strict=True)}
    return fast


def evaluate(params, args):
    tasks = SineTasks(seed=99)
    before, after = [], []
    for _ in range(args.test_tasks):
        support_x, support_y, query_x, query_y = tasks.sample()
        fast = adapt(params, support_x, support_y, args.test_steps, args.inner_lr, create_graph=False)
        with torch.no_grad():
            before.append(F.mse_loss(forward(params, query_x), query_y).item())
            after.append(F.mse_loss(forward(fast, query_x), query_y).item())
    return np.mean(before), np.mean(after)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=36)
    parser.add_argument("--meta-batch", type=int, default=4)
    parser.add_argument("--inner-lr", type=float, default=0.02)
    parser.add_argument("--inner-steps", type=int, default=2)
    parser.add_argument("--meta-lr", type=float, default=5e-3)
    parser.add_argument("--test-tasks", type=int, default=20)
    parser.add_argument("--test-steps", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(6)

    params = init_params()
    optimizer = torch.optim.Adam(params.values(), lr=args.meta_lr)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[28], gamma=0.3)
    tasks = SineTasks(seed=1)
    for iteration in range(1, args.iterations + 1):
        meta_loss = 0.0
        for _ in range(args.meta_batch):
            support_x, support_y, query_x, query_y = tasks.sample()
            fast = adapt(params, support_x, support_y, args.inner_steps, args.inner_lr, create_graph=True)
            meta_loss = meta_loss + F.mse_loss(forward(fast, query_x), query_y)
        meta_loss = meta_loss / args.meta_batch
        optimizer.zero_grad()
        meta_loss.backward()
        optimizer.step()
        scheduler.step()
        if iteration % 6 == 0:
            print(f"iteration {iteration}: meta loss {meta_loss.item():.4f}")

    before, after = evaluate(params, args)
    print(f"mse of new tasks: {before:.4f} -> {after:.4f} after {args.test_steps} steps")
    np.savez("maml_sine.npz", **{name: value.detach().cpu().numpy() for name, value in params.items()})


if __name__ == "__main__":
    main()
