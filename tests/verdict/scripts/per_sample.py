"""Private training: gradients of single samples by torch.func, clipped, summed, with noise; the update by hand."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, features=16, hidden=24, classes=4):
        super().__init__()
        self.fc1 = nn.Linear(features, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def clusters(count, seed):
    centres = torch.randn(4, 16, generator=torch.Generator().manual_seed(77))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    return TensorDataset(centres[labels] + 1.2 * torch.randn(count, 16, generator=generator), labels)


def make_gradient(model):
    """A function from parameters and a batch to the loss and gradient of each sample."""

    def loss_of_one(params, x, y):
        logits = functional_call(model, params, (x.unsqueeze(0),))
        loss = F.cross_entropy(logits, y.unsqueeze(0))
        return loss, loss

    return vmap(grad(loss_of_one, has_aux=True), in_dims=(None, 0, 0))


def privatize(grads, max_norm, noise):
    """The sum of the clipped gradients with noise, and the share of samples that were clipped."""
    norms = torch.stack([value.flatten(1).norm(dim=1) for value in grads.values()]).norm(dim=0)
    factor = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    summed = {}
    for name, value in grads.items():
        total = torch.einsum("n,n...->...", factor, value)
        summed[name] = total + noise * max_norm * torch.randn_like(total)
    return summed, (factor < 1).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--max-grad-norm", type=float, default=0.8)
    parser.add_argument("--noise-multiplier", type=float, default=0.6)
    args = parser.parse_args()
    torch.manual_seed(14)
    device = torch.device("cuda")

    loader = DataLoader(clusters(500, seed=1), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(clusters(300, seed=2), batch_size=100)
    model = Classifier().to(device)
    params = {name: value.detach() for name, value in model.named_parameters()}
    velocity = {name: torch.zeros_like(value) for name, value in params.items()}
    gradient = make_gradient(model)

    for epoch in range(args.epochs):
        noise = args.noise_multiplier if epoch < 3 else 0.5 * args.noise_multiplier
        losses, clipped = [], []
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            grads, loss = gradient(params, x, y)
            summed, share = privatize(grads, args.max_grad_norm, noise)
            with torch.no_grad():
                for name, value in params.items():
                    velocity[name].mul_(args.momentum).add_(summed[name] / len(x))
                    value.sub_(args.lr * velocity[name])
            losses.append(loss.mean().item())
            clipped.append(share)
        mean, share = sum(losses) / len(losses), sum(clipped) / len(clipped)
        print(f"epoch {epoch}: loss {mean:.4f}, clipped {100 * share:.1f} %, sigma {noise:.2f}")

    hits = 0
    with torch.no_grad():
        for x, y in test_loader:
            logits = functional_call(model, params, (x.to(device),))
            hits += (logits.argmax(dim=1) == y.to(device)).sum().item()
    print(f"private accuracy {100 * hits / len(test_loader.dataset):.2f} %")


if __name__ == "__main__":
    main()
