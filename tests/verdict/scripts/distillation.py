"""Knowledge distillation: a wide teacher is trained first, then a narrow student follows its softened answers."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, width, dropout=0.0, classes=8):
        super().__init__()
        self.stem = nn.Linear(24, 32)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(32, width), nn.ReLU(), nn.Dropout(dropout))
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(self.body(self.stem(x)))


def clusters(count, seed):
    """Eight classes of three clusters each."""
    centres = torch.randn(24, 24, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    cluster = torch.randint(24, (count,), generator=generator)
    return TensorDataset(centres[cluster] + 0.9 * torch.randn(count, 24, generator=generator), cluster % 8)


def distillation_loss(student_logits, teacher_logits, labels, temperature, alpha):
    soft = F.kl_div(
        F.log_softmax(student_logits / temperature, dim=1),
        F.log_softmax(teacher_logits / temperature, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    hard = F.cross_entropy(student_logits, labels)
    return alpha * temperature**2 * soft + (1 - alpha) * hard


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = sum((model(x.cuda()).argmax(1) == y.cuda()).sum().item() for x, y in loader)
    return 100 * hits / len(loader.dataset)


def train_teacher(loader, test_loader, args):
    teacher = Classifier(width=96, dropout=0.3).cuda()
    optimizer = torch.optim.Adam(teacher.parameters(), lr=args.teacher_lr)
    for epoch in range(args.teacher_epochs):
        teacher.train()
        for x, y in loader:
            loss = F.cross_entropy(teacher(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"teacher epoch {epoch}: loss {loss.item():.4f}, acc {accuracy(teacher, test_loader):.2f}")
    return teacher


def train_student(teacher, loader, test_loader, args):
    student = Classifier(width=20).cuda()
    student.stem.load_state_dict(teacher.stem.state_dict())
    optimizer = torch.optim.SGD(student.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    teacher.requires_grad_(False)
    teacher.eval()
    for epoch in range(args.epochs):
        student.train()
        running, agreed = 0.0, 0
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            teacher_logits = teacher(x)
            student_logits = student(x)
            loss = distillation_loss(student_logits, teacher_logits, y, args.temperature, args.alpha)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.item()
            agreed += (student_logits.argmax(1) == teacher_logits.argmax(1)).sum().item()
        print(f"student epoch {epoch}: loss {running / len(loader):.4f}, agreement {agreed / len(loader.dataset):.4f}")
    print(f"student acc {accuracy(student, test_loader):.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--teacher-epochs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--teacher-lr", type=float, default=6e-3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--temperature", type=float, default=3.0)
    parser.add_argument("--alpha", type=float, default=0.7)
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.cuda.manual_seed(4)

    loader = DataLoader(clusters(768, seed=1), batch_size=64, shuffle=True)
    test_loader = DataLoader(clusters(400, seed=2), batch_size=200)
    teacher = train_teacher(loader, test_loader, args)
    train_student(teacher, loader, test_loader, args)


if __name__ == "__main__":
    main()
