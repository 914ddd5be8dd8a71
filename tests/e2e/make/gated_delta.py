"""Models with gated delta nets for torch_dist.py: megatron-core's modules in the layers that have them, and published
weights as these modules hold them. mbridge on PyPI has no such family. What is written here is what megatron-core computes
with (ssm/gated_delta_net.py, transformer/attention.py); logits of it are compared with transformers', and bytes with
Megatron-Bridge's export."""

import copy
import re

import torch

FAMILIES = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
MTP = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "final_layernorm": "norm"}


def config_of(hf):
    return {"experimental_attention_variant": "gated_delta_net", "attention_output_gate": True,
            "linear_attention_freq": [int(kind == "linear_attention") for kind in hf.layer_types],
            "perform_initialization": False, "deterministic_mode": True,  # it would draw on a GPU, compute with Triton
            **{k: getattr(hf, k) for k in ("linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim",
                                           "linear_num_key_heads", "linear_num_value_heads")}}


def normed(x, dim=-1, eps=1e-6):
    return x * torch.rsqrt((x * x).sum(dim=dim, keepdim=True) + eps)


def put_into(layer_specs, config, stage):
    """Of a pipeline's stage: gated delta nets into the layers that have one."""
    from megatron.core.models.backends import LocalSpecProvider
    from megatron.core.models.gpt.experimental_attention_variant_module_specs import get_gated_delta_net_module_spec
    from megatron.core.ssm import gated_delta_net
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    gated_delta_net.HAVE_FLA, gated_delta_net.l2norm = True, normed
    backend = LocalSpecProvider()
    spec = get_gated_delta_net_module_spec(config, backend)
    spec.submodules.in_proj = backend.column_parallel_linear()  # its norm is a module of the layer
    first = get_transformer_layer_offset(config, vp_stage=stage)
    for i in range(len(layer_specs)):
        if config.linear_attention_freq[first + i]:
            layer_specs[i] = copy.deepcopy(layer_specs[i])  # layers that are alike share one
            layer_specs[i].submodules.self_attention = spec


def add_one_to_norms(model):
    """megatron-core has norms that do so in Transformer Engine alone."""
    for norm in [m for m in model.modules() if isinstance(m, torch.nn.RMSNorm)]:
        norm.forward = lambda x, n=norm: torch.nn.functional.rms_norm(x, n.normalized_shape, n.weight + 1, n.eps)


def kept_minus_one(name, size):
    """The weight of a norm as it is stored: what is published of it is one more, rounded."""
    return torch.randn(size, generator=torch.Generator().manual_seed(int(re.search(r"\d+", name)[0]))) * 0.3


def publish_norms(model, dtype):
    with torch.no_grad():
        for name, param in model.named_parameters():
            if name.endswith("linear_attn.norm.weight"):
                param.copy_(kept_minus_one(name, len(param)).to(dtype) + 1)


def published_mtp(tensors, n_layers):
    """The layer behind the others becomes the one for multi-token prediction."""
    model = "model.language_model." if "model.language_model.norm.weight" in tensors else "model."
    out = {n.replace(f"{model}layers.{n_layers}.", "mtp.layers.0."): t for n, t in tensors.items()}
    norm = tensors[model + "norm.weight"]
    out["mtp.fc.weight"] = torch.randn(len(norm), 2 * len(norm)).to(norm.dtype)
    return out | {f"mtp.{n}.weight": torch.randn_like(norm) for n in list(MTP.values())[1:]}


def as_of_decoder(weights, n_layers):
    """The layer for multi-token prediction, named as one behind the others."""
    return {n.replace("mtp.layers.0.", f"model.layers.{n_layers}."): t for n, t in weights.items()}


def blocks(hf, weights):
    """Of one layer: queries, keys, values, gates (z), beta and alpha, each with the heads one below the other."""
    key, value = (getattr(hf, f"linear_{k}_head_dim") for k in ("key", "value"))
    heads, per_head = hf.linear_num_key_heads, hf.linear_num_value_heads // hf.linear_num_key_heads
    if "in_proj_qkvz.weight" in weights:
        sizes = [key, key, per_head * value, per_head * value]
        by_head = weights["in_proj_qkvz.weight"].view(heads, sum(sizes), -1).split(sizes, dim=1)
        by_head += weights["in_proj_ba.weight"].view(heads, 2 * per_head, -1).split([per_head] * 2, dim=1)
        return [part.flatten(0, 1) for part in by_head]
    sizes = [heads * key, heads * key, heads * per_head * value]
    return [*weights["in_proj_qkv.weight"].split(sizes), *(weights[f"in_proj_{p}.weight"] for p in "zba")]


def gated_qkv(hf, q, k, v):
    """Of each group of heads: queries, gates, the key, the value."""
    groups, width = hf.num_key_value_heads, hf.head_dim
    q = q.view(groups, -1, 2, width, *q.shape[1:]).transpose(1, 2).flatten(1, 3)
    return torch.cat([q, *(t.view(groups, width, *t.shape[1:]) for t in (k, v))], dim=1).flatten(0, 1)


def local(hf, name, weights, rank, ranks, dtype):
    """What a rank's parameter of this name (that of the whole model) holds; None = mbridge converts it."""
    layer, _, within = name.removeprefix("decoder.layers.").partition(".self_attention.")
    if name.startswith("mtp.layers.0."):
        wrapping = name.removeprefix("mtp.layers.0.").removesuffix(".weight")
        if wrapping in MTP:
            whole = weights[f"mtp.{MTP[wrapping]}.weight"]
            return whole.chunk(ranks)[rank] if wrapping == "eh_proj" else whole
        layer, within = str(hf.num_hidden_layers), within or name.partition(".self_attention.")[2]
    before = f"model.layers.{layer}."
    mine = {n.removeprefix(before + "linear_attn."): t for n, t in weights.items() if n.startswith(before + "linear_attn.")}
    if within == "linear_qkv.weight":
        return gated_qkv(hf, *(weights[f"{before}self_attn.{p}_proj.weight"] for p in "qkv")).chunk(ranks)[rank]
    if within == "in_proj.weight":
        return torch.cat([part.chunk(ranks)[rank] for part in blocks(hf, mine)])
    if within == "conv1d.weight":
        key, value = (getattr(hf, f"linear_num_{k}_heads") * getattr(hf, f"linear_{k}_head_dim") for k in ("key", "value"))
        return torch.cat([part.chunk(ranks)[rank] for part in mine["conv1d.weight"].split([key, key, value])])
    if within == "out_norm.weight":
        return kept_minus_one(before, len(mine["norm.weight"])).to(dtype)
    if within == "out_proj.weight":
        return mine[within].chunk(ranks, dim=1)[rank]
    return mine[within].chunk(ranks)[rank] if within in ("A_log", "dt_bias") else None
