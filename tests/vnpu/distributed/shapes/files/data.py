import math

from torch import arange, tensor
from torch.utils.data import DataLoader, TensorDataset


def points(count):
    x = tensor([[math.sin(i), math.cos(i), 1.0] for i in range(count)])
    return TensorDataset(arange(count), x, x @ tensor([1.0, -2.0, 0.5]))


def make_loaders(batch_size, workers=0):
    train_set, val_set = points(32), points(10)
    train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, num_workers=workers)
    val_loader = DataLoader(val_set, batch_size=batch_size, shuffle=False, num_workers=workers)
    return train_loader, val_loader
