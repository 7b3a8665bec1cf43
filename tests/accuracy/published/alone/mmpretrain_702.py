"""Fine-tune a small VGG with its first stages frozen (config driven, runner style)."""

import argparse
import copy

import torch
import torch.nn as nn

CONFIG = dict(
    backbone=dict(widths=(8, 16, 24), frozen_stages=2, norm_eval=False),
    head=dict(num_classes=4),
    optimizer=dict(type="SGD", lr=0.03, momentum=0.9, weight_decay=1e-4),
    max_epochs=3,
    iters_per_epoch=10,
    batch=16,
)


class SmallVGG(nn.Module):
    def __init__(self, widths, frozen_stages=-1, norm_eval=False):
        super().__init__()
        self.frozen_stages = frozen_stages
        self.norm_eval = norm_eval
        c = 3
        self.stages = nn.ModuleList()
        for w in widths:
            self.stages.append(
                nn.Sequential(nn.Conv2d(c, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(2))
            )
            c = w
        self.out_channels = c

    def _freeze_stages(self):
        for i in range(self.frozen_stages):
            self.stages[i].eval()
            for p in self.stages[i].parameters():
                p.requires_grad = False

    def forward(self, x):
        for s in self.stages:
            x = s(x)
        return x.mean((2, 3))

    def train(self, mode=True):
        super().train(mode)
        self._freeze_stages()
        if mode and self.norm_eval:
            for m in self.modules():
                if isinstance(m, nn.BatchNorm2d):
                    m.eval()
        return self


class Classifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.backbone = SmallVGG(**cfg["backbone"])
        self.head = nn.Linear(self.backbone.out_channels, cfg["head"]["num_classes"])
        self.loss_fn = nn.CrossEntropyLoss()

    def train_step(self, img, gt_label):
        return self.loss_fn(self.head(self.backbone(img)), gt_label)


class EpochRunner:
    def __init__(self, model, optimizer, cfg, set_mode):
        self.model, self.optimizer, self.cfg, self.set_mode = model, optimizer, cfg, set_mode

    def run(self, make_batch):
        it = 0
        for epoch in range(self.cfg["max_epochs"]):
            if self.set_mode:
                self.model.train()
            for _ in range(self.cfg["iters_per_epoch"]):
                img, lab = make_batch()
                loss = self.model.train_step(img.cuda(), lab.cuda())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                it += 1
            print(f"Epoch [{epoch + 1}] iter {it} loss: {loss.item():.4f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--fault", action="store_true")
    a = p.parse_args()
    cfg = copy.deepcopy(CONFIG)
    torch.manual_seed(702)
    model = Classifier(cfg).cuda()
    before = [q.detach().clone() for q in model.backbone.stages[0].parameters()]
    oc = cfg["optimizer"]
    optimizer = torch.optim.SGD(
        model.parameters(), lr=oc["lr"], momentum=oc["momentum"], weight_decay=oc["weight_decay"]
    )
    protos = torch.randn(4, 3, 16, 16)

    def make_batch():
        y = torch.randint(0, 4, (cfg["batch"],))
        return protos[y] + 0.7 * torch.randn(cfg["batch"], 3, 16, 16), y

    EpochRunner(model, optimizer, cfg, set_mode=not a.fault).run(make_batch)
    moved = max((q.detach() - b).abs().max().item() for q, b in zip(model.backbone.stages[0].parameters(), before))
    print(f"frozen_stages={model.backbone.frozen_stages} largest change in stage 0: {moved:.6f}")


if __name__ == "__main__":
    main()
