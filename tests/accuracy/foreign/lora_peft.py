"""LoRA fine-tuning of a tiny Llama with peft in a plain PyTorch loop, then merging the adapter."""

import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
pad_token_id, vocab_size = 0, 256


def collate_fn(samples):
    width = max(len(s) for s in samples)
    input_ids = torch.full((len(samples), width), pad_token_id)
    attention_mask = torch.zeros(len(samples), width, dtype=torch.long)
    for row, s in enumerate(samples):
        input_ids[row, width - len(s) :] = s
        attention_mask[row, width - len(s) :] = 1
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


g = torch.Generator().manual_seed(0)
samples = []
for _ in range(24):
    length = int(torch.randint(10, 30, (1,), generator=g))
    samples.append((int(torch.randint(2, 100, (1,), generator=g)) + 2 * torch.arange(length)) % (vocab_size - 1) + 1)
loader = DataLoader(samples, batch_size=4, shuffle=True, collate_fn=collate_fn)

base = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=pad_token_id,
        use_cache=False,
    )
)
peft_config = LoraConfig(
    task_type=TaskType.CAUSAL_LM,
    r=8,
    lora_alpha=16,
    lora_dropout=0.05,
    target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
    modules_to_save=["lm_head"],
)
model = get_peft_model(base, peft_config).to(device)
model.print_trainable_parameters()

optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-3)
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=len(loader) + 1)
model.train()
for step, batch in enumerate(loader):
    batch = {k: v.to(device) for k, v in batch.items()}
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.6f}")

model.eval()
merged = model.merge_and_unload()
with torch.no_grad():
    print(f"merged loss {merged(**batch).loss.item():.6f}")
