"""A trainer with callbacks: a log of JSON lines, a checkpoint after each epoch, and training that can be resumed."""

import argparse
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Callback:
    def on_train_begin(self, trainer): ...

    def on_step_end(self, trainer, loss): ...

    def on_epoch_end(self, trainer, metrics): ...


class JsonLogger(Callback):
    def __init__(self, path):
        self.path = path

    def on_epoch_end(self, trainer, metrics):
        lr = trainer.optimizer.param_groups[0]["lr"]
        with open(self.path, "a") as file:
            file.write(json.dumps({"epoch": trainer.epoch, "step": trainer.step, "lr": lr, **metrics}) + "\n")


class Progress(Callback):
    def on_train_begin(self, trainer):
        print(f"training from epoch {trainer.epoch}, step {trainer.step}")

    def on_epoch_end(self, trainer, metrics):
        print(f"epoch {trainer.epoch}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))


class Checkpoint(Callback):
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def on_epoch_end(self, trainer, metrics):
        state = {
            "model": trainer.model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "scheduler": trainer.scheduler.state_dict(),
            "epoch": trainer.epoch + 1,
            "step": trainer.step,
        }
        torch.save(state, os.path.join(self.folder, f"epoch_{trainer.epoch}.pt"))


class Trainer:
    def __init__(self, model, train_loader, val_loader, lr, callbacks, device="cuda"):
        self.model = model.to(device)
        self.train_loader, self.val_loader, self.device = train_loader, val_loader, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.7)
        self.callbacks, self.epoch, self.step = callbacks, 0, 0

    def call(self, event, *args):
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)

    def resume(self, path):
        state = torch.load(path, map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.epoch, self.step = state["epoch"], state["step"]

    def fit(self, epochs):
        self.call("on_train_begin")
        while self.epoch < epochs:
            self.model.train()
            total = 0.0
            for x, y in self.train_loader:
                loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                total += loss.item()
                self.call("on_step_end", loss)
            self.scheduler.step()
            self.call("on_epoch_end", {"train_loss": total / len(self.train_loader), **self.validate()})
            self.epoch += 1

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        loss, hits, count = 0.0, 0, 0
        for x, y in self.val_loader:
            x, y = x.to(self.device), y.to(self.device)
            logits = self.model(x)
            loss += F.cross_entropy(logits, y, reduction="sum").item()
            hits += (logits.argmax(1) == y).sum().item()
            count += len(y)
        return {"val_loss": loss / count, "val_accuracy": hits / count}


def checkerboard(count, seed):
    generator = torch.Generator().manual_seed(seed)
    points = 3 * torch.rand(count, 2, generator=generator)
    labels = points.floor().sum(dim=1).long() % 2
    noisy = points + 0.05 * torch.randn(count, 2, generator=generator)
    return TensorDataset(torch.cat([noisy, (2 * noisy).sin(), (2 * noisy).cos()], dim=1), labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--preempted-after", type=int, default=2, help="epochs after which the job starts anew")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(15)
    loaders = DataLoader(checkerboard(480, 1), 40, shuffle=True), DataLoader(checkerboard(200, 2), 80)
    callbacks = [Progress(), JsonLogger("log.jsonl"), Checkpoint("checkpoints")]

    def make():
        net = nn.Sequential(
            nn.Linear(6, 64), nn.ReLU(), nn.Dropout(0.05), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
        )
        return Trainer(net, *loaders, args.lr, callbacks)

    make().fit(args.preempted_after)
    trainer = make()
    trainer.resume(f"checkpoints/epoch_{args.preempted_after - 1}.pt")
    trainer.fit(args.epochs)


if __name__ == "__main__":
    main()
