"""Instruction tuning of a tiny Qwen3: padded batches, masked prompts, gradient checkpointing and accumulation."""

import tempfile

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen3Config, Qwen3ForCausalLM, Trainer, TrainingArguments, set_seed

PAD = 0


def make_examples(n=48, vocab_size=320):
    g = torch.Generator().manual_seed(1)
    examples = []
    for _ in range(n):
        prompt = torch.randint(3, vocab_size, (int(torch.randint(4, 16, (1,), generator=g)),), generator=g)
        answer = torch.cat([prompt.flip(0), torch.tensor([2])])
        ids = torch.cat([prompt, answer])
        labels = torch.cat([torch.full_like(prompt, -100), answer])
        examples.append({"input_ids": ids, "labels": labels})
    return examples


def collate(batch):
    ids = pad_sequence([b["input_ids"] for b in batch], batch_first=True, padding_value=PAD)
    labels = pad_sequence([b["labels"] for b in batch], batch_first=True, padding_value=-100)
    lengths = torch.tensor([len(b["input_ids"]) for b in batch])
    mask = (torch.arange(ids.size(1))[None] < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


set_seed(0)
config = Qwen3Config(
    vocab_size=320,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=128,
    tie_word_embeddings=True,
    pad_token_id=PAD,
    eos_token_id=2,
    bos_token_id=1,
)
model = Qwen3ForCausalLM(config)

args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=4,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    learning_rate=1e-3,
    lr_scheduler_type="cosine",
    warmup_steps=1,
    weight_decay=0.1,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
)
trainer = Trainer(model=model, args=args, train_dataset=make_examples(), data_collator=collate)
trainer.train()
for row in trainer.state.log_history:
    if "loss" in row:
        print(f"step {row['step']}: loss {float(row['loss']):.6f} grad_norm {float(row['grad_norm']):.4f}")
