# cause: process.fork
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.mean = torch.zeros(3, device="cuda")

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(3, device="cuda") - self.mean


for batch in DataLoader(Images(), batch_size=2, num_workers=2):
    print(batch.sum().item())
