import torch
def choose():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
