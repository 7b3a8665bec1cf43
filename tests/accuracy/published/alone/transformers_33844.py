"""Small M2M100 translation-like training with a validation pass after every ten steps.

The attention kernel is a plug-in (transformers' AttentionInterface).
"""

import argparse
import logging

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, M2M100Config, M2M100ForConditionalGeneration

logging.getLogger("transformers").setLevel(logging.ERROR)


def fused_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kw):
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


def fused_attention_module_rate(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kw):
    # takes the rate that the layer was built with
    return fused_attention(module, query, key, value, attention_mask, scaling=scaling, dropout=module.dropout)


def batch(gen, n=16):
    src = torch.randint(4, 30, (n, 8), generator=gen)
    cols = [src[:, 0]]
    for _ in range(7):
        cols.append(4 + (cols[-1] * 5 + 3) % 26)
    tgt = torch.stack(cols, 1)
    dec_in = torch.cat([torch.full((n, 1), 2), tgt[:, :-1]], 1)
    return src, dec_in, tgt


def run_split(model, data):
    src, dec_in, tgt = (t.to("cuda") for t in data)
    out = model(input_ids=src, attention_mask=torch.ones_like(src), decoder_input_ids=dec_in, use_cache=False)
    return F.cross_entropy(out.logits.flatten(0, 1), tgt.flatten())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    fault = ap.parse_args().fault
    AttentionInterface.register("fused", fused_attention_module_rate if fault else fused_attention)

    torch.manual_seed(33844)
    cfg = M2M100Config(
        vocab_size=32,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=32,
        dropout=0.0,
        attention_dropout=0.4,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        init_std=0.1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
    )
    cfg._attn_implementation = "fused"
    model = M2M100ForConditionalGeneration(cfg).to("cuda")
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train_gen = torch.Generator().manual_seed(1)
    held_out = [batch(torch.Generator().manual_seed(900 + i)) for i in range(2)]
    best = float("inf")
    for step in range(1, 31):
        model.train()
        loss = run_split(model, batch(train_gen))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            model.eval()
            with torch.no_grad():
                scores = [torch.stack([run_split(model, b) for b in held_out]).mean().item() for _ in range(2)]
            note = ""
            if scores[0] < best:
                best, note = scores[0], " (best so far)"
            print(f"step {step} train {loss.item():.4f} valid {scores[0]:.5f} again {scores[1]:.5f}{note}")


if __name__ == "__main__":
    main()
