"""transformers: the Trainer with its defaults, which finds the NPU by itself."""

import tempfile

import torch
import transformers

torch.manual_seed(0)
config = transformers.GPT2Config(
    n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=0
)
model = transformers.GPT2LMHeadModel(config)
rows = [{"input_ids": torch.arange(8) + i % 4, "labels": torch.arange(8) + i % 4} for i in range(16)]
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        folder, max_steps=3, per_device_train_batch_size=4, logging_steps=1, report_to=[], save_strategy="no"
    )
    print("device", arguments.device.type)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            print("loss", f"{float(entry['loss']):.5f}")
