"""A variational autoencoder on scikit-learn's digits; the noise is drawn on the device."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="VAE digits example")
parser.add_argument("--batch-size", type=int, default=112)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)
device = torch.device("cuda")

pixels = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
train_loader = DataLoader(TensorDataset(pixels[:1400]), batch_size=args.batch_size, shuffle=True, pin_memory=True)
test_loader = DataLoader(TensorDataset(pixels[1400:]), batch_size=args.batch_size)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 80)
        self.mean = nn.Linear(80, 6)
        self.logvar = nn.Linear(80, 6)
        self.fc3 = nn.Linear(6, 80)
        self.fc4 = nn.Linear(80, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.mean(h1), self.logvar(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return self.fc4(h3)

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=2e-3)


def loss_function(logits, x, mu, logvar):
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return reconstruction + kld


for epoch in range(1, args.epochs + 1):
    model.train()
    train_loss = 0.0
    for (data,) in train_loader:
        data = data.to(device, non_blocking=True)
        optimizer.zero_grad()
        logits, mu, logvar = model(data)
        loss = loss_function(logits, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    print(f"====> Epoch: {epoch} Average loss: {train_loss / 1400:.4f}")

model.eval()
test_loss = 0.0
with torch.no_grad():
    for (data,) in test_loader:
        data = data.to(device)
        logits, mu, logvar = model(data)
        test_loss += loss_function(logits, data, mu, logvar).item()
print(f"====> Test set loss: {test_loss / len(test_loader.dataset):.4f}")
