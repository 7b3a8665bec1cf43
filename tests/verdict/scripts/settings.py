"""A model, its optimizer and its schedule, all built from settings; `--set optim.lr=0.01` changes one of them."""

import argparse
import json

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEFAULTS = """
{
  "seed": 20,
  "data": {"count": 640, "features": 18, "classes": 5, "spread": 1.1, "batch_size": 64},
  "model": {"hidden": [64, 48], "activation": "SiLU", "dropout": 0.1, "norm": true},
  "optim": {"name": "RAdam", "lr": 0.01, "betas": [0.9, 0.98], "weight_decay": 0.001},
  "schedule": {"name": "MultiStepLR", "milestones": [10, 28], "gamma": 0.3},
  "train": {"epochs": 4, "clip": 2.0, "label_smoothing": 0.05},
  "output": "results.json"
}
"""


def override(settings, text):
    path, value = text.split("=", 1)
    *folders, name = path.split(".")
    for folder in folders:
        settings = settings[folder]
    settings[name] = json.loads(value)


def build_data(settings):
    rng = np.random.RandomState(settings["seed"])
    classes, features = settings["data"]["classes"], settings["data"]["features"]
    centres = rng.randn(classes, features)
    sets = []
    for count in (settings["data"]["count"], 250):
        labels = rng.randint(classes, size=count)
        points = centres[labels] + settings["data"]["spread"] * rng.randn(count, features)
        sets.append(TensorDataset(torch.tensor(points, dtype=torch.float32), torch.tensor(labels)))
    size = settings["data"]["batch_size"]
    return DataLoader(sets[0], size, shuffle=True), DataLoader(sets[1], size)


def build_model(settings):
    options = settings["model"]
    layers, inputs = [], settings["data"]["features"]
    for outputs in options["hidden"]:
        layers.append(nn.Linear(inputs, outputs))
        if options["norm"]:
            layers.append(nn.LayerNorm(outputs))
        layers += [getattr(nn, options["activation"])(), nn.Dropout(options["dropout"])]
        inputs = outputs
    return nn.Sequential(*layers, nn.Linear(inputs, settings["data"]["classes"]))


def build(module, options, *args):
    options = dict(options)
    return getattr(module, options.pop("name"))(*args, **options)


def evaluate(model, loader, criterion, device):
    model.eval()
    loss, hits = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            logits = model(x)
            loss += criterion(logits, y).item() * len(y)
            hits += (logits.argmax(1) == y).sum().item()
    return loss / len(loader.dataset), hits / len(loader.dataset)


def train(settings):
    torch.manual_seed(settings["seed"])
    device = torch.device("cuda")
    train_loader, valid_loader = build_data(settings)
    model = build_model(settings).to(device)
    optimizer = build(torch.optim, settings["optim"], model.parameters())
    scheduler = build(torch.optim.lr_scheduler, settings["schedule"], optimizer)
    criterion = nn.CrossEntropyLoss(label_smoothing=settings["train"]["label_smoothing"])
    history = []
    for epoch in range(settings["train"]["epochs"]):
        model.train()
        for x, y in train_loader:
            loss = criterion(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings["train"]["clip"])
            optimizer.step()
            scheduler.step()
        valid_loss, valid_accuracy = evaluate(model, valid_loader, criterion, device)
        history.append({"epoch": epoch, "valid_loss": valid_loss, "valid_accuracy": valid_accuracy})
        print(f"epoch {epoch}: valid loss {valid_loss:.4f}, valid accuracy {valid_accuracy:.4f}")
    best = min(history, key=lambda entry: entry["valid_loss"])
    with open(settings["output"], "w") as file:
        json.dump({"settings": settings, "history": history, "best": best}, file, indent=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    settings = json.loads(DEFAULTS)
    for text in parser.parse_args().set:
        override(settings, text)
    train(settings)
