"""vector_quantize_pytorch and x_transformers: a codebook and a decoder, with their guards of flash kernels."""

import torch
import vector_quantize_pytorch
import x_transformers

torch.manual_seed(0)
quantizer = vector_quantize_pytorch.VectorQuantize(dim=8, codebook_size=16).to("npu")
made, indices, commit = quantizer(torch.randn(2, 6, 8).to("npu"))
print("codes", tuple(indices.shape), f"{commit.item():.4f}")
model = x_transformers.TransformerWrapper(
    num_tokens=32, max_seq_len=16, attn_layers=x_transformers.Decoder(dim=16, depth=1, heads=2, attn_flash=True)
).to("npu")
loss = torch.nn.functional.cross_entropy(
    model(torch.arange(8).repeat(2, 1).to("npu")).flatten(0, 1), torch.arange(8).repeat(2).to("npu")
)
loss.backward()
print("loss", f"{loss.item():.4f}")
