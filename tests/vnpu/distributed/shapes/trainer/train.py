"""A trainer class with its model, two loaders and epochs."""

import json
import math
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        x = torch.tensor([math.sin(i), math.cos(i), 1.0])
        return i, x, x @ torch.tensor([1.0, -2.0, 0.5])


class Trainer:
    def __init__(self, epochs):
        torch.manual_seed(0)
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self.model = nn.Linear(3, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        self.model = self.model.to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.train_loader = DataLoader(Points(32), batch_size=4, shuffle=True)
        self.val_loader = DataLoader(Points(10), batch_size=5)
        self.epochs = epochs
        self.steps = []

    def train_epoch(self):
        self.model.train()
        for i, x, y in self.train_loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x).squeeze(1), y)
            loss.backward()
            self.optimizer.step()
            self.steps.append([i.tolist()])

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        return sum(len(self.model(x.to(self.device))) for _, x, _ in self.val_loader)

    def fit(self):
        for epoch in range(self.epochs):
            self.train_epoch()
            validated = self.validate()
            print(f"epoch {epoch}: {validated} validated")
            torch.save(self.model.state_dict(), "model.pt")
        weight = self.model.weight.tolist()[0]
        with open(f"seen-{os.getpid()}.json", "w") as stream:
            json.dump({"steps": self.steps, "weight": weight, "validated": validated}, stream)


if __name__ == "__main__":
    Trainer(epochs=2).fit()
