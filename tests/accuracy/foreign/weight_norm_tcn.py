"""Speech-like recognition: weight-normalised TCN front end, packed bidirectional LSTM, CTC loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class TemporalBlock(nn.Module):
    def __init__(self, n_in, n_out, dilation, kernel_size=3, dropout=0.1):
        super().__init__()
        self.pad = (kernel_size - 1) * dilation
        self.conv1 = weight_norm(nn.Conv1d(n_in, n_out, kernel_size, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(n_out, n_out, kernel_size, dilation=dilation))
        self.downsample = nn.Conv1d(n_in, n_out, 1) if n_in != n_out else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        h = self.dropout(F.relu(self.conv1(F.pad(x, (self.pad, 0)))))
        h = self.dropout(F.relu(self.conv2(F.pad(h, (self.pad, 0)))))
        return F.relu(h + self.downsample(x))


class Recognizer(nn.Module):
    def __init__(self, n_mels=20, channels=32, vocab=12):
        super().__init__()
        self.tcn = nn.Sequential(TemporalBlock(n_mels, channels, 1), TemporalBlock(channels, channels, 2))
        self.rnn = nn.LSTM(channels, channels, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * channels, vocab)

    def forward(self, x, lengths):
        h = self.tcn(x.transpose(1, 2)).transpose(1, 2)
        packed = pack_padded_sequence(h, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.fc(out).log_softmax(dim=-1)


def make_batch(g, size=6):
    prototypes = torch.randn(12, 20, generator=torch.Generator().manual_seed(99))
    labels = [torch.randint(1, 12, (int(n),), generator=g) for n in torch.randint(4, 9, (size,), generator=g)]
    feats = [prototypes[label].repeat_interleave(5, dim=0) for label in labels]
    feats = [f + 0.3 * torch.randn(f.shape, generator=g) for f in feats]
    feat_len, label_len = torch.tensor([len(f) for f in feats]), torch.tensor([len(y) for y in labels])
    return pad_sequence(feats, batch_first=True), pad_sequence(labels, batch_first=True), feat_len, label_len


model = Recognizer().to(device).train()
criterion = nn.CTCLoss(blank=0, zero_infinity=True)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(0)
for step in range(5):
    x, y, x_len, y_len = (t.to(device) for t in make_batch(g))
    loss = criterion(model(x, x_len).transpose(0, 1), y, x_len, y_len)
    optimizer.zero_grad()
    loss.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    print(f"step {step} ctc loss {loss.item():.6f} grad norm {grad_norm.item():.4f}")
