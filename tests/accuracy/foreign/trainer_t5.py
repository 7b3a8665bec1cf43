"""Seq2seq fine-tuning of a small T5 with Adafactor; targets are padded with -100."""

import tempfile

import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration, set_seed


class SortDigits(torch.utils.data.Dataset):
    """Map a sequence of digit tokens to the sorted sequence."""

    def __init__(self, size=64):
        g = torch.Generator().manual_seed(0)
        self.items = []
        for _ in range(size):
            n = int(torch.randint(3, 12, (1,), generator=g))
            source = torch.randint(2, 50, (n,), generator=g)
            self.items.append((source, source.sort().values))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        source, target = self.items[index]
        eos = torch.tensor([1])
        return {"input_ids": torch.cat([source, eos]), "labels": torch.cat([target, eos])}


def collate(features, pad_token_id=0, label_pad_token_id=-100):
    width = max(len(f["input_ids"]) for f in features)
    ids = torch.full((len(features), width), pad_token_id)
    labels = torch.full((len(features), width), label_pad_token_id)
    for i, f in enumerate(features):
        ids[i, : len(f["input_ids"])] = f["input_ids"]
        labels[i, : len(f["labels"])] = f["labels"]
    return {"input_ids": ids, "attention_mask": ids.ne(pad_token_id).long(), "labels": labels}


set_seed(0)
config = T5Config(
    vocab_size=64,
    d_model=48,
    d_kv=12,
    d_ff=96,
    num_layers=2,
    num_decoder_layers=2,
    num_heads=4,
    feed_forward_proj="gated-gelu",
    decoder_start_token_id=0,
    pad_token_id=0,
    eos_token_id=1,
)
model = T5ForConditionalGeneration(config)
args = Seq2SeqTrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=5,
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    optim="adafactor",
    lr_scheduler_type="constant",
    logging_steps=1,
    save_strategy="no",
    report_to="none",
)
trainer = Seq2SeqTrainer(model=model, args=args, train_dataset=SortDigits(), data_collator=collate)
trainer.train()
for entry in trainer.state.log_history:
    if "loss" in entry:
        print(f"step {entry['step']} loss {float(entry['loss']):.6f}")
