"""ViT image classification with label smoothing, warmup and an accuracy metric at the end."""

import tempfile

import numpy as np
import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed


class Blobs(torch.utils.data.Dataset):
    """Noisy images with a coloured patch whose place gives the class."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 4, (n,), generator=g)
        self.images = 0.3 * torch.randn(n, 3, 32, 32, generator=g)
        for image, label in zip(self.images, self.labels.tolist()):
            y, x = 16 * (label // 2), 16 * (label % 2)
            image[:, y : y + 16, x : x + 16] += torch.rand(3, 1, 1, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"pixel_values": self.images[i], "labels": self.labels[i]}


def compute_metrics(pred):
    return {"accuracy": float((np.argmax(pred.predictions, axis=-1) == pred.label_ids).mean())}


set_seed(0)
config = ViTConfig(
    image_size=32,
    patch_size=8,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=128,
    hidden_dropout_prob=0.1,
    num_labels=4,
)
model = ViTForImageClassification(config)
args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=5,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    learning_rate=3e-4,
    warmup_steps=2,
    label_smoothing_factor=0.1,
    max_grad_norm=1.0,
    logging_steps=1,
    save_strategy="no",
    remove_unused_columns=False,
    report_to="none",
)
trainer = Trainer(
    model=model, args=args, train_dataset=Blobs(128, 0), eval_dataset=Blobs(32, 1), compute_metrics=compute_metrics
)
trainer.train()
for entry in trainer.state.log_history:
    if "loss" in entry:
        print(f"step {entry['step']} loss {float(entry['loss']):.6f}")
metrics = trainer.evaluate()
print(f"eval loss {metrics['eval_loss']:.6f} accuracy {metrics['eval_accuracy']:.4f}")
