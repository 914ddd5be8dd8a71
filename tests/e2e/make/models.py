"""Tiny models with awkward shapes. Their sizes do not divide by 2, 3 or 4, so that shards are uneven."""

import torch
import torch.nn as nn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
VOCAB = 101


def add_oddities(model, base):
    """A frozen parameter, a float buffer and a 0-d integer buffer, as real models have."""
    base.layers[1].input_layernorm.weight.requires_grad_(False)
    base.register_buffer("extra_buf", torch.arange(7, dtype=torch.float32) / 3)
    base.register_buffer("extra_count", torch.tensor(41, dtype=torch.int64))
    return model


def llama(dtype, tie):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=50, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        tie_word_embeddings=tie, bos_token_id=1, eos_token_id=2, pad_token_id=0, dtype=dtype)
    model = LlamaForCausalLM(config).to(dtype)
    return add_oddities(model, model.model)


def even_llama(dtype):
    """The same with a tied head, and nothing but parameters that are all trained."""
    model = llama(dtype, tie=True)
    for layer in model.model.layers:
        layer.input_layernorm.weight.requires_grad_(True)
    for name in [n for n, _ in model.model.named_buffers(recurse=False)]:
        delattr(model.model, name)
    return model


def small_llama(dtype):
    """What ships in tests/golden/run: nothing odd about it, and few kilobytes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=20, intermediate_size=30, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        dtype=dtype)).to(dtype)


def mixtral(dtype):
    """A mixture of experts whose published tensor names differ from those in memory."""
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2,
        max_position_embeddings=64, tie_word_embeddings=False,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, dtype=dtype)
    return MixtralForCausalLM(config).to(dtype)


def llava(dtype):
    """A vision tower, a projector and a language model; fed with text alone here."""
    from transformers import (CLIPVisionConfig, LlamaConfig, LlavaConfig,
                              LlavaForConditionalGeneration)

    torch.manual_seed(0)
    vision = CLIPVisionConfig(hidden_size=20, intermediate_size=34, num_hidden_layers=2,
                              num_attention_heads=2, image_size=8, patch_size=4)
    text = LlamaConfig(vocab_size=VOCAB, hidden_size=24, intermediate_size=50, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                       bos_token_id=1, eos_token_id=2, pad_token_id=0)
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=99,
                         vision_feature_layer=-1, tie_word_embeddings=False, dtype=dtype)
    return LlavaForConditionalGeneration(config).to(dtype)


def value_head(dtype):
    """A critic: a language model with one number per token instead of words."""
    from transformers import LlamaConfig, LlamaForTokenClassification

    torch.manual_seed(0)
    return LlamaForTokenClassification(LlamaConfig(
        vocab_size=VOCAB, hidden_size=20, intermediate_size=30, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, num_labels=1,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, dtype=dtype)).to(dtype)


class LoraLinear(nn.Module):
    """One adapted layer, named as PEFT names it."""

    def __init__(self, layer, rank=3):
        super().__init__()
        self.base_layer = layer.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(layer.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, layer.out_features, bias=False)})

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


class Lora(nn.Module):
    """A small llama of which adapters alone are trained."""

    def __init__(self, dtype):
        super().__init__()
        model = small_llama(dtype).requires_grad_(False)
        for layer in model.model.layers:
            for name in ("q_proj", "v_proj"):
                setattr(layer.self_attn, name, LoraLinear(getattr(layer.self_attn, name)))
        self.base_model = nn.ModuleDict({"model": model})
        self.peft_type = "LORA"

    def forward(self, ids):
        return self.base_model["model"](ids)


class Odd(nn.Module):
    """Uneven rows, one row, 1-d, 3-d, a tied head, BatchNorm's buffers, a frozen parameter."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(1)
        self.emb = nn.Embedding(13, 10, dtype=dtype)
        self.layers = nn.ModuleList([nn.Linear(10, 10, dtype=dtype) for _ in range(2)])
        self.conv = nn.Conv1d(10, 7, 3, padding=1, dtype=dtype)
        self.down = nn.Linear(7, 10, bias=False, dtype=dtype)
        self.norm = nn.BatchNorm1d(10, dtype=dtype)
        self.one_row = nn.Parameter(torch.randn(1, 10, dtype=dtype))
        self.frozen = nn.Parameter(torch.randn(5, dtype=dtype), requires_grad=False)
        self.head = nn.Linear(10, 13, bias=False, dtype=dtype)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.emb(ids)
        for layer in self.layers:
            x = torch.relu(layer(x)) + self.one_row
        x = self.down(self.conv(x.transpose(1, 2)).transpose(1, 2))
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))


def train(model, optimizer, backward=lambda loss: loss.backward(), steps=2):
    for i in range(steps):
        optimizer.zero_grad()
        ids = torch.arange(6).reshape(1, 6) + i
        backward(model(ids).float().square().mean())
        optimizer.step()
