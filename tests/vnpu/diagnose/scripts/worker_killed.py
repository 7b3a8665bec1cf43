# cause: process.worker-killed
import os
import signal

import torch
from torch.utils.data import DataLoader, Dataset


class Large(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory is short


for batch in DataLoader(Large(), num_workers=1):
    print(batch.cuda().sum())
