"""Models of libraries that are exported: tiny configurations with random weights, made as their users make them.

Each factory imports what it uses: the libraries are in build/libraries, which `make libraries` fills.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn


class Translator(nn.Module):
    """T5 with logits for output: the encoder's words, their mask, and the decoder's words so far."""

    def __init__(self) -> None:
        from transformers import T5Config, T5ForConditionalGeneration

        super().__init__()
        config = T5Config(
            vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
        self.t5 = T5ForConditionalGeneration(config)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, decoder_input_ids: torch.Tensor
    ) -> torch.Tensor:
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "decoder_input_ids": decoder_input_ids}
        return self.t5(**given, use_cache=False).logits


class ImageText(nn.Module):
    """CLIP with what a search needs: the embeddings of both, and the logits of each image for each text."""

    def __init__(self) -> None:
        from transformers import CLIPConfig, CLIPModel

        super().__init__()
        layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        text = {**layers, "vocab_size": 100, "max_position_embeddings": 32, "eos_token_id": 99, "bos_token_id": 98}
        image = {**layers, "image_size": 32, "patch_size": 8}
        self.clip = CLIPModel(CLIPConfig(text_config=text, vision_config=image, projection_dim=16))

    def forward(
        self, input_ids: torch.Tensor, pixel_values: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        made = self.clip(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return made.logits_per_image, made.text_embeds, made.image_embeds


class LlamaStep(nn.Module):
    """Llama as a loop that generates calls it: new words and the past of each layer, for logits and the new past."""

    def __init__(self) -> None:
        from transformers import LlamaForCausalLM

        super().__init__()
        self.llama = LlamaForCausalLM(llama_config())

    def forward(
        self,
        input_ids: torch.Tensor,
        past_key_0: torch.Tensor,
        past_value_0: torch.Tensor,
        past_key_1: torch.Tensor,
        past_value_1: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        from transformers import DynamicCache

        cache = DynamicCache()
        cache.update(past_key_0, past_value_0, 0)
        cache.update(past_key_1, past_value_1, 1)
        made = self.llama(input_ids=input_ids, past_key_values=cache, use_cache=True)
        found = {"logits": made.logits}
        for number, layer in enumerate(made.past_key_values.layers):
            found |= {f"key_{number}": layer.keys, f"value_{number}": layer.values}
        return found


class Decoder(nn.Module):
    """The half of diffusers' AutoencoderKL that makes images of latents."""

    def __init__(self) -> None:
        from diffusers import AutoencoderKL

        super().__init__()
        self.vae = AutoencoderKL(
            down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
            up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
            block_out_channels=(16, 32),
            norm_num_groups=8,
            sample_size=32,
        )

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        return self.vae.decode(latents / self.vae.config.scaling_factor).sample


def llama_config() -> Any:
    """Two layers with two heads of keys for four of queries."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )


def whisper() -> nn.Module:
    """Whisper: the spectrum of a second or less, and the words so far."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=100,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=32,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    return WhisperForConditionalGeneration(config)


def bert() -> nn.Module:
    """BERT with a head that classifies."""
    from transformers import BertForSequenceClassification

    return BertForSequenceClassification(bert_config())


def bert_config() -> Any:
    """Two layers of four heads."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=3,
    )


def gpt2() -> nn.Module:
    """GPT-2 without a cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    return GPT2LMHeadModel(config)


def vit() -> nn.Module:
    """ViT with a head that classifies."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
    return ViTForImageClassification(config)


def qwen2() -> nn.Module:
    """Qwen2 with its mask of padding, without a cache."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    return Qwen2ForCausalLM(config)


def denoiser() -> nn.Module:
    """Stable Diffusion's UNet2DConditionModel."""
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
        norm_num_groups=8,
    )


def timm_model(name: str, **options: Any) -> nn.Module:
    """One of timm's, smaller by the options that its factory takes."""
    import timm

    return timm.create_model(name, pretrained=False, num_classes=10, **options)


def lora() -> nn.Module:
    """BERT with adapters of peft's on queries and values, not merged: as it is trained."""
    from peft import LoraConfig, TaskType, get_peft_model

    return get_peft_model(bert(), LoraConfig(task_type=TaskType.SEQ_CLS, r=4, target_modules=["query", "value"]))


def deeplab() -> nn.Module:
    """torchvision's DeepLabV3 on MobileNetV3."""
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    return deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)


def words(*names: str) -> tuple[str, ...]:
    """The options that let these inputs have other batches and lengths."""
    return tuple(word for name in names for word in ("--dynamic", f"{name}:0,1"))


PAST = ("past_key_0", "past_value_0", "past_key_1", "past_value_1")
IDS, MASK = "input_ids:2,16:int64:100", "attention_mask:2,16:int64"
CONVNEXT = '{"name": "convnext_tiny", "depths": [1, 1, 2, 1], "dims": [8, 16, 32, 64]}'
SWIN = (
    '{"name": "swin_tiny_patch4_window7_224", "img_size": 56, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]}'
)
# Each with its inputs, as `--input` takes them, and other options.
NETWORKS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "t5": (
        "Translator",
        (IDS, MASK, "decoder_input_ids:2,8:int64:100"),
        words("input_ids", "attention_mask", "decoder_input_ids"),
    ),
    "clip": ("ImageText", (IDS, "pixel_values:2,3,32,32", MASK), words("input_ids", "attention_mask")),
    "llama_cache": (
        "LlamaStep",
        ("input_ids:2,4:int64:100", *(f"{name}:2,2,8,8" for name in PAST)),
        (*words("input_ids"), *(word for name in PAST for word in ("--dynamic", f"{name}:0,2"))),
    ),
    "whisper": ("whisper", ("input_features:2,16,64", "decoder_input_ids:2,8:int64:100"), words("decoder_input_ids")),
    "bert": ("bert", (IDS, MASK), words("input_ids", "attention_mask")),
    "gpt2": ("gpt2", (IDS,), words("input_ids")),
    "vit": ("vit", ("pixel_values:1,3,32,32",), ()),
    "qwen2": ("qwen2", (IDS, MASK), words("input_ids", "attention_mask")),
    "unet2d": (
        "denoiser",
        ("sample:2,4,16,16", "timestep:2:int64:1000", "encoder_hidden_states:2,12,16"),
        words("encoder_hidden_states"),
    ),
    "vae_decoder": ("Decoder", ("latents:1,4,16,16",), ()),
    "convnext": ("timm_model", ("x:1,3,64,64",), ("--arguments", CONVNEXT)),
    "swin": ("timm_model", ("x:1,3,56,56",), ("--arguments", SWIN)),
    "mobilevit": ("timm_model", ("x:1,3,64,64",), ("--arguments", '{"name": "mobilevit_xxs"}')),
    "efficientnet": ("timm_model", ("x:1,3,64,64",), ("--arguments", '{"name": "efficientnet_b0"}')),
    "lora": ("lora", (IDS, MASK), words("input_ids", "attention_mask")),
    "deeplab": ("deeplab", ("x:1,3,64,64",), ()),
}


def make(name: str) -> Any:
    """A network with weights of its own: none is left at a zero or a one at which a part of the network does nothing."""
    from torchport import cuda_builds

    cuda_builds.mend_when_imported()
    torch.manual_seed(3)
    factory, _, options = NETWORKS[name]
    arguments = json.loads(options[options.index("--arguments") + 1]) if "--arguments" in options else {}
    model = globals()[factory](**arguments)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.uniform_(-0.2, 0.2)
                module.running_var.uniform_(0.8, 1.5)
    return model
