"""peft: low-rank adapters on a small model; it asks accelerate and transformers for the device."""

import peft
import torch
import transformers

torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
)
model = peft.get_peft_model(
    transformers.LlamaForCausalLM(config), peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
).to("npu")
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
words = torch.arange(8).repeat(2, 1).to("npu")
for _ in range(2):
    loss = model(input_ids=words, labels=words).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", f"{loss.item():.5f}")
