"""Causal LM pre-training of a tiny Llama with the transformers Trainer."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed


class PackedTokens(Dataset):
    def __init__(self, num_blocks=64, block_size=48, vocab_size=256):
        g = torch.Generator().manual_seed(0)
        start = torch.randint(0, vocab_size, (num_blocks, 1), generator=g)
        stride = torch.randint(1, 7, (num_blocks, 1), generator=g)
        self.blocks = (start + stride * torch.arange(block_size)) % vocab_size

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        ids = self.blocks[i]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def main():
    set_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=172,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)

    with tempfile.TemporaryDirectory() as output_dir:
        args = TrainingArguments(
            output_dir=output_dir, max_steps=5, per_device_train_batch_size=4, logging_steps=1, report_to="none"
        )
        trainer = Trainer(model=model, args=args, train_dataset=PackedTokens())
        trainer.train()

    for record in trainer.state.log_history:
        if "loss" in record:
            print(f"step {record['step']} loss {float(record['loss']):.6f}")


if __name__ == "__main__":
    main()
