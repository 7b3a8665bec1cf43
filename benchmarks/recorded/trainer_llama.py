"""A small Llama with transformers' Trainer and its default options: 128 wide, three layers."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

tokens = torch.randint(0, 256, (256, 64), generator=torch.Generator().manual_seed(0))
config = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=344, num_hidden_layers=3, num_attention_heads=4)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, max_steps=30, per_device_train_batch_size=8, report_to="none")
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=rows).train()
