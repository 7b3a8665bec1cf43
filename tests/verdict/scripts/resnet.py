"""A small residual network with batch normalisation, label smoothing and a cosine schedule, as for CIFAR."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.layer1 = BasicBlock(8, 8, 1)
        self.layer2 = BasicBlock(8, 16, 2)
        self.layer3 = BasicBlock(16, 16, 2)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.fc(self.drop(x))


def blobs(count, classes=5):
    """12 x 12 colour images with a bright blob whose colour and place depend on the class."""
    labels = torch.randint(classes, (count,))
    images = 0.5 * torch.randn(count, 3, 12, 12)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[label % 3, 2 * label : 2 * label + 4, 3:9] += 1.0
    return TensorDataset(images, labels)


best_acc = 0.0


def main():
    global best_acc
    parser = argparse.ArgumentParser(description="PyTorch small-image training")
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("--lr", default=0.05, type=float, help="learning rate")
    parser.add_argument("--wd", default=5e-4, type=float, help="weight decay")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    trainloader = DataLoader(blobs(480), batch_size=48, shuffle=True, num_workers=0, pin_memory=True)
    testloader = DataLoader(blobs(120), batch_size=60, shuffle=False, num_workers=0)
    net = ResNet().to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.wd, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    for epoch in range(args.epochs):
        net.train()
        train_loss = 0.0
        for inputs, targets in trainloader:
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            outputs = net(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            train_loss += loss.item()
        scheduler.step()

        net.eval()
        correct = 0
        with torch.no_grad():
            for inputs, targets in testloader:
                correct += net(inputs.to(device)).argmax(1).eq(targets.to(device)).sum().item()
        best_acc = max(best_acc, 100.0 * correct / 120)
        print(f"Epoch {epoch}: train loss {train_loss / len(trainloader):.3f} | Acc: {100.0 * correct / 120:.3f}%")
    print(f"best Acc: {best_acc:.3f}%")


if __name__ == "__main__":
    main()
