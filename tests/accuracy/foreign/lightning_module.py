"""LightningModule with an LSTM text classifier, torchmetrics and a cosine schedule."""

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy


class SentimentModel(L.LightningModule):
    def __init__(self, vocab_size=100, embed_dim=32, hidden_dim=32, num_classes=3, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.lstm = nn.LSTM(embed_dim, hidden_dim, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.classifier = nn.Sequential(nn.LayerNorm(2 * hidden_dim), nn.Linear(2 * hidden_dim, num_classes))
        self.train_acc, self.val_acc = MulticlassAccuracy(num_classes), MulticlassAccuracy(num_classes)

    def forward(self, tokens):
        mask = (tokens != 0).unsqueeze(-1)
        out, _ = self.lstm(self.embedding(tokens))
        return self.classifier(out.masked_fill(~mask, float("-inf")).amax(dim=1))

    def training_step(self, batch, batch_idx):
        tokens, labels = batch
        logits = self(tokens)
        loss = F.cross_entropy(logits, labels)
        self.train_acc(logits, labels)
        self.log("train_loss", loss, on_step=True)
        self.log("train_acc", self.train_acc, on_epoch=True)
        print(f"step {self.global_step} loss {loss.item():.6f}")
        return loss

    def validation_step(self, batch, batch_idx):
        logits, labels = self(batch[0]), batch[1]
        self.val_acc(logits, labels)
        self.log("val_loss", F.cross_entropy(logits, labels))
        self.log("val_acc", self.val_acc)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def make_dataset(n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (n,), generator=g)
    tokens = torch.randint(1, 50, (n, 24), generator=g) + 25 * labels[:, None]
    lengths = torch.randint(6, 25, (n, 1), generator=g)
    return TensorDataset(tokens.masked_fill(torch.arange(24) >= lengths, 0), labels)


L.seed_everything(0, workers=True)
trainer = L.Trainer(
    accelerator="auto",
    devices=1,
    max_epochs=1,
    gradient_clip_val=1.0,
    log_every_n_steps=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
train_loader = DataLoader(make_dataset(80, 0), batch_size=16, shuffle=True)
trainer.fit(SentimentModel(), train_loader, DataLoader(make_dataset(32, 1), batch_size=16))
print(f"val loss {trainer.callback_metrics['val_loss'].item():.6f}")
